"""`sync` inserts, waiting, and reading a table as a snapshot has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from insert_lakes import ORDERS, make_orders, orders, rows_of

from lakebed.core.errors import CommitTimeoutError, SnapshotNotFoundError
from lakebed.core.names import TableName
from lakebed.lake import connect
from lakebed.registry.snapshots.history import expire_snapshots

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakebed.lake import Lake


@pytest.fixture
def publishing(url: str, tmp_path: Path, spark: SparkSession) -> Iterator[Lake]:
    with connect(url, warehouse=str(tmp_path / "warehouse"), spark=spark, service="auto") as opened:
        make_orders(opened)
        yield opened


def test_a_sync_insert_returns_with_its_snapshot_current(publishing: Lake) -> None:
    done = publishing.insert(ORDERS, orders(publishing.spark, 0, 10), metadata_mode="sync")

    assert done.snapshot_id == publishing.snapshots(ORDERS)[-1].snapshot_id
    assert done.group == publishing.table(ORDERS).row.committed_group
    assert publishing.snapshots(ORDERS)[-1].rows == 10


def test_two_connections_wait_each_in_its_own_way(url: str, tmp_path: Path, spark: SparkSession) -> None:
    place = str(tmp_path / "warehouse")
    with (
        connect(url, warehouse=place, spark=spark, service="auto", metadata_mode="sync") as patient,
        connect(url, warehouse=place, spark=spark, service="off") as hasty,
    ):
        make_orders(patient)
        first = patient.insert(ORDERS, orders(patient.spark, 0, 5))
        second = hasty.insert(ORDERS, orders(hasty.spark, 5, 4))
        assert (first.snapshot_id is None, second.snapshot_id is None) == (False, True)

        waited = second.wait(60)

        assert waited.snapshot_id == patient.snapshots(ORDERS)[-1].snapshot_id
        assert waited.files == second.files


def test_a_sync_insert_without_a_publisher_times_out_and_keeps_its_rows(spark_lake: Lake) -> None:
    make_orders(spark_lake)
    done = spark_lake.insert(ORDERS, orders(spark_lake.spark, 0, 5))
    with pytest.raises(CommitTimeoutError, match="do not insert again"):
        done.wait(0.05)
    assert spark_lake.read(ORDERS).count() == 5


def test_an_insert_without_rows_waits_for_nothing(spark_lake: Lake) -> None:
    make_orders(spark_lake)
    done = spark_lake.insert(ORDERS, orders(spark_lake.spark, 0, 0), metadata_mode="sync")
    assert (done.rows, done.snapshot_id) == (0, None)


def test_every_snapshot_reads_as_it_was(publishing: Lake) -> None:
    first = publishing.insert(ORDERS, orders(publishing.spark, 0, 10), metadata_mode="sync")
    before = rows_of(publishing.read(ORDERS))
    second = publishing.insert(ORDERS, orders(publishing.spark, 20, 5), mode="overwrite", metadata_mode="sync")

    assert rows_of(publishing.read(ORDERS, as_of=first.snapshot_id)) == before
    assert rows_of(publishing.read(ORDERS, as_of=second.snapshot_id)) == rows_of(publishing.read(ORDERS))
    assert publishing.read(ORDERS, as_of=first.snapshot_id, where="id < 3").count() == 3


def test_a_reader_that_asks_for_the_current_snapshot_seals_what_is_pending(publishing: Lake) -> None:
    publishing.tables.configure(ORDERS, snapshot={"trigger": "query"})
    publishing.insert(ORDERS, orders(publishing.spark, 0, 7))
    assert publishing.drain(60)
    assert publishing.snapshots(ORDERS) == []

    assert publishing.read(ORDERS, as_of="snapshot").count() == 7
    assert (publishing.snapshots(ORDERS)[-1].rows, publishing.snapshots(ORDERS)[-1].trigger) == (7, "query")

    publishing.insert(ORDERS, orders(publishing.spark, 10, 3))
    assert publishing.snapshot(ORDERS) == publishing.snapshots(ORDERS)[-1].snapshot_id
    assert publishing.snapshots(ORDERS)[-1].trigger == "manual"


def test_a_snapshot_that_is_not_kept_is_refused_and_the_nearest_named(publishing: Lake) -> None:
    first = publishing.insert(ORDERS, orders(publishing.spark, 0, 2), metadata_mode="sync")
    second = publishing.insert(ORDERS, orders(publishing.spark, 2, 2), metadata_mode="sync")
    assert first.snapshot_id is not None
    gone = [first.snapshot_id]
    publishing.registry.transact(lambda tx: expire_snapshots(tx, TableName.parse(ORDERS), gone), tables=[TableName.parse(ORDERS)])

    with pytest.raises(SnapshotNotFoundError, match=str(second.snapshot_id)) as caught:
        publishing.read(ORDERS, as_of=first.snapshot_id)
    assert caught.value.nearest == second.snapshot_id


def test_a_view_set_is_read_as_its_old_definition_had_it(publishing: Lake) -> None:
    publishing.insert(ORDERS, orders(publishing.spark, 0, 4), metadata_mode="sync")
    publishing.create_view_set("shop.wide", over=ORDERS, sql=f"SELECT id, amount FROM {ORDERS}")
    publishing.materialize("shop.wide").raise_failed()
    old = publishing.snapshot("shop.wide")
    publishing.create_view_set("shop.wide", over=ORDERS, sql=f"SELECT id, amount * 2 AS twice FROM {ORDERS}", promote="now")
    publishing.materialize("shop.wide").raise_failed()
    publishing.snapshot("shop.wide")

    assert publishing.read("shop.wide").columns == ["id", "twice"]
    assert publishing.read("shop.wide", as_of=old).columns == ["id", "amount"]
    assert publishing.read("shop.wide", as_of=old).count() == 4
    assert publishing.check().clean
