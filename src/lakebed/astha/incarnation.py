"""One incarnation: lanes from the saved cursors, and the threads that serve them until the first failure."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lakebed.astha.circuit_breaker import CircuitBreaker
from lakebed.astha.delivery.delivery import Delivery
from lakebed.astha.delivery.workers import WorkerPool
from lakebed.astha.health_monitor import HealthMonitor
from lakebed.astha.housekeeper import Housekeeper
from lakebed.astha.journal_pages import JournalPages
from lakebed.astha.registry_watcher import RegistryWatcher
from lakebed.astha.status import ComponentStatus, Tally
from lakebed.registry.journal.cursors import read_lane_states

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lakebed.astha.delivery.lanes import Lane
    from lakebed.astha.event_router import EventRouter
    from lakebed.astha.options import AsthaOptions, Time
    from lakebed.core.events import Component
    from lakebed.registry.registry import Registry


class Incarnation:
    """Starts all threads; at the end every thread has ended, except those that hang in a handler."""

    def __init__(
        self,
        registry: Registry,
        router: EventRouter,
        *,
        options: AsthaOptions,
        time: Time,
        tallies: Mapping[Component, Tally],
        breakers: Mapping[Component, CircuitBreaker] | None,
        on_news: Callable[[], None],
    ) -> None:
        pages = JournalPages(registry, page_events=options.page_events, tables=options.cached_tables)
        self.delivery = Delivery(router, pages, options=options, time=time, tallies=tallies, breakers=breakers)
        self.delivery.on_news = on_news
        self._workers = WorkerPool(self.delivery, limit=options.workers)
        self.watcher = RegistryWatcher(registry, self.delivery, sweep_s=options.sweep_s, on_death=on_news)
        self.monitor = HealthMonitor(self.delivery, self._workers)
        self.housekeeper = Housekeeper(registry, options, on_problem=on_news)
        self._registry = registry

    @property
    def problem(self) -> str:
        """The failure; empty while there is none."""
        return self.watcher.problem or self.housekeeper.problem or ("" if self.monitor.is_alive else "the monitor has ended")

    def start(self, *, active_until: float) -> None:
        """The watcher listens before the cursors are read, so that no commit is missed in between."""
        self.delivery.active_until = active_until
        try:
            self.delivery.open(read_lane_states(self._registry))
        except BaseException:
            self.watcher.close()
            raise
        for part in (self.watcher, self.monitor, self.housekeeper):
            part.start()

    def end(self, deadline: float) -> bool:
        """False if a call is still running at the deadline."""
        self.delivery.stop()
        for part in (self.watcher, self.monitor, self.housekeeper):
            part.stop()
        done = self._workers.join(deadline)
        for part in (self.watcher, self.monitor, self.housekeeper):
            part.join(max(deadline, time.monotonic() + 1.0))
        return done


def list_component_statuses(
    components: Iterable[Component], tallies: Mapping[Component, Tally], incarnation: Incarnation | None
) -> tuple[ComponentStatus, ...]:
    """For a standby instance, the counts of this process so far."""
    return tuple(_component_status(component, tallies[component], incarnation) for component in components)


def _component_status(component: Component, tally: Tally, incarnation: Incarnation | None) -> ComponentStatus:
    lanes: list[Lane] = []
    breaker, problem, delivered = CircuitBreaker(), "", tally.delivered
    if incarnation is not None:
        problem = incarnation.monitor.health[component].problem
        with incarnation.delivery.lock:
            breaker, lanes = incarnation.delivery.breakers[component], list(incarnation.delivery.lanes[component].values())
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
