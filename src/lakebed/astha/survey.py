"""Looking at delivery from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.astha.circuit_breaker import Breaker
from lakebed.astha.status import ComponentStatus, Tally

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakebed.astha.delivery.lanes import Lane
    from lakebed.astha.incarnation import Life
    from lakebed.core.events import Component


def survey(components: Iterable[Component], tallies: Mapping[Component, Tally], life: Life | None) -> tuple[ComponentStatus, ...]:
    """Of an instance that stands by, what this process has done so far."""
    return tuple(_survey_one(component, tallies[component], life) for component in components)


def _survey_one(component: Component, tally: Tally, life: Life | None) -> ComponentStatus:
    lanes: list[Lane] = []
    breaker, problem, delivered = Breaker(), "", tally.delivered
    if life is not None:
        problem = life.monitor.health[component].problem
        with life.delivery.lock:
            breaker, lanes = life.delivery.breakers[component], list(life.delivery.lanes[component].values())
            delivered = tally.delivered + sum(lane.answered for lane in lanes)
    return ComponentStatus(
        component=component,
        breaker=breaker.state,
        reason=breaker.reason,
        well=not problem,
        problem=problem,
        lanes=len(lanes),
        behind=sum(max(0, lane.end - lane.position) for lane in lanes),
        retrying=sum(lane.is_retrying for lane in lanes),
        parked=tuple(sorted(lane.table_id for lane in lanes if lane.parked)),
        delivered=delivered,
        refreshed=tally.refreshed,
        failures=tally.failures,
        dead_letters=tally.dead_letters,
        late_answers=tally.late_answers,
        silences=tally.silences,
    )
