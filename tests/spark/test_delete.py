"""Deleting rows: whole files by what is known of them, the rest rewritten, one swap; every flow ends with a clean check."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from insert_lakes import ORDERS, files_in, make_orders, meanwhile, orders, rows_of, table_name
from pyiceberg.table import StaticTable

from builders import logical_dump, make_view, within
from lakebed.core.errors import InvalidValueError, SparkRefusedError, TooManyPartitionsError, VictimsChangedError
from lakebed.core.schema.schema import Schema
from lakebed.pipeline.change.delete import delete
from lakebed.pipeline.write.insert import schema_like
from lakebed.registry.maintenance.runs import list_runs
from lakebed.registry.snapshots.history import list_snapshots
from lakebed.registry.tables.versions import evolve_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.lake import Lake

NESTED = """id BIGINT, ts TIMESTAMP, note STRING, s STRUCT<a: INT, b: STRUCT<c: INT>>, tags ARRAY<STRUCT<k: STRING, n: INT>>,
m MAP<STRING, INT>"""


def nested_rows(spark: SparkSession, first: int, count: int) -> Any:
    return spark.range(first, first + count, numPartitions=1).selectExpr(
        "id", "timestamp_seconds(1767225600 + id) AS ts", "concat('n', id) AS note",
        "named_struct('a', CAST(id AS INT), 'b', named_struct('c', CAST(id * 2 AS INT))) AS s",
        "array(named_struct('k', concat('k', id), 'n', CAST(id AS INT))) AS tags", "map('x', CAST(id AS INT)) AS m",
    )  # fmt: skip


def read_rows(lake: Lake, name: str = ORDERS) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in lake.read(name).collect()), key=repr)


def stored_schemas(lake: Lake, name: str) -> set[str]:
    """Physical names, types and field ids of every file, at every depth."""
    return {pq.read_schema(f.file_path).remove_metadata().to_string() for f in lake.files.list(name)}


def test_matching_rows_go_all_others_stay_and_who_asked_is_kept(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)
    spark_lake.insert(ORDERS, orders(spark, 0, 100))
    spark_lake.insert(ORDERS, orders(spark, 100, 50))
    before = spark_lake.list_partitions(ORDERS)
    number = spark_lake.files.plan(ORDERS).journal_number

    done = spark_lake.delete(ORDERS, where="id % 10 = 3", actor="ann")

    assert (done.rows, done.partitions, done.partitions_emptied, done.dry_run) == (15, 2, 0, False)
    assert rows_of(spark_lake) == [row for row in rows_of(orders(spark, 0, 150)) if row[0] % 10 != 3]
    assert spark_lake.table(ORDERS).row.row_count == 135
    after = spark_lake.list_partitions(ORDERS)
    assert [p.begin_insert_time for p in after] == [p.begin_insert_time for p in before]
    assert not {p.partition_id for p in after} & {p.partition_id for p in before}
    assert {f.removed_group for f in spark_lake.files.list(ORDERS, retired=True) if f.retired_seq is not None} == {done.group}
    assert spark_lake.read(ORDERS, as_of=number).count() == 150
    run = list_runs(spark_lake.registry, job="delete")[0]
    assert (run.actor, run.state, run.result["rows"], run.plan["where"]) == ("ann", "done", 15, "id % 10 = 3")
    assert spark_lake.check(deep=True).clean


def test_files_that_match_as_a_whole_are_dropped_unopened_and_others_are_left_alone(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake, partition_by=["day(ts)"])
    spark_lake.insert(ORDERS, orders(spark, 0, 96))  # four days, a file each
    before = {f.partition_path: f.file_path for f in spark_lake.files.list(ORDERS)}

    done = spark_lake.delete(ORDERS, where="ts >= '2026-01-02 00:00:00Z' AND ts < '2026-01-03 00:00:00Z'")
    assert (done.rows, done.files_dropped, done.files_rewritten, done.files_examined, done.files_written) == (24, 1, 0, 0, 0)
    done = spark_lake.delete(ORDERS, where="ts >= '2026-01-03 12:00:00Z'")

    assert (done.rows, done.files_dropped, done.files_rewritten, done.files_examined) == (36, 1, 1, 1)
    assert rows_of(spark_lake) == rows_of(orders(spark, 0, 24).unionAll(orders(spark, 48, 12)))
    after = {f.partition_path: f.file_path for f in spark_lake.files.list(ORDERS)}
    assert set(after) == {"ts_day=2026-01-01", "ts_day=2026-01-03"}
    assert after["ts_day=2026-01-01"] == before["ts_day=2026-01-01"]
    assert spark_lake.check().clean


def test_rows_of_unknown_answer_stay_and_without_a_match_nothing_happens(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)
    rows = orders(spark, 0, 4).selectExpr("id", "ts", "CASE WHEN id < 2 THEN amount END AS amount")
    spark_lake.insert(ORDERS, rows)
    before = logical_dump(spark_lake.registry, without=frozenset({"leases"}))

    none = spark_lake.delete(ORDERS, where="amount > 100")
    preview = spark_lake.delete(ORDERS, where="amount >= 0", dry_run=True)

    assert (none.rows, none.op_id, none.group) == (0, None, None)
    assert "no row of shop.orders satisfies 'amount > 100', among 4" in none.note
    assert (preview.rows, preview.dry_run, preview.op_id) == (2, True, None)
    assert logical_dump(spark_lake.registry, without=frozenset({"leases"})) == before
    assert spark_lake.delete(ORDERS, where="amount >= 0").rows == 2
    assert [row[2] for row in rows_of(spark_lake)] == [None, None]
    assert spark_lake.check().clean


def test_a_partition_without_rows_left_is_empty_and_only_touched_slices_of_a_view_are_stale(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)
    for first in (0, 100, 200):
        spark_lake.insert(ORDERS, orders(spark, first, 10), instance=f"i{first}")
    spark_lake.create_view_set("shop.copy", sql="SELECT id, ts FROM shop.orders", over=ORDERS, event_time="ts")
    assert spark_lake.materialize("shop.copy", instance=None).raise_failed().built == 3

    done = spark_lake.delete(ORDERS, where="id BETWEEN 95 AND 205")

    assert (done.rows, done.partitions, done.partitions_emptied) == (16, 2, 1)
    again = spark_lake.materialize("shop.copy", instance=None).raise_failed()
    assert {s.instance: str(s.outcome) for s in again.slices} == {"i0": "fresh", "i100": "empty", "i200": "built"}
    assert sorted(p.num_rows for p in spark_lake.list_partitions(ORDERS)) == [0, 4, 10]
    assert sorted(row.id for row in spark_lake.read("shop.copy").collect()) == [*range(10), 206, 207, 208, 209]
    assert spark_lake.delete(ORDERS, where="id >= 0", instance="i0").rows == 10
    assert spark_lake.table(ORDERS).row.row_count == 4
    assert spark_lake.check().clean


def test_a_touched_partition_that_changed_meanwhile_conflicts_and_what_was_added_stays(
    spark_lake: Lake, spark: SparkSession, url: str
) -> None:
    make_orders(spark_lake)
    spark_lake.insert(ORDERS, orders(spark, 0, 10))

    with meanwhile(spark_lake, url, lambda: spark_lake.insert(ORDERS, orders(spark, 5, 3))) as context:
        assert delete(context, ORDERS, "id >= 5").rows == 5
    assert [row[0] for row in rows_of(spark_lake)] == [0, 1, 2, 3, 4, 5, 6, 7]

    with (
        meanwhile(spark_lake, url, lambda: spark_lake.insert(ORDERS, orders(spark, 20, 3), mode="overwrite")) as context,
        pytest.raises(VictimsChangedError),
    ):
        delete(context, ORDERS, "id = 1")

    assert rows_of(spark_lake) == rows_of(orders(spark, 20, 3))
    registered = {f.file_path for f in spark_lake.files.list(ORDERS, retired=True)}
    root = Path(spark_lake.storage.paths.root)
    assert {str(root / path) for path in files_in(spark_lake) if "/data/" in path} == registered
    assert spark_lake.check().clean


def test_rows_of_every_version_are_found_by_the_names_of_today_and_keep_what_they_were_written_with(
    spark_lake: Lake, spark: SparkSession
) -> None:
    spark_lake.create_table("shop.events", schema_like(spark.createDataFrame([], NESTED)), event_time="ts")
    spark_lake.insert("shop.events", nested_rows(spark, 0, 10))
    _change(spark_lake, rename={"note": "remark"}, drop={"m"})
    wide = nested_rows(spark, 10, 10).selectExpr(
        "id", "ts", "note AS remark", "tags", "id AS note",
        "named_struct('a', id, 'b', named_struct('c', s.b.c, 'd', id)) AS s",
    )  # fmt: skip
    spark_lake.insert("shop.events", wide, evolve=True)
    before = stored_schemas(spark_lake, "shop.events")

    done = spark_lake.delete("shop.events", where="remark = 'n3' OR s.a = 4L OR tags[0].n = 5 OR s.b.d = 16 OR note = 17")

    assert (done.rows, done.partitions) == (5, 2)
    left = spark_lake.read("shop.events").selectExpr("id", "remark", "note", "s.a", "s.b.c", "s.b.d", "tags[0].k").collect()
    assert sorted(tuple(row) for row in left) == [
        (i, f"n{i}", i if i > 9 else None, i, i * 2, i if i > 9 else None, f"k{i}") for i in range(20) if i not in {3, 4, 5, 16, 17}
    ]
    columns = [spark.read.parquet(f.file_path).columns for f in spark_lake.files.list("shop.events")]
    assert sorted("m" in names for names in columns) == [False, True]
    assert stored_schemas(spark_lake, "shop.events") == before
    assert spark_lake.check(deep=True).clean


def _change(lake: Lake, *, rename: dict[str, str], drop: set[str]) -> None:
    name = table_name("shop.events")
    fields = tuple(replace(f, name=rename.get(f.name, f.name)) for f in lake.table(str(name)).schema.fields if f.name not in drop)
    within(lake.registry, lambda tx: evolve_schema(tx, name, Schema(fields=fields)), name)


@pytest.mark.parametrize(
    ("where", "error", "reason"),
    [
        ("", InvalidValueError, 'say which rows to delete, such as where="id = 7"'),
        (7, InvalidValueError, "say which rows to delete"),
        ("id = ", InvalidValueError, "cannot be parsed"),
        ("rand() < 0.5", InvalidValueError, "may change between two evaluations"),
        ("unix_timestamp() > id", InvalidValueError, "may change between two evaluations"),
        ("uuid() = 'x'", InvalidValueError, "may change between two evaluations"),
        ("id IN (SELECT id FROM shop.orders)", InvalidValueError, "must not contain a query"),
        ("nothing = 1", SparkRefusedError, "nothing"),
        ("id", SparkRefusedError, "BOOLEAN"),
        ("sum(id) > 3", SparkRefusedError, "WHERE"),
    ],
)
def test_a_condition_that_cannot_be_right_is_refused_and_nothing_is_changed(
    spark_lake: Lake, where: Any, error: type[Exception], reason: str
) -> None:
    make_orders(spark_lake)
    before = logical_dump(spark_lake.registry, without=frozenset({"leases"}))

    with pytest.raises(error, match=reason):
        spark_lake.delete(ORDERS, where=where)

    assert logical_dump(spark_lake.registry, without=frozenset({"leases"})) == before


def test_more_partitions_than_allowed_are_not_touched(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)
    for first in (0, 10, 20):
        spark_lake.insert(ORDERS, orders(spark, first, 10))
    before = read_rows(spark_lake)

    with pytest.raises(TooManyPartitionsError, match="3 partitions, 2 are allowed"):
        spark_lake.delete(ORDERS, where="id % 2 = 0", max_partitions=2)

    assert read_rows(spark_lake) == before
    assert list_runs(spark_lake.registry, job="delete") == []
    assert spark_lake.delete(ORDERS, where="id % 2 = 0", max_partitions=2, dry_run=True).partitions == 3
    assert spark_lake.delete(ORDERS, where="id % 2 = 0", max_partitions=3).rows == 15
    assert spark_lake.check().clean


def test_rows_of_a_view_set_are_not_deleted(spark_lake: Lake) -> None:
    make_view(spark_lake.registry)

    with pytest.raises(InvalidValueError, match=r"shop.daily is a view set.*delete them from its source and materialize it again"):
        spark_lake.delete("shop.daily", where="true")


def test_json_files_that_lose_rows_become_parquet(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)
    spark_lake.insert(ORDERS, orders(spark, 0, 10).coalesce(1), format="json")

    done = spark_lake.delete(ORDERS, where="id < 3")

    assert (done.rows, done.files_rewritten) == (3, 1)
    assert {f.file_type for f in spark_lake.files.list(ORDERS)} == {"parquet"}
    assert rows_of(spark_lake) == rows_of(orders(spark, 3, 7))
    assert spark_lake.check().clean


def test_other_engines_see_the_delete_in_one_snapshot(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake, partition_by=["bucket(2, id)"])
    with spark_lake.service(maintenance=False):
        first = spark_lake.insert(ORDERS, orders(spark, 0, 40), metadata_mode="sync")

        done = spark_lake.delete(ORDERS, where="id >= 10", metadata_mode="sync")

        assert done.snapshot_id not in {None, first.snapshot_id}
        table = StaticTable.from_metadata(_metadata_location(spark_lake))
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(10))
        assert [s.operation for s in spark_lake.snapshots(ORDERS)] == ["append", "overwrite"]
        assert spark_lake.delete(ORDERS, where="true").wait().snapshot_id is not None
        assert StaticTable.from_metadata(_metadata_location(spark_lake)).scan().to_arrow().num_rows == 0
    assert spark_lake.check().clean


def _metadata_location(lake: Lake) -> str:
    with lake.registry.read() as reader:
        found = max(list_snapshots(reader, lake.table(ORDERS).table_id), key=lambda s: s.sequence_number)
    return str(found.metadata_location)


def test_the_present_in_a_condition_is_one_moment_and_is_kept(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)
    rows = spark.range(0, 4, numPartitions=1).selectExpr("id", "now() + make_dt_interval(0, id * 10 - 15) AS ts", "0D AS amount")
    spark_lake.insert(ORDERS, rows)

    preview = spark_lake.delete(ORDERS, where="ts < now() AND date(ts) <= current_date() + 2 AND 'now()' != 'x'", dry_run=True)
    done = spark_lake.delete(ORDERS, where=preview.where)

    assert preview.where.startswith("ts < TIMESTAMP '20")
    assert "+00:00' AND date(ts) <= DATE '20" in preview.where
    assert preview.where.endswith("' + 2 AND 'now()' != 'x'")
    assert (preview.rows, done.rows) == (2, 2)
    assert [row.id for row in spark_lake.read(ORDERS).orderBy("id").collect()] == [2, 3]
    assert spark_lake.check().clean


def test_rows_without_an_event_time_may_be_all_that_is_left(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)
    spark_lake.insert(ORDERS, orders(spark, 0, 4).selectExpr("id", "CASE WHEN id < 2 THEN ts END AS ts", "amount").coalesce(1))

    assert spark_lake.delete(ORDERS, where="ts IS NOT NULL").rows == 2

    assert [row.id for row in spark_lake.read(ORDERS).orderBy("id").collect()] == [2, 3]
    assert spark_lake.check().clean
