"""Independent engines agree with the files that the registry lists, after every kind of change."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import daft
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from builders import ORDERS
from ice import INT, SHOP, STRING, IceLake, duck, open_ice, shop_rows, write_file
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, Primitive
from lakebed.iceberg.commit.committer import Committer
from lakebed.iceberg.commit.merging import MergeLimits
from lakebed.iceberg.types.schemas import INSTANCE_COLUMN
from lakebed.lake import connect
from lakebed.staging.register import register_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from conftest import Databases

LOW, HIGH = 1_005, 3_010


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What every engine is asked: all rows, a range of ids that cuts through files, and one country."""

    rows: int
    total: float
    in_range: int
    in_country: int


@lru_cache(maxsize=1)
def shared_duck() -> DuckDBPyConnection:
    """Loading the extension takes longer than all the questions."""
    return duck()


@pytest.fixture
def kind() -> str:
    """Readers never see the database: one is enough."""
    return "sqlite"


@pytest.fixture(autouse=True)
def _plain_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polars warns when its own planner is not installed."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")


def _truth(ice: IceLake, country: str) -> Answer:
    """From the live files themselves, by their physical names."""
    tables = [pq.read_table(f.file_path).select(["id", "amount", "country"]) for f in ice.lake.files.list(str(ORDERS))]
    return _ask_arrow(pa.concat_tables(tables, promote_options="permissive"), country, "country")


def _ask_arrow(rows: pa.Table, country: str, column: str) -> Answer:
    ids = rows["id"]
    in_range = pc.and_(pc.greater_equal(ids, LOW), pc.less(ids, HIGH))
    return Answer(
        rows=rows.num_rows,
        total=pc.sum(rows["amount"]).as_py(),
        in_range=rows.filter(in_range).num_rows,
        in_country=rows.filter(pc.equal(rows[column], country)).num_rows,
    )


def ask_pyiceberg(ice: IceLake, country: str, column: str) -> Answer:
    table = ice.static()
    return Answer(
        rows=table.scan().to_arrow().num_rows,
        total=pc.sum(table.scan().to_arrow()["amount"]).as_py(),
        in_range=table.scan(row_filter=f"id >= {LOW} and id < {HIGH}").to_arrow().num_rows,
        in_country=table.scan(row_filter=f"{column} = '{country}'").to_arrow().num_rows,
    )


def ask_duckdb(ice: IceLake, country: str, column: str) -> Answer:
    execute = shared_duck().execute
    scan = f"iceberg_scan('{ice.base().location}')"
    found = execute(f"SELECT count(*), sum(amount) FROM {scan}").fetchone()
    in_range = execute(f"SELECT count(*) FROM {scan} WHERE id >= {LOW} AND id < {HIGH}").fetchone()
    in_country = execute(f"SELECT count(*) FROM {scan} WHERE {column} = ?", [country]).fetchone()
    assert found is not None
    assert in_range is not None
    assert in_country is not None
    return Answer(rows=found[0], total=found[1], in_range=in_range[0], in_country=in_country[0])


def ask_polars(ice: IceLake, country: str, column: str) -> Answer:
    table = pl.scan_iceberg(ice.base().location)
    return Answer(
        rows=table.select(pl.len()).collect().item(),
        total=table.select(pl.col("amount").sum()).collect().item(),
        in_range=table.filter((pl.col("id") >= LOW) & (pl.col("id") < HIGH)).select(pl.len()).collect().item(),
        in_country=table.filter(pl.col(column) == country).select(pl.len()).collect().item(),
    )


def ask_daft(ice: IceLake, country: str, column: str) -> Answer:
    """Rows are fetched: its count of a filtered table forgets the filter on a partition column."""
    table = daft.read_iceberg(ice.static())
    return Answer(
        rows=len(table.to_pydict()["id"]),
        total=math.fsum(table.to_pydict()["amount"]),
        in_range=len(table.where(f"id >= {LOW} AND id < {HIGH}").to_pydict()["id"]),
        in_country=len(table.where(f"{column} = '{country}'").to_pydict()["id"]),
    )


ENGINES = (ask_pyiceberg, ask_duckdb, ask_polars, ask_daft)
KNOW_RENAMES = (ask_pyiceberg, ask_duckdb, ask_polars)  # Daft 0.6 gives NULL for a renamed column, also where PyIceberg wrote the table


def _require_agreement(ice: IceLake, country: str = "DE", column: str = "country") -> None:
    truth = _truth(ice, country)
    for ask in ENGINES if column == "country" else KNOW_RENAMES:
        assert ask(ice, country, column) == truth, ask.__name__


@pytest.mark.parametrize("partition_by", [(), ("day(ts)", "country"), ("bucket(4, country)", "month(ts)")])
def test_after_append_retire_replace_and_evolution(ice: IceLake, partition_by: tuple[str, ...]) -> None:
    ice.create(partition_by=partition_by)
    gone = ice.write(1, country="DE")
    ice.write(2, country="FR", day=1)
    ice.write(3, country="DE", day=2)
    ice.seal()
    ice.advance()
    _require_agreement(ice)

    ice.retire(gone.partition_id)
    ice.advance()
    _require_agreement(ice)

    old = ice.write(4, country="IT", day=3)
    ice.seal()
    ice.advance()
    ice.write(5, country="DE", day=3, replacing=frozenset({old.partition_id}))
    ice.advance()
    _require_agreement(ice)

    ice.evolve(lambda fields: [*fields, Field(field_id=5, name="note", type=STRING)])
    ice.insert(6, country="FR")
    _require_agreement(ice, "FR")

    ice.evolve(lambda fields: [replace(f, name="nation") if f.name == "country" else f for f in fields])
    ice.insert(7, country="DE")
    _require_agreement(ice, "DE", "nation")


@pytest.mark.parametrize("partition_by", [(), ("country", "day(ts)")])
def test_after_merges_in_tiers_and_removals_from_them(ice: IceLake, partition_by: tuple[str, ...]) -> None:
    ice.committer = Committer(ice.lake.registry, ice.lake.storage, ice.catalog, limits=MergeLimits(merge_at=2, full_files=8))
    ice.create(partition_by=partition_by)
    published = []
    for number in range(1, 13):
        published.append(ice.write(number, country="DE" if number % 2 else "FR", day=number % 3))
        ice.seal()
        ice.advance()
    assert len(ice.manifests()) < 8
    _require_agreement(ice)

    for number in (0, 2, 5, 6):
        ice.retire(published[number].partition_id)
        ice.advance()
    assert sum(m.deleted_files_count for m in ice.manifests()) == 1
    _require_agreement(ice)

    ice.insert(20, country="DE")
    ice.insert(21, country="FR")
    _require_agreement(ice)


def test_after_a_promotion_old_bounds_still_prune_rightly(ice: IceLake) -> None:
    ice.create(schema=Schema(fields=tuple(replace(f, type=INT) if f.name == "id" else f for f in SHOP.fields)))
    ice.insert(1)
    ice.insert(3)
    ice.evolve(lambda fields: [replace(f, type=Primitive(name="long")) if f.name == "id" else f for f in fields])
    ice.insert(5_000_000)

    _require_agreement(ice)


def test_every_engine_gives_the_instance_that_no_file_holds(ice: IceLake) -> None:
    ice.create(kind="view_set")
    ice.insert(1)
    ice.insert(2, instance="b")
    expected = {"global": 20, "b": 20}
    location = ice.base().location

    sql = f"SELECT {INSTANCE_COLUMN}, count(*) FROM iceberg_scan('{location}') GROUP BY 1"
    assert dict(shared_duck().execute(sql).fetchall()) == expected
    assert dict(pl.scan_iceberg(location).group_by(INSTANCE_COLUMN).len().collect().rows()) == expected
    found = daft.read_iceberg(ice.static()).to_pydict()[INSTANCE_COLUMN]
    assert {instance: found.count(instance) for instance in set(found)} == expected
    seen = ice.static().scan().to_arrow()[INSTANCE_COLUMN].to_pylist()
    assert {instance: seen.count(instance) for instance in set(seen)} == expected
    assert ask_duckdb(ice, "b", INSTANCE_COLUMN).in_country == 20
    assert ask_polars(ice, "b", INSTANCE_COLUMN).in_country == 20


def test_files_adopted_by_name_are_read_by_every_engine_that_knows_name_mapping(ice: IceLake) -> None:
    table = ice.create()
    rows = shop_rows(SHOP, 2)
    path = write_file(ice.lake, table, pa.table(dict(zip([f.name for f in SHOP.fields], rows.columns, strict=True))))
    register_files(ice.lake.registry, ice.lake.storage, table, [path], adopt=True)
    ice.seal()
    ice.advance()

    truth = _truth(ice, "DE")

    for ask in (ask_pyiceberg, ask_duckdb, ask_polars):
        assert ask(ice, "DE", "country") == truth, ask.__name__


@pytest.fixture
def odd_ice(databases: Databases, tmp_path: Path) -> Iterator[IceLake]:
    """A warehouse whose path holds what a URI would escape."""
    with connect(databases.new("sqlite"), warehouse=str(tmp_path / "ware house 50%20 ü")) as lake:
        opened = open_ice(lake)
        yield opened
        opened.close()


def test_locations_are_read_as_they_are_spelled(odd_ice: IceLake) -> None:
    odd_ice.create(partition_by=("country",))
    odd_ice.insert(1, country="DE")
    odd_ice.insert(2, country="a/b=c ü%20")

    _require_agreement(odd_ice, "a/b=c ü%20")


def test_time_travel_agrees_across_engines(ice: IceLake) -> None:
    ice.create()
    first = ice.insert(1)
    ice.insert(2)
    assert first.snapshot_id is not None
    counts: list[Callable[[], int]] = [
        lambda: ice.static().scan(snapshot_id=first.snapshot_id).to_arrow().num_rows,
        lambda: pl.scan_iceberg(ice.base().location, snapshot_id=first.snapshot_id).select(pl.len()).collect().item(),
        lambda: len(daft.read_iceberg(ice.static(), snapshot_id=first.snapshot_id).to_pydict()["id"]),
        lambda: _duck_at(ice, first.snapshot_id or 0),
    ]

    assert [count() for count in counts] == [20, 20, 20, 20]


def _duck_at(ice: IceLake, snapshot_id: int) -> int:
    sql = f"SELECT count(*) FROM iceberg_scan('{ice.base().location}', snapshot_from_id => {snapshot_id})"
    found = shared_duck().execute(sql).fetchone()
    assert found is not None
    return int(found[0])
