"""Retiring: by key, by ids, by range, by age; in one transaction, and never twice."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import (
    DAILY,
    HOUR,
    ORDERS,
    START,
    count,
    fake_file,
    fresh_name,
    grow_schema,
    insert_hours,
    logical_dump,
    make_table,
    make_view,
    micros_of,
    new_partition,
    operation,
    publish,
    seal_pending,
    stage,
    within,
)
from lakebed.core.errors import AmbiguousPartitionError, InvalidValueError, PartitionNotFoundError, VictimsChangedError
from lakebed.registry.files.deletion_queue import queue_files
from lakebed.registry.files.footers import load_footer
from lakebed.registry.partitions.publish import publish_partition
from lakebed.registry.partitions.retire import Retired
from lakebed.registry.queries.listing import list_files, list_partitions
from retiring import RetiredRange, retire_by_ids, retire_by_key, retire_by_range, retire_expired

if TYPE_CHECKING:
    from lakebed.core.names import TableName
    from lakebed.registry.registry import Registry
    from lakebed.testing import FixedClock


def by_key(
    registry: Registry, hours: tuple[int, int], name: TableName = ORDERS, *, schema_hash: str | None = None, instance: str = "global"
) -> Retired:
    wanted = insert_hours(*hours)
    return within(registry, lambda tx: retire_by_key(tx, name, instance=instance, insert_range=wanted, schema_hash=schema_hash), name)


def by_range(registry: Registry, hours: tuple[int, int], *, instance: str | None = None, schema_hash: str | None = None) -> RetiredRange:
    wanted = insert_hours(*hours)
    return within(registry, lambda tx: retire_by_range(tx, ORDERS, wanted, instance=instance, schema_hash=schema_hash))


def live_hours(registry: Registry, table_id: int) -> list[tuple[int, int]]:
    rows = list_partitions(registry, table_id)
    return sorted(
        (int((r.begin_insert_time - START).total_seconds()) // 3600, int((r.end_insert_time - START).total_seconds()) // 3600) for r in rows
    )


def test_retiring_by_key_takes_exactly_that_partition(registry: Registry) -> None:
    table = make_table(registry)
    for h in range(3):
        publish(registry, table, fake_file(h), hours=(h, h + 1))

    done = by_key(registry, (1, 2))

    assert (done.partitions, done.files) == (1, 1)
    assert live_hours(registry, table.table_id) == [(0, 1), (2, 3)]


def test_an_empty_partition_retires_as_a_full_one_does(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, hours=(0, 1))

    assert by_key(registry, (0, 1)) == Retired(partitions=1, files=0)

    assert live_hours(registry, table.table_id) == []
    assert count(registry, "temporary_files") == 0


def test_the_same_slice_under_two_schemas_is_ambiguous_and_nothing_is_done(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1), hours=(0, 1))
    later = grow_schema(registry)
    publish(registry, table, fake_file(2), hours=(0, 1), schema_hash=later)
    before = logical_dump(registry)

    with pytest.raises(AmbiguousPartitionError, match="exists under 2 schemas") as refused:
        by_key(registry, (0, 1))

    assert refused.value.schema_hashes == tuple(sorted([table.schema_hash, later]))
    assert logical_dump(registry) == before


def test_the_twin_of_another_schema_survives(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1), hours=(0, 1))
    later = grow_schema(registry)
    publish(registry, table, fake_file(2), hours=(0, 1), schema_hash=later)

    by_key(registry, (0, 1), schema_hash=table.schema_hash)

    assert [p.schema_hash for p in list_partitions(registry, table.table_id)] == [later]


def test_a_key_that_matches_nothing_names_the_range_that_exists(registry: Registry) -> None:
    table = make_table(registry)
    with pytest.raises(PartitionNotFoundError, match="the table has no partitions"):
        by_key(registry, (0, 1))
    publish(registry, table, fake_file(1), hours=(2, 5))
    before = logical_dump(registry)

    with pytest.raises(PartitionNotFoundError, match=r"its partitions are in \[2026-01-01T02:00:00Z, 2026-01-01T05:00:00Z\)"):
        by_key(registry, (2, 4))
    with pytest.raises(PartitionNotFoundError, match="under schema beef"):
        by_key(registry, (2, 5), schema_hash="beef")
    with pytest.raises(PartitionNotFoundError):
        by_key(registry, (2, 5), instance="tenant-7")

    assert logical_dump(registry) == before


def test_retiring_by_ids_is_all_or_nothing_by_default(registry: Registry) -> None:
    table = make_table(registry)
    ids = {publish(registry, table, fake_file(h), hours=(h, h + 1)).partition_id for h in range(3)}
    gone = min(ids)
    within(registry, lambda tx: retire_by_ids(tx, ORDERS, {gone}))
    before = logical_dump(registry)

    with pytest.raises(VictimsChangedError):
        within(registry, lambda tx: retire_by_ids(tx, ORDERS, ids))
    assert logical_dump(registry) == before

    assert within(registry, lambda tx: retire_by_ids(tx, ORDERS, ids, exactly=False)).partitions == 2


def test_a_range_takes_what_it_contains_and_names_what_straddles(registry: Registry) -> None:
    table = make_table(registry)
    for hours in [(0, 2), (2, 3), (3, 4), (4, 6), (6, 7)]:
        publish(registry, table, fake_file(hours[0]), hours=hours)

    done = by_range(registry, (1, 5))

    assert done.partitions == 2
    assert [str(s) for s in done.straddles] == [f"shop.orders/global {insert_hours(0, 2)}", f"shop.orders/global {insert_hours(4, 6)}"]
    assert live_hours(registry, table.table_id) == [(0, 2), (4, 6), (6, 7)]


def test_a_range_is_half_open(registry: Registry) -> None:
    table = make_table(registry)
    for h in range(4):
        publish(registry, table, fake_file(h), hours=(h, h + 1))

    done = by_range(registry, (1, 2))

    assert (done.partitions, done.straddles) == (1, ())
    assert live_hours(registry, table.table_id) == [(0, 1), (2, 3), (3, 4)]


def test_a_range_can_be_narrowed_to_an_instance_or_a_schema(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1), hours=(0, 1))
    publish(registry, table, fake_file(2), hours=(0, 1), instance="tenant-7")
    later = grow_schema(registry)
    publish(registry, table, fake_file(3), hours=(0, 1), schema_hash=later)

    assert by_range(registry, (0, 9), instance="tenant-7").partitions == 1
    assert by_range(registry, (0, 9), schema_hash=later).partitions == 1
    assert [p.schema_hash for p in list_partitions(registry, table.table_id)] == [table.schema_hash]


def test_a_range_that_matches_nothing_says_so_and_changes_nothing(registry: Registry) -> None:
    publish(registry, make_table(registry), fake_file(1), hours=(0, 1))
    before = logical_dump(registry)

    assert by_range(registry, (5, 9)) == RetiredRange()

    assert logical_dump(registry) == before


@settings(max_examples=10)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 4)), max_size=8), st.tuples(st.integers(0, 12), st.integers(1, 6)))
def test_the_retired_set_is_the_model_predicate_and_a_second_time_changes_nothing(
    registry: Registry, slices: list[tuple[int, int]], asked: tuple[int, int]
) -> None:
    table = make_table(registry, fresh_name())
    model: set[tuple[int, int]] = set()
    for begin, width in slices:
        if all(begin + width <= b or e <= begin for b, e in model):
            model.add((begin, begin + width))
            publish(registry, table, fake_file(begin), hours=(begin, begin + width))
    low, high = asked[0], asked[0] + asked[1]

    first = within(registry, lambda tx: retire_by_range(tx, table.name, insert_hours(low, high)), table.name)
    after = logical_dump(registry)
    second = within(registry, lambda tx: retire_by_range(tx, table.name, insert_hours(low, high)), table.name)

    inside = {(b, e) for b, e in model if low <= b and e <= high}
    assert first.partitions == len(inside)
    assert live_hours(registry, table.table_id) == sorted(model - inside)
    assert (second.partitions, second.straddles) == (0, first.straddles)
    assert logical_dump(registry) == after


def test_expired_means_that_the_last_event_is_before_the_cutoff(registry: Registry) -> None:
    table, base = make_table(registry), micros_of(START)
    for h in range(4):
        partition = new_partition(table, fake_file(h), hours=(h, h + 1))
        publish_partition(registry, replace(partition, event_range=(base + h * HOUR, base + h * HOUR + 10)), operation())
    publish(registry, table, hours=(4, 5))

    done = within(registry, lambda tx: retire_expired(tx, ORDERS, cutoff=base + 2 * HOUR + 10))

    assert done.partitions == 2
    assert live_hours(registry, table.table_id) == [(2, 3), (3, 4), (4, 5)]
    assert within(registry, lambda tx: retire_expired(tx, ORDERS, cutoff=base + 9 * HOUR, limit=2)).partitions == 2


def test_files_are_queued_with_the_grace_period(timed_registry: Registry, clock: FixedClock) -> None:
    table = make_table(timed_registry)
    done = publish(timed_registry, table, fake_file(1))

    within(timed_registry, lambda tx: retire_by_ids(tx, ORDERS, {done.partition_id}, grace_us=7_000_000, reason="test"))

    assert timed_registry.query("SELECT retired_at, expiration, reason, file_size FROM temporary_files") == [
        (clock.micros, clock.micros + 7_000_000, "test", 20_000)
    ]


@pytest.mark.parametrize(("queued_s", "grace_s"), [(9, 5), (5, 9)])
def test_a_file_that_was_queued_before_keeps_the_later_expiry(
    timed_registry: Registry, clock: FixedClock, queued_s: int, grace_s: int
) -> None:
    file = fake_file(1)
    done = publish(timed_registry, make_table(timed_registry), file)
    within(timed_registry, lambda tx: queue_files(tx, 1, {file.path: 1}, reason="early", grace_us=queued_s * 1_000_000))

    within(timed_registry, lambda tx: retire_by_ids(tx, ORDERS, {done.partition_id}, grace_us=grace_s * 1_000_000))

    assert timed_registry.query("SELECT file_path, expiration FROM temporary_files") == [(file.path, clock.micros + 9_000_000)]


def test_a_negative_grace_period_is_refused(registry: Registry) -> None:
    done = publish(registry, make_table(registry), fake_file(1))

    with pytest.raises(InvalidValueError, match="grace period cannot be negative"):
        within(registry, lambda tx: retire_by_ids(tx, ORDERS, {done.partition_id}, grace_us=-1))


def test_every_retired_file_is_queued_and_no_other(registry: Registry) -> None:
    """Victims are stamped and queued by their ids: the counts agree whatever else is inserted between."""
    rng, table, retired = random.Random(8), make_table(registry), 0
    live: set[int] = set()
    for number in range(120):
        live.add(publish(registry, table, *[fake_file(number * 4 + i) for i in range(rng.randint(1, 3))]).partition_id)
        victims = set(rng.sample(sorted(live), k=rng.randint(0, 2) if len(live) > 2 else 0))
        retired += within(registry, lambda tx, victims=victims: retire_by_ids(tx, ORDERS, victims)).files  # type: ignore[misc]
        live -= victims

    assert retired == count(registry, "temporary_files") == count(registry, "table_files", "retired_seq IS NOT NULL")
    assert (
        count(
            registry, "temporary_files q", "NOT EXISTS (SELECT 1 FROM table_files f WHERE f.file_path = q.file_path AND f.retired_seq > 0)"
        )
        == 0
    )


def test_footers_and_statistics_stay_when_a_partition_is_retired(registry: Registry) -> None:
    table, file = make_table(registry), fake_file(1)
    done = publish(registry, table, file)

    within(registry, lambda tx: retire_by_ids(tx, ORDERS, {done.partition_id}))

    assert file.footer is not None
    assert load_footer(registry, file.path) == file.footer.tail
    assert [count(registry, t) for t in ("partitions", "table_files", "file_columns")] == [0, 1, 1]


def test_retiring_staged_files_leaves_the_counters_alone(registry: Registry) -> None:
    view = make_view(registry)
    publish(registry, view, fake_file(1, rows=10), hours=(0, 1))
    staged = stage(registry)
    publish(registry, view, fake_file(2, rows=5), hours=(0, 1), schema_hash=staged)
    counters = "SELECT row_count, file_count, total_size FROM tables"
    before = registry.query(counters), registry.query("SELECT row_count, file_count FROM table_stats")

    assert by_key(registry, (0, 1), DAILY, schema_hash=staged).files == 1

    assert (registry.query(counters), registry.query("SELECT row_count, file_count FROM table_stats")) == before


def test_retiring_sealed_files_draws_one_group_for_all(registry: Registry) -> None:
    table = make_table(registry)
    ids = {publish(registry, table, fake_file(h), hours=(h, h + 1)).partition_id for h in range(3)}
    assert seal_pending(registry) == 1

    done = within(registry, lambda tx: retire_by_ids(tx, ORDERS, ids))

    assert done.group == 2
    assert {f.removed_group for f in list_files(registry, table.table_id, retired=True)} == {2}
    assert registry.query("SELECT last_group FROM tables") == [(2,)]


def test_retiring_pending_files_draws_no_group(registry: Registry) -> None:
    table = make_table(registry)
    done = publish(registry, table, fake_file(1), hours=(0, 1))

    retired = within(registry, lambda tx: retire_by_ids(tx, ORDERS, {done.partition_id}))

    assert retired.group is None
    assert registry.query("SELECT last_group FROM tables") == [(0,)]


def test_all_files_of_one_retirement_carry_its_journal_number(registry: Registry) -> None:
    table = make_table(registry)
    ids = {publish(registry, table, fake_file(h), hours=(h, h + 1)).partition_id for h in range(3)}
    ((last,),) = registry.query("SELECT last_seq FROM table_seq")

    within(registry, lambda tx: retire_by_ids(tx, ORDERS, ids))

    assert {f.retired_seq for f in list_files(registry, table.table_id, retired=True)} == {last + 1}
