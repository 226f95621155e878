"""The tasks. Each continues if one table fails, counts its work, and stops soon when asked to."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from lakebed import admin
from lakebed.check import check
from lakebed.compaction import CompactionOptions, Control, compact
from lakebed.core.names import TableName
from lakebed.core.tasks import Task
from lakebed.maintenance.reports import Report, isolated
from lakebed.maintenance.retention import expire_snapshots, retire_expired
from lakebed.maintenance.views import materialize_stale, merge_closed
from lakebed.registry.tables.lake_tables import list_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakebed.core.files import Needed
    from lakebed.maintenance.workplace import Workplace

_BATCH = 1000
_MOST_BYTES = 8 << 30  # per table and window, so that no table delays the others for hours
_HOT_S = 60.0


def recover(place: Workplace) -> Report:
    """Undo the operations of dead writers, and delete the metadata of failed commits."""
    undone = admin.recover_operations(place.registry, place.storage)
    return Report(result={"undone": len(undone), "leftovers": place.sweep_leftovers()})


def compact_tables(place: Workplace) -> Report:
    """Compact every table once, independent of its statistics; the component only treats tables with many small files."""
    sums: Counter[str] = Counter()
    problems: list[str] = []
    for row in list_tables(place.registry):
        if place.cancelled():
            break
        with isolated(f"{row.database}.{row.name}", problems):
            options = CompactionOptions(hot_s=_HOT_S, balanced=True, max_bytes=_MOST_BYTES)
            control = Control(actor=place.actor, cancelled=place.cancelled)
            name = TableName(row.database, row.name)
            done = compact(place.registry, place.storage, name, options, engines=place.engines, control=control)
            sums.update(swaps=len(done.runs), files_in=done.files_before, files_out=done.files_after, conflicts=done.conflicts)
    return Report(result=dict(sums), problems=tuple(problems))


def clean(place: Workplace) -> Report:
    """Batch by batch, so that a stop waits for at most one batch."""
    files = size = 0
    failed: dict[str, str] = {}
    while not place.cancelled():
        done = admin.delete_expired_temporary_files(
            place.registry, place.storage, find_needed=partial(_find_needed, place), batch_size=_BATCH, max_batches=1
        )
        files, size, failed = files + done.deleted, size + done.bytes_freed, failed | done.failed
        if not (done.deleted or done.failed or done.kept):
            break
    problems = () if not failed else (f"{len(failed)} files could not be deleted, such as {next(iter(failed.items()))}",)
    return Report(result={"deleted": files, "bytes_freed": size, "failed": len(failed)}, problems=problems)


def sweep(place: Workplace) -> Report:
    """Count orphans; queue them for deletion only if the setting allows it."""
    needed = partial(_find_needed, place)
    done = admin.sweep_orphans(place.registry, place.storage, find_needed=needed, dry_run=not place.queues_orphans, actor=place.actor)
    found = {"orphans": len(done.orphans), "bytes": done.size_bytes, "queued": place.queues_orphans, "is_complete": done.is_complete}
    return Report(result={**found, "skipped": [skipped.table for skipped in done.skipped]})


def _find_needed(place: Workplace) -> Needed:
    from lakebed.iceberg.upkeep.reachable import find_needed  # noqa: PLC0415 - imports Iceberg's library

    return find_needed(place.registry, place.storage)


def check_lake(place: Workplace) -> Report:
    """Findings do not fail the task: the metric is for alarms, and the run's row names them."""
    report = check(place.registry, place.storage)
    by_severity = Counter(str(finding.severity) for finding in report.findings)
    by_rule = Counter(finding.rule for finding in report.findings)
    return Report(result={"clean": report.clean, "findings": dict(by_severity), "rules": dict(by_rule)})


TASKS: Mapping[Task, Callable[[Workplace], Report]] = {
    Task.RECOVER: recover,
    Task.RETIRE_EXPIRED: retire_expired,
    Task.MATERIALIZE: materialize_stale,
    Task.MERGE: merge_closed,
    Task.COMPACT: compact_tables,
    Task.EXPIRE: expire_snapshots,
    Task.CLEAN: clean,
    Task.SWEEP: sweep,
    Task.CHECK: check_lake,
}
