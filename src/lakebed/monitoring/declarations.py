"""All metrics with their meaning; the collector exports no others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter", "histogram"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One exported metric. Dashboards and alarms use the name and the labels: never rename."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(name=f"lakebed_{name}", kind="gauge", help=text, labels=labels)


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(name=f"lakebed_{name}_total", kind="counter", help=text, labels=labels)


ACTIVE = _gauge("active", "1 while this process runs the components and the tasks, 0 while it stands by")
REGISTRY_UP = _gauge("registry_up", "1 if the registry answered this scrape")
RESTARTS = _counter("astha_restarts", "Incarnations of Astha that ended by a failure")

THREAD_RESTARTS = _counter("thread_restarts", "Unexpected errors of a thread of the service; it continues after each", "thread")
THREAD_DOWN = _gauge("thread_down", "1 while a thread of the service fails repeatedly", "thread")

BEHIND = _gauge("component_behind", "Changes that a component has not handled yet, over all tables", "component")
WELL = _gauge("component_well", "1 if the component's last health check succeeded", "component")
BREAKER = _gauge("component_breaker", "1 for the state that the component's breaker is in", "component", "state")
RETRYING = _gauge("component_retrying", "Tables whose change is being retried", "component")
PARKED = _gauge("component_parked", "Tables that wait for `lakebed astha retry`", "component")
DELIVERED = _counter("events_delivered", "Changes that a component has handled", "component")
REFRESHED = _counter("refreshes", "Tables that a component read completely instead of following their changes", "component")
FAILED_CALLS = _counter("event_failures", "Calls of a component that failed; each is retried up to 30 times", "component")
DEAD_LETTERS = _counter("dead_letters", "Changes that were given up since this process started", "component")
LATE = _counter("late_answers", "Answers that were refused because the call had timed out", "component")
SILENCES = _counter("silences", "Calls that timed out", "component")
OPEN_LETTERS = _gauge("dead_letters_open", "Changes that were given up and not yet covered by a refresh", "component")

COMMIT_SECONDS = Metric(
    name="lakebed_commit_seconds",
    kind="histogram",
    help="Duration of an Iceberg commit, from reading the registry to recording the snapshot",
)
WAITING = _gauge("commit_waiters", "Calls in this process that wait for an Iceberg commit (`sync` inserts, `wait`, `snapshot`)")
GROUPS_BEHIND = _gauge("table_groups_behind", "Groups that wait for their Iceberg commit", "table")
LAG_SECONDS = _gauge("table_lag_seconds", "Age of the oldest registered file that is in no snapshot", "table")
DEGRADED = _gauge("table_degraded", "1 for a table that waits for repair", "table")
TABLE_ROWS = _gauge("table_rows", "Visible rows", "table")
TABLE_FILES = _gauge("table_files", "Visible files", "table")
TABLE_BYTES = _gauge("table_bytes", "Size of the visible files", "table")
SMALL_SHARE = _gauge("table_small_file_share", "Share of the visible files that are small, from 0 to 1", "table")

COMPACTION_LOOKS = _counter("compaction_looks", "Tables that the compactor examined")
COMPACTION_SWAPS = _counter("compaction_swaps", "Runs of partitions whose files were replaced")
COMPACTION_FILES = _counter("compaction_files", "Files that compaction read (in) and wrote (out)", "direction")
COMPACTION_BYTES = _counter("compaction_bytes", "Bytes that compaction read (in) and wrote (out)", "direction")
COMPACTION_SECONDS = _counter("compaction_seconds", "Time spent compacting")
COMPACTION_CONFLICTS = _counter("compaction_conflicts", "Runs that conflicted with a writer")
COMPACTION_FAILURES = _counter("compaction_failures", "Compactions that failed")
COMPACTION_BACKLOG = _gauge("compaction_backlog", "Tables that wait for the compactor")
COMPACTION_WORKING = _gauge("compaction_working", "Tables that are being compacted")

TASK_RUNS = _counter("task_runs", "Runs of a maintenance task that ended, successful or not", "task")
TASK_FAILURES = _counter("task_failures", "Runs of a maintenance task that failed, wholly or in part", "task")
TASK_SECONDS = _counter("task_seconds", "Time spent in a maintenance task", "task")
TASK_RUNNING = _gauge("task_running", "1 while the task runs", "task")
TASK_SUCCESS = _gauge("task_last_success_timestamp_seconds", "When the task last succeeded, in any process", "task")
TASK_NEXT = _gauge("task_next_timestamp_seconds", "When the task runs next", "task")
REQUESTED = _gauge("requested_runs", "Requested materializations that wait for the service")

CLEANED_FILES = _counter("cleaned_files", "Files that the clean-up deleted from storage")
CLEANED_BYTES = _counter("cleaned_bytes", "Bytes that the clean-up deleted from storage")
CLEAN_FAILURES = _counter("clean_failures", "Deletions that the storage refused; they are retried")
TEMPORARY_FILES = _gauge("temporary_files", "Files that wait for deletion")
TEMPORARY_BYTES = _gauge("temporary_bytes", "Size of the files that wait for deletion")
TEMPORARY_EXPIRED = _gauge("temporary_files_expired", "Files past their grace period; those that a reader or a snapshot needs stay longer")
TEMPORARY_FAILED = _gauge("temporary_files_failed", "Files whose deletion failed at least once")
OPERATIONS = _gauge("operations_open", "Writes under way")
DEAD_OPERATIONS = _gauge("operations_dead", "Writes whose writer died and that wait for recovery")

CHECK_CLEAN = _gauge("check_clean", "1 if the last check of this process found nothing, otherwise 0; absent before the first")
CHECK_FINDINGS = _gauge("check_findings", "Findings of the last check of this process", "severity")
ORPHANS = _gauge("orphan_files", "Unknown files that the last sweep of this process found; absent before the first")

METRICS: tuple[Metric, ...] = tuple(value for value in dict(vars()).values() if isinstance(value, Metric))
