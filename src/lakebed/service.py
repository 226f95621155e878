"""The one place that builds everything: Astha, its components, and what they need, in this process."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lakebed.astha import Astha
from lakebed.components.iceberg_updater import IcebergUpdater
from lakebed.components.metadata_orchestrator import MetadataOrchestrator
from lakebed.components.snapshotter import Snapshotter
from lakebed.core.errors import LakebedError
from lakebed.core.events import Component
from lakebed.iceberg.catalog import open_catalog
from lakebed.iceberg.committer import Committer
from lakebed.registry.leases import make_owner
from lakebed.registry.waiting import wait_for_group, wait_until_published

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.astha import AsthaOptions, AsthaStatus
    from lakebed.core.subscribers import Subscriber
    from lakebed.registry.engine import Registry
    from lakebed.storage.access import Storage

logger = logging.getLogger(__name__)

Role = Literal["publishing", "full"]
STOP_S = 25.0
_TICK_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Workforce:
    """A component that works in the background besides hearing events."""

    component: Component
    subscriber: Subscriber[Any]
    start: Callable[[], None]
    stop: Callable[[], None]


class Service:
    """Astha with the components of a role. `publishing` seals and commits, and never compacts, expires or deletes."""

    def __init__(
        self,
        registry: Registry,
        storage: Storage,
        *,
        role: Role = "full",
        workers: tuple[Workforce, ...] = (),
        options: AsthaOptions | None = None,
    ) -> None:
        self._registry, self.role, self._workers = registry, role, workers
        self._catalog = open_catalog(registry, storage)
        self.snapshotter = Snapshotter(registry, expires=role == "full")
        self.orchestrator = MetadataOrchestrator(registry)
        committer = Committer(registry, storage, self._catalog, lease=lambda: self.astha.lease)
        components: dict[Component, Subscriber[Any]] = {
            Component.ICEBERG_UPDATER: IcebergUpdater(registry, committer),
            Component.SNAPSHOTTER: self.snapshotter,
            Component.METADATA_ORCHESTRATOR: self.orchestrator,
            **{worker.component: worker.subscriber for worker in workers},
        }
        self.astha = Astha(registry, components, owner=make_owner(role), options=options)
        self._done = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="lakebed-ticker", daemon=True)

    def start(self) -> None:
        """Running, or standing by for the process that is."""
        for worker in self._workers:
            worker.start()
        self.astha.start()
        self._ticker.start()

    def stop(self, timeout_s: float = STOP_S) -> None:
        self._done.set()
        for worker in self._workers:
            worker.stop()
        self.astha.stop(timeout_s)
        if self._ticker.ident is not None:
            self._ticker.join(timeout_s)
        self._catalog.close()

    def drain(self, timeout_s: float) -> bool:
        """Whether everything committed so far was handled and published, here or by the process that is active, within the timeout."""
        deadline = time.monotonic() + timeout_s
        while self.astha.drain(max(0.0, deadline - time.monotonic())):
            if not self.astha.is_active:
                return wait_until_published(self._registry, timeout_s=max(0.0, deadline - time.monotonic()))
            if not self.snapshotter.flush():
                return True
        return False

    def status(self) -> AsthaStatus:
        return self.astha.status()

    def wait_for_group(self, table_id: int, group: int, *, timeout_s: float) -> int | None:
        if self.astha.is_active:
            return self.orchestrator.wait_for_group(table_id, group, timeout_s=timeout_s)
        return wait_for_group(self._registry, table_id, group, timeout_s=timeout_s)

    def _tick(self) -> None:
        while not self._done.wait(_TICK_S):
            if not self.astha.is_active:
                continue
            try:
                self.snapshotter.tick()
            except LakebedError as exc:  # the next tick tries again; what is broken for good shows in the component's health
                logger.warning("a tick of the snapshotter failed", extra={"action": "tick", "reason": str(exc)})
