"""Rows that were inserted while the clock was ahead: named by the check, brought back to the present by the repair."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from builders import (
    ORDERS,
    SCHEMA,
    fake_file,
    logical_dump,
    make_table,
    new_partition,
    operation,
    publish,
    seal_pending,
    within,
    write_partition,
)
from ice import open_ice
from lakebed.check import check
from lakebed.core.errors import ClockRegressedError, VictimsChangedError
from lakebed.core.times import TimeRange
from lakebed.registry.partitions.publish import publish_partition
from lakebed.registry.repair.slots import reallocate_slots
from lakebed.registry.tables.lake_tables import require_table
from lakebed.repair import repair
from retiring import retire_by_ids

if TYPE_CHECKING:
    from lakebed.lake import Lake
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.transaction import Transaction
    from lakebed.testing import FixedClock

YEAR_S = 365 * 24 * 3600.0
MINUTE_US = 60 * 1_000_000


def slots_of(registry: Registry) -> list[tuple[int, int, int]]:
    """Begin, end and first event of every partition, in the order of their slots."""
    return registry.query("SELECT begin_insert_time, end_insert_time, num_rows FROM partitions ORDER BY begin_insert_time")


def last_slot(registry: Registry) -> int:
    return int(registry.query("SELECT last_slot FROM table_seq")[0][0])


def redraw(registry: Registry, *, most: int = 100) -> int:
    def body(tx: Transaction) -> int:
        return reallocate_slots(tx, tx.require(ORDERS), most=most)

    return within(registry, body)


@pytest.fixture
def blocked(timed_registry: Registry, clock: FixedClock) -> LakeTable:
    """One insert at noon, then three under a clock that is a year ahead; by now it is right again, and one o'clock."""
    table = make_table(timed_registry)
    publish(timed_registry, table, fake_file(1, rows=1))
    clock.advance(seconds=YEAR_S)
    for number in (2, 3, 4):
        publish(timed_registry, table, fake_file(number, rows=number))
    clock.advance(seconds=3600 - YEAR_S)
    return table


def test_inserts_go_on_after_the_partitions_of_the_future_got_slots_of_now_in_their_order(
    timed_registry: Registry, clock: FixedClock, blocked: LakeTable
) -> None:
    first = slots_of(timed_registry)[0]
    with pytest.raises(ClockRegressedError):
        publish(timed_registry, blocked, fake_file(5, rows=5))

    assert redraw(timed_registry) == 3
    publish(timed_registry, blocked, fake_file(5, rows=5))

    assert slots_of(timed_registry) == [first, *((clock.micros + n, clock.micros + n + 1, n + 1) for n in range(1, 5))]
    assert last_slot(timed_registry) == clock.micros + 4
    assert check(timed_registry).clean
    assert require_table(timed_registry, ORDERS).row.row_count == 15


def test_check_names_the_table_and_the_repair_is_a_preview_first(timed_lake: Lake, clock: FixedClock) -> None:
    timed_lake.create_table(str(ORDERS), SCHEMA, event_time="ts")
    with closing(open_ice(timed_lake)) as ice:
        clock.advance(seconds=YEAR_S)
        rows = [write_partition(timed_lake, number) for number in range(2)]
        seal_pending(timed_lake.registry)
        ice.committer.advance(rows[0].table_id)
        clock.advance(seconds=-YEAR_S)
        before = logical_dump(timed_lake.registry)

        (found,) = timed_lake.check().findings
        planned = repair(timed_lake.registry, timed_lake.storage)
        unchanged = logical_dump(timed_lake.registry) == before
        done = repair(timed_lake.registry, timed_lake.storage, dry_run=False)
        snapshot = ice.committer.advance(rows[0].table_id)

    assert (found.rule, found.table, found.facts[1]) == ("slot_in_future", "shop.orders", 2)
    assert ([step.remedy for step in planned.steps], unchanged) == (["new_slots"], True)
    assert [(step.remedy, step.outcome, step.told) for step in done.steps] == [("new_slots", "done", "2 partition(s) have new slots")]
    assert (done.clean, snapshot) == (True, None), "Iceberg holds the same files"
    assert write_partition(timed_lake, 3).insert_range.begin == clock.micros + 3


def test_a_merged_partition_that_begins_in_the_past_only_ends_earlier(timed_registry: Registry, clock: FixedClock) -> None:
    table = make_table(timed_registry)
    parts = [publish(timed_registry, table, fake_file(1, rows=1))]
    clock.advance(seconds=3600)
    parts.append(publish(timed_registry, table, fake_file(2, rows=2)))
    whole = TimeRange(begin=parts[0].insert_range.begin, end=parts[1].insert_range.end)
    merged = replace(new_partition(table, fake_file(3, rows=3)), insert_range=whole)
    publish_partition(timed_registry, merged, operation(), replacing={part.partition_id for part in parts})
    publish(timed_registry, table, fake_file(4, rows=4))
    clock.advance(seconds=-1800)

    assert redraw(timed_registry) == 2
    publish(timed_registry, table, fake_file(5, rows=5))

    now = clock.micros
    assert slots_of(timed_registry) == [(whole.begin, now + 1, 3), (now + 1, now + 2, 4), (now + 2, now + 3, 5)]
    assert check(timed_registry).clean


def test_every_instance_and_version_keeps_its_order(timed_registry: Registry, clock: FixedClock) -> None:
    table = make_table(timed_registry)
    clock.advance(seconds=YEAR_S)
    for number, instance in enumerate(["eu", "us", "eu"], start=1):
        publish(timed_registry, table, fake_file(number, rows=number), instance=instance)
    publish(timed_registry, table, instance="us")
    clock.advance(seconds=-YEAR_S)

    assert redraw(timed_registry) == 4

    assert [rows for _, _, rows in slots_of(timed_registry)] == [1, 2, 3, 0]
    assert check(timed_registry).clean


def test_a_table_whose_partitions_are_gone_gets_its_last_slot_lowered(
    timed_registry: Registry, clock: FixedClock, blocked: LakeTable
) -> None:
    ids = frozenset(row[0] for row in timed_registry.query("SELECT id FROM partitions"))
    within(timed_registry, lambda tx: retire_by_ids(tx, ORDERS, ids))

    assert redraw(timed_registry) == 0

    assert publish(timed_registry, blocked, fake_file(6)).insert_range.begin == clock.micros + 1


def test_slices_behind_the_last_slot_stay_where_a_caller_put_them(timed_registry: Registry, clock: FixedClock, blocked: LakeTable) -> None:
    by_hand = TimeRange(begin=last_slot(timed_registry) + MINUTE_US, end=last_slot(timed_registry) + 2 * MINUTE_US)
    publish_partition(timed_registry, replace(new_partition(blocked, fake_file(9, rows=9)), insert_range=by_hand), operation())

    assert redraw(timed_registry) == 3

    assert slots_of(timed_registry)[-1] == (by_hand.begin, by_hand.end, 9)
    assert last_slot(timed_registry) == clock.micros + 3
    assert check(timed_registry).clean


def test_nothing_is_done_once_the_time_of_the_slots_has_come(timed_registry: Registry, clock: FixedClock, blocked: LakeTable) -> None:
    clock.advance(seconds=YEAR_S)
    before = slots_of(timed_registry)

    assert redraw(timed_registry) == 0

    assert slots_of(timed_registry) == before
    publish(timed_registry, blocked, fake_file(7))


def test_more_partitions_than_allowed_keep_their_slots(timed_lake: Lake, clock: FixedClock) -> None:
    table = make_table(timed_lake.registry)
    clock.advance(seconds=YEAR_S)
    publish(timed_lake.registry, table)
    publish(timed_lake.registry, table)
    clock.advance(seconds=-YEAR_S)
    before = slots_of(timed_lake.registry)

    done = repair(timed_lake.registry, timed_lake.storage, dry_run=False, max_partitions=1)

    assert [(step.remedy, step.outcome, "2 partitions" in step.told) for step in done.steps] == [("new_slots", "failed", True)]
    assert [left.rule for left in done.left] == ["slot_in_future"]
    assert slots_of(timed_lake.registry) == before


def test_a_caller_that_planned_to_replace_a_partition_of_the_future_is_refused(timed_registry: Registry, blocked: LakeTable) -> None:
    ids = [row[0] for row in timed_registry.query("SELECT id FROM partitions ORDER BY begin_insert_time")]
    redraw(timed_registry)

    with pytest.raises(VictimsChangedError):
        publish(timed_registry, blocked, fake_file(8), replacing={ids[-1]})
