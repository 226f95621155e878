"""The status of Astha: counted while it runs, returned as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakebed.astha.circuit_breaker import BreakerState
    from lakebed.core.events import Component


@dataclass(slots=True)
class Tally:
    """The counts of one component, over all incarnations of this process."""

    delivered: int = 0
    refreshed: int = 0
    failures: int = 0
    dead_letters: int = 0
    late_answers: int = 0
    silences: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentStatus:
    component: Component
    breaker: BreakerState
    reason: str  # why the breaker is open
    well: bool
    problem: str  # result of the last health check
    lanes: int
    behind: int  # changes not yet handled, over all tables
    retrying: int
    parked: tuple[int, ...]
    delivered: int
    refreshed: int
    failures: int
    dead_letters: int
    late_answers: int
    silences: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AsthaStatus:
    active: bool
    incarnation: int  # 0: none has started
    restarts: int
    problem: str  # reason of the last restart, or why Astha is down
    down: bool
    components: tuple[ComponentStatus, ...]

    def of(self, component: Component) -> ComponentStatus:
        return next(one for one in self.components if one.component is component)
