"""Inserting: append, overwrite, overwrite of partition paths, evolving, batches; every flow ends with a clean check."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from insert_lakes import AUDIT, ORDERS, files_in, make_orders, meanwhile, orders, rows_of, table_name

from builders import SCHEMA, count, logical_dump, make_view
from lakebed.core.errors import (
    InvalidValueError,
    SchemaChangedError,
    SchemaRefusedError,
    SessionRefusedError,
    SparkRefusedError,
    TableNotFoundError,
    VictimsChangedError,
)
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, Primitive
from lakebed.pipeline.write.files import write_frame
from lakebed.pipeline.write.insert import insert, schema_like
from lakebed.registry.files.batches import Batch
from lakebed.registry.tables.versions import evolve_schema
from lakebed.staging.write import staging

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakebed.lake import Lake
    from lakebed.registry.transaction import Transaction


def test_appended_rows_are_read_back_and_counted(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)

    first = insert(spark_lake._context, ORDERS, orders(spark, 0, 100))
    second = insert(spark_lake._context, ORDERS, orders(spark, 100, 10))

    assert (first.rows, second.rows) == (100, 10)
    assert rows_of(spark_lake, ORDERS) == rows_of(orders(spark, 0, 110))
    table = spark_lake.table(ORDERS)
    assert (table.row.row_count, table.row.file_count) == (110, first.files + second.files)
    assert spark_lake.check(deep=True).clean


def test_an_insert_says_how_long_each_of_its_stages_took(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)

    result = insert(spark_lake._context, ORDERS, orders(spark, 0, 1000))

    assert set(result.timings) == {"intent", "spark", "sync", "capture", "registry"}
    assert min(result.timings.values()) > 0


def test_zero_rows_make_an_empty_partition_and_no_file(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)
    make_orders(spark_lake, "shop.parted", partition_by=["day(ts)"])

    for name in (ORDERS, "shop.parted"):
        result = insert(spark_lake._context, name, orders(spark, 0, 0))
        (partition,) = spark_lake.list_partitions(name)
        assert (result.files, result.rows, partition.num_rows, partition.file_count) == (0, 0, 0, 0)

    assert files_in(spark_lake) == []
    assert spark_lake.check().clean


def test_each_file_belongs_to_one_partition_path_and_paths_are_few(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake, partition_by=["day(ts)", "bucket(2, id)"], sort_by=["amount"])

    result = insert(spark_lake._context, ORDERS, orders(spark, 0, 96).repartition(7))

    files = spark_lake.files.list(ORDERS)
    assert sorted(f.partition_path for f in files) == sorted({f.partition_path for f in files})  # not tasks x paths
    assert {f.partition_path.split("/")[0] for f in files} == {f"ts_day=2026-01-0{day}" for day in (1, 2, 3, 4)}
    assert result.files == 8
    for file in files:
        found = spark.read.parquet(file.file_path).collect()
        assert {f"ts_day={row.ts:%Y-%m-%d}" for row in found} == {file.partition_path.split("/")[0]}
        assert [row.amount for row in found] == sorted(row.amount for row in found)
    assert rows_of(spark_lake, ORDERS) == rows_of(orders(spark, 0, 96))
    assert spark_lake.check().clean


def test_null_in_an_optional_partition_column_has_a_path_of_its_own(spark_lake: Lake, spark: SparkSession) -> None:
    df = spark.createDataFrame([("a",), ("",), (None,)], "name string")
    spark_lake.create_table("shop.names", schema_like(df), partition_by=["name"])

    insert(spark_lake._context, "shop.names", df)

    assert sorted(f.partition_path for f in spark_lake.files.list("shop.names")) == ["name=", "name=__HIVE_DEFAULT_PARTITION__", "name=a"]
    assert spark_lake.check().clean


def test_overwriting_replaces_what_was_visible_and_nothing_of_a_later_append(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)
    insert(spark_lake._context, ORDERS, orders(spark, 0, 10))
    insert(spark_lake._context, ORDERS, orders(spark, 0, 0))
    insert(spark_lake._context, ORDERS, orders(spark, 500, 5), instance="tenant")

    result = insert(spark_lake._context, ORDERS, orders(spark, 50, 5), mode="overwrite")

    assert result.group is not None
    assert rows_of(spark_lake, ORDERS) == rows_of(orders(spark, 50, 5).unionAll(orders(spark, 500, 5)))
    assert [p.partition_id for p in spark_lake.list_partitions(ORDERS) if p.view_instance_id == "global"] == [result.partition_id]
    assert spark_lake.check().clean


def test_an_overwrite_whose_victim_was_replaced_meanwhile_conflicts_and_loses_nothing(
    spark_lake: Lake, spark: SparkSession, url: str
) -> None:
    make_orders(spark_lake)
    insert(spark_lake._context, ORDERS, orders(spark, 0, 10))

    def overwrite() -> None:
        insert(spark_lake._context, ORDERS, orders(spark, 20, 3), mode="overwrite")

    with meanwhile(spark_lake, url, overwrite) as context, pytest.raises(VictimsChangedError):
        insert(context, ORDERS, orders(spark, 30, 3), mode="overwrite")

    assert rows_of(spark_lake, ORDERS) == rows_of(orders(spark, 20, 3))
    assert spark_lake.check().clean


def test_overwriting_partitions_retires_exactly_the_paths_of_the_rows(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake, partition_by=["day(ts)"])
    old = insert(spark_lake._context, ORDERS, orders(spark, 0, 96))  # four days in one partition
    other = insert(spark_lake._context, ORDERS, orders(spark, 24, 24))  # the second day alone

    result = insert(spark_lake._context, ORDERS, orders(spark, 24, 30), mode="overwrite_partitions")  # the second and third day

    expected = orders(spark, 0, 24).unionAll(orders(spark, 72, 24)).unionAll(orders(spark, 24, 30))
    assert rows_of(spark_lake, ORDERS) == rows_of(expected)
    left = {p.partition_id: p for p in spark_lake.list_partitions(ORDERS)}
    assert old.partition_id not in left  # whoever planned with the old one is refused
    assert other.partition_id not in left
    assert sorted((p.num_rows, p.file_count) for p in left.values()) == [(30, 2), (48, 2)]
    groups = {f.removed_group for f in spark_lake.files.list(ORDERS, retired=True) if f.retired_seq is not None}
    assert groups == {result.group}
    assert spark_lake.check().clean


def test_overwriting_partitions_that_changed_meanwhile_conflicts_but_appended_files_stay(
    spark_lake: Lake, spark: SparkSession, url: str
) -> None:
    make_orders(spark_lake, partition_by=["day(ts)"])
    insert(spark_lake._context, ORDERS, orders(spark, 0, 48))

    def append() -> None:
        insert(spark_lake._context, ORDERS, orders(spark, 3, 1))

    with meanwhile(spark_lake, url, append) as context:
        insert(context, ORDERS, orders(spark, 0, 2), mode="overwrite_partitions")
    assert rows_of(spark_lake, ORDERS) == rows_of(orders(spark, 0, 2).unionAll(orders(spark, 3, 1)).unionAll(orders(spark, 24, 24)))

    def overwrite() -> None:
        insert(spark_lake._context, ORDERS, orders(spark, 4, 1), mode="overwrite_partitions")

    with meanwhile(spark_lake, url, overwrite) as context, pytest.raises(VictimsChangedError, match="files"):
        insert(context, ORDERS, orders(spark, 5, 1), mode="overwrite_partitions")

    assert rows_of(spark_lake, ORDERS) == rows_of(orders(spark, 4, 1).unionAll(orders(spark, 24, 24)))
    assert spark_lake.check().clean


def test_extra_columns_are_refused_unless_the_table_may_evolve(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)
    insert(spark_lake._context, ORDERS, orders(spark, 0, 3))
    wide = orders(spark, 3, 2).selectExpr("*", "'x' AS note", "struct(id AS a, named_struct('b', 1) AS n) AS s")

    with pytest.raises(SchemaRefusedError, match=r"column 'note' \(string\) is not in the table.*evolve=True"):
        insert(spark_lake._context, ORDERS, wide)
    insert(spark_lake._context, ORDERS, wide, evolve=True)

    table = spark_lake.table(ORDERS)
    assert [f.name for f in table.schema.fields] == ["id", "ts", "amount", "note", "s"]
    assert table.row.row_count == 5
    insert(spark_lake._context, ORDERS, orders(spark, 5, 1).select("amount", "ts", "id"))  # what is missing becomes NULL
    assert table.row.row_count == 5
    assert spark_lake.check().clean


def test_a_failed_insert_leaves_the_schema_as_it_was(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)
    before = logical_dump(spark_lake.registry, without=AUDIT)

    with pytest.raises(SparkRefusedError):
        insert(spark_lake._context, ORDERS, orders(spark, 0, 3).selectExpr("*", "CAST(raise_error('no') AS STRING) AS note"), evolve=True)

    assert logical_dump(spark_lake.registry, without=AUDIT) == before
    assert spark_lake.check().clean


def test_evolving_a_table_that_another_writer_evolved_meanwhile_conflicts(spark_lake: Lake, spark: SparkSession, url: str) -> None:
    make_orders(spark_lake)

    def evolve() -> None:
        current = spark_lake.table(ORDERS).schema
        grown = Schema(fields=(*current.fields, Field(field_id=9, name="other", type=Primitive(name="string"))))

        def body(tx: Transaction) -> str:
            return evolve_schema(tx, table_name(), grown)

        spark_lake.registry.transact(body, tables=[table_name()])

    with meanwhile(spark_lake, url, evolve) as context, pytest.raises(SchemaChangedError):
        insert(context, ORDERS, orders(spark, 0, 3).selectExpr("*", "'x' AS note"), evolve=True)

    assert spark_lake.table(ORDERS).row.row_count == 0
    assert spark_lake.check().clean


def test_a_batch_is_inserted_once_and_its_replay_runs_no_job(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)
    first = insert(spark_lake._context, ORDERS, orders(spark, 0, 7), batch=("app", 3))

    again = insert(
        spark_lake._context, ORDERS, orders(spark, 0, 7).selectExpr("* EXCEPT (id)", "raise_error('ran') AS id"), batch=("app", 3)
    )

    assert again.is_replay
    assert (again.op_id, again.rows, again.files, again.partition_id) == (first.op_id, 7, first.files, first.partition_id)
    assert rows_of(spark_lake, ORDERS) == rows_of(orders(spark, 0, 7))
    assert spark_lake.check().clean


def test_a_batch_whose_first_try_died_is_taken_over(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)
    context, table = spark_lake._context, spark_lake.table(ORDERS)
    with staging(context.registry, context.storage, table, batch=Batch(app_id="app", batch_id=1)) as dead:
        write_frame(context, dead, table, orders(spark, 0, 7))
        result = insert(context, ORDERS, orders(spark, 0, 7), batch=("app", 1))  # as after a restart: the lease is still valid

    assert not result.is_replay
    assert rows_of(spark_lake, ORDERS) == rows_of(orders(spark, 0, 7))
    assert count(spark_lake.registry, "operations", "state = 'rolled_back'") == 1
    assert spark_lake.check().clean


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "upsert"}, "mode 'upsert' is not known: use one of append, overwrite"),
        ({"metadata_mode": "later"}, "metadata_mode 'later' is not known"),
        ({"mode": "overwrite_partitions"}, "has no partition transforms: use mode='overwrite'"),
        ({"batch": ("", 1)}, "has no app_id"),
    ],
)
def test_bad_arguments_are_refused_and_change_nothing(spark_lake: Lake, spark: SparkSession, options: dict[str, Any], message: str) -> None:
    make_orders(spark_lake)
    before = logical_dump(spark_lake.registry)

    with pytest.raises(InvalidValueError, match=message):
        insert(spark_lake._context, ORDERS, orders(spark, 0, 1), **options)

    assert logical_dump(spark_lake.registry) == before


def test_an_unknown_table_and_rows_that_are_not_a_dataframe_are_refused(spark_lake: Lake, spark: SparkSession) -> None:
    with pytest.raises(TableNotFoundError, match=r"there is no table 'shop.nowhere'"):
        insert(spark_lake._context, "shop.nowhere", orders(spark, 0, 1))
    make_orders(spark_lake)
    with pytest.raises(InvalidValueError, match="a list cannot be written: give a Spark DataFrame"):
        insert(spark_lake._context, ORDERS, [1, 2])  # type: ignore[arg-type]


def test_rows_that_break_a_rule_of_the_table_are_refused_by_name(spark_lake: Lake, spark: SparkSession) -> None:
    required = Schema(fields=(replace(SCHEMA.fields[0], required=True), *SCHEMA.fields[1:]))
    spark_lake.create_table(ORDERS, required, event_time="ts")
    before = logical_dump(spark_lake.registry, without=AUDIT)
    bad = {
        "column 'id' is required and holds 1 nulls": ["CAST(NULL AS BIGINT) AS id", "ts", "amount"],
        "column 'ts' holds a time outside the years 1 to 9999": ["id", "timestamp_micros(253402300800000000) AS ts", "amount"],
        "the event time ts is NULL in every row": ["id", "CAST(NULL AS TIMESTAMP) AS ts", "amount"],
    }

    for message, columns in bad.items():
        with pytest.raises((SchemaRefusedError, InvalidValueError), match=message):
            insert(spark_lake._context, ORDERS, orders(spark, 0, 2).selectExpr(*columns))

    assert logical_dump(spark_lake.registry, without=AUDIT) == before
    assert spark_lake.check().clean


@pytest.mark.parametrize(
    ("key", "bad", "good"),
    [
        ("spark.sql.parquet.outputTimestampType", "INT96", "TIMESTAMP_MICROS"),
        ("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY", "CORRECTED"),
    ],
)
def test_a_session_that_would_write_times_in_the_old_calendar_is_refused(
    spark_lake: Lake, spark: SparkSession, key: str, bad: str, good: str
) -> None:
    make_orders(spark_lake)
    before = logical_dump(spark_lake.registry, without=AUDIT)
    spark.conf.set(key, bad)
    try:
        with pytest.raises(SessionRefusedError, match=rf"set {key}={good} on it"):
            insert(spark_lake._context, ORDERS, orders(spark, 0, 1))
    finally:
        spark.conf.set(key, good)
    assert logical_dump(spark_lake.registry, without=AUDIT) == before
    assert files_in(spark_lake) == []


def test_rows_may_hold_the_very_word_that_marks_the_old_calendar(spark_lake: Lake, spark: SparkSession) -> None:
    """Statistics are in the footer beside Spark's markers: a value there says nothing about the calendar."""
    rows = spark.createDataFrame([("org.apache.spark.legacyDateTime",)], "word string")
    spark_lake.create_table("shop.words", like=rows)

    insert(spark_lake._context, "shop.words", rows)

    assert [tuple(row) for row in spark_lake.read("shop.words").collect()] == [("org.apache.spark.legacyDateTime",)]


@pytest.mark.parametrize(("mode", "year", "refused"), [("LEGACY", 1500, 1), ("LEGACY", 2000, 0), ("CORRECTED", 1500, 0)])
def test_only_old_times_that_spark_wrote_in_the_old_calendar_cannot_be_adopted(
    spark_lake: Lake, spark: SparkSession, tmp_path: Path, mode: str, year: int, refused: int
) -> None:
    key = "spark.sql.parquet.datetimeRebaseModeInWrite"
    spark.conf.set(key, mode)
    try:
        spark.sql(f"SELECT 1 AS id, DATE'{year}-03-01' AS day").coalesce(1).write.parquet(str(tmp_path / "source"))
    finally:
        spark.conf.set(key, "CORRECTED")

    plan = spark_lake.tables.adopt("shop.days", str(tmp_path / "source"), dry_run=True)

    assert len(plan.refused) == refused
    assert all("old calendar" in file.reason for file in plan.refused)


def test_a_view_set_takes_no_insert(spark_lake: Lake, spark: SparkSession) -> None:
    make_view(spark_lake.registry)
    with pytest.raises(InvalidValueError, match=r"shop.daily is a view set: its rows come from its definition"):
        insert(spark_lake._context, "shop.daily", orders(spark, 0, 1))


def test_event_times_bound_the_partition(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)

    insert(spark_lake._context, ORDERS, orders(spark, 0, 25))

    (partition,) = spark_lake.list_partitions(ORDERS)
    assert (partition.min_event_time, partition.max_event_time) == (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
    assert isinstance(spark_lake.files.list(ORDERS)[0].row_count, int)
