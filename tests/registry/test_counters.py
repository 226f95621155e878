"""Counters: `tables` and `table_stats` equal the visible files in every committed transaction."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import (
    DAILY,
    ORDERS,
    count,
    fake_file,
    grow_schema,
    logical_dump,
    make_table,
    make_view,
    promote,
    publish,
    seal_pending,
    stage,
    within,
)
from lakebed.core.errors import InvalidValueError, TableNotFoundError
from lakebed.registry.tables.counters import FileCounts, recount, update_table_statistics
from lakebed.registry.tables.versions import set_properties
from retiring import retire_by_ids

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Transaction

LARGE = 64 * 1024 * 1024
MOST = 2**63 - 1


def read_counters(registry: Registry) -> tuple[int, ...]:
    return registry.query("SELECT row_count, file_count, total_size FROM tables")[0]


def read_stats(registry: Registry) -> dict[str, tuple[int, ...]]:
    rows = registry.query("SELECT partition_path, row_count, file_count, small_file_count, total_size FROM table_stats")
    return {row[0]: row[1:] for row in rows}


def shift(registry: Registry, *, rows: int, size_bytes: int, files: int = 1) -> None:
    within(registry, lambda tx: update_table_statistics(tx, tx.require(ORDERS), {"": FileCounts(rows, files, 0, size_bytes)}))


def test_counters_follow_every_file_and_partition_path(registry: Registry) -> None:
    table = make_table(registry)

    publish(registry, table, fake_file(1, partition_path="day=1"), fake_file(2, rows=7, partition_path="day=2", size_bytes=LARGE))
    publish(registry, table, fake_file(3, partition_path="day=1"))

    assert read_counters(registry) == (207, 3, 40_000 + LARGE)
    assert read_stats(registry) == {"day=1": (200, 2, 2, 40_000), "day=2": (7, 1, 0, LARGE)}


def test_a_path_whose_last_file_left_has_no_statistics(registry: Registry) -> None:
    table = make_table(registry)
    done = publish(registry, table, fake_file(1, partition_path="day=1"))
    publish(registry, table, fake_file(2, partition_path="day=2"))

    within(registry, lambda tx: retire_by_ids(tx, ORDERS, {done.partition_id}))

    assert read_counters(registry) == (100, 1, 20_000)
    assert set(read_stats(registry)) == {"day=2"}


def test_counters_equal_the_files_after_any_sequence(registry: Registry) -> None:
    rng, table = random.Random(5), make_table(registry)
    live: dict[int, list[int]] = {}
    for number in range(60):
        if live and rng.random() < 0.4:
            gone = set(rng.sample(sorted(live), k=rng.randint(1, min(3, len(live)))))
            within(registry, lambda tx, gone=gone: retire_by_ids(tx, ORDERS, gone))  # type: ignore[misc]
            live = {key: rows for key, rows in live.items() if key not in gone}
        else:
            rows = [rng.randint(1, 50) for _ in range(rng.randint(1, 3))]
            files = [fake_file(number * 10 + i, rows=r, partition_path=f"p={r % 3}") for i, r in enumerate(rows)]
            live[publish(registry, table, *files).partition_id] = rows

        expected = [r for rows in live.values() for r in rows]
        assert read_counters(registry) == (sum(expected), len(expected), 20_000 * len(expected))
        assert sum(row[0] for row in read_stats(registry).values()) == sum(expected)


def test_files_of_a_staged_version_do_not_count_until_it_serves(registry: Registry) -> None:
    table = make_view(registry)
    publish(registry, table, fake_file(1, rows=10), hours=(0, 1))
    staged = stage(registry)

    publish(registry, table, fake_file(2, rows=25), hours=(0, 1), schema_hash=staged)
    assert read_counters(registry)[:2] == (10, 1)
    promote(registry, staged)

    assert read_counters(registry)[:2] == (25, 1)
    assert read_stats(registry) == {"": (25, 1, 1, 20_000)}


def test_files_of_an_earlier_version_still_count_after_the_schema_grew(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1, rows=10))

    later = grow_schema(registry)
    publish(registry, table, fake_file(2, rows=5), schema_hash=later)

    assert read_counters(registry)[:2] == (15, 2)


def test_recounting_exact_counters_changes_no_figure(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1, partition_path="a"), fake_file(2, partition_path="b"))
    before = (read_counters(registry), read_stats(registry))

    within(registry, lambda tx: recount(tx, tx.require(ORDERS)))

    assert (read_counters(registry), read_stats(registry)) == before


def test_statistics_shift_by_positive_and_negative_deltas(registry: Registry) -> None:
    make_table(registry)

    shift(registry, rows=100, size_bytes=5000, files=2)
    shift(registry, rows=-40, size_bytes=-1000, files=-1)

    assert read_counters(registry) == (60, 1, 4000)
    assert read_stats(registry)[""][:2] == (60, 1)


def test_a_delta_of_rows_alone_reaches_both_counters(registry: Registry) -> None:
    make_table(registry)
    shift(registry, rows=100, size_bytes=5000)

    shift(registry, rows=11, size_bytes=0, files=0)

    assert read_counters(registry) == (111, 1, 5000)
    assert read_stats(registry)[""][0] == 111


def test_a_counter_holds_two_to_the_63_minus_1_and_not_one_more(registry: Registry) -> None:
    make_table(registry)
    shift(registry, rows=MOST, size_bytes=MOST)
    before = logical_dump(registry)

    for deltas in ({"rows": 1, "size_bytes": 0}, {"rows": 0, "size_bytes": 1}, {"rows": 2**64, "size_bytes": 0}):
        with pytest.raises(InvalidValueError, match=r"shop\.orders: a counter"):
            shift(registry, **deltas)

    assert logical_dump(registry) == before


@pytest.mark.parametrize(
    "deltas",
    [{"rows": -1, "size_bytes": 0, "files": 0}, {"rows": 0, "size_bytes": -1, "files": 0}, {"rows": 0, "size_bytes": 0, "files": -1}],
)
def test_a_counter_never_goes_below_zero(registry: Registry, deltas: dict[str, int]) -> None:
    make_table(registry)
    before = logical_dump(registry)

    with pytest.raises(InvalidValueError, match="cannot change by -1"):
        shift(registry, **deltas)

    assert logical_dump(registry) == before


def test_statistics_of_an_unknown_table_are_refused(registry: Registry) -> None:
    make_table(registry)

    with pytest.raises(TableNotFoundError):
        within(registry, lambda tx: update_table_statistics(tx, tx.require(DAILY), {"": FileCounts(1, 1, 0, 1)}))


def test_every_row_that_changes_together_carries_the_same_instant(registry: Registry) -> None:
    table = make_table(registry)

    publish(registry, table, fake_file(1, partition_path="a"), fake_file(2, partition_path="b"))

    ((instant,),) = registry.query("SELECT last_modified FROM tables")
    assert registry.query("SELECT last_modified, updated_at FROM table_stats") == [(instant, instant)] * 2
    within(registry, lambda tx: set_properties(tx, ORDERS, {"retention": 3}))
    assert registry.query("SELECT last_modified FROM tables") == registry.query("SELECT last_modified FROM table_metadata")


def test_last_modified_rises_with_every_change_although_the_clock_stands_still(timed_registry: Registry) -> None:
    table = make_table(timed_registry)
    seen = [timed_registry.query("SELECT last_modified FROM tables")[0][0]]
    old = publish(timed_registry, table, fake_file(1))

    def note(_: Transaction | None = None) -> None:
        seen.append(timed_registry.query("SELECT last_modified FROM tables")[0][0])

    note()
    seal_pending(timed_registry)
    note()
    within(timed_registry, lambda tx: retire_by_ids(tx, ORDERS, {old.partition_id}))
    note()
    grow_schema(timed_registry)
    note()
    assert seen == sorted(set(seen))


def test_last_modified_stays_when_nothing_changed(registry: Registry) -> None:
    make_table(registry)
    before = logical_dump(registry)

    assert seal_pending(registry) is None
    within(registry, lambda tx: retire_by_ids(tx, ORDERS, set()))

    assert logical_dump(registry) == before


@given(st.lists(st.builds(FileCounts, *[st.integers(-(10**9), 10**9)] * 4)))
def test_tallies_add_up_as_integers_do(tallies: list[FileCounts]) -> None:
    total = sum(tallies, FileCounts())

    assert total == FileCounts(*(sum(getattr(t, name) for t in tallies) for name in ("rows", "files", "small", "bytes")))
    assert total + -total == FileCounts()


def test_an_empty_partition_counts_nothing(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, hours=(0, 1))

    assert read_counters(registry) == (0, 0, 0)
    assert count(registry, "table_stats") == 0
