"""The runner: two threads that carry out due tasks and requested work while this process holds the lease."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakebed.admin.requests import MATERIALIZE, REGENERATE
from lakebed.core.errors import LakebedError, LeaseLostError
from lakebed.core.redaction import hide_secrets
from lakebed.core.tasks import Task
from lakebed.maintenance.reports import Report, StoppedError
from lakebed.maintenance.schedule import Due, due_tasks, first_windows
from lakebed.maintenance.tasks import TASKS
from lakebed.maintenance.threads import RepeatingThread
from lakebed.maintenance.views import carry_out_request
from lakebed.registry.files.operations import list_expired_operations
from lakebed.registry.maintenance.schedules import (
    begin_requested,
    begin_window,
    end_requested,
    end_window,
    list_requested,
    read_windows,
    set_windows,
    take_over,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakebed.maintenance.schedule import Schedule
    from lakebed.maintenance.workplace import Workplace
    from lakebed.registry.journal.leases import Lease
    from lakebed.registry.maintenance.schedules import KeptWindow, RequestedWork

logger = logging.getLogger(__name__)

REQUESTED = "requested"  # the name under which requested work is counted
LOOK_S = 1.0
MAX_ATTEMPTS = 3  # at requested work during which the process ended
_JOBS = (MATERIALIZE, REGENERATE)
# Tasks that build views may take hours: the others do not wait for them
_BUILDING = frozenset({Task.MATERIALIZE, Task.MERGE})


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTally:
    """The counts of one task since this process started; `succeeded_at` comes from the registry, in microseconds."""

    runs: int = 0
    failures: int = 0
    seconds: float = 0.0
    running: bool = False
    succeeded_at: int | None = None
    error: str = ""
    result: Mapping[str, object] = field(default_factory=dict)


class Runner:
    """Tasks run only while this process holds the lease, which is checked before each task."""

    def __init__(
        self,
        place: Workplace,
        schedule: Schedule,
        *,
        lease: Callable[[], Lease | None],
        on_report: Callable[[str, Report, float], None] = lambda *_: None,
        look_s: float = LOOK_S,
        tasks: Mapping[Task, Callable[[Workplace], Report]] = TASKS,
    ) -> None:
        self._stopping = threading.Event()
        self._place = replace(place, cancelled=self._stopping.is_set)
        self._tasks, self.schedule, self._lease, self._on_report = tasks, schedule, lease, on_report
        self._guard, self._settling = threading.Lock(), threading.Lock()
        self._must_recover = False
        self._tallies: dict[str, TaskTally] = {}
        self._own: set[int] = set()
        self._epoch: int | None = None
        bodies = {"upkeep": lambda: self._work(frozenset(Task) - _BUILDING), "views": self._work_on_views}
        self.threads = tuple(RepeatingThread(name, body, pace_s=look_s, stopping=self._stopping) for name, body in bodies.items())

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Whether every running task has ended within the timeout; the next process takes up one that has not."""
        self._stopping.set()
        deadline = time.monotonic() + timeout_s
        ended = [thread.join(deadline - time.monotonic()) for thread in self.threads]
        return all(ended)

    def tallies(self) -> dict[str, TaskTally]:
        """By task; requested work is under `requested`."""
        with self._guard:
            return {name: self._tallies.get(name, TaskTally()) for name in (*Task, REQUESTED)}

    def run_due(self, tasks: frozenset[Task] = frozenset(Task)) -> list[Task]:
        """Carry out the due ones of these tasks in this thread, each at most once. Return those that ran."""
        ran: list[Task] = []
        while not self._stopping.is_set() and (lease := self._lease()) is not None:
            self._settle_in(lease)
            due = self._find_due(lease, tasks.difference(ran))
            if due is None:
                break
            self._run(lease, due)
            ran.append(due.task)
        return ran

    def run_requested(self) -> int:
        """Carry out requested work in this thread. Return the number of runs."""
        done = 0
        while not self._stopping.is_set() and (lease := self._lease()) is not None:
            self._settle_in(lease)
            waiting = list_requested(self._place.registry, _JOBS)
            if not waiting:
                break
            done += self._carry_out(lease, waiting[0])
        return done

    # -- one thread each ----------------------------------------------------------------------

    def _work(self, tasks: frozenset[Task]) -> None:
        with suppress(StoppedError):  # the thread then ends by itself
            self.run_due(tasks)

    def _work_on_views(self) -> None:
        self._work(_BUILDING)
        with suppress(StoppedError):
            self.run_requested()

    def _settle_in(self, lease: Lease) -> None:
        """Once per lease: runs that the previous holder left open are closed, and its dead writers are recovered."""
        with self._settling:
            if self._epoch == lease.epoch:
                return
            with self._guard:
                own = sorted(self._own)
            take_over(self._place.registry, lease, jobs=_JOBS, own=own)
            self._epoch = lease.epoch
            self._must_recover = self.schedule[Task.RECOVER].cron is not None and bool(list_expired_operations(self._place.registry))

    def _find_due(self, lease: Lease, tasks: frozenset[Task]) -> Due | None:
        registry = self._place.registry
        now, last = registry.now(), read_windows(registry)
        chosen = {task: table for task, table in self.schedule.items() if task in tasks}
        if new := first_windows(now, last, chosen):
            set_windows(registry, lease, new)
            last = read_windows(registry)
        self._remember(last)
        due = due_tasks(now, last, chosen)
        if self._must_recover and Task.RECOVER in chosen:
            self._must_recover = False
            return Due(task=Task.RECOVER, window=last[Task.RECOVER].window)
        return due[0] if due else None

    def _remember(self, last: Mapping[str, KeptWindow]) -> None:
        with self._guard:
            for name, kept in last.items():
                self._tallies[name] = replace(self._tallies.get(name, TaskTally()), succeeded_at=kept.succeeded_at)

    def _run(self, lease: Lease, due: Due) -> None:
        registry = self._place.registry
        run_id = begin_window(registry, lease, due.task, window=due.window, tries=due.tries, actor=self._place.actor)
        report = self._count(due.task, run_id, lambda: self._tasks[due.task](self._place))
        end_window(registry, due.task, run_id, failed=report.failed, result=report.to_result())

    def _carry_out(self, lease: Lease, work: RequestedWork) -> bool:
        registry = self._place.registry
        if not begin_requested(registry, lease, work):
            return False
        if work.attempts >= MAX_ATTEMPTS:
            report = Report(problems=(f"given up: the service ended {work.attempts} times during this run",))
        else:
            report = self._count(REQUESTED, work.run_id, lambda: carry_out_request(self._place, work))
        end_requested(registry, work.run_id, failed=report.failed, result=report.to_result())
        return True

    def _count(self, name: str, run_id: int, work: Callable[[], Report]) -> Report:
        """A failure of a task does not affect the others."""
        self._note(name, run_id, running=True)
        began = time.monotonic()
        try:
            report = work()
        except (LeaseLostError, StoppedError):
            raise
        except Exception as exc:
            logger.exception("a task failed", extra={"action": "task", "task": name, "run": run_id})
            code = exc.code if isinstance(exc, LakebedError) else type(exc).__name__
            report = Report(problems=(f"{code}: {exc}",))
        finally:
            self._note(name, run_id, running=False)
        seconds = time.monotonic() - began
        self._add(name, report, seconds)
        extra = {"action": "task", "task": name, "run": run_id, "failed": report.failed, "seconds": round(seconds, 3), **_plain(report)}
        logger.info("a task ended", extra=extra)
        self._on_report(name, report, seconds)
        return report

    def _note(self, name: str, run_id: int, *, running: bool) -> None:
        with self._guard:
            (self._own.add if running else self._own.discard)(run_id)
            self._tallies[name] = replace(self._tallies.get(name, TaskTally()), running=running)

    def _add(self, name: str, report: Report, seconds: float) -> None:
        error = hide_secrets("; ".join(report.problems))
        with self._guard:
            old = self._tallies.get(name, TaskTally())
            self._tallies[name] = replace(
                old,
                runs=old.runs + 1,
                failures=old.failures + report.failed,
                seconds=old.seconds + seconds,
                error=error,
                result=dict(report.result),
            )


def _plain(report: Report) -> dict[str, object]:
    return {"result": dict(report.result)} | ({"problems": "; ".join(report.problems)} if report.problems else {})
