"""The maintenance tasks of a lake, and the default schedule of each."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

OFF = "off"


class Task(StrEnum):
    """In the order in which they run when several are due. Stored, as a key and as the job of a run: never rename."""

    RECOVER = "recover"
    RETIRE_EXPIRED = "retire_expired"
    MATERIALIZE = "materialize"
    MERGE = "merge"
    COMPACT = "compact"
    EXPIRE = "expire"
    CLEAN = "clean"
    SWEEP = "sweep"
    CHECK = "check"


# cron expressions, in UTC
DEFAULT_SCHEDULE: Mapping[Task, str] = {
    Task.RECOVER: "*/5 * * * *",
    Task.RETIRE_EXPIRED: "0 1 * * *",
    Task.MATERIALIZE: "*/10 * * * *",
    Task.MERGE: "30 1 * * *",
    Task.COMPACT: "20 * * * *",
    Task.EXPIRE: "*/30 * * * *",
    Task.CLEAN: "40 * * * *",
    Task.SWEEP: "0 3 * * SUN",
    Task.CHECK: "0 2 * * *",
}
