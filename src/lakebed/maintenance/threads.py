"""Threads of the service that repeat one call; an error never ends them silently."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from lakebed.core.errors import LakebedError
from lakebed.core.redaction import hide_secrets

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

_FIRST_BACKOFF_S = 0.1
_LONGEST_BACKOFF_S = 30.0
_DOWN_AFTER = 3


class RepeatingThread:
    """Calls `body` every `pace_s` until `stopping` is set.

    After a LakebedError the next call may succeed. Any other error is a defect: it is logged with its trace and
    counted, the next call waits longer each time, and after three in a row `problem` says that the thread is down.
    """

    def __init__(self, name: str, body: Callable[[], object], *, pace_s: float, stopping: threading.Event) -> None:
        self.name, self._body, self._pace_s, self._stopping = name, body, pace_s, stopping
        self._thread = threading.Thread(target=self._repeat, name=f"lakebed-{name}", daemon=True)
        self.restarts = 0
        self._failed_in_a_row, self._error = 0, ""

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Whether it has ended or never started."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, timeout_s))
        return not self._thread.is_alive()

    @property
    def problem(self) -> str:
        """Why this thread does not work; empty while it does."""
        if self._failed_in_a_row >= _DOWN_AFTER:
            return f"the {self.name} thread failed {self._failed_in_a_row} consecutive times: {self._error}"
        if self._thread.ident is not None and not self._thread.is_alive() and not self._stopping.is_set():
            return f"the {self.name} thread has ended"
        return ""

    def _repeat(self) -> None:
        while not self._stopping.wait(self._pace_s if not self._failed_in_a_row else self._backoff_s()):
            try:
                self._body()
            except LakebedError as exc:
                self._failed_in_a_row = 0
                logger.warning("a thread of the service has to wait", extra={"action": self.name, "code": exc.code, "reason": str(exc)})
            except Exception as exc:  # noqa: BLE001 - the thread must report any error and continue
                self._note(exc)
            else:
                self._failed_in_a_row = 0

    def _note(self, exc: Exception) -> None:
        self.restarts += 1
        self._error = hide_secrets(f"{type(exc).__name__}: {exc}")
        self._failed_in_a_row += 1
        logger.error("a thread of the service failed and restarts", exc_info=exc, extra={"action": self.name, "restarts": self.restarts})

    def _backoff_s(self) -> float:
        return max(self._pace_s, min(_LONGEST_BACKOFF_S, _FIRST_BACKOFF_S * 2.0 ** (self._failed_in_a_row - 1)))
