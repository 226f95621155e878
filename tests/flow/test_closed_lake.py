"""After `close` every call is refused by its own error, also of what was made from the lake before; to close again is fine."""

from __future__ import annotations

import inspect
import pickle
import threading
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from builders import ORDERS, SCHEMA, arrow_rows, make_table, write_partition, writing_path
from face import GROUPS, list_calls
from lakebed.core.errors import LakebedError, LakeClosedError
from lakebed.core.schema.altering import DropColumn
from lakebed.lake import Lake, connect

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakebed.registry.registry import Registry

NAME = str(ORDERS)
# Closing again is fine, and these hold values of this process alone
HARMLESS = {"close"}
GIVEN: dict[str, Any] = {
    "schema": SCHEMA,
    "df": None,
    "sql": f"SELECT id, ts FROM {NAME}",
    "text": f"SELECT * FROM {NAME}",
    "where": "id = 1",
}


def list_members(lake: Lake) -> list[str]:
    own = {name for name in dir(lake) if not name.startswith("_")} - HARMLESS - set(GROUPS)
    return sorted(own | {f"{noun}.{name}" for noun in GROUPS for name in dir(getattr(lake, noun)) if not name.startswith("_")})


def use(lake: Lake, name: str) -> object:
    """A property is looked at; a call gets whatever it cannot do without, and what it answers is entered if it is a block."""
    member = attrgetter(name)(lake)
    if not callable(member):
        return member
    needed = [p for p in inspect.signature(member).parameters.values() if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    values = {p.name: GIVEN.get(p.name, NAME) for p in needed}
    if name == "columns.alter":
        return member(NAME, DropColumn(column="amount"))
    if name == "create_table":
        values["schema"] = SCHEMA
    positional = [values.pop(p.name) for p in needed if p.kind is not p.KEYWORD_ONLY]
    return member(*positional, **values)


MEMBERS = sorted(({name for name in dir(Lake) if not name.startswith("_")} | {*list_calls()}) - HARMLESS - {*GROUPS, "connect"})


@pytest.fixture
def closed(url: str, tmp_path: Path) -> Lake:
    """A lake that worked and was closed."""
    lake = connect(url, warehouse=str(tmp_path / "warehouse"), service="off")
    make_table(lake.registry)
    write_partition(lake, 1)
    assert lake._commits is not None
    lake.close()
    return lake


def test_every_public_name_is_among_the_tested_ones(closed: Lake) -> None:
    assert list_members(closed) == MEMBERS


@pytest.mark.parametrize("name", MEMBERS)
def test_a_closed_lake_refuses(closed: Lake, name: str) -> None:
    with pytest.raises(LakeClosedError, match=r"open it again with `lakebed\.connect`"):
        use(closed, name)


def test_closing_twice_is_fine_and_entering_again_is_refused(closed: Lake) -> None:
    closed.close()

    with pytest.raises(LakeClosedError), closed:
        pass
    with pytest.raises(LakeClosedError):
        pickle.dumps(closed)


def test_a_block_closes_the_lake(url: str, tmp_path: Path) -> None:
    with connect(url, warehouse=str(tmp_path / "warehouse")) as lake:
        registry = lake.registry

    with pytest.raises(LakeClosedError):
        lake.tables.list()
    with pytest.raises(LakeClosedError):
        registry.query("SELECT 1")


def test_a_lake_closed_while_the_registry_is_away_is_closed(url: str, tmp_path: Path) -> None:
    lake = connect(url, warehouse=str(tmp_path / "warehouse"), service="off")
    lake.storage, there = lake.storage, lake.registry
    there.backend.close = _fail  # type: ignore[method-assign] # a database that does not even say goodbye

    with suppress(OSError):
        lake.close()

    with pytest.raises(LakeClosedError):
        lake.tables.list()


def _fail() -> None:
    raise OSError


# -- what was made from it before ----------------------------------------------------------------


def test_an_open_writing_publishes_nothing_and_leaves_no_file(url: str, tmp_path: Path) -> None:
    lake = connect(url, warehouse=str(tmp_path / "warehouse"), service="off")
    make_table(lake.registry)

    with lake.writing(NAME) as work:
        pq.write_table(arrow_rows(1), writing_path(work.new_path()))
        lake.close()
        with pytest.raises(LakeClosedError):
            work.publish()

    assert not list(tmp_path.rglob("*.parquet"))
    with connect(url, warehouse=str(tmp_path / "warehouse"), service="off") as again:
        assert again.table(NAME).row.file_count == 0


def test_the_index_of_footers_does_not_open_the_registry_again(url: str, tmp_path: Path) -> None:
    lake = connect(url, warehouse=str(tmp_path / "warehouse"), service="off")
    make_table(lake.registry)
    write_partition(lake, 1)
    footers, path = lake._footers, lake.files.list(NAME)[0].file_path
    lake.close()

    with pytest.raises(LakeClosedError):
        footers.load(path)


@pytest.mark.parametrize("ask", [lambda s: s.drain(1.0), lambda s: s.start(), lambda s: s.wait_for_group(1, 1, timeout_s=1.0)])
def test_a_service_ends_with_its_lake(url: str, tmp_path: Path, ask: Callable[[Any], object]) -> None:
    before = set(threading.enumerate())
    lake = connect(url, warehouse=str(tmp_path / "warehouse"), service="off")
    make_table(lake.registry)

    with lake.service(maintenance=False) as service:
        lake.close()
        with pytest.raises(LakebedError) as refused:
            ask(service)

    assert refused.value.code == "lake_closed"
    assert {thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("lakebed")} == set()


def test_a_registry_that_two_threads_use_closes_under_both(registry: Registry) -> None:
    with registry.read() as reader:
        registry.close()
        assert reader.query("SELECT 1") == [(1,)]  # what is under way ends well

    assert registry.take_idle() == []
    with pytest.raises(LakeClosedError), registry.write():
        pass


@pytest.mark.parametrize("what", ["writer", "foreach_batch", "reading", "session"])
def test_what_spark_works_with_is_refused_too(url: str, tmp_path: Path, spark: SparkSession, what: str) -> None:
    lake = connect(url, warehouse=str(tmp_path / "warehouse"), spark=spark, service="off")
    make_table(lake.registry)
    frame = spark.createDataFrame([], "id BIGINT, ts TIMESTAMP, amount DOUBLE")
    writer, batch, context = lake.writer(NAME), lake.foreach_batch(NAME, "app"), lake._context
    lake.close()
    uses: dict[str, Callable[[], object]] = {
        "writer": lambda: writer.write(frame),
        "foreach_batch": lambda: batch(frame, 1),
        "reading": lambda: context.lease.hold([1]),
        "session": lambda: lake.spark,
    }

    with pytest.raises(LakeClosedError):
        uses[what]()

    assert not list(tmp_path.rglob("*.parquet"))
    assert spark.range(1).count() == 1  # the session is its owner's
