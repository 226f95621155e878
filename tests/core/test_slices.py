"""Windows, freshness and runs, against definitions that compare every microsecond."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.core import fingerprints
from lakebed.core.errors import InvalidValueError
from lakebed.core.tables.windows import (
    MAX_WINDOWS,
    PartitionSummary,
    State,
    Window,
    covers,
    find_runs,
    is_unchanged,
    join_touching,
    judge,
    list_windows,
    span,
    tiles,
    widen,
)
from lakebed.core.times import TimeRange

EXTENT = 60


def partition(
    begin: int, end: int, *, number: int | None = None, source: str | None = None, schema: str = "s", lookup: str | None = None
) -> PartitionSummary:
    return PartitionSummary(
        partition_id=begin,
        insert_range=TimeRange(begin=begin, end=end),
        fingerprint=f"{begin * 7919 + end if number is None else number:032x}",
        schema_hash=schema,
        source_data_hash=source,
        lookup_hash=lookup,
    )


def window(begin: int, end: int, *, source: tuple[PartitionSummary, ...] = (), view: tuple[PartitionSummary, ...] = ()) -> Window:
    return Window(insert_range=TimeRange(begin=begin, end=end), source=source, view=view)


@st.composite
def disjoint(draw: st.DrawFn) -> list[PartitionSummary]:
    cuts = sorted(draw(st.sets(st.integers(0, EXTENT), min_size=0, max_size=14)))
    pairs = [(a, b) for a, b in itertools.pairwise(cuts) if draw(st.booleans())]
    return [partition(a, b) for a, b in pairs]


@given(slice_us=st.integers(1, 20), source=disjoint(), view=disjoint())
def test_windows_tile_the_extent_on_aligned_edges_that_nothing_straddles(
    slice_us: int, source: list[PartitionSummary], view: list[PartitionSummary]
) -> None:
    windows = list_windows(slice_us, source=source, view=view)

    everything = [*source, *view]
    assert bool(windows) == bool(everything)
    for left, right in itertools.pairwise(windows):
        assert left.insert_range.end == right.insert_range.begin
    edges = {edge for w in windows for edge in (w.insert_range.begin, w.insert_range.end)}
    assert all(edge % slice_us == 0 for edge in edges)
    assert not [p for p in everything for edge in edges if p.begin < edge < p.end]
    if windows:
        whole = span(everything)
        assert windows[0].insert_range.begin <= whole.begin < windows[0].insert_range.begin + slice_us
        assert windows[-1].insert_range.end - slice_us < whole.end <= windows[-1].insert_range.end


@given(slice_us=st.integers(1, 20), source=disjoint(), view=disjoint())
def test_windows_are_only_as_wide_as_they_must_be(slice_us: int, source: list[PartitionSummary], view: list[PartitionSummary]) -> None:
    for w in list_windows(slice_us, source=source, view=view):
        inner = range(w.insert_range.begin + slice_us, w.insert_range.end, slice_us)
        assert all(any(p.begin < edge < p.end for p in (*source, *view)) for edge in inner)


@given(slice_us=st.integers(1, 20), source=disjoint(), view=disjoint())
def test_every_piece_is_in_exactly_one_window(slice_us: int, source: list[PartitionSummary], view: list[PartitionSummary]) -> None:
    windows = list_windows(slice_us, source=source, view=view)

    assert [p for w in windows for p in w.source] == source
    assert [p for w in windows for p in w.view] == view
    assert all(w.insert_range.contains(p.insert_range) for w in windows for p in (*w.source, *w.view))


@given(partitions=disjoint(), begin=st.integers(0, EXTENT - 1), width=st.integers(1, 20))
def test_tiling_means_that_every_instant_is_in_a_piece(partitions: list[PartitionSummary], begin: int, width: int) -> None:
    whole = TimeRange(begin=begin, end=begin + width)
    inside = [p for p in partitions if whole.contains(p.insert_range)]

    assert tiles(inside, whole) == all(any(p.begin <= at < p.end for p in inside) for at in range(begin, begin + width))


@given(partitions=disjoint(), wanted=disjoint())
def test_covering_means_that_every_wanted_instant_is_in_a_piece(partitions: list[PartitionSummary], wanted: list[PartitionSummary]) -> None:
    held = {at for p in partitions for at in range(p.begin, p.end)}

    assert covers(partitions, wanted) == all(at in held for p in wanted for at in range(p.begin, p.end))


@given(partitions=disjoint(), others=disjoint(), begin=st.integers(0, EXTENT - 1), width=st.integers(1, 20))
def test_widening_is_the_smallest_range_that_nothing_straddles(
    partitions: list[PartitionSummary], others: list[PartitionSummary], begin: int, width: int
) -> None:
    narrow = TimeRange(begin=begin, end=begin + width)
    everything = [*partitions, *others]

    wide = widen(narrow, everything)

    def is_whole(begin: int, end: int) -> bool:
        return not any(p.begin < edge < p.end for p in everything for edge in (begin, end))

    whole = [(a, b) for a in range(narrow.begin + 1) for b in range(narrow.end, EXTENT + 21) if is_whole(a, b)]
    assert (wide.begin, wide.end) == (max(a for a, _ in whole), min(b for _, b in whole))


def test_a_merge_across_the_edge_of_a_window_changes_nothing_and_new_content_does() -> None:
    then = [partition(1, 2), partition(5, 6), partition(12, 13)]
    merged = [partition(1, 13, number=sum(int(p.fingerprint, 16) for p in then))]
    guard_window = TimeRange(begin=0, end=24)
    wanted = TimeRange(begin=0, end=10)

    assert is_unchanged(wanted, then=then, now=merged, guard_window=guard_window)
    assert is_unchanged(wanted, then=merged, now=then, guard_window=guard_window)
    assert is_unchanged(wanted, then=then, now=[*then, partition(20, 21)], guard_window=guard_window)
    assert not is_unchanged(wanted, then=then, now=[*merged, partition(0, 1)], guard_window=guard_window)
    assert not is_unchanged(wanted, then=then, now=then[1:], guard_window=guard_window)
    assert not is_unchanged(wanted, then=then, now=merged, guard_window=wanted)


@given(partitions=disjoint(), window_us=st.integers(1, 30), touching=st.booleans(), data=st.data())
def test_runs_are_neighbours_of_one_schema_inside_one_merge_window(
    *, partitions: list[PartitionSummary], window_us: int, touching: bool, data: st.DataObject
) -> None:
    labelled = [partition(p.begin, p.end, schema=data.draw(st.sampled_from("ab"))) for p in partitions]

    runs = find_runs(labelled, window_us=window_us, touching=touching)

    fits = [p for p in labelled if p.begin // window_us == (p.end - 1) // window_us]
    assert [p for run in runs for p in run] == fits
    for run in runs:
        assert len({p.schema_hash for p in run}) == 1
        assert span(run).begin // window_us == (span(run).end - 1) // window_us
        position = labelled.index(run[0])
        assert list(run) == labelled[position : position + len(run)]
        assert not touching or len(join_touching(run)) == 1


def test_twenty_four_touching_hours_are_one_run_and_a_gap_splits_it() -> None:
    hours = [partition(n, n + 1) for n in range(24)]

    assert find_runs(hours, window_us=24, touching=True) == [tuple(hours)]
    assert [len(run) for run in find_runs(hours[:5] + hours[6:], window_us=24, touching=True)] == [5, 18]
    assert [len(run) for run in find_runs(hours[:5] + hours[6:], window_us=24, touching=False)] == [23]
    assert [len(run) for run in find_runs(hours, window_us=12, touching=True)] == [12, 12]


def test_slices_built_from_different_lookups_are_not_merged() -> None:
    partitions = [partition(0, 1, lookup="a"), partition(1, 2, lookup="a"), partition(2, 3, lookup="b")]

    assert [len(run) for run in find_runs(partitions, window_us=24, touching=True)] == [2, 1]


def test_a_window_is_fresh_when_it_is_tiled_and_the_sums_agree_whatever_the_tiling() -> None:
    source = (partition(1, 2, number=5), partition(7, 8, number=9))
    whole = (partition(0, 10, source=f"{14:032x}"),)
    halves = (partition(0, 5, source=f"{5:032x}"), partition(5, 10, source=f"{9:032x}"))

    assert judge(window(0, 10, source=source, view=whole)) is State.FRESH
    assert judge(window(0, 10, source=source, view=halves)) is State.FRESH
    assert judge(window(0, 10, source=(partition(1, 8, number=14),), view=halves)) is State.FRESH
    assert judge(window(0, 10, source=(partition(1, 2, number=5), partition(7, 8, number=8)), view=whole)) is State.CHANGED
    assert judge(window(0, 10, source=source, view=halves[:1])) is State.MISSING
    assert judge(window(0, 10, source=source, view=())) is State.MISSING
    assert judge(window(0, 10, source=source, view=(partition(0, 10),))) is State.CHANGED


def test_an_empty_window_is_fresh_once_an_empty_partition_proves_it() -> None:
    assert judge(window(0, 10)) is State.MISSING
    assert judge(window(0, 10, view=(partition(0, 10, source=fingerprints.ZERO),))) is State.FRESH


def test_a_tracked_lookup_that_changed_makes_the_window_stale() -> None:
    view = (partition(0, 10, source=fingerprints.ZERO, lookup="a"),)

    assert judge(window(0, 10, view=view), lookup_hash="a") is State.FRESH
    assert judge(window(0, 10, view=view), lookup_hash="b") is State.LOOKUP_CHANGED
    assert judge(window(0, 10, view=view)) is State.FRESH


def test_too_many_windows_are_refused_before_they_are_made() -> None:
    with pytest.raises(InvalidValueError, match="choose a longer slice"):
        list_windows(1, source=[partition(0, 1), partition(MAX_WINDOWS + 1, MAX_WINDOWS + 2)], view=[])
