"""The threads that make the calls: a few per component, started when there is work, replaced when one hangs."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakebed.astha.delivery.delivery import Delivery
    from lakebed.astha.delivery.jobs import Job
    from lakebed.core.events import Component


class WorkerPool:
    """Every component has its own threads: a slow or hanging component takes none from the others."""

    def __init__(self, delivery: Delivery, *, limit: int) -> None:
        self._delivery, self._limit = delivery, limit
        self._working = dict.fromkeys(delivery.subscribers, 0)
        self._idle = dict.fromkeys(delivery.subscribers, 0)
        self._threads: list[threading.Thread] = []
        delivery.on_work = self._need

    def replace(self, component: Component) -> None:
        """Replace a thread that hangs in a handler: it is no longer counted, and ends when its call returns."""
        with self._delivery.lock:
            self._working[component] -= 1
            self._need(component)

    def join(self, deadline: float) -> bool:
        """Wait until every thread has ended; False if one hangs in a handler."""
        for thread in list(self._threads):
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _need(self, component: Component) -> None:
        """Called with delivery's lock held."""
        if self._idle[component] or self._working[component] >= self._limit or self._delivery.stopped:
            return
        self._working[component] += 1
        self._threads = [t for t in self._threads if t.is_alive()]
        thread = threading.Thread(target=self._work, args=(component,), name=f"astha-{component}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self, component: Component) -> None:
        while (job := self._await_job(component)) is not None:
            self._delivery.carry_out(job)
            if job.abandoned:
                return

    def _await_job(self, component: Component) -> Job | None:
        delivery = self._delivery
        with delivery.lock:
            while not delivery.stopped:
                now = delivery.time.monotonic()
                if (job := delivery.take(component, now)) is not None:
                    if delivery.has_ready(component):
                        self._need(component)
                    return job
                self._idle[component] += 1
                delivery.wakes[component].wait(delivery.wait_s(component, now))
                self._idle[component] -= 1
            self._working[component] -= 1
        return None
