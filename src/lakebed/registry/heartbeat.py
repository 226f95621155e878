"""Open writes keep their leases: recovery deletes the files of a writer whose lease has ended."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakebed.core.errors import ConflictError, LakebedError
from lakebed.registry.files.operations import renew_operation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.registry.registry import Registry

logger = logging.getLogger(__name__)

_RENEWALS_PER_LEASE = 3


class Heartbeat:
    """Renews the leases of all open writes of one registry in one thread.

    The first write starts the thread, which ends when it wakes and finds no open write: short writes share one thread
    and never wake it.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._due: dict[str, tuple[float, float]] = {}  # op_id -> when to renew (monotonic), length of the lease in seconds
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0

    @contextmanager
    def renewing(self, op_id: str, lease_us: int) -> Iterator[None]:
        """Renew the lease for as long as the block runs. A registry that is away is asked again; a lost operation is not."""
        self._add(op_id, lease_us / 1e6)
        try:
            yield
        finally:
            self._due.pop(op_id, None)  # without the lock: when the interpreter ends, our thread may be frozen while it holds it

    def stop(self) -> None:
        """Renew nothing any more; the thread has ended when this returns."""
        with self._changed:
            self._due.clear()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _add(self, op_id: str, lease_s: float) -> None:
        at = time.monotonic() + lease_s / _RENEWALS_PER_LEASE
        with self._changed:
            self._due[op_id] = at, lease_s
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lakebed-heartbeat", daemon=True)
                self._thread.start()
            elif at < self._wakes_at:
                self._changed.notify_all()

    def _run(self) -> None:
        while due := self._wait():
            for op_id, lease_s in due:
                self._renew(op_id, lease_s)

    def _wait(self) -> list[tuple[str, float]]:
        """The writes to renew now; none of them when the thread has to end."""
        with self._changed:
            while self._due:
                now, open_now = time.monotonic(), self._due.copy()
                if due := [(op_id, lease_s) for op_id, (at, lease_s) in open_now.items() if at <= now]:
                    # one that ended in this moment is renewed once more in vain, and forgotten
                    self._due.update({op_id: (now + lease_s / _RENEWALS_PER_LEASE, lease_s) for op_id, lease_s in due})
                    return due
                self._wakes_at = min((at for at, _ in open_now.values()), default=now)
                self._changed.wait(self._wakes_at - now)
            self._thread = None
            return []

    def _renew(self, op_id: str, lease_s: float) -> None:
        try:
            renew_operation(self._registry, op_id, lease_us=int(lease_s * 1e6))
        except ConflictError:  # published, or recovered by another process: the writer finds out when it publishes
            with self._changed:
                self._due.pop(op_id, None)
        except LakebedError as exc:
            logger.warning("a lease could not be renewed", extra={"action": "renew", "op_id": op_id, "reason": str(exc)})
