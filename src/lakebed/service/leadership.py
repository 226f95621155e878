"""Leadership among several processes: a process that only publishes yields the lease to a whole service."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from lakebed.registry.journal.leases import find_holder
from lakebed.registry.maintenance.schedules import ask_for_lead, find_asker

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.astha import Astha
    from lakebed.registry.registry import Registry

logger = logging.getLogger(__name__)

_LOOK_S = 1.0
_ASKED_US = 5 * 1_000_000
_GIVEN_S = 4.0  # how long the lease is left free for a process that requested it and polls every second
_PUBLISHING = "/publishing"  # suffix of the owner of such a process


class Leading:
    """Checked on every tick, at most once a second. Without it, a notebook that writes would prevent all maintenance."""

    def __init__(
        self, registry: Registry, astha: Astha, *, owner: str, is_whole: bool, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._registry, self._astha, self._owner, self._is_whole, self._monotonic = registry, astha, owner, is_whole, monotonic
        self._look_at = monotonic() + _LOOK_S
        self._return_at: float | None = None

    def tick(self) -> None:
        now = self._monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_S
        if self._is_whole:
            self._ask()
        elif self._return_at is not None:
            self._return(now)
        elif self._astha.is_active and self._is_asked():
            logger.info("a whole service takes over publishing", extra={"action": "lead"})
            self._astha.stop()
            self._return_at = now + _GIVEN_S

    def _ask(self) -> None:
        if not self._astha.is_active and (holder := find_holder(self._registry, "astha")) is not None and holder.endswith(_PUBLISHING):
            ask_for_lead(self._registry, self._owner)

    def _is_asked(self) -> bool:
        return find_asker(self._registry, within_us=_ASKED_US, now=self._registry.now()) is not None

    def _return(self, now: float) -> None:
        """A candidate again once another process has the lease, or none has taken it."""
        assert self._return_at is not None  # noqa: S101 - called only then
        if now >= self._return_at or find_holder(self._registry, "astha") is not None:
            self._return_at = None
            self._astha.start()
