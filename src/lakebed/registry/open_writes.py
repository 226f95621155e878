"""Open writes of this process: their leases are renewed, and whether one of them may have been committed is known."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakebed.core.errors import ConflictError, LakebedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Renew = Callable[[str, int], None]

logger = logging.getLogger(__name__)
_RENEWALS_PER_LEASE = 3


class Heartbeat:
    """Renews the leases of all open writes of one registry in one thread.

    The first write starts the thread, which ends when it wakes and finds no open write: short writes share one thread
    and never wake it.
    """

    def __init__(self) -> None:
        self._due: dict[str, tuple[float, float, Renew]] = {}  # op_id -> when to renew (monotonic), length of the lease in seconds, how
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0

    @contextmanager
    def renewing(self, op_id: str, lease_us: int, renew: Renew) -> Iterator[None]:
        """Call `renew` for the lease for as long as the block runs. A registry that is away is asked again; a lost operation is not."""
        self._add(op_id, lease_us / 1e6, renew)
        try:
            yield
        finally:
            self._due.pop(op_id, None)  # without the lock: when the interpreter exits, the thread may be frozen while it holds the lock

    def stop(self) -> None:
        """Renew nothing any more; the thread has ended when this returns."""
        with self._changed:
            self._due.clear()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _add(self, op_id: str, lease_s: float, renew: Renew) -> None:
        at = time.monotonic() + lease_s / _RENEWALS_PER_LEASE
        with self._changed:
            self._due[op_id] = at, lease_s, renew
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lakebed-heartbeat", daemon=True)
                self._thread.start()
            elif at < self._wakes_at:
                self._changed.notify_all()

    def _run(self) -> None:
        while due := self._wait():
            for op_id, lease_s, renew in due:
                self._renew(op_id, lease_s, renew)

    def _wait(self) -> list[tuple[str, float, Renew]]:
        """The writes to renew now; none of them when the thread has to end."""
        with self._changed:
            while self._due:
                now, open_now = time.monotonic(), self._due.copy()
                if due := [(op_id, lease_s, renew) for op_id, (at, lease_s, renew) in open_now.items() if at <= now]:
                    # one that has just ended is renewed once more without effect, and dropped
                    self._due.update({op_id: (now + lease_s / _RENEWALS_PER_LEASE, lease_s, renew) for op_id, lease_s, renew in due})
                    return due
                self._wakes_at = min((at for at, *_ in open_now.values()), default=now)
                self._changed.wait(self._wakes_at - now)
            self._thread = None
            return []

    def _renew(self, op_id: str, lease_s: float, renew: Renew) -> None:
        try:
            renew(op_id, int(lease_s * 1e6))
        except ConflictError:  # published, or recovered by another process: the writer finds out when it publishes
            with self._changed:
                self._due.pop(op_id, None)
        except LakebedError as exc:
            logger.warning("a lease could not be renewed", extra={"action": "renew", "op_id": op_id, "reason": str(exc)})


class Attempts:
    """Needs no registry, so that a failed write can delete its files while the registry is away.

    Of two attempts of one write the second gets the table's lock after the first has ended: if it is refused, both are.
    """

    def __init__(self) -> None:
        self._sent: dict[str, bool] = {}

    @contextmanager
    def watching(self, op_id: str) -> Iterator[None]:
        """For as long as the write is open."""
        self._sent[op_id] = False
        try:
            yield
        finally:
            self._sent.pop(op_id, None)

    def send(self, op_id: str | None) -> None:
        """Its commit is sent: from now on it may be committed, whatever error or interrupt follows."""
        if op_id in self._sent:
            self._sent[op_id] = True

    def refuse(self, op_id: str | None) -> None:
        """The database has proven that nothing was committed."""
        if op_id in self._sent:
            self._sent[op_id] = False

    def may_be_committed(self, op_id: str) -> bool:
        return self._sent.get(op_id, True)
