"""Replacing partitions: a compare-and-swap on their ids that wins whole or changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from builders import (
    ORDERS,
    START,
    count,
    fake_file,
    logical_dump,
    make_table,
    micros_of,
    new_partition,
    operation,
    publish,
    seal_pending,
    within,
)
from lakebed.core.errors import PartitionConflictError, VictimsChangedError
from lakebed.core.names import TableName
from lakebed.core.times import to_micros
from lakebed.registry.partitions.publish import publish_partition
from lakebed.registry.queries.listing import list_files, list_partitions
from retiring import retire_by_ids, retire_expired

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry


def test_a_swap_makes_the_new_live_and_retires_exactly_the_old(registry: Registry) -> None:
    table = make_table(registry)
    old = [publish(registry, table, fake_file(n), hours=(n, n + 1)).partition_id for n in range(3)]

    done = publish(registry, table, fake_file(9), hours=(0, 2), replacing=frozenset(old[:2]))

    assert [p.partition_id for p in list_partitions(registry, table.table_id)] == [old[2], done.partition_id]
    retired = [f for f in list_files(registry, table.table_id, retired=True) if f.retired_seq is not None]
    assert {f.partition_id for f in retired} == set(old[:2])
    assert {f.retired_seq for f in retired} == {done.journal_number}
    assert count(registry, "temporary_files", "reason = 'replaced'") == 2


def test_a_swap_is_a_group_of_its_own_for_outputs_and_victims(registry: Registry) -> None:
    table = make_table(registry)
    old = publish(registry, table, fake_file(1), hours=(0, 1))
    assert seal_pending(registry) == 1

    done = publish(registry, table, fake_file(2), hours=(0, 1), replacing=frozenset({old.partition_id}))

    gone, made = list_files(registry, table.table_id, retired=True)
    assert done.group == 2
    assert (gone.added_group, gone.removed_group, made.added_group, made.removed_group) == (1, 2, 2, None)


def test_a_swap_that_lost_a_victim_changes_nothing(registry: Registry) -> None:
    table = make_table(registry)
    old = [publish(registry, table, fake_file(n), hours=(n, n + 1)).partition_id for n in range(3)]
    within(registry, lambda tx: retire_by_ids(tx, ORDERS, {old[1]}))
    before = logical_dump(registry)

    with pytest.raises(VictimsChangedError, match=r"shop\.orders: partitions \d+ were replaced or retired meanwhile") as lost:
        publish(registry, table, fake_file(9), hours=(0, 3), replacing=frozenset(old))

    assert lost.value.missing == (old[1],)
    assert logical_dump(registry) == before


def test_partitions_of_another_table_are_not_replaced(registry: Registry) -> None:
    table, other = make_table(registry), make_table(registry, TableName("shop", "returns"))
    foreign = publish(registry, other, fake_file(1), hours=(0, 1)).partition_id
    before = logical_dump(registry)

    with pytest.raises(VictimsChangedError):
        publish(registry, table, fake_file(2), hours=(0, 1), replacing=frozenset({foreign}))

    assert logical_dump(registry) == before


def test_a_swap_into_a_slice_that_was_taken_meanwhile_changes_nothing(registry: Registry) -> None:
    table = make_table(registry)
    old = publish(registry, table, fake_file(1), hours=(0, 1)).partition_id
    publish(registry, table, fake_file(2), hours=(1, 2))
    before = logical_dump(registry)

    with pytest.raises(PartitionConflictError, match=r"\[2026-01-01T01:00:00Z, 2026-01-01T02:00:00Z\)"):
        publish(registry, table, fake_file(3), hours=(0, 2), replacing=frozenset({old}))

    assert logical_dump(registry) == before


def test_replacing_by_nothing_leaves_an_empty_partition(registry: Registry) -> None:
    table = make_table(registry)
    old = publish(registry, table, fake_file(1), hours=(0, 1)).partition_id

    publish(registry, table, hours=(0, 1), replacing=frozenset({old}))

    (row,) = list_partitions(registry, table.table_id)
    assert (row.num_rows, row.file_count) == (0, 0)
    assert list_files(registry, table.table_id) == []


def test_a_merge_of_empty_hours_and_one_full_hour_has_exactly_its_rows(registry: Registry) -> None:
    table = make_table(registry)
    hours = [publish(registry, table, *([fake_file(7, rows=70)] if h == 7 else []), hours=(h, h + 1)).partition_id for h in range(24)]

    publish(registry, table, fake_file(70, rows=70), hours=(0, 24), replacing=frozenset(hours))

    (day,) = list_partitions(registry, table.table_id)
    assert (day.num_rows, day.file_count) == (70, 1)


def test_kept_files_move_into_the_new_partition_untouched(registry: Registry) -> None:
    table = make_table(registry)
    first = publish(registry, table, fake_file(1, rows=10), fake_file(2, rows=20), hours=(0, 1))
    second = publish(registry, table, fake_file(3, rows=30), hours=(1, 2))
    kept = first.file_ids[1]

    done = publish(
        registry, table, fake_file(4, rows=40), hours=(0, 2),
        replacing=frozenset({first.partition_id, second.partition_id}), keeping=frozenset({kept}),
    )  # fmt: skip

    live = {f.id: f for f in list_files(registry, table.table_id)}
    assert set(live) == {kept, *done.file_ids}
    assert (live[kept].partition_id, live[kept].added_seq) == (done.partition_id, first.journal_number)
    (day,) = list_partitions(registry, table.table_id)
    assert (day.num_rows, day.file_count) == (60, 2)


def test_a_merge_that_only_keeps_files_takes_their_event_range(registry: Registry) -> None:
    table = make_table(registry)
    old = publish(registry, table, fake_file(1), hours=(0, 1))

    publish(registry, table, hours=(0, 2), replacing=frozenset({old.partition_id}), keeping=frozenset(old.file_ids))

    (row,) = list_partitions(registry, table.table_id)
    assert (row.num_rows, row.file_count) == (100, 1)
    assert row.min_event_time == START


def test_the_event_range_of_a_merge_covers_what_it_kept(registry: Registry) -> None:
    """Else retention would judge the kept rows by the range of the rewritten ones alone."""
    table = make_table(registry)
    base = micros_of(START)
    young = replace(new_partition(table, fake_file(1), hours=(0, 1)), event_range=(base + 5000, base + 9000))
    kept = publish_partition(registry, young, operation())
    merged = replace(new_partition(table, fake_file(2), hours=(0, 2)), event_range=(base, base + 100))

    publish_partition(registry, merged, operation(), replacing={kept.partition_id}, keeping=set(kept.file_ids))

    (row,) = list_partitions(registry, table.table_id)
    assert row.min_event_time is not None
    assert row.max_event_time is not None
    assert (to_micros(row.min_event_time), to_micros(row.max_event_time)) == (base, base + 9000)
    assert within(registry, lambda tx: retire_expired(tx, ORDERS, cutoff=base + 5000)).partitions == 0


def test_a_swap_that_keeps_a_file_that_is_gone_changes_nothing(registry: Registry) -> None:
    table = make_table(registry)
    old = publish(registry, table, fake_file(1), fake_file(2), hours=(0, 1))
    other = publish(registry, table, fake_file(3), hours=(5, 6))
    before = logical_dump(registry)

    with pytest.raises(VictimsChangedError, match="files"):
        publish(registry, table, hours=(0, 1), replacing=frozenset({old.partition_id}), keeping=frozenset({other.first_file_id}))

    assert logical_dump(registry) == before


def test_a_swap_that_drops_and_adds_the_same_rows_leaves_the_counters(registry: Registry) -> None:
    table = make_table(registry)
    old = publish(registry, table, fake_file(1, rows=10), fake_file(2, rows=20), hours=(0, 1))
    sums = "SELECT row_count FROM tables"
    assert registry.query(sums) == [(30,)]

    publish(registry, table, fake_file(3, rows=30), hours=(0, 1), replacing=frozenset({old.partition_id}))

    assert registry.query(sums) == [(30,)]
    assert registry.query("SELECT row_count, file_count FROM table_stats") == [(30, 1)]


def test_two_swaps_of_the_same_victims_have_one_winner(registry: Registry) -> None:
    table = make_table(registry)
    old = publish(registry, table, fake_file(1), hours=(0, 1)).partition_id
    winner = publish(registry, table, fake_file(2), hours=(0, 1), replacing=frozenset({old}))

    with pytest.raises(VictimsChangedError):
        publish(registry, table, fake_file(3), hours=(0, 1), replacing=frozenset({old}))

    assert [p.partition_id for p in list_partitions(registry, table.table_id)] == [winner.partition_id]
