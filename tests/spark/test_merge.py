"""Merging partitions: which become one, which files are rewritten, and that rows, counters and order of time stay right."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from view_lakes import DAY, add_orders, at_hour, make_orders, read_rows

from builders import grow_schema, logical_dump, within
from lakebed.core import fingerprints
from lakebed.core.errors import InvalidValueError, RewriteMismatchError, TableNotFoundError
from lakebed.core.names import TableName
from lakebed.core.schema.schema import Schema
from lakebed.pipeline.rows.types import from_spark
from lakebed.pipeline.views.build import materialize
from lakebed.pipeline.views.define import create_view_set
from lakebed.pipeline.views.merge import carry_out_merge, choose_small, merge, plan_merge
from lakebed.pipeline.write.insert import insert
from lakebed.pipeline.write.json import insert_json
from lakebed.registry.tables.lake_tables import TableSpec, create_table, require_table
from lakebed.registry.tables.versions import evolve_schema, set_properties
from lakebed.registry.tables.view_sets import LiveFile
from lakebed.testing import FixedClock

if TYPE_CHECKING:
    from lakebed.lake import Lake

ORDERS = TableName("shop", "orders")


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(DAY)


@pytest.fixture
def shop(timed_spark_lake: Lake) -> Lake:
    return timed_spark_lake


def fill(lake: Lake, clock: FixedClock, *hours: float) -> None:
    for hour in hours:
        at_hour(clock, hour)
        add_orders(lake, [(int(hour), "tea", int(hour * 10), 1.0), (int(hour), "rice", int(hour * 10) + 1, 1.0)])


def test_the_partitions_of_a_day_become_one_with_the_sum_of_their_fingerprints(shop: Lake, clock: FixedClock) -> None:
    make_orders(shop, sort_by=("id",))
    fill(shop, clock, 1, 22, 23, 25, 26)
    before, rows = shop.list_partitions("shop.orders"), read_rows(shop, "shop.orders")

    done = merge(shop._context, "shop.orders")

    after = shop.list_partitions("shop.orders")
    assert [(r.partitions, r.files_before, r.files_after, r.rows_after) for r in done.runs] == [(3, 3, 1, 6), (2, 2, 1, 4)]
    assert [p.begin_insert_time for p in after] == [before[0].begin_insert_time, before[3].begin_insert_time]
    assert [p.end_insert_time for p in after] == [before[2].end_insert_time, before[4].end_insert_time]
    assert [p.fingerprint for p in after] == [fingerprints.add(p.fingerprint for p in part) for part in (before[:3], before[3:])]
    assert read_rows(shop, "shop.orders") == rows
    assert merge(shop._context, "shop.orders").runs == ()
    assert shop.check().clean


def test_small_files_are_rewritten_per_partition_path_and_good_ones_stay_untouched(shop: Lake, clock: FixedClock) -> None:
    make_orders(shop, partition_by=("product",))
    schema = "ts timestamp, product string, id bigint, amount double"
    for hour in (1, 2):
        at_hour(clock, hour)
        rows = [(DAY + timedelta(hours=hour), product, hour, 1.0) for product in ("tea", "rice")]
        insert(shop._context, "shop.orders", shop.spark.createDataFrame(rows, schema))
    at_hour(clock, 3)
    insert(shop._context, "shop.orders", shop.spark.createDataFrame([(DAY, "salt", 3, 1.0)], schema))
    salt = next(f for f in shop.files.list("shop.orders") if f.partition_path == "product=salt")

    (run,) = merge(shop._context, "shop.orders").runs

    files = {f.partition_path: f for f in shop.files.list("shop.orders")}
    assert (run.files_before, run.files_after, sorted(files)) == (5, 3, ["product=rice", "product=salt", "product=tea"])
    assert files["product=salt"].file_path == salt.file_path
    assert {f.row_count for f in files.values()} == {1, 2}
    assert len({f.partition_id for f in files.values()}) == 1
    assert read_rows(shop, "shop.orders", "product", "id") == [("rice", 1), ("rice", 2), ("salt", 3), ("tea", 1), ("tea", 2)]
    assert shop.check().clean


def test_which_files_are_small_is_judged_per_partition_path() -> None:
    def file(number: int, path: str, size: int, kind: str = "parquet") -> LiveFile:
        return LiveFile(file_id=number, partition_id=1, path=str(number), size_bytes=size, file_type=kind, partition_path=path, row_count=1)

    files = [file(1, "a", 10), file(2, "a", 20), file(3, "a", 50), file(4, "b", 10), file(5, "c", 99, "json"), file(6, "d", 500)]

    assert [f.file_id for f in choose_small(files, target_bytes=100)] == [1, 2, 5]


def test_hours_of_empty_slices_become_one_empty_day(shop: Lake, clock: FixedClock) -> None:
    make_orders(shop)
    fill(shop, clock, 0, 23)
    for name, where in (("shop.none", "id < 0"), ("shop.one", "id = 0")):
        sql = f"SELECT ts, id FROM shop.orders WHERE {where}"
        create_view_set(shop._context, name, sql=sql, over="shop.orders", event_time="ts")
        assert len(materialize(shop._context, name).raise_failed().slices) == 24

    merges = [merge(shop._context, name).runs for name in ("shop.none", "shop.one")]

    assert [(run.partitions, run.rows_after, run.files_after) for (run,) in merges] == [(24, 0, 0), (24, 1, 1)]
    for name, rows in (("shop.none", 0), ("shop.one", 1)):
        (day,) = shop.list_partitions(name)
        assert (day.begin_insert_time, day.end_insert_time, day.num_rows) == (DAY, DAY + timedelta(days=1), rows)
        assert [s.outcome for s in materialize(shop._context, name).slices] == ["fresh"]
    assert shop.check().clean


def test_a_merge_never_covers_an_unprocessed_gap(shop: Lake, clock: FixedClock) -> None:
    make_orders(shop)
    fill(shop, clock, 0, 1, 2)
    create_view_set(shop._context, "shop.ids", sql="SELECT ts, id FROM shop.orders", over="shop.orders", event_time="ts")
    materialize(shop._context, "shop.ids", insert_end=DAY + timedelta(hours=1))
    materialize(shop._context, "shop.ids", insert_begin=DAY + timedelta(hours=2))

    assert merge(shop._context, "shop.ids").runs == ()

    materialize(shop._context, "shop.ids")
    assert [run.partitions for run in merge(shop._context, "shop.ids").runs] == [3]
    assert shop.check().clean


def test_partitions_of_different_schemas_stay_apart_and_all_rows_stay_readable(shop: Lake, clock: FixedClock) -> None:
    make_orders(shop)
    fill(shop, clock, 1, 2)
    grow_schema(shop.registry, ORDERS)
    fill(shop, clock, 3, 4)

    done = merge(shop._context, "shop.orders")

    assert [run.partitions for run in done.runs] == [2, 2]
    assert len({p.schema_hash for p in shop.list_partitions("shop.orders")}) == 2
    assert sorted(read_rows(shop, "shop.orders", "id")) == [(n,) for n in (10, 11, 20, 21, 30, 31, 40, 41)]
    assert shop.check().clean


def test_instances_are_merged_apart(shop: Lake) -> None:
    make_orders(shop)
    for number, instance in enumerate(["berlin", "paris", "berlin", "paris"]):
        add_orders(shop, [(0, "tea", number, 1.0)], instance=instance)

    alone = merge(shop._context, "shop.orders", instance="berlin")
    every = merge(shop._context, "shop.orders", instance=None)

    assert [[run.instance for run in result.runs] for result in (alone, every)] == [["berlin"], ["paris"]]
    assert read_rows(shop, "shop.orders", "id") == [(0,), (1,), (2,), (3,)]
    assert shop.check().clean


def test_a_shorter_window_and_a_range_limit_what_is_merged(shop: Lake, clock: FixedClock) -> None:
    make_orders(shop)
    fill(shop, clock, 1, 2, 7, 8, 13)

    ranged = merge(shop._context, "shop.orders", insert_begin=DAY, insert_end=DAY + timedelta(hours=2))
    narrow = merge(shop._context, "shop.orders", window="6h")

    assert (ranged.runs, [run.partitions for run in narrow.runs]) == ((), [2, 2])
    within(shop.registry, lambda tx: set_properties(tx, ORDERS, {"merge_window_us": 12 * 3600 * 10**6}), ORDERS)
    assert [run.partitions for run in merge(shop._context, "shop.orders").runs] == [2]
    assert shop.check().clean


def test_bad_requests_to_merge_change_nothing(shop: Lake, clock: FixedClock) -> None:
    make_orders(shop)
    fill(shop, clock, 1, 2)
    before = logical_dump(shop.registry)

    with pytest.raises(TableNotFoundError):
        merge(shop._context, "shop.nothing")
    with pytest.raises(InvalidValueError, match="does not divide"):
        merge(shop._context, "shop.orders", window="7h")
    with pytest.raises(InvalidValueError, match="positive"):
        merge(shop._context, "shop.orders", window="0h")
    with pytest.raises(InvalidValueError, match="target_bytes=0"):
        merge(shop._context, "shop.orders", target_bytes=0)

    assert logical_dump(shop.registry) == before


def test_a_merge_that_would_lose_rows_is_stopped_before_the_swap(shop: Lake, clock: FixedClock) -> None:
    make_orders(shop)
    fill(shop, clock, 1, 2)
    (run,) = plan_merge(shop._context, "shop.orders")
    wrong = replace(run.rewriting[0], row_count=3)

    with pytest.raises(RewriteMismatchError, match="gave 4 rows instead of 5"):
        carry_out_merge(shop._context, replace(run, rewriting=(wrong, *run.rewriting[1:])))

    assert len(shop.list_partitions("shop.orders")) == 2
    assert len(read_rows(shop, "shop.orders")) == 4
    assert shop.check().clean


def test_progress_is_reported_after_every_run(shop: Lake, clock: FixedClock) -> None:
    make_orders(shop)
    fill(shop, clock, 1, 2, 25, 26)
    told: list[tuple[int, int]] = []

    merge(shop._context, "shop.orders", progress=lambda done, total: told.append((done, total)))

    assert told == [(1, 2), (2, 2)]


def test_json_files_become_parquet_and_stay_readable(shop: Lake, clock: FixedClock) -> None:
    make_orders(shop)
    fill(shop, clock, 1)
    at_hour(clock, 2)
    rows = [(DAY, "salt", 5, 1.0)]
    insert_json(shop._context, "shop.orders", shop.spark.createDataFrame(rows, "ts timestamp, product string, id bigint, amount double"))
    before = read_rows(shop, "shop.orders")

    (run,) = merge(shop._context, "shop.orders").runs

    assert (run.partitions, run.rows_after) == (2, 3)
    assert {f.file_type for f in shop.files.list("shop.orders")} == {"parquet"}
    assert read_rows(shop, "shop.orders") == before
    assert shop.check().clean


def test_lists_maps_and_renamed_columns_survive_a_merge(shop: Lake, clock: FixedClock) -> None:
    frame = shop.spark.createDataFrame([(1, ["a", None], {"k": 2}, (3,))], "id int, tags array<string>, m map<string,int>, s struct<x:int>")
    name = TableName("shop", "things")
    create_table(shop.registry, TableSpec(name=name, schema=from_spark(frame.schema)))
    for hour in (1, 2):
        at_hour(clock, hour)
        insert(shop._context, "shop.things", frame)
    old = require_table(shop.registry, name).schema
    within(shop.registry, lambda tx: evolve_schema(tx, name, Schema(fields=(old.fields[0].renamed("number"), *old.fields[1:]))), name)

    assert [run.rows_after for run in merge(shop._context, "shop.things").runs] == [2]

    assert [str(row) for row in read_rows(shop, "shop.things", "number", "tags", "m", "s.x")] == ["(1, ['a', None], {'k': 2}, 3)"] * 2
    assert len(shop.files.list("shop.things")) == 1
    assert shop.check(deep=True).clean
