"""What passes through delivery's hands: a lane taken up, a batch to be saved, and how a failure is told."""

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
    """One lane in one thread's hands, under the epoch it was taken with."""

    lane: Lane
    epoch: int
    trial: bool
    called_at: float = 0.0  # 0 between calls
    heard_at: float = 0.0  # when the call last reported progress
    timeout_s: float = math.inf
    abandoned: bool = False

    def is_silent(self, now: float) -> bool:
        """Whether its call was neither answered nor heard of for longer than allowed."""
        called_at = self.called_at
        return bool(called_at) and now - max(called_at, self.heard_at) >= self.timeout_s


@dataclass(frozen=True, slots=True)
class Batch:
    """What is to be saved."""

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
        logger.info("a call failed and will be made again", extra={"action": "retry", **facts})
    elif drop.parked:
        logger.error("a table is parked until somebody asks for a retry", extra={"action": "park", **facts}, exc_info=error)
    else:
        logger.error("a change became a dead letter; the table is refreshed", extra={"action": "dead_letter", **facts}, exc_info=error)
