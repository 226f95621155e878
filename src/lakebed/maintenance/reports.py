"""The report of a task, and the isolation of one table's failure from the others."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakebed.core.errors import LakebedError
from lakebed.core.redaction import hide_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

logger = logging.getLogger(__name__)

_MOST_SHOWN = 20


class StoppedError(Exception):
    """The service is ending: running work is left as after a crash, and the next process continues it. Never leaves maintenance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Counts for the run's row; with problems the run has failed, although all other work was done."""

    result: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        return bool(self.problems)

    def to_result(self) -> dict[str, Any]:
        stored = dict(self.result)
        if self.problems:
            stored |= {"error": hide_secrets("; ".join(self.problems[:_MOST_SHOWN])), "problems": len(self.problems)}
        return stored


@contextmanager
def isolated(what: str, problems: list[str]) -> Iterator[None]:
    """An error in the block is recorded, and the task continues."""
    try:
        yield
    except LakebedError as exc:
        problems.append(f"{what}: {exc.code}: {exc}")
        logger.warning(
            "a part of a task failed; the others continue", extra={"action": "task", "what": what, "code": exc.code, "reason": str(exc)}
        )
