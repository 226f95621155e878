"""Plans a compaction from one snapshot of the registry: runs of adjacent partitions, and in them groups of small files."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakebed.core.names import TableName, require_instance
from lakebed.core.partitions import Slice
from lakebed.core.results import Rows
from lakebed.core.schema.types import Primitive
from lakebed.core.tables.compaction import (
    TARGET_BYTES,
    Budget,
    Group,
    GroupRow,
    Reason,
    count_outputs,
    is_small,
    leave,
    plan_groups,
    require_target,
)
from lakebed.core.tables.view_sets import find_definition
from lakebed.core.tables.windows import find_runs, span
from lakebed.core.times import from_micros
from lakebed.registry.queries.small_files import list_updated
from lakebed.registry.schema.predicates import VISIBLE
from lakebed.registry.tables.names import resolve_name
from lakebed.registry.tables.versions import list_versions
from lakebed.registry.tables.view_sets import (
    list_instances,
    list_live_files,
    list_partition_summaries,
    merge_window,
    require_lake_table,
    version_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lakebed.core.tables.windows import PartitionSummary
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.tables.view_sets import LiveFile
    from lakebed.registry.transaction import Reader

LOCAL_BYTES = 2 << 30  # input that one swap rewrites in this process
Files = dict[int, list["LiveFile"]]  # per partition


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """Partitions that are merged into one: `rewriting` are its small files, `keeping` the files that only change their partition."""

    table: LakeTable
    wanted: Slice
    partitions: tuple[PartitionSummary, ...] = field(repr=False)
    rewriting: tuple[LiveFile, ...] = field(repr=False)
    keeping: tuple[LiveFile, ...] = field(repr=False)
    combines: bool = False
    target_bytes: int = TARGET_BYTES

    @property
    def rows(self) -> int:
        return sum(partition.num_rows for partition in self.partitions)

    @property
    def rewriting_bytes(self) -> int:
        return sum(file.size_bytes for file in self.rewriting)

    @property
    def by_path(self) -> dict[str, list[LiveFile]]:
        """The files to rewrite, per partition path."""
        found: dict[str, list[LiveFile]] = defaultdict(list)
        for file in self.rewriting:
            found[file.partition_path].append(file)
        return dict(found)

    @property
    def needs_spark(self) -> bool:
        """Whether only Spark can rewrite it."""
        return self.combines or any(file.file_type != "parquet" for file in self.rewriting) or not can_sort(self.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """What a compaction would do, with the reason for every group of files."""

    table: str
    target_bytes: int
    runs: tuple[RunPlan, ...] = field(repr=False)
    groups: Rows[GroupRow] = field(repr=False)

    @property
    def files(self) -> int:
        return sum(len(run.rewriting) for run in self.runs)

    @property
    def size_bytes(self) -> int:
        return sum(run.rewriting_bytes for run in self.runs)

    def count(self, reason: Reason) -> int:
        """Groups with this reason."""
        return sum(group.reason == reason for group in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    """The options of a compaction. `partition` is a partition path, `hot_s` how long a slice is left unchanged after a write.

    `balanced`: a file is rewritten only together with at least as many bytes of others, which suits repeated compaction while files arrive.
    `leaving` are ids of files known to be damaged: they are left unchanged.
    """

    target_bytes: int = TARGET_BYTES
    partition: str | None = None
    instance: str | None = None
    max_files: int | None = None
    max_bytes: int | None = None
    hot_s: float = 0.0
    balanced: bool = False
    has_spark: bool = False
    leaving: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        require_target(self.target_bytes)
        if self.instance is not None:
            require_instance(self.instance)


def plan_compaction(registry: Registry, name: str | TableName, options: CompactionOptions | None = None) -> CompactionPlan:
    """The runs worth rewriting, from one snapshot of the registry; nothing is changed."""
    asked = options or CompactionOptions()
    cold_until = registry.now() - int(asked.hot_s * 1e6)
    with registry.read() as reader:
        found = read_runs(reader, resolve_name(registry, name), instance=asked.instance)
        partitions = [partition for _, run in found.runs for partition in run]
        updated = list_updated(reader, [partition.partition_id for partition in partitions]) if asked.hot_s > 0 else {}
    planner = _Planner(found, asked, {p for p, at in updated.items() if at > cold_until})
    planned = [part for instance, run in found.runs for part in planner.plan(instance, run)]
    return CompactionPlan(
        table=str(found.table.name),
        target_bytes=asked.target_bytes,
        runs=tuple(run for run, _ in planned if run is not None),
        groups=Rows(GroupRow, [row for _, rows in planned for row in rows]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRuns:
    """Every run of adjacent partitions of a table with its instance, their live files and the versions that wrote them."""

    table: LakeTable
    versions: Mapping[str, LakeTable]
    runs: tuple[tuple[str, tuple[PartitionSummary, ...]], ...]
    files: Files

    def files_of(self, partitions: Sequence[PartitionSummary]) -> list[LiveFile]:
        return [file for partition in partitions for file in self.files.get(partition.partition_id, ())]

    def make_run(
        self, instance: str, partitions: tuple[PartitionSummary, ...], chosen: Sequence[LiveFile], *, target_bytes: int
    ) -> RunPlan:
        """A run that rewrites `chosen`, or all files if partial results are combined."""
        table, every = self.versions[partitions[0].schema_hash], self.files_of(partitions)
        combines = len(partitions) > 1 and has_combine(table)
        ids = {file.file_id for file in (every if combines else chosen)}
        return RunPlan(
            table=table,
            wanted=Slice(table=table.name, instance=instance, insert_range=span(partitions)),
            partitions=partitions,
            rewriting=tuple(file for file in every if file.file_id in ids),
            keeping=tuple(file for file in every if file.file_id not in ids),
            combines=combines,
            target_bytes=target_bytes,
        )


def read_runs(reader: Reader, name: TableName, *, instance: str | None, window_us: int | None = None) -> FoundRuns:
    table = require_lake_table(reader, name)
    instances = [instance] if instance is not None else list_instances(reader, table.table_id)
    runs = tuple(
        (one, run)
        for one in instances
        for run in find_runs(
            list_partition_summaries(reader, table.table_id, instance=one),
            window_us=window_us or merge_window(table),
            touching=table.row.kind == "view_set",
        )
    )
    files: Files = defaultdict(list)
    for file in list_live_files(reader, [partition.partition_id for _, run in runs for partition in run if partition.num_rows]):
        files[file.partition_id].append(file)
    versions = {v.schema_hash: version_of(table, v) for v in list_versions(reader, table.table_id) if v.standing in VISIBLE}
    return FoundRuns(table=table, versions=versions, runs=runs, files=files)


def has_combine(table: LakeTable) -> bool:
    definition = find_definition(table.metadata.properties)
    return definition is not None and definition.combine is not None


def can_sort(table: LakeTable) -> bool:
    """Whether the in-process engine can order by the table's sort columns: it has no order for nested values."""
    kinds = {f.physical_name: f.type for f in table.schema.fields}
    return all(isinstance(kinds[name], Primitive) for name in table.sort_columns)


Planned = tuple[RunPlan | None, list[GroupRow]]


class _Planner:
    """Plans one run after the other; limits are used up in the order of time."""

    def __init__(self, found: FoundRuns, asked: CompactionOptions, hot: set[int]) -> None:
        self._found, self._asked, self._hot = found, asked, hot
        self._budget = Budget(files=asked.max_files, size_bytes=asked.max_bytes)

    def plan(self, instance: str, run: tuple[PartitionSummary, ...]) -> Iterator[Planned]:
        for is_hot, part in _split(run, self._hot):
            if is_hot:
                yield None, self._rows(instance, part, leave(self._judge(part), Reason.HOT))
                continue
            for stretch in self._cut(part):
                yield self._plan_stretch(instance, stretch)

    def _plan_stretch(self, instance: str, partitions: tuple[PartitionSummary, ...]) -> Planned:
        groups = self._judge(partitions, self._budget)
        chosen = [file for group in groups for file in group.chosen]
        if not chosen:
            return None, self._rows(instance, partitions, groups)
        run = self._found.make_run(instance, _trim(partitions, chosen), chosen, target_bytes=self._asked.target_bytes)
        if run.needs_spark and not self._asked.has_spark:
            return None, self._rows(instance, partitions, leave(groups, Reason.NEEDS_SPARK))
        if any(file.file_id in self._asked.leaving for file in run.rewriting):  # partial results are combined together or not at all
            return None, self._rows(instance, partitions, leave(groups, Reason.DAMAGED))
        return run, self._rows(instance, partitions, groups)

    def _judge(self, partitions: Sequence[PartitionSummary], budget: Budget | None = None) -> list[Group[LiveFile]]:
        files, damaged = _part(self._found.files_of(partitions), lambda f: f.file_id not in self._asked.leaving)
        wanted, others = _part(files, lambda f: self._asked.partition in {None, f.partition_path})
        readable, foreign = _part(wanted, lambda f: self._asked.has_spark or f.file_type == "parquet")
        groups = plan_groups(readable, target_bytes=self._asked.target_bytes, budget=budget, balanced=self._asked.balanced)
        return [*groups, *_left(Reason.NEEDS_SPARK, foreign), *_left(Reason.NOT_ASKED, others), *_left(Reason.DAMAGED, damaged)]

    def _cut(self, partitions: tuple[PartitionSummary, ...]) -> Iterator[tuple[PartitionSummary, ...]]:
        """Without Spark a swap is bounded, which bounds the work that one conflict wastes."""
        if self._asked.has_spark:
            yield partitions
            return
        start, size = 0, 0
        for n, partition in enumerate(partitions):
            small = sum(f.size_bytes for f in self._found.files_of([partition]) if is_small(f, target_bytes=self._asked.target_bytes))
            if n > start and size + small > LOCAL_BYTES:
                yield partitions[start:n]
                start, size = n, 0
            size += small
        yield partitions[start:]

    def _rows(self, instance: str, partitions: Sequence[PartitionSummary], groups: Sequence[Group[LiveFile]]) -> list[GroupRow]:
        whole = span(partitions)
        return [
            GroupRow(
                table=str(self._found.table.name),
                instance=instance,
                begin_insert_time=from_micros(whole.begin),
                end_insert_time=from_micros(whole.end),
                schema_hash=partitions[0].schema_hash,
                partition_path=group.partition_path,
                taken=group.reason.taken,
                reason=group.reason.value,
                files=len(group.chosen or group.files),
                size_bytes=sum(f.size_bytes for f in group.chosen or group.files),
                rows=sum(f.row_count for f in group.chosen or group.files),
                files_after=self._files_after(group),
            )
            for group in groups
        ]

    def _files_after(self, group: Group[LiveFile]) -> int:
        return count_outputs(group.chosen_bytes, target_bytes=self._asked.target_bytes) if group.chosen else len(group.files)


def _part(files: Iterable[LiveFile], test: Callable[[LiveFile], bool]) -> tuple[list[LiveFile], list[LiveFile]]:
    parts: tuple[list[LiveFile], list[LiveFile]] = ([], [])
    for file in files:
        parts[not test(file)].append(file)
    return parts


def _left(reason: Reason, files: Sequence[LiveFile]) -> list[Group[LiveFile]]:
    by_path: dict[str, list[LiveFile]] = defaultdict(list)
    for file in files:
        by_path[file.partition_path].append(file)
    return [Group(partition_path=path, reason=reason, files=tuple(own)) for path, own in by_path.items()]


def _split(run: tuple[PartitionSummary, ...], hot: set[int]) -> Iterator[tuple[bool, tuple[PartitionSummary, ...]]]:
    """Ranges of partitions that are all hot or all cold: a merge may not extend across a slice that stays."""
    start = 0
    for n in range(1, len(run) + 1):
        is_hot = run[start].partition_id in hot
        if n == len(run) or (run[n].partition_id in hot) is not is_hot:
            yield is_hot, run[start:n]
            start = n


def _trim(partitions: tuple[PartitionSummary, ...], chosen: Sequence[LiveFile]) -> tuple[PartitionSummary, ...]:
    """From the first to the last partition that loses a file; the others stay."""
    touched = {file.partition_id for file in chosen}
    places = [n for n, partition in enumerate(partitions) if partition.partition_id in touched]
    return partitions[places[0] : places[-1] + 1]
