"""Plans the building of a view set from one snapshot of the registry: windows, files, and conditions to check at publishing."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from lakebed.core.errors import InvalidValueError
from lakebed.core.names import GLOBAL_INSTANCE, TableName, require_instance
from lakebed.core.partitions import Slice
from lakebed.core.results import single_result
from lakebed.core.tables.windows import State, Window, judge, list_windows
from lakebed.core.times import TimeRange
from lakebed.registry.queries.plans import read_plan
from lakebed.registry.tables.names import resolve_name
from lakebed.registry.tables.view_sets import (
    find_expired,
    hash_lookups,
    list_instances,
    list_live_files,
    list_partition_summaries,
    merge_window,
    read_newest,
    require_lake_table,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakebed.core.errors import LakebedError
    from lakebed.pipeline.context import Context
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.tables.view_sets import LiveFile, ViewSet
    from lakebed.registry.transaction import Reader

Outcome = Literal["built", "fresh", "kept", "empty", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceOutcome:
    """The outcome of one slice. `empty` was processed and has no rows; `failed` changed nothing.

    `kept` is stale but stays: part of its source was retired for its age, so a rebuild would lose rows.
    """

    instance: str
    insert_range: TimeRange
    outcome: Outcome
    rows: int = 0
    seconds: float = 0.0
    error: LakebedError | None = None


@single_result
@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializeResult:
    """One outcome per slice, ordered by time. `note` says why there are none."""

    view: str
    slices: tuple[SliceOutcome, ...] = field(default=(), repr=False)
    promoted: bool = False
    seconds: float = 0.0
    note: str = ""

    @property
    def built(self) -> int:
        return self._count("built")

    @property
    def fresh(self) -> int:
        return self._count("fresh")

    @property
    def kept(self) -> int:
        return self._count("kept")

    @property
    def empty(self) -> int:
        return self._count("empty")

    @property
    def failed(self) -> tuple[SliceOutcome, ...]:
        return tuple(s for s in self.slices if s.outcome == "failed")

    @property
    def rows(self) -> int:
        return sum(s.rows for s in self.slices)

    def raise_failed(self) -> MaterializeResult:
        """The result itself, or the first slice's error."""
        for outcome in self.failed:
            if outcome.error is not None:
                raise outcome.error
        return self

    def _count(self, outcome: Outcome) -> int:
        return sum(s.outcome == outcome for s in self.slices)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicePlan:
    """One window to build: the files of its source, and `guard_window`, the range that a merge of the source may cover meanwhile."""

    wanted: Slice
    state: State
    window: Window
    guard_window: Window
    paths: tuple[str, ...] = field(default=(), repr=False)
    size_bytes: int = 0


@single_result
@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializePlan:
    """The state of the view set, its source and its lookups in one snapshot of the registry."""

    view: ViewSet
    source: LakeTable
    lookups: Mapping[TableName, tuple[LakeTable, tuple[str, ...]]] = field(repr=False)
    lookup_hash: str | None
    fresh: tuple[SliceOutcome, ...] = field(repr=False)
    stale: tuple[SlicePlan, ...] = field(repr=False)
    note: str = ""


def plan_materialize(
    context: Context,
    name: str,
    *,
    events: TimeRange | None = None,
    inserts: TimeRange | None = None,
    instance: str | None = GLOBAL_INSTANCE,
    regenerate: bool = False,
) -> MaterializePlan:
    """The stale slices, from one snapshot of all tables involved. The process's reader lease protects the files from here on."""
    view = resolve_name(context.registry, name)
    with context.registry.read() as reader:
        inputs = read_newest(reader, view).definition.inputs
        ids = [require_lake_table(reader, table).table_id for table in inputs]
    context.lease.hold(ids)
    with context.registry.read() as reader:
        planner = _Planner(reader, read_newest(reader, view))
        return planner.plan(_Request(events=events, inserts=inserts, regenerate=regenerate), instance=instance)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    events: TimeRange | None
    inserts: TimeRange | None
    regenerate: bool

    def wants(self, window: Window) -> bool:
        if self.inserts is not None and not window.insert_range.overlaps(self.inserts):
            return False
        return self.events is None or window.overlaps_events(self.events)


class _Planner:
    """Reads one snapshot; only the plan outlives it."""

    def __init__(self, reader: Reader, view: ViewSet) -> None:
        self._reader, self._view = reader, view
        self._source = require_lake_table(reader, view.definition.over)
        self._lookup_hash = hash_lookups(reader, view.definition)

    def plan(self, request: _Request, *, instance: str | None) -> MaterializePlan:
        if request.events is not None and self._source.row.event_time_field is None:
            message = f"{self._source.name} has no event time: give insert_begin and insert_end instead of begin and end"
            raise InvalidValueError(message)
        fresh: list[SliceOutcome] = []
        stale: list[SlicePlan] = []
        for found in self._judged(instance, request):
            is_kept = found.state is State.KEPT
            if is_kept or (found.state is State.FRESH and not request.regenerate):
                outcome: Outcome = "kept" if is_kept else "fresh"
                fresh.append(SliceOutcome(instance=found.wanted.instance, insert_range=found.wanted.insert_range, outcome=outcome))
            else:
                stale.append(found)
        return MaterializePlan(
            view=self._view,
            source=self._source,
            lookups={name: self._lookup(name) for name in self._view.definition.reads} if stale else {},
            lookup_hash=self._lookup_hash,
            fresh=tuple(fresh),
            stale=self._with_files(stale),
            note="" if fresh or stale else self._nothing(request),
        )

    def _judged(self, instance: str | None, request: _Request) -> Iterator[SlicePlan]:
        for one in [require_instance(instance)] if instance is not None else self._instances():
            expired = find_expired(self._reader, self._view, self._source.table_id, one)
            for around, window in self._windows(one):
                if request.wants(window):
                    wanted = Slice(table=self._view.name, instance=one, insert_range=window.insert_range)
                    state = judge(window, lookup_hash=self._lookup_hash, expired=expired)
                    yield SlicePlan(wanted=wanted, state=state, window=window, guard_window=around)

    def _instances(self) -> list[str]:
        return sorted({*list_instances(self._reader, self._source.table_id), *list_instances(self._reader, self._view.table.table_id)})

    def _windows(self, instance: str) -> Iterator[tuple[Window, Window]]:
        """Every window with the wider one around it, within which a merge of the source stays."""
        slice_us = self._view.definition.slice_us
        source = list_partition_summaries(self._reader, self._source.table_id, instance=instance)
        view = list_partition_summaries(self._reader, self._view.table.table_id, instance=instance, hashes=[self._view.table.schema_hash])
        arounds = iter(list_windows(max(slice_us, merge_window(self._source)), source=source, view=view))
        around = next(arounds, None)
        for window in list_windows(slice_us, source=source, view=view):
            while around is not None and not around.insert_range.contains(window.insert_range):
                around = next(arounds, None)
            yield around or window, window

    def _with_files(self, stale: Sequence[SlicePlan]) -> tuple[SlicePlan, ...]:
        ids = [partition.partition_id for chosen in stale for partition in chosen.window.source if partition.num_rows]
        files: dict[int, list[LiveFile]] = defaultdict(list)
        for file in list_live_files(self._reader, ids) if ids else ():
            files[file.partition_id].append(file)
        return tuple(
            _give(chosen, [file for partition in chosen.window.source for file in files.get(partition.partition_id, ())])
            for chosen in stale
        )

    def _lookup(self, name: TableName) -> tuple[LakeTable, tuple[str, ...]]:
        return require_lake_table(self._reader, name), tuple(read_plan(self._reader, name).paths)

    def _nothing(self, request: _Request) -> str:
        extent = [window.insert_range for one in self._instances() for _, window in self._windows(one)]
        if not extent:
            return f"{self._source.name} has no partitions yet: nothing to build"
        whole = TimeRange(begin=min(r.begin for r in extent), end=max(r.end for r in extent))
        return f"no slice matches {request.events or request.inserts or 'this instance'}: those of {self._view.name} are in {whole} of insert time"


def _give(chosen: SlicePlan, files: Sequence[LiveFile]) -> SlicePlan:
    return replace(chosen, paths=tuple(f.path for f in files), size_bytes=sum(f.size_bytes for f in files))
