"""The watcher: sees commits of any process and tells delivery how far the journals reach."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from lakebed.core.errors import RegistryUnavailableError
from lakebed.registry.journal import read_ends
from lakebed.registry.wakeup import open_hints

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.astha.delivery import Delivery
    from lakebed.registry.engine import Registry
    from lakebed.registry.wakeup import Hints

logger = logging.getLogger(__name__)

_SLICE_S = 0.2  # how long a stop may have to wait for the hints
_TOGETHER = 100  # hints of a burst that are answered by one look


class Watcher:
    """One thread. A hint may be lost: the sweep is the truth. It dies of the first error; the supervisor starts another."""

    def __init__(self, registry: Registry, delivery: Delivery, *, sweep_s: float, on_death: Callable[[], None]) -> None:
        self._registry, self._delivery, self._sweep_s, self._on_death = registry, delivery, sweep_s, on_death
        self._hints = open_hints(registry)
        self._stop = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="astha-watcher", daemon=True)

    @property
    def problem(self) -> str:
        """Why it is dead; empty while it lives."""
        if self.error is not None:
            return f"the watcher died: {self.error}"
        return "" if self._thread.is_alive() else "the watcher is gone"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def close(self) -> None:
        """Of one that was never started."""
        self._hints.close()

    def join(self, deadline: float) -> None:
        self._thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        try:
            self._watch()
        except BaseException as error:  # noqa: BLE001 - told by `problem`; a thread has nobody to raise to
            self.error = error
            logger.warning("the watcher died", extra={"action": "watch", "error": str(error)})
        finally:
            self._hints.close()
            self._on_death()

    def _watch(self) -> None:
        heard_at_first = self._hints.listening
        sweep_at = 0.0
        while not self._stop.is_set():
            hinted = self._hints.wait(min(_SLICE_S, self._sweep_s))
            if hinted:
                _swallow(self._hints)
            if hinted or time.monotonic() >= sweep_at:
                self._delivery.see(read_ends(self._registry))
                sweep_at = time.monotonic() + self._sweep_s
            if heard_at_first and not self._hints.listening:
                message = "the connection that tells of commits was lost"
                raise RegistryUnavailableError(message)


def _swallow(hints: Hints) -> None:
    for _ in range(_TOGETHER):
        if not hints.listening or not hints.wait(0.0):
            return
