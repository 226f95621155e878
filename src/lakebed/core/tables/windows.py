"""The algebra of slices: which windows there are, which of them are fresh, and which partitions may become one.

Everything here is pure: partitions come in as `PartitionSummary`s of one table and instance, answers go out.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from lakebed.core import fingerprints
from lakebed.core.errors import InvalidValueError
from lakebed.core.times import TimeRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_WINDOWS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSummary:
    """One live partition, as far as slicing is concerned. The event range is closed."""

    partition_id: int
    insert_range: TimeRange
    fingerprint: str
    schema_hash: str = ""
    source_data_hash: str | None = None
    lookup_hash: str | None = None
    num_rows: int = 0
    event_range: tuple[int, int] | None = None

    @property
    def begin(self) -> int:
        return self.insert_range.begin

    @property
    def end(self) -> int:
        return self.insert_range.end


class State(StrEnum):
    """How a window of a view set stands to its source."""

    FRESH = "fresh"
    MISSING = "missing"  # view partitions leave a gap
    CHANGED = "changed"  # the source holds other content than the view was built from
    LOOKUP_CHANGED = "lookup_changed"
    KEPT = "kept"  # it could only be built smaller: its source was retired for its age, or it was itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One slice, widened so that no partition of source or view straddles its edge, with the partitions inside."""

    insert_range: TimeRange
    source: tuple[PartitionSummary, ...] = field(default=(), repr=False)
    view: tuple[PartitionSummary, ...] = field(default=(), repr=False)

    @property
    def source_sum(self) -> str:
        return fingerprints.add(partition.fingerprint for partition in self.source)

    def overlaps_events(self, wanted: TimeRange) -> bool:
        ranges = (partition.event_range for partition in self.source)
        return any(r is not None and r[0] < wanted.end and wanted.begin <= r[1] for r in ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """Slices of source and view that were retired for their age. `is_staged`: another version serves what is missing here."""

    source: tuple[TimeRange, ...] = ()
    view: tuple[TimeRange, ...] = ()
    is_staged: bool = False

    def keeps(self, window: Window) -> bool:
        """Whether a stale window stays as it is. One that was never built is built from what is left."""
        if any(r.overlaps(window.insert_range) for r in self.view):
            return True
        if not any(r.overlaps(window.insert_range) for r in self.source):
            return False
        return bool(window.view) or self.is_staged or not window.source


NOTHING_EXPIRED = Expired()


def list_windows(slice_us: int, *, source: Sequence[PartitionSummary], view: Sequence[PartitionSummary]) -> list[Window]:
    """The windows of everything that source and view hold, in order: epoch-aligned, whole, without gaps."""
    edges = _edges(slice_us, [*source, *view])
    sources, views = _deal(edges, source), _deal(edges, view)
    return [
        Window(insert_range=TimeRange(begin=begin, end=end), source=tuple(sources[n]), view=tuple(views[n]))
        for n, (begin, end) in enumerate(itertools.pairwise(edges))
    ]


def judge(window: Window, *, lookup_hash: str | None = None, expired: Expired = NOTHING_EXPIRED) -> State:
    """Whether the view partitions stand for exactly what the source holds; `lookup_hash` only where lookups are tracked."""
    state = _compare(window, lookup_hash)
    return State.KEPT if state is not State.FRESH and expired.keeps(window) else state


def _compare(window: Window, lookup_hash: str | None) -> State:
    if not tiles(window.view, window.insert_range):
        return State.MISSING
    if any(partition.source_data_hash is None for partition in window.view):
        return State.CHANGED
    if fingerprints.add(partition.source_data_hash or "" for partition in window.view) != window.source_sum:
        return State.CHANGED
    if lookup_hash is not None and any(partition.lookup_hash != lookup_hash for partition in window.view):
        return State.LOOKUP_CHANGED
    return State.FRESH


def tiles(partitions: Sequence[PartitionSummary], whole: TimeRange) -> bool:
    """Whether ordered `partitions` fill `whole` without a gap."""
    reached = whole.begin
    for partition in partitions:
        if partition.begin > reached:
            return False
        reached = max(reached, partition.end)
    return reached >= whole.end


def covers(partitions: Iterable[PartitionSummary], wanted: Iterable[PartitionSummary]) -> bool:
    """Whether every instant of `wanted` is inside some partition; both ordered by their begin."""
    joined = join_touching(partitions)
    return all(any(j.contains(partition.insert_range) for j in joined) for partition in wanted)


def join_touching(partitions: Iterable[PartitionSummary]) -> list[TimeRange]:
    joined: list[TimeRange] = []
    for partition in partitions:
        if joined and partition.begin <= joined[-1].end:
            joined[-1] = TimeRange(begin=joined[-1].begin, end=max(joined[-1].end, partition.end))
        else:
            joined.append(partition.insert_range)
    return joined


def span(partitions: Sequence[PartitionSummary]) -> TimeRange:
    return TimeRange(begin=min(p.begin for p in partitions), end=max(p.end for p in partitions))


def widen(window: TimeRange, partitions: Iterable[PartitionSummary]) -> TimeRange:
    """The smallest range around `window` whose edges no partition straddles."""
    begin, end = window.begin, window.end
    for joined in sorted(join_overlapping(partitions)):
        if joined.begin < end and begin < joined.end:
            begin, end = min(begin, joined.begin), max(end, joined.end)
    return TimeRange(begin=begin, end=end)


def join_overlapping(partitions: Iterable[PartitionSummary]) -> list[TimeRange]:
    """Ranges that overlap become one; those that only touch stay apart."""
    joined: list[TimeRange] = []
    for partition in sorted(partitions, key=lambda p: p.begin):
        if joined and partition.begin < joined[-1].end:
            joined[-1] = TimeRange(begin=joined[-1].begin, end=max(joined[-1].end, partition.end))
        else:
            joined.append(partition.insert_range)
    return joined


def join_ranges(ranges: Iterable[TimeRange], *, apart: Iterable[TimeRange]) -> list[TimeRange]:
    """Ranges become one unless something of `apart` begins between them."""
    begins = sorted(r.begin for r in apart)
    joined: list[TimeRange] = []
    for one in sorted(ranges):
        last = joined[-1] if joined else None
        if last is not None and bisect_left(begins, last.end) == bisect_left(begins, max(last.end, one.begin)):
            joined[-1] = TimeRange(begin=last.begin, end=max(last.end, one.end))
        else:
            joined.append(one)
    return joined


def is_unchanged(window: TimeRange, *, then: Sequence[PartitionSummary], now: Sequence[PartitionSummary], guard_window: TimeRange) -> bool:
    """Whether the content of `window` is what it was, whatever was merged meanwhile, even across its edges.

    `then` and `now` are all partitions that touch `guard_window`: what reaches beyond it cannot be compared, and counts as changed.
    """
    whole = widen(window, [*then, *now])
    return guard_window.contains(whole) and _sum_inside(whole, then) == _sum_inside(whole, now)


def find_runs(partitions: Sequence[PartitionSummary], *, window_us: int, touching: bool) -> list[tuple[PartitionSummary, ...]]:
    """Longest runs of adjacent partitions of one schema inside one merge window; some are of one partition alone.

    `touching`: view slices are adjacent only when no unprocessed gap is between them. Slots of a plain
    table are adjacent when no other partition does.
    """
    runs: list[list[PartitionSummary]] = []
    for partition in sorted(partitions, key=lambda p: p.begin):
        if partition.begin // window_us != (partition.end - 1) // window_us:
            runs.append([])  # wider than a merge window: it ends every run and joins none
        elif runs and runs[-1] and _is_adjacent(runs[-1][-1], partition, window_us=window_us, touching=touching):
            runs[-1].append(partition)
        else:
            runs.append([partition])
    return [tuple(run) for run in runs if run]


def _is_adjacent(left: PartitionSummary, right: PartitionSummary, *, window_us: int, touching: bool) -> bool:
    if (left.schema_hash, left.lookup_hash) != (
        right.schema_hash,
        right.lookup_hash,
    ) or left.begin // window_us != right.begin // window_us:
        return False
    return right.begin == left.end if touching else right.begin >= left.end


def _sum_inside(window: TimeRange, partitions: Iterable[PartitionSummary]) -> str:
    return fingerprints.add(partition.fingerprint for partition in partitions if window.contains(partition.insert_range))


def _edges(slice_us: int, partitions: Sequence[PartitionSummary]) -> list[int]:
    """Every aligned edge of the extent that no partition straddles."""
    if not partitions:
        return []
    first = min(p.begin for p in partitions) // slice_us
    last = -(-max(p.end for p in partitions) // slice_us)
    if last - first > MAX_WINDOWS:
        whole = TimeRange(begin=first * slice_us, end=last * slice_us)
        message = f"{whole} has {last - first} slices of {slice_us} us, at most {MAX_WINDOWS} are allowed: choose a longer slice"
        raise InvalidValueError(message)
    straddled: set[int] = set()
    for partition in partitions:
        straddled.update(range(partition.begin // slice_us + 1, -(-partition.end // slice_us)))
    return [edge * slice_us for edge in range(first, last + 1) if edge not in straddled]


def _deal(edges: Sequence[int], partitions: Sequence[PartitionSummary]) -> list[list[PartitionSummary]]:
    """The partitions of each window between two edges; none straddles one."""
    dealt: list[list[PartitionSummary]] = [[] for _ in edges[1:]]
    n = 0
    for partition in sorted(partitions, key=lambda p: p.begin):
        while partition.begin >= edges[n + 1]:
            n += 1
        dealt[n].append(partition)
    return dealt
