"""A lake that an earlier version wrote, before its modules moved into rooms: this version opens it, reads every row and goes on with it.

It is kept in `tests/fixtures/lake_before_rooms`, where `write_lake.py` says what it holds. Only public calls are used here.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tarfile
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import lakebed
from lakebed.testing import FixedClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

KEPT = Path(__file__).parents[1] / "fixtures/lake_before_rooms"
PLACE = Path("/tmp", "lakebed-before-rooms")  # noqa: S108 - registry and Iceberg's metadata name every file by its absolute path
ORDERS, EVENTS = range(1, 26), range(1, 21)  # the ids that the tables hold
COMPACTED = 10  # files that wait for their deletion; besides there are one that was retired and one of a dropped table


@dataclass(frozen=True, slots=True)
class OldLake:
    """As it was kept, at the only place where it opens."""

    url: str
    catalog_url: str
    place: Path

    @property
    def expected(self) -> Any:
        return json.loads((self.place / "expected.json").read_text())

    def open(self, spark: SparkSession | None = None) -> lakebed.Lake:
        """Two days later: what waits for its deletion may go."""
        clock = FixedClock(datetime(2026, 3, 3, 12, tzinfo=UTC))
        return lakebed.connect(self.url, warehouse=str(self.place / "warehouse"), spark=spark, clock=clock, create=False, service="off")


@contextmanager
def alone_at_the_place() -> Iterator[None]:
    """All processes of this machine unpack at the same place: one at a time."""
    if PLACE.parent.resolve() != PLACE.parent:
        pytest.skip(f"{PLACE.parent} is a link here, and a lake opens only under the path it was written at")
    descriptor = os.open(PLACE.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@pytest.fixture
def old_lake(kind: str, empty_url: str) -> Iterator[OldLake]:
    with alone_at_the_place():
        shutil.rmtree(PLACE, ignore_errors=True)  # of a test that was killed
        try:
            yield unpack(kind, empty_url)
        finally:
            shutil.rmtree(PLACE)


def unpack(kind: str, empty_url: str) -> OldLake:
    with tarfile.open(KEPT / f"{kind}.tar.xz") as archive:
        archive.extractall(PLACE, filter="data")
    place = PLACE / kind
    if kind == "sqlite":
        return OldLake(f"sqlite:///{place}/lake.db", f"sqlite:///{place}/lake.iceberg.db", place)
    with psycopg.connect(empty_url, autocommit=True) as connection:
        connection.execute((place / "registry.sql").read_bytes())
    return OldLake(empty_url, empty_url.replace("postgresql://", "postgresql+psycopg://", 1), place)


def read_rows(lake: lakebed.Lake, name: str) -> list[dict[str, Any]]:
    """Of the files that the registry names."""
    paths = lake.files.plan(name).paths
    return [row for path in paths for row in (read_lines(path) if path.endswith(".json") else pq.ParquetFile(path).read().to_pylist())]


def read_lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def read_iceberg(old: OldLake, name: str, **at: Any) -> pa.Table:
    """As another program reads it, knowing the catalog alone."""
    catalog = SqlCatalog("lakebed", uri=old.catalog_url, warehouse=str(old.place / "warehouse"))
    try:
        return catalog.load_table(name).scan(**at).to_arrow()
    finally:
        catalog.engine.dispose()


def ids_of(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["id"] for row in rows)


def insert_order(lake: lakebed.Lake, number: int) -> None:
    columns = {"id": pa.int64(), "ts": pa.timestamp("us", tz="UTC"), "amount": pa.float64(), "country": pa.string()}
    fields = [pa.field(name, kind, metadata={"PARQUET:field_id": str(at)}) for at, (name, kind) in enumerate(columns.items(), 1)]
    with lake.writing("shop.orders") as writing:
        row = pa.table([[number], [number], [1.5], ["DE"]], schema=pa.schema(fields))
        pq.write_table(row, writing.new_path(partition_path="country=DE"))
        writing.publish()


def test_a_lake_of_an_earlier_version_opens_and_a_deep_check_finds_nothing(old_lake: OldLake) -> None:
    with old_lake.open() as lake:
        report = lake.check(deep=True, pages=True)

    assert report.findings == ()


def test_its_tables_hold_the_rows_they_held(old_lake: OldLake) -> None:
    with old_lake.open() as lake:
        rows = {f"{table.database}.{table.name}": table.row_count for table in lake.tables.list()}
        orders, events = read_rows(lake, "shop.orders"), read_rows(lake, "shop.events")

        assert rows == old_lake.expected["rows"]
        assert rows == {name: len(read_rows(lake, name)) for name in rows}
        assert (ids_of(orders), ids_of(events)) == (list(ORDERS), list(EVENTS))
        assert sum(row["amount"] for row in orders) == sum(ORDERS) / 2
        assert sorted(row["note"] for row in events if row.get("note")) == [f"note {number}" for number in range(11, 21)]
        assert [row["n"] for row in read_rows(lake, "shop.hourly")] == [len(EVENTS)]


def test_its_partitions_its_view_set_its_tag_and_its_retired_files_are_known(old_lake: OldLake) -> None:
    with old_lake.open() as lake:
        (hourly,) = lake.list_view_sets()
        files = lake.files.list(retired=True)

        assert {file.partition_path for file in lake.files.list("shop.orders")} == {"country=DE", "country=FR", "country=IT"}
        assert json.loads(hourly.definition)["over"] == "shop.events"
        assert hourly.staged_schema_hash not in (None, hourly.schema_hash)
        assert [one.tags for one in lake.snapshots("shop.orders")] == ["first", ""]
        assert sum(file.retired_seq is not None for file in files) == COMPACTED + 1


def test_its_snapshots_are_read_by_another_program(old_lake: OldLake) -> None:
    snapshots = old_lake.expected["snapshots"]

    events = read_iceberg(old_lake, "shop.events").sort_by("id")
    with old_lake.open() as lake:
        known = {name: [one.snapshot_id for one in lake.snapshots(name)] for name in snapshots}

    assert known == snapshots
    assert ids_of(read_iceberg(old_lake, "shop.orders").to_pylist()) == list(ORDERS)
    assert ids_of(read_iceberg(old_lake, "shop.orders", snapshot_id=snapshots["shop.orders"][0]).to_pylist()) == list(ORDERS)[:20]
    assert events["id"].to_pylist() == list(EVENTS)
    assert events["note"].to_pylist() == [None] * 10 + [f"note {number}" for number in range(11, 21)]


def test_it_goes_on_with_inserts_snapshots_retirement_and_clean_up(old_lake: OldLake) -> None:
    with old_lake.open() as lake:
        (retired, *_) = lake.list_partitions("shop.orders")
        insert_order(lake, 26)
        with lake.service(maintenance=False):
            lake.snapshot("shop.orders", timeout_s=60)
            begin, end = retired.begin_insert_time, retired.end_insert_time
            assert lake.retire_partitions("shop.orders", insert_begin=begin, insert_end=end, dry_run=False).non_empty == 1
            lake.snapshot("shop.orders", timeout_s=60)
        done = lake.delete_expired_temporary_files()
        left = ids_of(read_rows(lake, "shop.orders"))

        assert (done.deleted, done.failed) == (COMPACTED + 1, {})  # a kept snapshot still holds the one that was retired
        assert left == ids_of(read_iceberg(old_lake, "shop.orders").to_pylist())
        assert (len(left), max(left)) == (len(ORDERS) + 1 - retired.num_rows, 26)
        assert lake.check(deep=True).findings == ()


def test_spark_reads_it_and_builds_the_definition_that_was_staged(old_lake: OldLake, spark: SparkSession) -> None:
    with old_lake.open(spark) as lake:
        before = [row.n for row in lake.read("shop.hourly").collect()]
        lake.materialize("shop.hourly").raise_failed()
        after = [row.n for row in lake.read("shop.hourly").collect()]

        assert [lake.read(f"shop.{name}").count() for name in ("orders", "events", "logs", "taken")] == [len(ORDERS), len(EVENTS), 5, 4]
        assert lake.read("shop.events", where="note = 'note 11'").count() == 1
        assert (before, after) == ([len(EVENTS)], [len(EVENTS) - 2])  # now without small amounts
        assert lake.check(deep=True).clean
        lake._context.lease.close()
