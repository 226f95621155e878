"""Compaction of a table: plans, rewrites run by run, yields to writers and records the result."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lakebed.compaction.damage import DamagedFile, find_damaged
from lakebed.compaction.engines import Engines, LocalEngine
from lakebed.compaction.plan import CompactionOptions, CompactionPlan, RunPlan, plan_compaction
from lakebed.compaction.swap import SwappedRun, never, swap
from lakebed.core.errors import (
    ConflictError,
    CorruptionError,
    FileMissingError,
    RunNotFoundError,
    SparkRefusedError,
    SparkUnavailableError,
)
from lakebed.core.names import TableName
from lakebed.core.results import Rows, single_result
from lakebed.core.tables.compaction import GroupRow, Reason
from lakebed.registry.maintenance.open_runs import OpenRun, keeping_run
from lakebed.registry.partitions.replace import list_visible
from lakebed.registry.processes import make_owner
from lakebed.registry.queries.small_files import COMPACT, close_dead_runs

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Transaction
    from lakebed.storage.protocol import Storage

logger = logging.getLogger(__name__)

MAX_CONFLICTS = 3  # consecutive conflicts on one table: its writers are busy
_SHOWN_FILES = 100
# Signs of an unreadable file: its own error, rows missing afterwards, or a failed Spark job
_PERHAPS_DAMAGED = (CorruptionError, FileMissingError, SparkRefusedError, SparkUnavailableError)


@single_result
@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """What was done; `plan` says why. `conflicts` counts runs that lost to a writer; `stopped`: it gave up because of them.

    `damaged` are files that cannot be read: they were left unchanged, the others were compacted without them.
    """

    table: str
    plan: CompactionPlan = field(repr=False)
    runs: tuple[SwappedRun, ...] = ()
    conflicts: int = 0
    damaged: tuple[DamagedFile, ...] = ()
    stopped: bool = False
    cancelled: bool = False
    dry_run: bool = False
    run_id: int | None = None
    seconds: float = 0.0

    @property
    def groups(self) -> Rows[GroupRow]:
        return self.plan.groups

    @property
    def files_before(self) -> int:
        return sum(run.files_read for run in self.runs)

    @property
    def files_after(self) -> int:
        return sum(run.files_written for run in self.runs)

    @property
    def bytes_before(self) -> int:
        return sum(run.bytes_read for run in self.runs)

    @property
    def bytes_after(self) -> int:
        return sum(run.bytes_written for run in self.runs)

    @property
    def rows(self) -> int:
        return sum(run.rows_after for run in self.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """How a compaction reports progress and is cancelled. `cancelled` is called often, from several threads."""

    actor: str = ""
    cancelled: Callable[[], bool] = never
    progress: Callable[[int, int], None] | None = None


def compact(
    registry: Registry,
    storage: Storage,
    name: str | TableName,
    options: CompactionOptions | None = None,
    *,
    engines: Engines | None = None,
    control: Control | None = None,
    dry_run: bool = False,
) -> CompactionResult:
    """Rewrite the small files of a table into few of about the target size, each run of partitions in one swap.

    A run that conflicts with a writer is planned again, at most three times in a row; then the compaction gives up.
    A file that cannot be read is named in the result and left unchanged; the others are compacted without it.
    A second call finds nothing to do. A cancelled call keeps the swaps already made and leaves no trace of the rest.
    """
    began, chosen = time.monotonic(), engines or Engines(local=LocalEngine(storage=storage))
    asked = replace(options or CompactionOptions(), has_spark=chosen.spark is not None)
    plan = plan_compaction(registry, name, asked)
    if dry_run or not plan.runs:
        return CompactionResult(table=plan.table, plan=plan, dry_run=dry_run, seconds=time.monotonic() - began)
    work = _Compaction(registry, storage, asked, chosen, control or Control())
    result = work.carry_out(plan)
    return replace(result, seconds=time.monotonic() - began)


class _Compaction:
    """One call: its plan, its progress, and its row in the history."""

    def __init__(self, registry: Registry, storage: Storage, asked: CompactionOptions, engines: Engines, control: Control) -> None:
        self._registry, self._storage, self._asked, self._engines, self._control = registry, storage, asked, engines, control
        self._done: list[SwappedRun] = []
        self._damaged: list[DamagedFile] = []
        self._conflicts = self._in_a_row = 0
        self._began = time.monotonic()

    def carry_out(self, plan: CompactionPlan) -> CompactionResult:
        table_id = self._registry.require_table_id(TableName.parse(plan.table))
        self._run = self._describe_run(plan, table_id)
        with keeping_run(self._registry, self._run):
            with self._registry.write() as tx:
                close_dead_runs(tx, table_id)
                self._run.begin(tx)
            plan = self._work_off(plan)
            stopped = self._in_a_row >= MAX_CONFLICTS
            cancelled = not self._run.is_closed and self._control.cancelled()
            error = f"{self._in_a_row} consecutive conflicts with writers of the table" if stopped else ""
            if not self._run.is_closed:
                with self._registry.write() as tx:
                    self._close_history(tx, "cancelled" if cancelled else "failed" if stopped and not self._done else "done", error=error)
        return CompactionResult(
            table=plan.table,
            plan=plan,
            runs=tuple(self._done),
            conflicts=self._conflicts,
            damaged=tuple(self._damaged),
            stopped=stopped,
            cancelled=cancelled,
            run_id=self._run.run_id,
        )

    def _work_off(self, plan: CompactionPlan) -> CompactionPlan:
        """Repeat until a pass over the table meets neither a writer nor a damaged file, or too many writers.

        Returns the plan, including files that were left out because of damage.
        """
        first = plan
        for _ in range(MAX_CONFLICTS):
            before = self._conflicts, len(self._damaged)
            for number, run in enumerate(plan.runs, 1):
                if self._control.cancelled() or self._in_a_row >= MAX_CONFLICTS:
                    break
                self._try(run, is_last=number == len(plan.runs) and (self._conflicts, len(self._damaged)) == before)
                self._report_progress(len(plan.runs))
            if self._control.cancelled() or self._in_a_row >= MAX_CONFLICTS or (self._conflicts, len(self._damaged)) == before:
                break
            plan = plan_compaction(self._registry, plan.table, self._left())
        return first if plan is first else _add_damaged(first, plan)

    def _try(self, run: RunPlan, *, is_last: bool) -> None:
        """The transaction of the last run also closes the history."""
        try:
            swapped = swap(
                self._registry, self._storage, run, self._engines.choose(run), cancelled=self._control.cancelled,
                on_swap=self._close_with if is_last else None,
            )  # fmt: skip
        except ConflictError as exc:
            self._lose(run, str(exc))
            return
        except _PERHAPS_DAMAGED as exc:
            if not self._find_damaged(run, exc):
                raise
            return
        if swapped is not None:
            self._done.append(swapped)
            self._in_a_row = 0

    def _lose(self, run: RunPlan, reason: str) -> None:
        self._conflicts += 1
        self._in_a_row += 1
        extra = {"action": COMPACT, "table": str(run.table.name), "slice": str(run.wanted), "reason": reason}
        logger.info("a compaction conflicted with a writer; nothing was changed", extra=extra)

    def _find_damaged(self, run: RunPlan, failure: Exception) -> bool:
        """Whether files of the run explain its failure; those still in the table are left out from now on.

        The others were retired meanwhile by a writer, and may be deleted.
        """
        visible = list_visible(self._registry, [file.file_id for file in run.rewriting])
        if len(visible) < len(run.rewriting):
            self._lose(run, str(failure))
            return True
        found = find_damaged(self._storage, run)
        self._damaged += found
        for file in found:
            extra = {"action": COMPACT, "table": str(run.table.name), "path": file.path, "code": file.code, "reason": file.reason}
            logger.warning("a file cannot be compacted; the others are compacted without it", extra=extra)
        return bool(found)

    def _left(self) -> CompactionOptions:
        """The options, with limits reduced by the work done and without the damaged files."""
        files, size = sum(run.files_read for run in self._done), sum(run.bytes_read for run in self._done)
        asked = self._asked
        return replace(
            asked,
            max_files=None if asked.max_files is None else max(0, asked.max_files - files),
            max_bytes=None if asked.max_bytes is None else max(0, asked.max_bytes - size),
            leaving=asked.leaving | {file.file_id for file in self._damaged},
        )

    def _report_progress(self, runs: int) -> None:
        if self._control.progress is not None:
            self._control.progress(min(runs, len(self._done) + self._conflicts), runs)

    def _describe_run(self, plan: CompactionPlan, table_id: int) -> OpenRun:
        stored_plan = {
            "table": plan.table, "runs": len(plan.runs), "files": plan.files, "bytes": plan.size_bytes, "target_bytes": plan.target_bytes,
            "left_alone": {reason.value: plan.count(reason) for reason in Reason if not reason.taken and plan.count(reason)},
        }  # fmt: skip
        return OpenRun(COMPACT, actor=self._control.actor or make_owner(COMPACT), plan=stored_plan, table_id=table_id, so_far=self._total)

    def _close_with(self, tx: Transaction, /, *, swapped: SwappedRun) -> None:
        self._close_history(tx, "done", last=swapped)

    def _close_history(self, tx: Transaction, state: str, *, error: str = "", last: SwappedRun | None = None) -> None:
        with suppress(RunNotFoundError):  # another process considered this one dead
            self._run.finish(tx, state=state, result=self._total(last) | ({"error": error} if error else {}))

    def _total(self, last: SwappedRun | None = None) -> dict[str, Any]:
        done = [*self._done, last] if last is not None else self._done
        return {
            "runs": len(done),
            "files_in": sum(run.files_read for run in done),
            "files_out": sum(run.files_written for run in done),
            "bytes_in": sum(run.bytes_read for run in done),
            "bytes_out": sum(run.bytes_written for run in done),
            "engines": sorted({run.engine for run in done}),
            "conflicts": self._conflicts,
            "damaged": [{"path": file.path, "code": file.code, "reason": file.reason} for file in self._damaged[:_SHOWN_FILES]],
            "seconds": round(time.monotonic() - self._began, 3),
        }


def _add_damaged(plan: CompactionPlan, last: CompactionPlan) -> CompactionPlan:
    left = [group for group in last.groups if group.reason == Reason.DAMAGED]
    return replace(plan, groups=Rows(GroupRow, [*(group for group in plan.groups if group.reason != Reason.DAMAGED), *left]))
