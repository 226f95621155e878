"""An earlier state has the columns of then, in every reader alike, and rolling back brings them back."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from ice import duck
from lakebed.core.errors import RollbackRefusedError, SchemaRefusedError
from lakebed.core.schema.altering import AddColumn, Change, DropColumn, RenameColumn, WidenColumn
from lakebed.core.schema.types import Primitive
from lakebed.lake import connect
from lakebed.registry.snapshots.history import list_snapshots

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from lakebed.lake import Lake

ITEMS = "shop.items"
FIRST = """SELECT CAST(id AS INT) AS id, concat('n', id) AS name, id * 0.5D AS amount,
named_struct('street', concat('s', id), 'no', CAST(id AS INT)) AS address,
array(named_struct('sku', concat('k', id), 'n', CAST(id AS INT))) AS lines FROM range(4)"""
STRING, LONG = Primitive(name="string"), Primitive(name="long")
CHANGES: dict[str, tuple[Change, ...]] = {
    "drop": (DropColumn(column="amount"),),
    "swap": (RenameColumn(column="id", to="x"), RenameColumn(column="address", to="id"), RenameColumn(column="x", to="address")),
    "nested": (
        DropColumn(column="address.no"), RenameColumn(column="address.street", to="road"), AddColumn(column="lines.element.a", type=STRING),
        WidenColumn(column="lines.element.n", type=LONG),
    ),
    "everything": (
        DropColumn(column="name"), RenameColumn(column="amount", to="price"), AddColumn(column="note", type=STRING),
        WidenColumn(column="id", type=LONG), DropColumn(column="lines.element.n"),
    ),
}  # fmt: skip
READDED: tuple[Change, ...] = (DropColumn(column="amount"), AddColumn(column="amount", type=STRING))


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a reader saw, and the three ways to name that moment."""

    snapshot_id: int
    number: int
    moment: datetime
    types: list[tuple[str, str]]
    rows: list[Any]

    @property
    def names(self) -> tuple[int | datetime, ...]:
        return (self.snapshot_id, self.number, self.moment)


@pytest.fixture
def shop(url: str, tmp_path: Path, spark: SparkSession) -> Iterator[Lake]:
    with connect(url, warehouse=str(tmp_path / "warehouse"), spark=spark, service="auto") as opened:
        opened.create_table(ITEMS, like=spark.sql(FIRST))
        yield opened


def fill(lake: Lake, frame: DataFrame | None = None) -> State:
    """Insert rows, and keep what is seen right after."""
    done = lake.insert(ITEMS, lake.spark.sql(FIRST) if frame is None else frame, metadata_mode="sync")
    assert done.snapshot_id is not None
    seen = lake.read(ITEMS)
    state = State(
        snapshot_id=done.snapshot_id, number=done.journal_number, moment=datetime.now(UTC), types=seen.dtypes, rows=rows_of(seen)
    )  # fmt: skip
    wait_past(state.moment)
    return state


def wait_past(moment: datetime) -> None:
    """SQLite's journal knows milliseconds: what follows happens in another one."""
    while (datetime.now(UTC) - moment).total_seconds() < 0.002:
        time.sleep(0)


def rows_of(frame: DataFrame) -> list[Any]:
    return sorted((row.asDict(recursive=True) for row in frame.collect()), key=repr)


def cut(value: Any, like: Any) -> Any:
    """Only the columns that `like` has, at every depth."""
    match like:
        case dict():
            return {name: cut(value[name], inner) for name, inner in like.items()}
        case list():
            return [cut(one, like[0]) for one in value]
        case _:
            return value


def empty_like(lake: Lake) -> DataFrame:
    """Rows for the table as it is: all NULL but for the key."""
    return lake.read(ITEMS).limit(1)


def alter(lake: Lake, *changes: Change) -> None:
    lake.columns.alter(ITEMS, *changes)


def iceberg_table(lake: Lake) -> StaticTable:
    newest = list_snapshots(lake.registry, lake.table(ITEMS).table_id)[-1]
    return StaticTable.from_metadata(newest.metadata_location)


def small(kind: pa.DataType) -> pa.DataType:
    """PyIceberg's large types as Spark's own."""
    if pa.types.is_struct(kind):
        return pa.struct([(f.name, small(f.type)) for f in kind])
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(pa.field("element", small(kind.value_type)))
    return pa.string() if pa.types.is_large_string(kind) else kind


def shape(schema: pa.Schema) -> list[tuple[str, str]]:
    return [(f.name, str(small(f.type))) for f in schema]


def assert_same_as_pyiceberg(lake: Lake, snapshot_id: int) -> None:
    theirs = iceberg_table(lake).scan(snapshot_id=snapshot_id).to_arrow()
    ours = lake.read(ITEMS, as_of=snapshot_id)
    assert shape(theirs.schema) == shape(ours.toArrow().schema)
    assert sorted(theirs.to_pylist(), key=repr) == rows_of(ours)


@pytest.mark.parametrize("changes", [*CHANGES.values(), READDED], ids=[*CHANGES, "drop and add again"])
def test_an_earlier_state_has_the_columns_of_then(shop: Lake, changes: tuple[Change, ...]) -> None:
    before = fill(shop)
    for change in [changes] if changes is not READDED else [(one,) for one in changes]:
        alter(shop, *change)
    changed = shop.read(ITEMS).dtypes
    after = fill(shop, empty_like(shop))

    assert changed != before.types
    for then in before.names:
        assert shop.read(ITEMS, as_of=then).dtypes == before.types
        assert rows_of(shop.read(ITEMS, as_of=then)) == before.rows
    for then in after.names:
        assert shop.read(ITEMS, as_of=then).dtypes == changed
        assert rows_of(shop.read(ITEMS, as_of=then)) == after.rows
    assert_same_as_pyiceberg(shop, before.snapshot_id)
    assert_same_as_pyiceberg(shop, after.snapshot_id)


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_rolling_back_brings_the_columns_back_under_their_ids(shop: Lake, changes: tuple[Change, ...]) -> None:
    before, ids = fill(shop), shop.table(ITEMS).schema.by_id
    alter(shop, *changes)
    since = fill(shop, empty_like(shop))
    last_column_id = iceberg_table(shop).metadata.last_column_id

    done = shop.snapshots.rollback(ITEMS, before.snapshot_id)
    now = shop.snapshot(ITEMS)

    assert now is not None
    old = [name for name, _ in before.types]
    assert shop.read(ITEMS).columns[: len(old)] == old
    assert sorted((cut(row, before.rows[0]) for row in rows_of(shop.read(ITEMS))), key=repr) == before.rows
    assert {i: f.name for i, f in ids.items()}.items() <= {i: f.name for i, f in shop.table(ITEMS).schema.by_id.items()}.items()
    assert done.schema == shop.table(ITEMS).schema
    for then in since.names:
        assert shop.read(ITEMS, as_of=then).dtypes == since.types
        assert rows_of(shop.read(ITEMS, as_of=then)) == since.rows
    assert_same_as_pyiceberg(shop, now)
    assert_same_as_pyiceberg(shop, since.snapshot_id)
    assert iceberg_table(shop).metadata.last_column_id == last_column_id
    assert shop.check(deep=True).clean


def test_columns_added_since_stay_and_are_null_in_the_old_rows(shop: Lake) -> None:
    before = fill(shop)
    alter(shop, AddColumn(column="note", type=STRING), DropColumn(column="amount"))
    fill(shop, shop.spark.sql(f"SELECT id, name, address, lines, 'x' AS note FROM ({FIRST})"))

    shop.snapshots.rollback(ITEMS, before.snapshot_id)

    assert shop.read(ITEMS).columns == ["id", "name", "amount", "address", "lines", "note"]
    assert {(row.amount is None, row.note) for row in shop.read(ITEMS).collect()} == {(False, None)}
    shop.insert(ITEMS, shop.spark.sql(f"SELECT *, 'y' AS note FROM ({FIRST})"))
    assert sorted(row.note or "" for row in shop.read(ITEMS).collect()) == [""] * 4 + ["y"] * 4
    assert shop.check(deep=True).clean


def test_a_type_that_was_widened_since_stays_wide(shop: Lake) -> None:
    before = fill(shop)
    alter(shop, WidenColumn(column="id", type=LONG))
    fill(shop, shop.spark.sql(f"SELECT 5000000000L AS id, name, amount, address, lines FROM ({FIRST})"))

    shop.snapshots.rollback(ITEMS, before.snapshot_id)

    assert dict(shop.read(ITEMS).dtypes)["id"] == "bigint"
    assert dict(shop.read(ITEMS, as_of=before.snapshot_id).dtypes)["id"] == "int"
    assert sorted(row.id for row in shop.read(ITEMS).collect()) == [0, 1, 2, 3]
    assert shop.check(deep=True).clean


def test_an_old_name_that_another_column_has_now_is_refused_and_nothing_changes(shop: Lake) -> None:
    before = fill(shop)
    alter(shop, DropColumn(column="amount"))
    alter(shop, AddColumn(column="amount", type=STRING))
    schema = shop.table(ITEMS).schema

    with pytest.raises(RollbackRefusedError, match=r"amount was field 3 then and is field \d+ now") as caught:
        shop.snapshots.rollback(ITEMS, before.snapshot_id)

    assert (caught.value.table, caught.value.snapshot_id) == (ITEMS, before.snapshot_id)
    assert shop.table(ITEMS).schema == schema
    alter(shop, RenameColumn(column="amount", to="amount_text"))
    shop.snapshots.rollback(ITEMS, before.snapshot_id)
    assert shop.read(ITEMS).columns == [*(name for name, _ in before.types), "amount_text"]
    assert shop.check(deep=True).clean


def test_rolled_back_files_of_several_versions_are_compacted_and_deleted_from_like_any(shop: Lake) -> None:
    fill(shop)
    alter(shop, DropColumn(column="amount"), AddColumn(column="note", type=STRING))
    mixed = fill(shop, shop.spark.sql(f"SELECT id + 10 AS id, name, address, lines, 'x' AS note FROM ({FIRST})"))
    alter(shop, RenameColumn(column="note", to="remark"))

    shop.snapshots.rollback(ITEMS, mixed.snapshot_id)
    assert (shop.read(ITEMS).dtypes, rows_of(shop.read(ITEMS))) == (mixed.types, mixed.rows)

    shop.delete(ITEMS, where="id IN (1, 11)")
    assert shop.compact(ITEMS).files_before > 0
    shop.snapshot(ITEMS)
    assert rows_of(shop.read(ITEMS)) == [row for row in mixed.rows if row["id"] not in {1, 11}]
    assert shop.check(deep=True).clean


def test_filters_and_columns_name_the_columns_of_then(shop: Lake) -> None:
    before = fill(shop)
    alter(shop, RenameColumn(column="amount", to="price"), DropColumn(column="name"), RenameColumn(column="id", to="key"))

    assert shop.read(ITEMS, as_of=before.number, where="amount >= 1.0 AND name = 'n2'").count() == 1
    assert shop.read(ITEMS, as_of=before.number, columns=["amount"]).columns == ["amount"]
    with pytest.raises(SchemaRefusedError, match="price"):
        shop.read(ITEMS, as_of=before.number, columns=["price"])
    asked = f"SELECT sum(amount) AS total FROM {ITEMS} WHERE name >= 'n2'"
    assert [row.total for row in shop.sql(asked, as_of=before.moment).collect()] == [2.5]
    (scan,) = shop.explain(f"SELECT * FROM {ITEMS} WHERE id > 100", as_of=before.moment).scans
    assert (scan.files, scan.conditions) == (0, ("id in [101, ...]",))


def test_a_change_of_columns_alone_is_a_moment_of_its_own(shop: Lake) -> None:
    before = fill(shop)
    alter(shop, RenameColumn(column="amount", to="price"))
    between = datetime.now(UTC)
    wait_past(between)
    alter(shop, RenameColumn(column="price", to="cost"))

    assert "price" in shop.read(ITEMS, as_of=between).columns
    assert "amount" in shop.read(ITEMS, as_of=before.moment).columns
    assert "cost" in shop.read(ITEMS, as_of=datetime.now(UTC)).columns
    assert rows_of(shop.read(ITEMS, as_of=between).withColumnRenamed("price", "amount")) == before.rows


def test_the_current_snapshot_is_read_with_the_columns_of_now(shop: Lake) -> None:
    before = fill(shop)
    alter(shop, RenameColumn(column="amount", to="price"))
    assert shop.drain(60)

    assert "price" in shop.read(ITEMS, as_of="snapshot").columns
    assert "amount" in shop.read(ITEMS, as_of=before.snapshot_id).columns
    assert_same_as_pyiceberg(shop, before.snapshot_id)


def test_duckdb_sees_the_same_columns_at_every_snapshot(shop: Lake) -> None:
    before = fill(shop)
    alter(shop, *CHANGES["everything"])
    since = fill(shop, empty_like(shop))
    shop.snapshots.rollback(ITEMS, before.snapshot_id)
    now = shop.snapshot(ITEMS)

    location = list_snapshots(shop.registry, shop.table(ITEMS).table_id)[-1].metadata_location
    with duck() as engine:
        for snapshot_id in (before.snapshot_id, since.snapshot_id, now):
            theirs = engine.execute(f"SELECT * FROM iceberg_scan('{location}', snapshot_from_id => {snapshot_id})").to_arrow_table()
            ours = shop.read(ITEMS, as_of=snapshot_id)
            assert theirs.column_names == ours.columns
            assert sorted(theirs.to_pylist(), key=repr) == rows_of(ours)


def test_views_that_a_rollback_breaks_are_named(shop: Lake) -> None:
    before = fill(shop)
    alter(shop, RenameColumn(column="amount", to="price"))
    shop.create_view_set("shop.priced", over=ITEMS, sql=f"SELECT id, price FROM {ITEMS}")
    shop.create_view_set("shop.all_of_it", over=ITEMS, sql=f"SELECT * FROM {ITEMS}")
    shop.create_view_set("shop.named", over=ITEMS, sql=f"SELECT id, name FROM {ITEMS}")

    planned = shop.snapshots.rollback(ITEMS, before.snapshot_id, dry_run=True)
    assert "price" in shop.read(ITEMS).columns
    done = shop.snapshots.rollback(ITEMS, before.snapshot_id)

    assert planned.broken_views == done.broken_views == ("shop.all_of_it", "shop.priced")
    for view in done.broken_views:
        with pytest.raises(Exception, match="price"):
            shop.materialize(view).raise_failed()
    shop.materialize("shop.named").raise_failed()
    assert shop.read("shop.named").count() == 4


def test_a_view_set_is_read_by_number_and_time_as_its_old_definition_had_it(shop: Lake) -> None:
    fill(shop)
    shop.create_view_set("shop.totals", over=ITEMS, sql=f"SELECT id, amount FROM {ITEMS}")
    shop.materialize("shop.totals").raise_failed()
    old = rows_of(shop.read("shop.totals"))
    number, moment = shop.files.plan("shop.totals").journal_number, datetime.now(UTC)
    wait_past(moment)
    shop.create_view_set("shop.totals", over=ITEMS, sql=f"SELECT id, amount * 2 AS twice FROM {ITEMS}", promote="now")
    shop.materialize("shop.totals").raise_failed()

    assert shop.read("shop.totals").columns == ["id", "twice"]
    for then in (number, moment):
        assert rows_of(shop.read("shop.totals", as_of=then)) == old
    assert shop.check().clean
