"""Merging: replaces a run of adjacent partitions by one, in one swap that succeeds as a whole or changes nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.compaction import Engines, LocalEngine, RunPlan, SwappedRun, swap
from lakebed.compaction.plan import read_runs
from lakebed.core.errors import InvalidValueError, LakebedError
from lakebed.core.names import GLOBAL_INSTANCE, require_instance
from lakebed.core.results import single_result
from lakebed.core.tables.compaction import TARGET_BYTES, choose_small, require_target
from lakebed.core.times import Time, TimeRange, parse_duration, show_duration
from lakebed.pipeline.write.spark_engine import SparkEngine
from lakebed.registry.tables.names import resolve_name
from lakebed.registry.tables.view_sets import merge_window, require_lake_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from lakebed.compaction.plan import FoundRuns
    from lakebed.core.tables.windows import PartitionSummary
    from lakebed.pipeline.context import Context
    from lakebed.registry.tables.lake_tables import LakeTable

__all__ = ["MergeResult", "carry_out_merge", "choose_small", "engines_of", "merge", "plan_merge"]


@single_result
@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """The merged runs; none if there was nothing to do."""

    table: str
    runs: tuple[SwappedRun, ...]
    seconds: float

    @property
    def partitions_before(self) -> int:
        return sum(run.partitions for run in self.runs)

    @property
    def files_before(self) -> int:
        return sum(run.files_before for run in self.runs)

    @property
    def files_after(self) -> int:
        return sum(run.files_after for run in self.runs)


def merge(
    context: Context,
    name: str,
    *,
    insert_begin: Time | None = None,
    insert_end: Time | None = None,
    instance: str | None = GLOBAL_INSTANCE,
    window: str | int | timedelta | None = None,
    target_bytes: int = TARGET_BYTES,
    progress: Callable[[int, int], None] | None = None,
) -> MergeResult:
    """Merge every run of adjacent partitions, inside the table's merge window or a shorter `window`.

    Views over the table stay fresh. A run whose partitions changed meanwhile conflicts and is left unchanged; the
    others are merged, then the first error is raised.
    """
    began = time.monotonic()
    done: list[SwappedRun] = []
    errors: list[LakebedError] = []
    with context.lease.reading():
        runs = plan_merge(
            context,
            name,
            inserts=TimeRange.open_ended(insert_begin, insert_end),
            instance=instance,
            window=window,
            target_bytes=target_bytes,
        )
        for run in runs:
            try:
                done.append(carry_out_merge(context, run))
            except LakebedError as exc:
                errors.append(exc)
            if progress is not None:
                progress(len(done) + len(errors), len(runs))
    if errors:
        raise errors[0]
    return MergeResult(table=name, runs=tuple(done), seconds=time.monotonic() - began)


def plan_merge(
    context: Context,
    name: str,
    *,
    inserts: TimeRange | None = None,
    instance: str | None = GLOBAL_INSTANCE,
    window: str | int | timedelta | None = None,
    target_bytes: int = TARGET_BYTES,
) -> list[RunPlan]:
    """The runs worth merging, from one snapshot; the process's reader lease protects their files."""
    table = resolve_name(context.registry, name)
    require_target(target_bytes)
    context.lease.hold([context.registry.require_table_id(table)])
    with context.registry.read() as reader:
        window_us = _window(require_lake_table(reader, table), window)
        found = read_runs(reader, table, instance=None if instance is None else require_instance(instance), window_us=window_us)
    chosen = [(one, tuple(p for p in run if inserts is None or inserts.contains(p.insert_range))) for one, run in found.runs]
    planned = [_plan_run(found, one, run, target_bytes=target_bytes) for one, run in chosen if run]
    return [run for run in planned if len(run.partitions) > 1 or run.rewriting]


def carry_out_merge(context: Context, run: RunPlan) -> SwappedRun:
    """Rewrite the small files, then swap. Raises a conflict, with nothing changed, if a partition or file of the run is gone."""
    done = swap(context.registry, context.storage, run, engines_of(context).choose(run), kind="merge")
    assert done is not None  # noqa: S101 - it is never cancelled
    return done


def engines_of(context: Context) -> Engines:
    """Both engines: a run that fits one process starts no JVM."""
    return Engines(local=LocalEngine(storage=context.storage), spark=SparkEngine(context))


def _plan_run(found: FoundRuns, instance: str, partitions: tuple[PartitionSummary, ...], *, target_bytes: int) -> RunPlan:
    small = choose_small(found.files_of(partitions), target_bytes=target_bytes)
    return found.make_run(instance, partitions, small, target_bytes=target_bytes)


def _window(table: LakeTable, given: str | int | timedelta | None) -> int:
    whole = merge_window(table)
    if given is None:
        return whole
    shorter = parse_duration(given, what="window")
    if whole % shorter:
        message = f"{table.name}: a window of {show_duration(shorter)} does not divide the table's merge window of {show_duration(whole)}"
        raise InvalidValueError(message)
    return shorter
