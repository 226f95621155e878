"""The reader's lease of this process: planned files stay in the warehouse while a query may still read them.

A DataFrame cannot protect its files, because derived ones outlive it. So one row per process stores, per table, the
journal number of the oldest plan; files retired above it are not deleted.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakebed.core.errors import LakebedError
from lakebed.registry.journal.leases import end_reading, hold_for_reading
from lakebed.registry.processes import make_owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lakebed.registry.registry import Registry

logger = logging.getLogger(__name__)

TTL_S = 60.0
READER_LEASE_MAX_S = 24 * 3600.0
_BEATS_PER_TTL = 3
_SAFE_SHARE = 0.75  # fraction of the time to live: a lease nearer to its end is renewed before a plan relies on it


class ReaderLease:
    """Held from the first plan until `close`, the end of the last `reading()` block, or `max_s`. Threads share it; a forked child starts its own."""

    def __init__(
        self,
        registry: Registry,
        *,
        ttl_s: float = TTL_S,
        max_s: float = READER_LEASE_MAX_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry, self._ttl_s, self._max_s, self._monotonic = registry, ttl_s, max_s, monotonic
        self._guard = threading.RLock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._scopes = 0
        self._held: dict[int, int] = {}
        self._start_over()

    @property
    def name(self) -> str:
        return self._name

    @property
    def held(self) -> dict[int, int]:
        """The protected journal number per table, as known to this process."""
        with self._guard:
            return dict(self._held)

    @property
    def is_beating(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def hold(self, table_ids: Iterable[int]) -> dict[int, int]:
        """Protect the live files of these tables; call it before planning. Costs a transaction only for tables not yet protected."""
        wanted = set(table_ids)
        with self._guard:
            self._leave_parent()
            if not self._scopes:
                self._outside_scopes = True
            if not wanted <= self._held.keys() or self._monotonic() > self._safe_until:
                self._renew(wanted | self._held.keys())
            self._start_beating()
            return {table_id: self._held[table_id] for table_id in wanted if table_id in self._held}

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Plans made inside are protected until the end of the block, or as long as an outer reader needs them."""
        with self._guard:
            self._leave_parent()
            self._scopes += 1
        try:
            yield
        finally:
            with self._guard:
                self._scopes -= 1
                is_last = not self._scopes and not self._outside_scopes
            if is_last:
                self.close()

    def close(self) -> None:
        """Release all tables and end the heartbeat. The next `hold` starts a new lease."""
        thread = self._thread
        self._let_go()
        if thread is not None and thread is not threading.current_thread():
            thread.join()  # outside the guard, because the last heartbeat may be waiting for it

    def beat(self) -> None:
        """One heartbeat: renew the lease, or end it if it is too old."""
        with self._guard:
            if self._held and self._monotonic() - self._began > self._max_s:
                logger.warning(
                    "the reader's lease reached its maximum age and ends: files of earlier plans are no longer protected",
                    extra={**self._extra("overdue"), "max_s": self._max_s},
                )
                self._let_go()
            elif self._held:
                self._renew(self._held.keys())

    def _let_go(self) -> None:
        with self._guard:
            held, name = bool(self._held), self._name
            self._stop.set()
            self._start_over()
        if held:
            end_reading(self._registry, name)

    def _renew(self, table_ids: Iterable[int]) -> None:
        asked_at, known = self._monotonic(), self._held
        self._held = hold_for_reading(self._registry, self._name, table_ids, owner=make_owner("reader"), ttl_us=int(self._ttl_s * 1e6))
        self._safe_until = asked_at + self._ttl_s * _SAFE_SHARE
        if any(self._held.get(table_id) != number for table_id, number in known.items()):
            logger.warning("the reader's lease had expired: files of earlier plans may have been deleted", extra=self._extra("lost"))

    def _start_over(self) -> None:
        self._pid = os.getpid()
        self._name = f"reader/{self._pid}/{secrets.token_hex(8)}"
        self._held = {}
        self._outside_scopes = False
        self._began = self._monotonic()
        self._safe_until = self._began
        self._thread = None

    def _leave_parent(self) -> None:
        """After a fork the row and the thread belong to the parent."""
        if os.getpid() != self._pid:
            self._scopes = 0
            self._start_over()

    def _start_beating(self) -> None:
        if self._thread is None:
            self._began = self._monotonic()
            self._stop = threading.Event()
            arguments = (weakref.ref(self), self._stop, self._ttl_s / _BEATS_PER_TTL)
            self._thread = threading.Thread(target=_keep_beating, args=arguments, name="lakebed-reader", daemon=True)
            self._thread.start()

    def _extra(self, action: str) -> dict[str, object]:
        return {"action": f"reader_lease_{action}", "lease": self._name, "tables": sorted(self._held)}


def _keep_beating(of: weakref.ref[ReaderLease], stop: threading.Event, every_s: float) -> None:
    """Ends with the lease, or when the lease is garbage-collected."""
    while not stop.wait(every_s):
        if (lease := of()) is None:
            return
        try:
            lease.beat()
        except LakebedError:
            logger.warning("the reader's lease could not be renewed", exc_info=True, extra={"action": "reader_lease_renew"})
        del lease
