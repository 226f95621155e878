"""Every Spark writer waits behind a long queue, independent of the publisher, and continues when the queue is shorter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from insert_lakes import ORDERS, files_in, make_orders, orders

from builders import ORDERS as NAME
from builders import count, seal_pending, within, write_partition
from lakebed.core.errors import BackPressureError
from lakebed.core.tables.snapshots import BackPressure
from lakebed.pipeline.write.grouped import GroupedWriter
from lakebed.registry.journal.leases import acquire_lease
from lakebed.registry.tables.groups import set_committed_group

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from lakebed.lake import Lake


def append(lake: Lake, df: DataFrame) -> None:
    lake.insert(ORDERS, df)


def overwrite(lake: Lake, df: DataFrame) -> None:
    lake.insert(ORDERS, df, mode="overwrite")


def insert_json(lake: Lake, df: DataFrame) -> None:
    lake.insert(ORDERS, df, format="json")


def stream(lake: Lake, df: DataFrame) -> None:
    lake.foreach_batch(ORDERS, "app")(df, 0)


def group(lake: Lake, df: DataFrame) -> None:
    with lake.writer(ORDERS) as writer:
        writer.write(df)


def delete(lake: Lake, _: DataFrame) -> None:
    lake.delete(ORDERS, "id = 3")


def register_json(lake: Lake, _: DataFrame) -> None:
    lake.files.register_json(ORDERS, [f"{lake.storage.paths.root}/orders.json"])


@pytest.fixture
def held(spark_lake: Lake) -> Lake:
    """One group waits where none may, and a process of another host publishes."""
    make_orders(spark_lake)
    write_partition(spark_lake, 0)
    seal_pending(spark_lake.registry)
    spark_lake.registry.back_pressure = BackPressure(backlog=0, timeout_s=0)
    acquire_lease(spark_lake.registry, "astha", owner="elsewhere/1/service")
    return spark_lake


@pytest.mark.parametrize("write", [append, overwrite, insert_json, stream, group, delete, register_json])
def test_a_writer_is_refused_with_nothing_written(held: Lake, spark: SparkSession, write: Callable[[Lake, DataFrame], None]) -> None:
    files, operations = files_in(held), count(held.registry, "operations")

    with pytest.raises(BackPressureError) as caught:
        write(held, orders(spark, 0, 3))

    assert (caught.value.table, caught.value.backlog, caught.value.limit) == (ORDERS, 1, 0)
    assert files_in(held) == files
    assert count(held.registry, "operations") == operations


def test_a_stale_view_set_is_not_built(held: Lake) -> None:
    held.create_view_set("shop.daily", sql="SELECT ts, id FROM shop.orders", over=ORDERS, slice="1d", event_time="ts")
    ((view,),) = held.registry.query("SELECT id FROM tables WHERE name = 'daily'")
    within(held.registry, lambda tx: tx.run("UPDATE tables SET last_group = 1 WHERE id = :id", {"id": view}))

    with pytest.raises(BackPressureError, match=r"shop\.daily: 1 groups"):
        held.materialize("shop.daily")

    within(held.registry, lambda tx: tx.run("UPDATE tables SET last_group = 0 WHERE id = :id", {"id": view}))
    assert held.materialize("shop.daily").failed == ()


def test_a_grouped_writer_that_was_refused_takes_rows_again(held: Lake, spark: SparkSession) -> None:
    with GroupedWriter(held._context, ORDERS) as writer:
        with pytest.raises(BackPressureError):
            writer.write(orders(spark, 0, 3))
        within(held.registry, lambda tx: set_committed_group(tx, NAME, 1, snapshot_id=1))
        writer.write(orders(spark, 0, 3))

    assert count(held.registry, "partitions") == 2
