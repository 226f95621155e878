"""The housekeeper: purges the journal and verifies the triggers."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from lakebed.core.errors import TriggersChangedError, UnavailableError
from lakebed.registry.journal.changes import purge_journal
from lakebed.registry.journal.cursors import list_purgeable
from lakebed.registry.verify import verify_triggers

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.astha.options import AsthaOptions
    from lakebed.registry.registry import Registry

logger = logging.getLogger(__name__)


class Housekeeper:
    """One thread that purges the journal and verifies the triggers: long work that must not delay the renewal of the lease."""

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
            except Exception as error:  # noqa: BLE001 - a thread has no caller; the supervisor reads the error
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
