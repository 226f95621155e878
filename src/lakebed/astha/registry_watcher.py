"""The watcher: notices commits of any process and passes the newest journal numbers to delivery."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from lakebed.core.errors import RegistryUnavailableError
from lakebed.registry.journal.changes import last_journal_numbers
from lakebed.registry.journal.notifications import open_hints

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.astha.delivery.delivery import Delivery
    from lakebed.registry.journal.notifications import Hint, Hints
    from lakebed.registry.registry import Registry

logger = logging.getLogger(__name__)

_SLICE_S = 0.2  # how long a stop may wait for the hints
_TOGETHER = 100  # hints of a burst that are answered by one read
_REST = 20.0  # pause after a sweep of all tables, as a multiple of its time: hints that name no table take at most a twentieth of a core


class RegistryWatcher:
    """One thread. A hint may be lost, so a sweep reads all tables regularly. The first error ends it; the supervisor starts another."""

    def __init__(
        self, registry: Registry, delivery: Delivery, *, sweep_s: float, on_death: Callable[[], None], hints: Hints | None = None
    ) -> None:
        self._registry, self._delivery, self._sweep_s, self._on_death = registry, delivery, sweep_s, on_death
        self._hints = hints or open_hints(registry)
        self._is_unsure = False  # a hint came that names no table
        self._sweep_at = self._free_at = 0.0
        self._stop = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="astha-watcher", daemon=True)

    @property
    def problem(self) -> str:
        """Why it ended; empty while it runs."""
        if self.error is not None:
            return f"the watcher failed: {self.error}"
        return "" if self._thread.is_alive() else "the watcher has ended"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def close(self) -> None:
        """Close a watcher that was never started."""
        self._hints.close()

    def join(self, deadline: float) -> None:
        self._thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        try:
            self._watch()
        except BaseException as error:  # noqa: BLE001 - a thread has no caller; `problem` reports the error
            self.error = error
            logger.warning("the watcher failed", extra={"action": "watch", "error": str(error)})
        finally:
            self._hints.close()
            self._on_death()

    def _watch(self) -> None:
        heard_at_first = self._hints.listening
        while not self._stop.is_set():
            self._sweep_when_due(time.monotonic())
            if (hint := self._hints.wait(self._pause_s(time.monotonic()))) is not None:
                self._follow(_gather(self._hints, hint))
            if heard_at_first and not self._hints.listening:
                message = "the connection that announces commits was lost"
                raise RegistryUnavailableError(message)

    @property
    def _due_at(self) -> float:
        return min(self._sweep_at, self._free_at) if self._is_unsure else self._sweep_at

    def _pause_s(self, now: float) -> float:
        """Without a listener every wait ends in a hint for any table, so those waits last a whole slice."""
        return max(0.0, min(_SLICE_S, self._due_at - now)) if self._hints.listening else min(_SLICE_S, self._sweep_s)

    def _follow(self, hint: Hint) -> None:
        """Read the newest journal numbers of the hinted tables only."""
        self._is_unsure |= hint.others
        if hint.tables:
            self._delivery.see(last_journal_numbers(self._registry, hint.tables))

    def _sweep_when_due(self, now: float) -> None:
        """Read those of all tables. Hints without a table come as often as commits, so they get a bounded share of the time."""
        if now < self._due_at:
            return
        self._is_unsure = False
        self._delivery.see(last_journal_numbers(self._registry))
        ended = time.monotonic()
        self._sweep_at, self._free_at = ended + self._sweep_s, ended + _REST * (ended - now)


def _gather(hints: Hints, first: Hint) -> Hint:
    """Combine a burst of hints into one."""
    for _ in range(_TOGETHER):
        if not hints.listening or (more := hints.wait(0.0)) is None:
            break
        first |= more
    return first
