"""Builds and runs the service of this process: Astha, its components, maintenance and monitoring."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from lakebed.astha import Astha
from lakebed.components.compactor import Compactor
from lakebed.components.iceberg_updater import IcebergUpdater
from lakebed.components.metadata_orchestrator import MetadataOrchestrator
from lakebed.components.snapshotter import Snapshotter
from lakebed.core.errors import LakebedError
from lakebed.core.events import Component
from lakebed.core.redaction import Redactor
from lakebed.core.tasks import DEFAULT_SCHEDULE
from lakebed.iceberg.catalog import open_catalog
from lakebed.iceberg.commit.committer import Committer
from lakebed.iceberg.upkeep.dropping import forget_dropped
from lakebed.maintenance.runner import Runner
from lakebed.maintenance.schedule import make_schedule
from lakebed.maintenance.threads import RepeatingThread
from lakebed.maintenance.workplace import Workplace
from lakebed.monitoring.logs import hide_deep
from lakebed.monitoring.metrics import Metrics
from lakebed.monitoring.status import describe_astha, describe_tasks
from lakebed.registry.journal.leases import find_holder
from lakebed.registry.maintenance.schedules import find_lake_id
from lakebed.registry.processes import make_owner
from lakebed.registry.snapshots.waiting import wait_for_group, wait_until_published
from lakebed.registry.tables.lake_tables import list_tables
from lakebed.service.leadership import Leading

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lakebed.astha import AsthaOptions, AsthaStatus
    from lakebed.compaction import Engines
    from lakebed.components.compactor import CompactorMetrics, CompactorOptions
    from lakebed.core.events import Subscriber
    from lakebed.core.tasks import Task
    from lakebed.pipeline.context import Context
    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import Storage

logger = logging.getLogger(__name__)

Role = Literal["publishing", "full"]
STOP_S = 25.0
_TICK_S = 0.05
_LEFTOVER_US = 10 * 60 * 1_000_000  # unreferenced metadata: another program may be about to commit younger files


class ServiceOptions(TypedDict, total=False):
    """The options of `lake.service`."""

    options: AsthaOptions | None
    compactor_options: CompactorOptions | None
    maintenance: bool  # default True: scheduled tasks and requested work


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """The needs of maintenance beyond registry and storage. `schedule` holds cron expressions, or "off"."""

    context: Callable[[], Context]
    schedule: Mapping[Task, str] = field(default_factory=lambda: DEFAULT_SCHEDULE)
    queues_orphans: bool = False


class Service:
    """Astha with the components of a role. The role `publishing` seals and commits, and never compacts, expires or deletes."""

    def __init__(
        self,
        registry: Registry,
        storage: Storage,
        *,
        role: Role = "full",
        engines: Engines | None = None,
        options: AsthaOptions | None = None,
        compactor_options: CompactorOptions | None = None,
        upkeep: Upkeep | None = None,
    ) -> None:
        self._registry, self._storage, self.role = registry, storage, role
        self.owner = make_owner(role)
        self.orchestrator = MetadataOrchestrator(registry)
        self.metrics = Metrics(
            registry,
            status=self.status,
            compactor=self._measure_compactor,
            runner=lambda: self.runner,
            threads=lambda: self.threads,
            waiters=lambda: self.orchestrator.waiting,
        )
        self.runner = None if upkeep is None else self._make_runner(upkeep, engines)
        self._catalog = open_catalog(registry, storage)
        self.snapshotter = Snapshotter(registry, expires=role == "full")
        committer = self._committer = Committer(registry, storage, self._catalog, lease=lambda: self.astha.lease)
        components: dict[Component, Subscriber[Any]] = {
            Component.ICEBERG_UPDATER: IcebergUpdater(registry, committer, on_commit=self.metrics.note_commit),
            Component.SNAPSHOTTER: self.snapshotter,
            Component.METADATA_ORCHESTRATOR: self.orchestrator,
        }
        self.compactor: Compactor | None = None
        if role == "full":
            self.compactor = Compactor(
                registry, storage, engines=engines, options=compactor_options, is_active=lambda: self.astha.is_active
            )
            components[Component.COMPACTOR] = self.compactor
        self.astha = Astha(registry, components, owner=self.owner, options=options)
        self._leading = Leading(registry, self.astha, owner=self.owner, is_whole=role == "full")
        self._done = threading.Event()
        self._ticker = RepeatingThread("ticker", self._tick, pace_s=_TICK_S, stopping=self._done)

    def start(self) -> None:
        """Running, or standing by for the active process."""
        self._registry.require_open()
        if self.compactor is not None:
            self.compactor.start()
        self.astha.start()
        self._ticker.start()
        if self.runner is not None:
            self.runner.start()

    def stop(self, timeout_s: float = STOP_S) -> bool:
        """Whether all threads have ended; unfinished work is taken up by the next process, as after a crash."""
        deadline = time.monotonic() + timeout_s
        self._done.set()
        ended = self.runner is None or self.runner.stop(timeout_s / 2)
        if self.compactor is not None:
            self.compactor.stop(max(1.0, deadline - time.monotonic()))
        self._ticker.join(max(1.0, deadline - time.monotonic()))
        self.astha.stop(max(1.0, deadline - time.monotonic()))
        self._catalog.close()
        return ended

    def drain(self, timeout_s: float) -> bool:
        """Whether all commits so far were handled and published within the timeout, here or by the active process."""
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

    # -- for monitoring ------------------------------------------------------------------------

    def liveness_problem(self) -> str:
        """Why this process should be restarted; empty while it is healthy."""
        if self.astha.is_alive:
            return ""
        return self.astha.status().problem or "the supervisor has ended"

    def readiness_problem(self) -> str:
        """Why this process is not ready; empty if it is active, or stands by for an active one."""
        if problem := self.liveness_problem() or self._find_dead_thread():
            return problem
        try:
            holder = find_holder(self._registry, "astha")
        except LakebedError as exc:
            return f"{exc.code}: {exc}"
        return "" if self.astha.is_active or (holder is not None and holder != self.owner) else "no process holds the lease yet"

    @property
    def threads(self) -> tuple[RepeatingThread, ...]:
        """The periodic work beside Astha and the compactor."""
        return (self._ticker, *(() if self.runner is None else self.runner.threads))

    def _find_dead_thread(self) -> str:
        return next((thread.problem for thread in self.threads if thread.problem), "")

    def to_metrics(self) -> bytes:
        return self.metrics.to_text()

    def to_status(self) -> dict[str, Any]:
        """Secrets are removed here too: the text of an error may come from anywhere."""
        status = self.status()
        compactor = self._measure_compactor()
        facts = {
            "registry": self._registry.backend.shown_url,
            "warehouse": self._storage.paths.root,
            "role": self.role,
            "owner": self.owner,
            "active": status.active,
            "problem": self.readiness_problem(),
            "astha": describe_astha(status),
            "compactor": None if compactor is None else asdict(compactor),
            "tasks": {} if self.runner is None else describe_tasks(self.runner, now=time.time_ns() // 1000),
        }
        return dict(hide_deep(facts, Redactor()))

    def _measure_compactor(self) -> CompactorMetrics | None:
        return None if self.compactor is None else self.compactor.metrics()

    def _make_runner(self, upkeep: Upkeep, engines: Engines | None) -> Runner:
        place = Workplace(
            registry=self._registry,
            storage=self._storage,
            context=upkeep.context,
            engines=engines,
            actor=make_owner("maintenance"),
            queues_orphans=upkeep.queues_orphans,
            sweep_leftovers=self._sweep_leftovers,
        )
        schedule = make_schedule(upkeep.schedule, lake_id=find_lake_id(self._registry))
        return Runner(place, schedule, lease=lambda: self.astha.lease, on_report=self.metrics.note_report)

    def _sweep_leftovers(self) -> int:
        """A table that cannot be swept now is swept the next time."""
        swept = forget_dropped(self._registry, self._storage)
        for row in list_tables(self._registry):
            try:
                swept += len(self._committer.sweep(row.id, older_than_us=_LEFTOVER_US))
            except LakebedError as exc:
                logger.info(
                    "leftovers could not be swept; a later sweep tries again",
                    extra={"action": "sweep", "table": f"{row.database}.{row.name}", "reason": str(exc)},
                )
        return swept

    def _tick(self) -> None:
        self._leading.tick()
        if self.astha.is_active:
            self.snapshotter.tick()
