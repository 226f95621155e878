"""When a task is due: cron windows in UTC, each run once, missed ones combined, shifted by a fixed jitter. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cronsim import CronSim, CronSimError

from lakebed.core.errors import InvalidValueError
from lakebed.core.tasks import OFF, Task
from lakebed.core.times import from_micros, to_micros

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakebed.registry.maintenance.schedules import KeptWindow

MAX_JITTER_US = 300 * 1_000_000
MAX_TRIES = 3  # for one window whose run was interrupted: a task that ends the process must not be repeated for ever
_OF_GAP = 10  # the jitter is at most this part of the time between two windows


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """The windows of one task. `cron` is None for a task that is off."""

    task: Task
    cron: str | None
    jitter: float = 0.0  # from [0, 1): the fraction of the allowed jitter

    def find_window(self, now: int) -> int | None:
        """The newest window that has begun, including jitter; None if there is none within the search range."""
        if self.cron is None:
            return None
        back = CronSim(self.cron, from_micros(now + 1), reverse=True)
        for _, begin in zip(range(_OF_GAP), back, strict=False):
            if to_micros(begin) + self.jitter_us(begin) <= now:
                return to_micros(begin)
        return None

    def find_next(self, now: int) -> int | None:
        """When the next window begins, including jitter."""
        if self.cron is None or (begin := next(CronSim(self.cron, from_micros(now)), None)) is None:
            return None
        return to_micros(begin) + self.jitter_us(begin)

    def jitter_us(self, begin: datetime) -> int:
        assert self.cron is not None  # noqa: S101 - called only for tasks with a schedule
        after = next(CronSim(self.cron, begin), None)
        gap = MAX_JITTER_US if after is None else to_micros(after) - to_micros(begin)
        return int(self.jitter * min(MAX_JITTER_US, gap // _OF_GAP))


Schedule = dict[Task, Timetable]


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    task: Task
    window: int
    tries: int = 1


def make_schedule(crons: Mapping[Task, str], *, lake_id: str) -> Schedule:
    """Timetables of all tasks; a bad expression is refused with the name of its setting."""
    return {task: Timetable(task=task, cron=_parse(task, crons[task]), jitter=_draw(lake_id, task)) for task in Task}


def due_tasks(now: int, last: Mapping[str, KeptWindow], schedule: Schedule) -> list[Due]:
    """The tasks to run at `now`, in their order. Missed windows count as one.

    A task without a stored window is not due; `first_windows` gives its first one. An interrupted run is repeated.
    """
    found: list[Due] = []
    for task, table in schedule.items():
        kept, window = last.get(task), table.find_window(now)
        if kept is None or window is None:
            continue
        if window > kept.window:
            found.append(Due(task=task, window=window))
        elif kept.outcome == "running" and kept.tries < MAX_TRIES:
            found.append(Due(task=task, window=kept.window, tries=kept.tries + 1))
    return found


def first_windows(now: int, last: Mapping[str, KeptWindow], schedule: Schedule) -> dict[str, int]:
    """The first window of tasks that have none yet, or one in the future because of a wrong clock."""
    return {
        task: now if (begun := table.find_window(now)) is None else begun
        for task, table in schedule.items()
        if table.cron is not None and (task not in last or last[task].window > now)
    }


def _parse(task: Task, cron: str) -> str | None:
    text = cron.strip()
    if text.lower() == OFF:
        return None
    try:
        has_window = next(CronSim(text, datetime(2000, 1, 1, tzinfo=UTC)), None) is not None
    except (CronSimError, ValueError, AssertionError) as exc:
        raise _refuse(task, cron, str(exc) or "it cannot be read") from exc
    if not has_window:
        raise _refuse(task, cron, "it matches no time")
    return text


def _refuse(task: Task, cron: str, reason: str) -> InvalidValueError:
    return InvalidValueError(f"schedule.{task}={cron!r} is not a cron expression ({reason}): write it as '*/10 * * * *' (UTC), or 'off'")


def _draw(lake_id: str, task: Task) -> float:
    """Equal for all processes of a lake, and different for lakes that share a machine."""
    digest = hashlib.sha256(f"{lake_id}/{task}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / (1 << 48)
