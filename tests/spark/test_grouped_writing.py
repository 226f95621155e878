"""Grouped writing rotates by size and by age, once each; nothing of a discarded group stays."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from insert_lakes import AUDIT, ORDERS, Failing, files_in, make_orders, orders, rows_of, stepped

from builders import count, logical_dump
from lakebed.core.errors import InvalidValueError, RegistryUnavailableError, SparkRefusedError
from lakebed.pipeline.write.grouped import GroupedWriter
from lakebed.pipeline.write.insert import insert, schema_like

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.lake import Lake
    from lakebed.pipeline.results import InsertResult

LONG_S = 3600.0


@pytest.mark.parametrize("many", [5, pytest.param(50, marks=pytest.mark.long)])
def test_many_small_writes_are_one_batch_with_one_row_per_file(spark_lake: Lake, spark: SparkSession, many: int) -> None:
    make_orders(spark_lake)
    rotated: list[InsertResult] = []

    with GroupedWriter(spark_lake._context, ORDERS, rotate_after=LONG_S, on_rotate=rotated.append) as writer:
        for number in range(many):
            assert writer.write(orders(spark, number * 3, 3).coalesce(1)) is None
        assert spark_lake.files.list(ORDERS) == []  # nothing is visible before its rotation

    assert [(result.files, result.rows) for result in rotated] == [(many, 3 * many)]
    assert count(spark_lake.registry, "partitions") == 1
    assert rows_of(spark_lake, ORDERS) == rows_of(orders(spark, 0, 3 * many))
    assert len(files_in(spark_lake)) == many
    assert spark_lake.check().clean


def test_a_group_that_is_big_enough_is_rotated_by_the_write_that_filled_it(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)
    with GroupedWriter(spark_lake._context, ORDERS, rotate_after=LONG_S, rotate_bytes=1) as writer:
        results = [writer.write(orders(spark, number * 3, 3)) for number in range(2)]

    assert [result.rows for result in results if result is not None] == [3, 3]
    assert count(spark_lake.registry, "partitions") == 2
    assert spark_lake.check().clean


def test_json_files_rotate_and_become_parquet_as_others_do(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake, partition_by=["day(ts)"])
    with GroupedWriter(spark_lake._context, ORDERS, rotate_after=LONG_S, rotate_bytes=1, format="json") as writer:
        results = [writer.write(orders(spark, number * 3, 3)) for number in range(2)]

    assert [result.rows for result in results if result is not None] == [3, 3]
    assert {f.file_type for f in spark_lake.files.list(ORDERS)} == {"json"}
    assert count(spark_lake.registry, "partitions") == 2

    spark_lake.compact(ORDERS)
    assert {f.file_type for f in spark_lake.files.list(ORDERS)} == {"parquet"}
    assert rows_of(spark_lake, ORDERS) == rows_of(orders(spark, 0, 6))
    assert spark_lake.check().clean


def test_a_group_that_is_old_enough_is_rotated_without_a_write(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)
    rotated = threading.Event()

    with GroupedWriter(spark_lake._context, ORDERS, rotate_after=0.05, on_rotate=lambda _: rotated.set()) as writer:
        writer.write(orders(spark, 0, 3))
        assert rotated.wait(60)
        assert rows_of(spark_lake, ORDERS) == rows_of(orders(spark, 0, 3))

    assert count(spark_lake.registry, "partitions") == 1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lakebed-writer")]
    assert spark_lake.check().clean


def test_a_writer_that_was_given_no_row_has_no_thread(spark_lake: Lake) -> None:
    make_orders(spark_lake)

    writer = spark_lake.writer(ORDERS)

    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lakebed-writer")]
    assert writer.close() is None


def fail_in(writer: GroupedWriter, spark: SparkSession) -> None:
    with writer:
        writer.write(orders(spark, 0, 3))
        raise ZeroDivisionError


def test_leaving_by_an_error_discards_what_was_not_rotated(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)
    before = logical_dump(spark_lake.registry, without=AUDIT)

    with pytest.raises(ZeroDivisionError):
        fail_in(GroupedWriter(spark_lake._context, ORDERS, rotate_after=LONG_S), spark)

    assert logical_dump(spark_lake.registry, without=AUDIT) == before
    assert files_in(spark_lake) == []
    assert spark_lake.check().clean


@pytest.mark.parametrize("extra", [[], ["array(id) AS l"]], ids=["spark", "own"])
def test_a_write_that_fails_costs_its_own_rows_alone(spark_lake: Lake, spark: SparkSession, extra: list[str]) -> None:
    good = orders(spark, 0, 3).selectExpr("*", *extra)
    spark_lake.create_table("shop.t", schema_like(good), event_time="ts")
    bad = good.selectExpr("* EXCEPT (amount)", "IF(id = 2, CAST(raise_error('row 2') AS DOUBLE), amount) AS amount")

    with GroupedWriter(spark_lake._context, "shop.t", rotate_after=LONG_S) as writer:
        writer.write(good)
        with pytest.raises(SparkRefusedError):
            writer.write(bad)
        writer.write(good)

    assert spark_lake.table("shop.t").row.row_count == 6
    assert spark_lake.check().clean


def lost(_: str) -> None:
    message = "the database went away"
    raise RegistryUnavailableError(message)


def test_a_rotation_that_fails_in_the_background_is_reported_to_the_next_caller(spark_lake: Lake, spark: SparkSession, url: str) -> None:
    make_orders(spark_lake)
    steps = Failing(act=lost)
    with stepped(spark_lake, url, steps) as context:
        writer = GroupedWriter(context, ORDERS, rotate_after=LONG_S)
        writer.write(orders(spark, 0, 3))
        steps.at = len(steps.done) + 1
        with pytest.raises(RegistryUnavailableError):
            writer.rotate()
        steps.at = 0
        writer.close()

    with spark_lake.registry.write() as tx:
        tx.run("UPDATE operations SET lease_until = 0 WHERE state = 'writing'")
    assert len(spark_lake.files.recover()) == 1
    assert files_in(spark_lake) == []
    assert spark_lake.check().clean


def test_bad_settings_and_a_closed_writer_are_refused(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)
    with pytest.raises(InvalidValueError, match="must both be positive"):
        GroupedWriter(spark_lake._context, ORDERS, rotate_after=0)
    with pytest.raises(InvalidValueError, match="format 'avro' is not known: use one of parquet, json"):
        spark_lake.writer(ORDERS, format="avro")  # type: ignore[arg-type]
    writer = GroupedWriter(spark_lake._context, ORDERS)
    assert writer.close() is None
    with pytest.raises(InvalidValueError, match=r"the writer of shop.orders is closed"):
        writer.write(orders(spark, 0, 1))


def test_an_insert_beside_an_open_group_is_visible_at_once(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)
    with GroupedWriter(spark_lake._context, ORDERS, rotate_after=LONG_S) as writer:
        writer.write(orders(spark, 0, 3))
        insert(spark_lake._context, ORDERS, orders(spark, 10, 2))
        assert rows_of(spark_lake, ORDERS) == rows_of(orders(spark, 10, 2))

    assert spark_lake.table(ORDERS).row.row_count == 5
    assert spark_lake.check().clean
