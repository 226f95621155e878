"""What happens meanwhile: a materialization or merge either holds what it was built from, or changes nothing."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from view_lakes import DAY, add_orders, at_hour, make_orders, read_rows

from builders import within
from lakebed.core.errors import ConflictError, SourceChangedError, VictimsChangedError
from lakebed.core.names import TableName
from lakebed.pipeline.views.build import carry_out, materialize
from lakebed.pipeline.views.define import create_view_set
from lakebed.pipeline.views.merge import carry_out_merge, merge, plan_merge
from lakebed.pipeline.views.plan import plan_materialize
from lakebed.testing import FixedClock
from retiring import retire_by_ids

if TYPE_CHECKING:
    from lakebed.lake import Lake

ORDERS = TableName("shop", "orders")
IDS = "shop.ids"


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(DAY)


@pytest.fixture
def shop(timed_spark_lake: Lake, clock: FixedClock) -> Lake:
    """Two hours of orders, and a view of their numbers that is not built yet."""
    make_orders(timed_spark_lake)
    for hour in range(2):
        for minute in (0.1, 0.2):
            at_hour(clock, hour + minute)
            add_orders(timed_spark_lake, [(hour, "tea", int(hour * 10 + minute * 10), 1.0)])
    create_view_set(timed_spark_lake._context, IDS, sql="SELECT ts, id FROM shop.orders", over="shop.orders", event_time="ts")
    return timed_spark_lake


def staged_files(lake: Lake, name: str) -> set[str]:
    """Every data file in the directory of a table, registered or not."""
    table = lake.table(name)
    return {facts.path for facts in lake.storage.list_files(lake.storage.paths.table_directory(table.table_id, table.name))}


def test_a_materialization_whose_source_is_merged_meanwhile_succeeds(shop: Lake) -> None:
    plan = plan_materialize(shop._context, IDS)
    merge(shop._context, "shop.orders", window="1h")

    done = carry_out(shop._context, plan)

    assert [s.outcome for s in done] == ["built", "built"]
    assert materialize(shop._context, IDS).fresh == 2
    assert read_rows(shop, IDS, "id") == [(1,), (2,), (11,), (12,)]
    assert shop.check().clean


def test_it_succeeds_even_when_the_merge_reaches_over_the_edges_of_its_slices(shop: Lake) -> None:
    plan = plan_materialize(shop._context, IDS)
    assert merge(shop._context, "shop.orders").partitions_before == 4

    done = carry_out(shop._context, plan)

    assert [s.outcome for s in done] == ["built", "built"]
    assert [s.outcome for s in materialize(shop._context, IDS).slices] == ["fresh"]
    assert read_rows(shop, IDS, "id") == [(1,), (2,), (11,), (12,)]
    assert shop.check().clean


def test_a_materialization_whose_source_changed_meanwhile_conflicts_in_that_slice_alone(shop: Lake) -> None:
    plan = plan_materialize(shop._context, IDS)
    add_orders(shop, [(1, "rice", 99, 1.0)])

    done = sorted(carry_out(shop._context, plan), key=lambda s: s.insert_range.begin)

    assert [s.outcome for s in done] == ["built", "failed"]
    assert isinstance(done[1].error, SourceChangedError)
    assert str(done[1].error).startswith("shop.ids/global [2026-03-01T01:00:00Z, 2026-03-01T02:00:00Z) was built from rows of shop.orders")
    assert len(staged_files(shop, IDS)) == 1
    assert [s.outcome for s in materialize(shop._context, IDS).raise_failed().slices] == ["fresh", "built"]
    assert read_rows(shop, IDS, "id") == [(1,), (2,), (11,), (12,), (99,)]
    assert shop.check().clean


def test_of_two_builders_of_one_slice_the_second_conflicts_and_nothing_is_lost(shop: Lake) -> None:
    first, second = plan_materialize(shop._context, IDS), plan_materialize(shop._context, IDS)
    assert {s.outcome for s in carry_out(shop._context, first)} == {"built"}

    done = carry_out(shop._context, second)

    assert {s.outcome for s in done} == {"failed"}
    assert all(isinstance(s.error, ConflictError) for s in done)
    assert len(staged_files(shop, IDS)) == 2
    assert read_rows(shop, IDS, "id") == [(1,), (2,), (11,), (12,)]
    assert shop.check().clean


def test_a_rebuild_that_lost_its_slice_to_a_merge_of_the_view_changes_nothing(shop: Lake) -> None:
    materialize(shop._context, IDS)
    plan = plan_materialize(shop._context, IDS, regenerate=True)
    merge(shop._context, IDS)

    done = carry_out(shop._context, plan)

    assert all(isinstance(s.error, VictimsChangedError) for s in done)
    assert len(shop.list_partitions(IDS)) == 1
    assert materialize(shop._context, IDS).fresh == 1
    assert shop.check().clean


def test_a_merge_that_lost_a_partition_changes_nothing_and_a_retry_gives_the_new_content(shop: Lake) -> None:
    (run,) = plan_merge(shop._context, "shop.orders")
    victim = shop.list_partitions("shop.orders")[1]
    within(shop.registry, lambda tx: retire_by_ids(tx, ORDERS, {victim.partition_id}))
    before = staged_files(shop, "shop.orders")

    with pytest.raises(VictimsChangedError, match=r"shop\.orders"):
        carry_out_merge(shop._context, run)

    assert staged_files(shop, "shop.orders") == before
    assert len(shop.list_partitions("shop.orders")) == 3
    assert merge(shop._context, "shop.orders").runs[0].rows_after == 3
    assert read_rows(shop, "shop.orders", "id") == [(1,), (11,), (12,)]
    assert shop.check().clean


def test_an_insert_during_a_merge_is_not_lost(shop: Lake) -> None:
    (run,) = plan_merge(shop._context, "shop.orders")
    add_orders(shop, [(1, "rice", 77, 1.0)])

    carry_out_merge(shop._context, run)

    assert read_rows(shop, "shop.orders", "id") == [(1,), (2,), (11,), (12,), (77,)]
    assert len(shop.list_partitions("shop.orders")) == 2
    assert shop.check().clean


def test_of_two_merges_of_one_run_one_wins_and_the_rows_stay_the_same(shop: Lake) -> None:
    (one,), (other,) = plan_merge(shop._context, "shop.orders"), plan_merge(shop._context, "shop.orders")

    carry_out_merge(shop._context, one)
    with pytest.raises(VictimsChangedError):
        carry_out_merge(shop._context, other)

    assert read_rows(shop, "shop.orders", "id") == [(1,), (2,), (11,), (12,)]
    assert shop.check().clean


def test_a_replaced_partition_wins_over_a_merge_that_read_the_old_one(shop: Lake) -> None:
    (run,) = plan_merge(shop._context, "shop.orders")
    victim = shop.list_partitions("shop.orders")[0]
    add_orders(shop, [(0, "new", 1000, 1.0)], replacing=frozenset({victim.partition_id}))

    with pytest.raises(ConflictError):
        carry_out_merge(shop._context, run)

    assert read_rows(shop, "shop.orders", "id") == [(2,), (11,), (12,), (1000,)]
    assert shop.check().clean


def test_no_thread_is_left_behind(shop: Lake) -> None:
    before = {thread.name for thread in threading.enumerate()}

    materialize(shop._context, IDS, parallel=4)

    assert {thread.name for thread in threading.enumerate()} <= before | {"lakebed-reader"}
