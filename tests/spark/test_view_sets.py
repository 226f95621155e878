"""View sets end to end: slices, partial results, lookups, freshness, on Spark and both registries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from view_lakes import BY_PRODUCT, COMBINE, DAY, add_orders, add_prices, ask_everything, at_hour, make_orders, make_prices, read_rows

from lakebed.pipeline.views.build import materialize
from lakebed.pipeline.views.define import create_view_set
from lakebed.pipeline.views.merge import merge
from lakebed.pipeline.write.insert import insert
from lakebed.testing import FixedClock

if TYPE_CHECKING:
    from lakebed.lake import Lake


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(DAY)


@pytest.fixture
def shop(timed_spark_lake: Lake) -> Lake:
    make_orders(timed_spark_lake)
    return timed_spark_lake


def fill_hours(lake: Lake, clock: FixedClock, hours: int) -> None:
    """One insert per hour, of one order of each of two products; amounts are the hour's number."""
    for hour in range(hours):
        at_hour(clock, hour + 0.5)
        add_orders(lake, [(hour, "tea", hour * 10, float(hour)), (hour, "rice", hour * 10 + 1, 1.0)])


def test_hourly_partials_combine_to_the_answer_of_one_query_over_everything(shop: Lake, clock: FixedClock) -> None:
    fill_hours(shop, clock, 3)
    create_view_set(shop._context, "shop.by_product", sql=BY_PRODUCT, over="shop.orders", event_time="ts", combine=COMBINE)

    done = materialize(shop._context, "shop.by_product").raise_failed()

    assert (done.built, done.empty, done.fresh, done.rows) == (3, 0, 0, 6)
    assert len(shop.list_partitions("shop.by_product")) == 3
    assert read_rows(shop, "shop.by_product") == ask_everything(shop, BY_PRODUCT)
    assert read_rows(shop, "shop.by_product", "product", "n", "amount") == [("rice", 3, 3.0), ("tea", 3, 3.0)]
    assert materialize(shop._context, "shop.by_product").fresh == 3
    assert shop.check().clean


def test_a_join_finds_what_a_lookup_was_given_long_ago(shop: Lake, clock: FixedClock) -> None:
    make_prices(shop)
    at_hour(clock, -24 * 30)
    add_prices(shop, {"tea": 2.5, "rice": 4.0})
    fill_hours(shop, clock, 2)
    sql = "SELECT o.ts, o.id, p.price * o.amount AS due FROM shop.orders o JOIN shop.prices p ON o.product = p.product"
    create_view_set(shop._context, "shop.due", sql=sql, over="shop.orders", event_time="ts")

    assert materialize(shop._context, "shop.due").raise_failed().built == 2

    assert read_rows(shop, "shop.due", "id", "due") == [(0, 0.0), (1, 4.0), (10, 2.5), (11, 4.0)]
    assert shop.check().clean


def test_tracked_lookups_make_slices_stale_and_ignored_ones_do_not(shop: Lake, clock: FixedClock) -> None:
    make_prices(shop)
    add_prices(shop, {"tea": 2.0})
    fill_hours(shop, clock, 1)
    sql = "SELECT o.id, p.price FROM shop.orders o LEFT JOIN shop.prices p ON o.product = p.product"
    for name, lookups in (("shop.tracked", "track"), ("shop.ignored", "ignore")):
        create_view_set(shop._context, name, sql=sql, over="shop.orders", lookups=lookups)  # type: ignore[arg-type] # one of the two
        assert materialize(shop._context, name).built == 1
    merge(shop._context, "shop.prices")
    assert materialize(shop._context, "shop.tracked").fresh == 1

    add_prices(shop, {"rice": 3.0})

    assert (materialize(shop._context, "shop.tracked").built, materialize(shop._context, "shop.ignored").fresh) == (1, 1)
    assert read_rows(shop, "shop.tracked") == [(0, 2.0), (1, 3.0)]
    assert shop.check().clean


def test_hours_without_orders_are_empty_slices_that_are_written_once(shop: Lake, clock: FixedClock) -> None:
    for hour in (0, 4):
        at_hour(clock, hour + 0.5)
        add_orders(shop, [(hour, "tea", hour, 1.0)])
    create_view_set(shop._context, "shop.teas", sql="SELECT * FROM shop.orders WHERE product = 'tea'", over="shop.orders", event_time="ts")

    first, second = materialize(shop._context, "shop.teas"), materialize(shop._context, "shop.teas")

    assert (first.built, first.empty, second.fresh, second.built + second.empty) == (2, 3, 5, 0)
    empty = [p for p in shop.list_partitions("shop.teas") if p.num_rows == 0]
    assert [(p.file_count, p.min_event_time, p.file_path) for p in empty] == [(0, None, None)] * 3
    assert shop.check().clean


def test_a_slice_whose_rows_are_all_filtered_away_is_empty_and_leaves_no_file(shop: Lake, clock: FixedClock) -> None:
    fill_hours(shop, clock, 1)
    create_view_set(shop._context, "shop.none", sql="SELECT ts, id FROM shop.orders WHERE id < 0", over="shop.orders", event_time="ts")

    assert materialize(shop._context, "shop.none").raise_failed().empty == 1

    assert shop.files.list("shop.none") == []
    assert shop.check().clean


def test_new_orders_make_exactly_their_slice_stale(shop: Lake, clock: FixedClock) -> None:
    fill_hours(shop, clock, 3)
    create_view_set(shop._context, "shop.by_product", sql=BY_PRODUCT, over="shop.orders", combine=COMBINE, event_time="ts")
    materialize(shop._context, "shop.by_product")

    add_orders(shop, [(0, "late", 99, 7.0)])  # of the first hour by its event, of the third by its arrival
    done = materialize(shop._context, "shop.by_product").raise_failed()

    assert [s.outcome for s in done.slices] == ["fresh", "fresh", "built"]
    assert read_rows(shop, "shop.by_product", "product", "n") == [("late", 1), ("rice", 3), ("tea", 3)]
    assert shop.check().clean


def test_merging_the_source_leaves_the_view_fresh_and_as_many_other_rows_make_it_stale(shop: Lake, clock: FixedClock) -> None:
    fill_hours(shop, clock, 3)
    create_view_set(shop._context, "shop.by_product", sql=BY_PRODUCT, over="shop.orders", combine=COMBINE, event_time="ts")
    materialize(shop._context, "shop.by_product")

    assert merge(shop._context, "shop.orders").partitions_before == 3
    (merged,) = shop.list_partitions("shop.orders")
    unchanged = materialize(shop._context, "shop.by_product")
    add_orders(shop, [(n, "salt", n, 2.0) for n in range(6)], replacing=frozenset({merged.partition_id}))
    changed = materialize(shop._context, "shop.by_product").raise_failed()

    assert [s.outcome for s in unchanged.slices] == ["fresh"]
    assert [s.outcome for s in changed.slices] == ["empty", "empty", "built"]
    assert read_rows(shop, "shop.by_product", "product", "n", "amount") == [("salt", 6, 12.0)]
    assert shop.check().clean


def test_a_merged_source_never_blocks_a_refresh(shop: Lake, clock: FixedClock) -> None:
    fill_hours(shop, clock, 3)
    merge(shop._context, "shop.orders")
    create_view_set(shop._context, "shop.ids", sql="SELECT ts, id FROM shop.orders", over="shop.orders", event_time="ts")

    done = materialize(shop._context, "shop.ids").raise_failed()

    (one,) = done.slices
    assert (one.insert_range.end - one.insert_range.begin, one.rows) == (3 * 3600 * 10**6, 6)
    at_hour(clock, 2.75)
    add_orders(shop, [(2, "tea", 50, 1.0)])
    assert materialize(shop._context, "shop.ids").raise_failed().built == 1
    assert len(read_rows(shop, "shop.ids")) == 7
    assert len(shop.list_partitions("shop.ids")) == 1
    assert shop.check().clean


def test_merging_the_hours_of_a_view_combines_its_partials_and_leaves_it_fresh(shop: Lake, clock: FixedClock) -> None:
    fill_hours(shop, clock, 3)
    at_hour(clock, 5.5)
    add_orders(shop, [(5, "tea", 50, 5.0)])
    create_view_set(shop._context, "shop.by_product", sql=BY_PRODUCT, over="shop.orders", combine=COMBINE, event_time="ts")
    materialize(shop._context, "shop.by_product")
    before = read_rows(shop, "shop.by_product")

    done = merge(shop._context, "shop.by_product")

    (run,) = done.runs
    assert (run.partitions, run.rows_before, run.rows_after, run.files_after) == (6, 7, 2, 1)
    assert read_rows(shop, "shop.by_product") == before
    assert [s.outcome for s in materialize(shop._context, "shop.by_product").slices] == ["fresh"]
    assert merge(shop._context, "shop.by_product").runs == ()
    assert shop.check().clean


def test_an_insert_without_rows_leaves_views_fresh(shop: Lake, clock: FixedClock) -> None:
    fill_hours(shop, clock, 1)
    create_view_set(shop._context, "shop.ids", sql="SELECT ts, id FROM shop.orders", over="shop.orders", event_time="ts")
    materialize(shop._context, "shop.ids")

    insert(
        shop._context, "shop.orders", shop.spark.sql("SELECT timestamp'2026-03-01' AS ts, 'x' AS product, 1L AS id, 1D AS amount").limit(0)
    )

    assert len(shop.list_partitions("shop.orders")) == 2
    assert materialize(shop._context, "shop.ids").fresh == 1
    assert shop.check().clean
