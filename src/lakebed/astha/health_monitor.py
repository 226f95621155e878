"""The monitor: checks the health of components and detects calls that time out."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakebed.astha.circuit_breaker import BreakerState
from lakebed.astha.delivery.lanes import describe

if TYPE_CHECKING:
    from lakebed.astha.delivery.delivery import Delivery
    from lakebed.astha.delivery.workers import WorkerPool
    from lakebed.core.events import Component

logger = logging.getLogger(__name__)


class HealthMonitor:
    """One thread, and one more per running health check; while a check of a component hangs, no second one is started."""

    def __init__(self, delivery: Delivery, workers: WorkerPool) -> None:
        self._delivery, self._workers, self._options = delivery, workers, delivery.options
        first = delivery.time.monotonic() + self._options.health_every_s
        self.health = {
            c: Health(every_s=self._options.health_every_s, timeout_s=self._options.health_timeout_s, due=first)
            for c in delivery.subscribers
        }
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._asking: dict[Component, threading.Thread] = {}
        self._thread = threading.Thread(target=self._run, name="astha-monitor", daemon=True)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def join(self, deadline: float) -> None:
        for thread in (self._thread, *self._asking.values()):
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))

    def look(self, now: float) -> None:
        """Does what is due at `now`."""
        for component in self._delivery.fence_silent(now):
            self._workers.replace(component)
        for component in self._delivery.subscribers:
            self._look_at(component, now)

    def _look_at(self, component: Component, now: float) -> None:
        breaker = self._delivery.breakers[component]
        with self._lock:
            health = self.health[component]
            if breaker.state is BreakerState.OPEN:
                health = health.sooner(breaker.pause_ends)
            must_ask, silent = health.must_ask(now), health.is_silent(now)
            self.health[component] = health.asked(now) if must_ask else health.silent(now) if silent else health
        if must_ask:
            self._asking[component] = threading.Thread(target=self._ask, args=(component,), name=f"astha-health-{component}", daemon=True)
            self._asking[component].start()
        elif silent:
            self._report(component, "the health check does not answer")

    def _ask(self, component: Component) -> None:
        problem = ""
        try:
            self._delivery.subscribers[component].on_health()
        except BaseException as error:  # noqa: BLE001 - any exception of a component is a failed check, not an error of the monitor
            problem = describe(error)
        with self._lock:
            self.health[component] = self.health[component].answered(self._delivery.time.monotonic(), problem)
        self._report(component, problem)

    def _report(self, component: Component, problem: str) -> None:
        if problem:
            logger.warning("a health check failed", extra={"action": "health", "component": component.value, "error": problem})
        self._delivery.heard(component, well=not problem, now=self._delivery.time.monotonic())

    def _run(self) -> None:
        while not self._stop.wait(self._options.tick_s):
            self.look(self._delivery.time.monotonic())


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The health of one component. A hanging check counts as failed at its timeout, and again every interval while it hangs."""

    every_s: float
    timeout_s: float
    due: float
    asked_at: float | None = None
    well: bool = True
    problem: str = ""

    def must_ask(self, now: float) -> bool:
        return self.asked_at is None and now >= self.due

    def is_silent(self, now: float) -> bool:
        return self.asked_at is not None and now >= self.due

    def asked(self, now: float) -> Health:
        return replace(self, asked_at=now, due=now + self.timeout_s)

    def answered(self, now: float, problem: str = "") -> Health:
        return replace(self, asked_at=None, well=not problem, problem=problem, due=now + self.every_s)

    def silent(self, now: float) -> Health:
        """The check stays open: no second check is started while one waits for an answer."""
        return replace(self, well=False, problem="the health check does not answer", due=now + self.every_s)

    def sooner(self, when: float) -> Health:
        """An open breaker waits for the next check, so it is due when the pause ends."""
        return replace(self, due=min(self.due, when)) if self.asked_at is None else self
