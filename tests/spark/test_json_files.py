"""JSON files are written, registered, counted and read like any others, and wait outside of Iceberg."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from insert_lakes import AUDIT, ORDERS, files_in, make_orders, orders, rows_of

from builders import logical_dump, seal_pending
from lakebed.core.errors import InvalidValueError, RefusedError, UnreadableFileError
from lakebed.core.names import TableName
from lakebed.pipeline.write.insert import insert, schema_like
from lakebed.pipeline.write.json import insert_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.lake import Lake


def test_rows_of_both_formats_are_read_together(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)

    insert(spark_lake._context, ORDERS, orders(spark, 0, 4))
    result = insert_json(spark_lake._context, ORDERS, orders(spark, 4, 3))

    files = spark_lake.files.list(ORDERS)
    assert {(f.file_type, f.row_count) for f in files if f.file_type == "json"} <= {("json", 1), ("json", 2)}
    assert (result.rows, spark_lake.table(ORDERS).row.row_count) == (3, 7)
    assert rows_of(spark_lake.read(ORDERS)) == rows_of(orders(spark, 0, 7))
    assert len(files_in(spark_lake)) == len(files)
    assert spark_lake.check(deep=True).clean


def test_every_value_of_a_json_file_comes_back(spark_lake: Lake, spark: SparkSession) -> None:
    df = orders(spark, 0, 3).selectExpr(
        "id", "timestamp_micros(1700000000123456 + id) AS ts", "TIMESTAMP_NTZ'1969-12-31 23:59:59.000001' AS n", "DATE'0001-01-01' AS d",
        "CAST('0.000000000000000001' AS DECIMAL(38,18)) AS e", "double('NaN') AS f", "unhex('00ff') AS x", "array(map('k', struct(id AS a))) AS l",
        "IF(id = 1, NULL, 'caf\u00e9\n\"') AS s",
    )  # fmt: skip
    spark_lake.create_table("shop.kinds", schema_like(df), event_time="n")

    insert_json(spark_lake._context, "shop.kinds", df)

    assert sorted(map(repr, spark_lake.read("shop.kinds").collect())) == sorted(map(repr, df.collect()))
    (low, high), *_ = {(p.min_event_time, p.max_event_time) for p in spark_lake.list_partitions("shop.kinds")}
    assert low == high
    assert str(low) == "1969-12-31 23:59:59.000001+00:00"
    assert spark_lake.check().clean


def test_json_never_enters_a_group(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)
    insert_json(spark_lake._context, ORDERS, orders(spark, 0, 3))
    insert(spark_lake._context, ORDERS, orders(spark, 3, 1))

    seal_pending(spark_lake.registry)

    assert {f.file_type for f in spark_lake.files.list(ORDERS) if f.added_group is not None} == {"parquet"}
    assert spark_lake.check().clean


def put(lake: Lake, name: str, *lines: str) -> str:
    path = Path(lake.storage.paths.root) / "incoming" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def test_json_files_of_others_are_registered_where_they_lie(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)
    one = put(
        spark_lake,
        "one two.json",
        '{"id": 0, "ts": "2026-01-01T00:00:00Z", "amount": 0}',
        '{"amount": 0.5, "ts": "2026-01-01T01:00:00Z", "id": 1}',
    )
    other = put(spark_lake, "other.json", '{"id": 2, "ts": "2026-01-01T02:00:00.000000Z", "amount": 1.0}')

    spark_lake.files.register_json(ORDERS, [one, other], batch=("drop", 1))
    spark_lake.files.register_json(ORDERS, [one, other], batch=("drop", 1))

    assert rows_of(spark_lake.read(ORDERS)) == rows_of(orders(spark, 0, 3))
    assert spark_lake.check(deep=True).clean


@pytest.mark.parametrize("line", ['{"id": 1, "ts": "2026-01-01T00:', '{"id": "one", "ts": "2026-01-01T00:00:00Z"}', "[1, 2"])
def test_a_line_that_does_not_fit_refuses_the_file(spark_lake: Lake, line: str) -> None:
    make_orders(spark_lake)
    path = put(spark_lake, "bad.json", '{"id": 0, "ts": "2026-01-01T00:00:00Z", "amount": 0}', line)
    before = logical_dump(spark_lake.registry, without=AUDIT)

    with pytest.raises(RefusedError):
        spark_lake.files.register_json(ORDERS, [path])

    assert logical_dump(spark_lake.registry, without=AUDIT) == before


def paths_of(lake: Lake, name: str, file_type: str) -> set[str]:
    return {f.partition_path for f in lake.files.list(name) if f.file_type == file_type}


def test_json_of_a_partitioned_table_is_in_its_partitions_and_becomes_parquet_there(spark_lake: Lake, spark: SparkSession) -> None:
    """Every kind of key: of an instant, hashed, of text that may be NULL or empty, of decimals, which are keyed in Python."""
    df = orders(spark, 0, 30).selectExpr(
        "*", "CASE id WHEN 1 THEN NULL WHEN 2 THEN '' ELSE 'a/b' END AS s", "CAST(id AS DECIMAL(9,2)) AS d"
    )
    parted = ["day(ts)", "bucket(3, id)", "s", "truncate(10, d)"]
    for name in ("shop.json", "shop.parquet"):
        spark_lake.create_table(name, schema_like(df), event_time="ts", partition_by=parted)
    insert(spark_lake._context, "shop.parquet", df)

    insert_json(spark_lake._context, "shop.json", df)
    expected = paths_of(spark_lake, "shop.parquet", "parquet")
    assert paths_of(spark_lake, "shop.json", "json") == expected
    assert rows_of(spark_lake.read("shop.json", where="id < 3")) == rows_of(df.where("id < 3"))
    assert spark_lake.check(deep=True).clean

    spark_lake.compact("shop.json")
    assert (paths_of(spark_lake, "shop.json", "json"), paths_of(spark_lake, "shop.json", "parquet")) == (set(), expected)
    assert sorted(map(repr, spark_lake.read("shop.json").collect())) == sorted(map(repr, df.collect()))
    assert seal_pending(spark_lake.registry, TableName.parse("shop.json")) is None  # compaction gave them a group
    assert spark_lake.check(deep=True).clean


def test_rows_of_several_partitions_in_one_json_file_are_refused(spark_lake: Lake) -> None:
    make_orders(spark_lake, partition_by=["day(ts)"])
    first = '{"id": 1, "ts": "2026-01-01T00:00:00Z", "amount": 0}'
    second = '{"id": 2, "ts": "2026-01-02T00:00:00Z", "amount": 0}'
    before = logical_dump(spark_lake.registry, without=AUDIT)

    with pytest.raises(InvalidValueError, match=r"mixed.json holds rows of several partitions of shop.orders \(ts_day\)"):
        spark_lake.files.register_json(ORDERS, [put(spark_lake, "mixed.json", first, second)])
    assert logical_dump(spark_lake.registry, without=AUDIT) == before

    spark_lake.files.register_json(ORDERS, [put(spark_lake, "whole.json", second)])
    assert paths_of(spark_lake, ORDERS, "json") == {"ts_day=2026-01-02"}


def test_an_empty_file_is_refused(spark_lake: Lake) -> None:
    make_orders(spark_lake)

    with pytest.raises(UnreadableFileError, match="it holds no row"):
        spark_lake.files.register_json(ORDERS, [put(spark_lake, "empty.json")])
