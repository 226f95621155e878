"""The publishing path of a process that opened a lake; large libraries are imported when the first commit needs them."""

from __future__ import annotations

import atexit
import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Unpack

from lakebed.registry.snapshots.waiting import Commits, wait_for_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakebed.compaction import Engines
    from lakebed.registry.registry import Registry
    from lakebed.service.service import Service, ServiceOptions, Upkeep
    from lakebed.storage.protocol import Storage

logger = logging.getLogger(__name__)

EXIT_DRAIN_S = 5.0
_LONGEST_PAUSE_S = 60.0  # between two failed starts


class Embedded:
    """The publishing path of a process that opened a lake: started by its first commit, so that readers pay nothing.

    For the registry it is a listener (`on_commit`), for writers the path to Iceberg (`commits`).
    """

    def __init__(self, registry: Registry, storage: Storage, *, timeout_s: float) -> None:
        self._registry, self._storage = registry, storage
        self.commits = Commits(registry, timeout_s=timeout_s, wait_for_group=self._wait_for_group)
        self._guard = threading.Lock()
        self._starter: threading.Thread | None = None
        self._service: Service | None = None
        self._is_closed = False
        self._failures, self._next_try = 0, 0.0

    def on_commit(self, _: frozenset[int]) -> None:
        self.ensure_started()

    def ensure_started(self) -> None:
        """Start publishing in a separate thread, because a commit must not wait for it."""
        if self._starter is not None or self._is_closed:
            return
        with self._guard:
            if self._may_start():
                self._starter = threading.Thread(target=self._start, name="lakebed-starter", daemon=True)
                self._starter.start()
                atexit.register(self.close)

    def _may_start(self) -> bool:
        return self._starter is None and not self._is_closed and time.monotonic() >= self._next_try

    @contextmanager
    def serve(self, engines: Engines, upkeep: Callable[[], Upkeep], **options: Unpack[ServiceOptions]) -> Iterator[Service]:
        """Use a whole service instead until the block ends; writers wait on it. The next commit then restarts the embedded one."""
        maintained = upkeep() if options.pop("maintenance", True) else None
        whole = self._build(role="full", engines=engines, upkeep=maintained, **options)
        self._end(drain_s=0.0)
        self._service = whole
        try:
            whole.start()
            yield whole
        finally:
            whole.stop()
            with self._guard:
                self._service, self._starter = None, None

    @property
    def service(self) -> Service | None:
        return self._service

    def require_service(self) -> Service | None:
        """The running service, after its start has ended; None if it could not start."""
        self.ensure_started()
        starter = self._starter
        if starter is not None and starter is not threading.current_thread():
            starter.join()
        return self._service

    def _wait_for_group(self, table_id: int, group: int, left_s: float) -> int | None:
        service = self.require_service()
        if service is None:
            return wait_for_group(self._registry, table_id, group, timeout_s=left_s)
        return service.wait_for_group(table_id, group, timeout_s=left_s)

    def close(self) -> None:
        """Wait at most a few seconds until commits have reached Iceberg; the journal keeps the rest for the next process."""
        self._is_closed = True
        atexit.unregister(self.close)
        self._end(drain_s=EXIT_DRAIN_S)

    def _end(self, *, drain_s: float) -> None:
        starter = self._starter
        if starter is not None:
            starter.join()
        with self._guard:
            service, self._service = self._service, None
        if service is None:
            return
        if drain_s and service.astha.is_active:
            service.drain(drain_s)
        service.stop(EXIT_DRAIN_S)

    def _build(self, **options: Any) -> Service:
        from lakebed.service.service import Service  # noqa: PLC0415 - Iceberg's library is needed to publish, not to list tables

        return Service(self._registry, self._storage, **options)

    def _start(self) -> None:
        try:
            service = self._build(role="publishing")
            service.start()
        except Exception as exc:  # noqa: BLE001 - a lake works without its publisher; the journal keeps all changes
            logger.warning("publishing could not start in this process", extra={"action": "start", "reason": str(exc)})
            self._try_again_later()
            return
        self._service, self._failures = service, 0

    def _try_again_later(self) -> None:
        """After the pause, the next commit or the next wait for Iceberg restarts it."""
        self._failures += 1
        self._next_try = time.monotonic() + min(_LONGEST_PAUSE_S, 2.0 ** (self._failures - 1))
        with self._guard:
            self._starter = None
