"""The values that delivery works with: a lane taken by a thread, a batch to be saved; and the log lines of failures."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.astha.delivery.lanes import Lane, describe

if TYPE_CHECKING:
    from lakebed.registry.journal.cursors import LaneKey, Position, Undelivered

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Job:
    """One lane taken by one thread, under the epoch of that time."""

    lane: Lane
    epoch: int
    trial: bool
    called_at: float = 0.0  # 0 between calls
    heard_at: float = 0.0  # when the call last reported progress
    timeout_s: float = math.inf
    abandoned: bool = False

    def is_silent(self, now: float) -> bool:
        """Whether its call has neither answered nor reported progress within the timeout."""
        called_at = self.called_at
        return bool(called_at) and now - max(called_at, self.heard_at) >= self.timeout_s


@dataclass(frozen=True, slots=True)
class Batch:
    """The state to be saved."""

    positions: tuple[Position, ...]
    drops: tuple[Undelivered, ...]
    healed: tuple[LaneKey, ...]

    def __bool__(self) -> bool:
        return bool(self.positions or self.drops or self.healed)


def facts_of(lane: Lane) -> dict[str, Any]:
    return {"component": lane.component.value, "table": lane.table_id, "sequence": lane.position}


def log_failure(lane: Lane, error: BaseException, drop: Undelivered | None) -> None:
    facts = {**facts_of(lane), "calls": lane.calls, "error": describe(error)}
    if drop is None:
        logger.info("a call failed and will be retried", extra={"action": "retry", **facts})
    elif drop.parked:
        logger.error("a table is parked until a retry is requested", extra={"action": "park", **facts}, exc_info=error)
    else:
        logger.error("a change became a dead letter; the table is refreshed", extra={"action": "dead_letter", **facts}, exc_info=error)
