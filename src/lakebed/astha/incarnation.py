"""One incarnation: lanes from the saved cursors, and the threads that serve them until the first thing breaks."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from lakebed.astha.delivery.delivery import Delivery
from lakebed.astha.delivery.workers import Crew
from lakebed.astha.health_monitor import Monitor
from lakebed.astha.journal_pages import Pages
from lakebed.astha.registry_watcher import Watcher
from lakebed.core.errors import TriggersChangedError, UnavailableError
from lakebed.registry.journal.changes import purge_journal
from lakebed.registry.journal.cursors import list_purgeable, read_standing
from lakebed.registry.verify import verify_triggers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakebed.astha.circuit_breaker import Breaker
    from lakebed.astha.options import AsthaOptions, Time
    from lakebed.astha.status import Tally
    from lakebed.core.events import Component, Subscriber
    from lakebed.registry.registry import Registry

logger = logging.getLogger(__name__)


class Housekeeper:
    """One thread that purges the journal and looks after the triggers: long work that must not hold up the lease."""

    def __init__(self, registry: Registry, options: AsthaOptions, *, on_problem: Callable[[], None]) -> None:
        self._registry, self._options, self._on_problem = registry, options, on_problem
        self._stop = threading.Event()
        self._purge_at = time.monotonic() + options.purge_every_s
        self._verify_at = time.monotonic() + options.verify_every_s
        self.problem = ""
        self._thread = threading.Thread(target=self._run, name="astha-housekeeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def join(self, deadline: float) -> None:
        self._thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while not self._stop.wait(max(0.0, min(self._purge_at, self._verify_at) - time.monotonic())):
            try:
                self._work(time.monotonic())
            except TriggersChangedError as error:
                self._give_up(str(error))
            except UnavailableError as error:
                logger.warning("housekeeping has to wait", extra={"action": "housekeeping", "error": str(error)})
            except Exception as error:  # noqa: BLE001 - a thread has nobody to raise to; the supervisor reads it
                self._give_up(f"housekeeping failed: {error}")

    def _work(self, now: float) -> None:
        if now >= self._verify_at:
            self._verify_at = now + self._options.verify_every_s
            verify_triggers(self._registry)
        if now >= self._purge_at:
            self._purge_at = now + self._options.purge_every_s
            self._purge()

    def _purge(self) -> None:
        for table_id in list_purgeable(self._registry, cap=self._options.purge_cap):
            if self._stop.is_set():
                return
            purged = purge_journal(self._registry, table_id, cap=self._options.purge_cap)
            logger.info("the journal was purged", extra={"action": "purge", "table": table_id, "changes": purged})

    def _give_up(self, problem: str) -> None:
        self.problem = problem
        self._stop.set()
        self._on_problem()


class Life:
    """Starts with everything in place, ends with every thread gone except one that hangs in a handler."""

    def __init__(
        self,
        registry: Registry,
        subscribers: Mapping[Component, Subscriber[Any]],
        *,
        options: AsthaOptions,
        time: Time,
        tallies: Mapping[Component, Tally],
        breakers: Mapping[Component, Breaker] | None,
        on_news: Callable[[], None],
    ) -> None:
        pages = Pages(registry, page_events=options.page_events, tables=options.cached_tables)
        self.delivery = Delivery(subscribers, pages, options=options, time=time, tallies=tallies, breakers=breakers)
        self.delivery.on_news = on_news
        self._crew = Crew(self.delivery, limit=options.workers)
        self.watcher = Watcher(registry, self.delivery, sweep_s=options.sweep_s, on_death=on_news)
        self.monitor = Monitor(self.delivery, self._crew)
        self.housekeeper = Housekeeper(registry, options, on_problem=on_news)
        self._registry = registry

    @property
    def problem(self) -> str:
        """What broke; empty while all is well."""
        return self.watcher.problem or self.housekeeper.problem or ("" if self.monitor.is_alive else "the monitor is gone")

    def start(self, *, active_until: float) -> None:
        """The watcher listens before the cursors are read, so that no commit falls between."""
        self.delivery.active_until = active_until
        try:
            self.delivery.open(read_standing(self._registry))
        except BaseException:
            self.watcher.close()
            raise
        for part in (self.watcher, self.monitor, self.housekeeper):
            part.start()

    def end(self, deadline: float) -> bool:
        """False when a call is still under way at the deadline."""
        self.delivery.stop()
        for part in (self.watcher, self.monitor, self.housekeeper):
            part.stop()
        done = self._crew.join(deadline)
        for part in (self.watcher, self.monitor, self.housekeeper):
            part.join(max(deadline, time.monotonic() + 1.0))
        return done
