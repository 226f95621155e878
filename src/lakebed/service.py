"""The one place that builds everything: Astha, its components, and what they need, in this process."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from lakebed.astha import Astha
from lakebed.components.compactor import Compactor
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
    from lakebed.astha import AsthaOptions, AsthaStatus
    from lakebed.compaction import Engines
    from lakebed.components.compactor import CompactorOptions
    from lakebed.core.subscribers import Subscriber
    from lakebed.registry.engine import Registry
    from lakebed.storage.access import Storage

logger = logging.getLogger(__name__)

Role = Literal["publishing", "full"]
STOP_S = 25.0
_TICK_S = 0.05


class ServiceOptions(TypedDict, total=False):
    """What `lake.service` understands."""

    options: AsthaOptions | None
    compactor_options: CompactorOptions | None


class Service:
    """Astha with the components of a role. `publishing` seals and commits, and never compacts, expires or deletes."""

    def __init__(
        self,
        registry: Registry,
        storage: Storage,
        *,
        role: Role = "full",
        engines: Engines | None = None,
        options: AsthaOptions | None = None,
        compactor_options: CompactorOptions | None = None,
    ) -> None:
        self._registry, self.role = registry, role
        self._catalog = open_catalog(registry, storage)
        self.snapshotter = Snapshotter(registry, expires=role == "full")
        self.orchestrator = MetadataOrchestrator(registry)
        committer = Committer(registry, storage, self._catalog, lease=lambda: self.astha.lease)
        components: dict[Component, Subscriber[Any]] = {
            Component.ICEBERG_UPDATER: IcebergUpdater(registry, committer),
            Component.SNAPSHOTTER: self.snapshotter,
            Component.METADATA_ORCHESTRATOR: self.orchestrator,
        }
        self.compactor: Compactor | None = None
        if role == "full":
            self.compactor = Compactor(
                registry, storage, engines=engines, options=compactor_options, is_active=lambda: self.astha.is_active
            )
            components[Component.COMPACTOR] = self.compactor
        self.astha = Astha(registry, components, owner=make_owner(role), options=options)
        self._done = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="lakebed-ticker", daemon=True)

    def start(self) -> None:
        """Running, or standing by for the process that is."""
        if self.compactor is not None:
            self.compactor.start()
        self.astha.start()
        self._ticker.start()

    def stop(self, timeout_s: float = STOP_S) -> None:
        self._done.set()
        if self.compactor is not None:
            self.compactor.stop()
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
