"""The metrics of one service for Prometheus. Values are read when Prometheus scrapes, where possible."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from lakebed.astha.circuit_breaker import BreakerState
from lakebed.check.report import Severity
from lakebed.core.errors import LakebedError
from lakebed.core.tasks import Task
from lakebed.monitoring import declarations as d
from lakebed.registry.queries.metrics import read_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prometheus_client import Metric as Family

    from lakebed.astha import AsthaStatus
    from lakebed.components.compactor import CompactorMetrics
    from lakebed.maintenance.reports import Report
    from lakebed.maintenance.runner import Runner
    from lakebed.maintenance.threads import RepeatingThread
    from lakebed.monitoring.declarations import Metric
    from lakebed.registry.queries.metrics import LakeMetrics
    from lakebed.registry.registry import Registry

_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_FRESH_S = 2.0  # the registry is read at most this often, independent of the number of scrapes

Sample = tuple[tuple[str, ...], float]


class Metrics:
    """`status`, `compactor`, `runner`, `threads` and `waiters` are read on each scrape; commits and task reports are passed in when they happen."""

    def __init__(
        self,
        registry: Registry,
        *,
        status: Callable[[], AsthaStatus],
        compactor: Callable[[], CompactorMetrics | None],
        runner: Callable[[], Runner | None],
        threads: Callable[[], Sequence[RepeatingThread]] = tuple,
        waiters: Callable[[], int] = int,
    ) -> None:
        self._registry, self._status, self._compactor, self._runner, self._threads = registry, status, compactor, runner, threads
        self._waiters = waiters
        self._own = CollectorRegistry(auto_describe=False)
        commit = d.COMMIT_SECONDS
        self._commits = Histogram(commit.name, commit.help, buckets=_BUCKETS, registry=self._own)
        self._own.register(self)
        self._guard = threading.Lock()
        self._cleaned = {"deleted": 0, "bytes_freed": 0, "failed": 0}
        self._check: dict[str, int] | None = None
        self._orphans: int | None = None
        self._reading = threading.Lock()
        self._read_at = float("-inf")
        self._metrics: LakeMetrics | None = None

    def note_commit(self, seconds: float) -> None:
        self._commits.observe(seconds)

    def note_report(self, name: str, report: Report, _: float) -> None:
        """Takes the report of a task, beyond its time and its outcome."""
        with self._guard:
            if name == Task.CLEAN:
                for key in self._cleaned:
                    self._cleaned[key] += int(report.result.get(key, 0))
            elif name == Task.CHECK and "findings" in report.result:
                self._check = dict(report.result["findings"])
            elif name == Task.SWEEP and "orphans" in report.result:
                self._orphans = int(report.result["orphans"])

    def to_text(self) -> bytes:
        """The metrics in the text format of Prometheus."""
        return generate_latest(self._own)

    def collect(self) -> Iterator[Family]:
        """Called by the library on each scrape."""
        yield from self._of_astha()
        yield from self._of_registry()
        yield from self._of_compaction()
        yield from self._of_tasks()
        yield from self._of_reports()

    def _of_astha(self) -> Iterator[Family]:
        status = self._status()
        yield _family(d.ACTIVE, [((), float(status.active))])
        yield _family(d.RESTARTS, [((), status.restarts)])
        yield _family(d.THREAD_RESTARTS, [((thread.name,), thread.restarts) for thread in self._threads()])
        yield _family(d.THREAD_DOWN, [((thread.name,), float(bool(thread.problem))) for thread in self._threads()])
        yield _family(d.WAITING, [((), self._waiters())])
        states = [((str(c.component), str(state)), float(c.breaker is state)) for c in status.components for state in BreakerState]
        yield _family(d.BREAKER, states)
        yield _family(d.WELL, [((str(c.component),), float(c.well)) for c in status.components])
        yield _family(d.PARKED, [((str(c.component),), len(c.parked)) for c in status.components])
        for metric, name in (
            (d.BEHIND, "behind"), (d.RETRYING, "retrying"), (d.DELIVERED, "delivered"), (d.REFRESHED, "refreshed"),
            (d.FAILED_CALLS, "failures"), (d.DEAD_LETTERS, "dead_letters"), (d.LATE, "late_answers"), (d.SILENCES, "silences"),
        ):  # fmt: skip
            yield _family(metric, [((str(c.component),), getattr(c, name)) for c in status.components])

    def _of_registry(self) -> Iterator[Family]:
        metrics = self._read()
        yield _family(d.REGISTRY_UP, [((), float(metrics is not None))])
        if metrics is None:
            return
        for metric, name in ((d.TABLE_ROWS, "rows"), (d.TABLE_FILES, "files"), (d.TABLE_BYTES, "size_bytes"),
                             (d.GROUPS_BEHIND, "groups_behind"), (d.LAG_SECONDS, "waiting_s"), (d.DEGRADED, "degraded")):  # fmt: skip
            yield _family(metric, [((t.table,), float(getattr(t, name))) for t in metrics.tables])
        yield _family(d.SMALL_SHARE, [((t.table,), t.small_files / t.files if t.files else 0.0) for t in metrics.tables])
        yield _family(d.OPEN_LETTERS, [((component,), count) for component, count in metrics.dead_letters.items()])
        for metric, value in (
            (d.TEMPORARY_FILES, metrics.queued_files), (d.TEMPORARY_BYTES, metrics.queued_bytes),
            (d.TEMPORARY_EXPIRED, metrics.queued_expired), (d.TEMPORARY_FAILED, metrics.queued_failed),
            (d.OPERATIONS, metrics.open_operations), (d.DEAD_OPERATIONS, metrics.dead_operations), (d.REQUESTED, metrics.requested_runs),
        ):  # fmt: skip
            yield _family(metric, [((), value)])

    def _read(self) -> LakeMetrics | None:
        """None if the registry does not answer."""
        with self._reading:
            if self._metrics is None or time.monotonic() - self._read_at >= _FRESH_S:
                try:
                    self._metrics = read_metrics(self._registry)
                except LakebedError:
                    self._metrics = None
                self._read_at = time.monotonic()
            return self._metrics

    def _of_compaction(self) -> Iterator[Family]:
        found = self._compactor()
        if found is None:
            return
        for metric, value in (
            (d.COMPACTION_LOOKS, found.looks), (d.COMPACTION_SWAPS, found.swaps), (d.COMPACTION_SECONDS, found.seconds),
            (d.COMPACTION_CONFLICTS, found.conflicts), (d.COMPACTION_FAILURES, found.failures),
            (d.COMPACTION_BACKLOG, found.backlog), (d.COMPACTION_WORKING, found.working),
        ):  # fmt: skip
            yield _family(metric, [((), value)])
        yield _family(d.COMPACTION_FILES, [(("in",), found.files_in), (("out",), found.files_out)])
        yield _family(d.COMPACTION_BYTES, [(("in",), found.bytes_in), (("out",), found.bytes_out)])

    def _of_tasks(self) -> Iterator[Family]:
        if (runner := self._runner()) is None:
            return
        tallies = runner.tallies()
        for metric, name in (
            (d.TASK_RUNS, "runs"),
            (d.TASK_FAILURES, "failures"),
            (d.TASK_SECONDS, "seconds"),
            (d.TASK_RUNNING, "running"),
        ):
            yield _family(metric, [((task,), float(getattr(tally, name))) for task, tally in tallies.items()])
        yield _family(d.TASK_SUCCESS, [((task,), t.succeeded_at / 1e6) for task, t in tallies.items() if t.succeeded_at is not None])
        now = time.time_ns() // 1000
        coming = [((str(task),), table.find_next(now)) for task, table in runner.schedule.items()]
        yield _family(d.TASK_NEXT, [(task, at / 1e6) for task, at in coming if at is not None])

    def _of_reports(self) -> Iterator[Family]:
        with self._guard:
            cleaned, findings, orphans = dict(self._cleaned), self._check, self._orphans
        yield _family(d.CLEANED_FILES, [((), cleaned["deleted"])])
        yield _family(d.CLEANED_BYTES, [((), cleaned["bytes_freed"])])
        yield _family(d.CLEAN_FAILURES, [((), cleaned["failed"])])
        yield _family(d.ORPHANS, [] if orphans is None else [((), orphans)])
        if findings is None:
            findings, clean = {}, []
        else:
            clean = [((), float(not any(findings.get(s, 0) for s in Severity if s is not Severity.INFO)))]
        yield _family(d.CHECK_CLEAN, clean)
        yield _family(d.CHECK_FINDINGS, [((str(s),), findings.get(s, 0)) for s in Severity])


def _family(metric: Metric, samples: Iterable[Sample]) -> Family:
    made: GaugeMetricFamily | CounterMetricFamily
    if metric.kind == "counter":
        made = CounterMetricFamily(metric.name.removesuffix("_total"), metric.help, labels=metric.labels)
    else:
        made = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples:
        made.add_metric(labels, value)
    return made
