"""Astha: takes the lease, runs one incarnation after the other under it and recovers from failures."""

from __future__ import annotations

import logging
import threading
import time as clock
from collections import deque
from typing import TYPE_CHECKING, Any

from lakebed.astha.draining import drain_elsewhere, drain_here
from lakebed.astha.event_router import EventRouter
from lakebed.astha.incarnation import Incarnation, list_component_statuses
from lakebed.astha.options import AsthaOptions, SystemTime, Time
from lakebed.astha.status import AsthaStatus, Tally
from lakebed.core.errors import LakebedError, LeaseHeldError, LeaseLostError, UnavailableError
from lakebed.registry.journal.cursors import list_parked, request_retry, save_progress, start_incarnation
from lakebed.registry.journal.leases import Lease, acquire_lease, find_holder, release_lease, renew_lease
from lakebed.registry.verify import restore_programs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakebed.core.events import Component, Subscriber
    from lakebed.registry.registry import Registry

logger = logging.getLogger(__name__)

LEASE = "astha"  # stored: never rename
_START_TIMEOUT_S = 30.0
_AWAY = "the connection to the registry was lost"


class Astha:
    """Delivers every committed change to the components that subscribed to it, in the order of its lake table.

    Of all instances on one registry, the one that holds the lease is active; the others stand by.
    """

    def __init__(
        self,
        registry: Registry,
        components: Mapping[Component, Subscriber[Any]],
        *,
        owner: str,
        options: AsthaOptions | None = None,
        time: Time | None = None,
    ) -> None:
        self._registry, self._owner = registry, owner
        self._router = EventRouter(components)
        self._options, self._time = options or AsthaOptions(), time or SystemTime()
        self._tallies = {component: Tally() for component in components}
        self._stop, self._news, self._settled = threading.Event(), threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._incarnation: Incarnation | None = None
        self._lease: Lease | None = None
        self._began: deque[float] = deque(maxlen=self._options.max_incarnations)
        self._number, self._restarts, self._problem, self._down = 0, 0, "", False
        self._unsaved: UnavailableError | None = None  # reported as the reason if the lease expires
        self._cut = 0  # consecutive incarnations that a lost connection ended
        self._save_at = self._renew_at = 0.0
        self._stop_timeout_s = 5.0

    # -- public methods -----------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        incarnation = self._incarnation
        return incarnation is not None and not incarnation.delivery.stopped and self._time.monotonic() < incarnation.delivery.active_until

    @property
    def is_alive(self) -> bool:
        """Whether it runs or stands by; False before the start, after the stop and after too many failures."""
        return self._thread is not None and self._thread.is_alive() and not self._down

    @property
    def lease(self) -> Lease | None:
        """The epoch while active: code that writes under it calls `require_epoch` in the same transaction."""
        return self._lease if self.is_active else None

    def start(self) -> None:
        """Returns once it is running or standing by, or has failed to start (see `status`)."""
        if self._thread is not None and self._thread.is_alive():
            return
        for event in (self._stop, self._news, self._settled):
            event.clear()
        self._down = False
        self._began.clear()
        self._thread = threading.Thread(target=self._supervise, name="astha-supervisor", daemon=True)
        self._thread.start()
        self._settled.wait(_START_TIMEOUT_S)

    def stop(self, timeout_s: float = 5.0) -> None:
        """Saves the cursors and ends every thread except those that hang in a handler for longer than the timeout."""
        self._stop_timeout_s = timeout_s
        self._stop.set()
        self._news.set()
        if self._thread is not None:
            self._thread.join(timeout_s + self._registry.backend.timeout_s)

    def drain(self, timeout_s: float) -> bool:
        """Whether every lane passed the journal's end of every table, follow-up changes included, within the timeout."""
        deadline = clock.monotonic() + timeout_s
        while True:
            try:
                if (done := self._try_drain(deadline)) is not None:
                    return done
            except UnavailableError as error:  # the supervisor recovers, or the deadline passes
                logger.info("draining has to wait", extra={"action": "drain", "error": str(error)})
            if clock.monotonic() >= deadline:
                return False
            self._stop.wait(self._options.tick_s)

    def _try_drain(self, deadline: float) -> bool | None:
        """None between two incarnations: the next one answers."""
        incarnation = self._incarnation
        if incarnation is None and not self._is_between_incarnations():
            return drain_elsewhere(self._registry, self._router.subscribers, deadline=deadline)
        if incarnation is not None and drain_here(self._registry, incarnation.delivery, deadline=deadline):
            return True
        return None if incarnation is None or incarnation.delivery.stopped else False

    def retry(self, component: Component, table_id: int) -> bool:
        """Resume delivery for a parked table, in this process or where Astha is active; False if it is not parked."""
        asked = request_retry(self._registry, component, table_id)
        if (incarnation := self._incarnation) is not None:
            asked = incarnation.delivery.unpark(component, table_id) or asked
        return asked

    def status(self) -> AsthaStatus:
        number, incarnation = self._number, self._incarnation
        return AsthaStatus(
            active=self.is_active,
            incarnation=number,
            restarts=self._restarts,
            problem=self._problem,
            down=self._down,
            components=list_component_statuses(self._router.subscribers, self._tallies, incarnation),
        )

    # -- one thread ---------------------------------------------------------------------------

    def _supervise(self) -> None:
        try:
            while not self._stop.is_set() and not self._down:
                if self._acquire():
                    self._run_incarnations()
                    self._release()
                else:
                    self._settled.set()
                    self._stop.wait(self._options.standby_s)
        finally:
            self._settled.set()

    def _acquire(self) -> bool:
        try:
            if find_holder(self._registry, LEASE) is not None:  # a read: standby instances must not queue with the writers
                return False
            self._lease = acquire_lease(self._registry, LEASE, owner=self._owner, ttl_us=self._ttl_us)
        except LeaseHeldError:
            return False
        except LakebedError as error:
            self._problem = str(error)
            logger.warning("the lease could not be requested", extra={"action": "lease", "error": str(error)})
            return False
        return True

    def _release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is None:
            return
        try:
            release_lease(self._registry, lease)
        except LakebedError as error:
            logger.warning("the lease was not released and will expire", extra={"action": "lease", "error": str(error)})

    def _run_incarnations(self) -> None:
        """Runs incarnations until a stop, a lost lease or too many failures. Incarnations that a lost connection ended are not counted."""
        while not self._stop.is_set():
            problem = self._run_incarnation()
            if not problem:
                return
            self._restarts += 1
            if problem is _AWAY:
                self._stop.wait(self._backoff_s(self._cut))
                continue
            self._problem = problem
            logger.error("astha restarts", extra={"action": "restart", "incarnation": self._number, "error": problem})
            if self._is_too_often():
                self._down = True
                logger.critical("astha stopped after too many failures", extra={"action": "down", "error": problem})
                return
            self._stop.wait(self._backoff_s(len(self._began)))

    def _run_incarnation(self) -> str:
        """Runs one incarnation. Returns why it ended, empty if the supervisor is to release the lease."""
        incarnation: Incarnation | None = None
        try:
            incarnation = self._begin()
            return self._attend(incarnation)
        except LeaseLostError as error:
            self._lease = None
            logger.warning("the lease was lost", extra={"action": "lease", "error": str(error)})
            return ""
        except UnavailableError as error:
            return self._wait_for_registry(error, incarnation)
        except Exception as error:
            logger.exception("an incarnation failed", extra={"action": "restart"})
            self._settled.set()
            if incarnation is None:
                self._began.append(self._time.monotonic())
            return str(error) or type(error).__name__
        finally:
            if incarnation is not None:
                self._end(incarnation)

    def _wait_for_registry(self, error: UnavailableError, incarnation: Incarnation | None) -> str:
        """A lost connection is not counted: after an incarnation that ran, the next one starts under the same lease if it is still valid."""
        self._problem = str(error)
        self._settled.set()
        if incarnation is not None:
            self._began.pop()
            self._cut += 1
            logger.warning("astha restarts after a lost connection", extra={"action": "restart", "error": str(error)})
            return _AWAY
        self._stop.wait(self._options.standby_s)
        return ""

    def _begin(self) -> Incarnation:
        self._drop_connections()
        asked_at = self._time.monotonic()
        self._lease = renew_lease(self._registry, self._require_lease(), ttl_us=self._ttl_us)
        restored = restore_programs(self._registry)
        if restored:
            logger.warning("triggers were restored", extra={"action": "triggers", "names": restored})
        self._number = start_incarnation(self._registry, self._lease)
        breakers = None if self._incarnation is None else self._incarnation.delivery.breakers
        incarnation = Incarnation(
            self._registry,
            self._router,
            options=self._options,
            time=self._time,
            tallies=self._tallies,
            breakers=breakers,
            on_news=self._news.set,
        )
        incarnation.start(active_until=asked_at + self._options.lease_ttl_s)
        self._began.append(self._time.monotonic())
        self._save_at, self._renew_at = asked_at + self._options.save_every_s, asked_at + self._options.renew_every_s
        self._incarnation, self._unsaved = incarnation, None
        self._settled.set()
        logger.info("astha is active", extra={"action": "start", "incarnation": self._number, "owner": self._owner})
        return incarnation

    def _drop_connections(self) -> None:
        """After a problem all pooled connections may be broken: each would fail once more and end an incarnation."""
        if self._problem:
            self._registry.drop_idle()

    def _attend(self, incarnation: Incarnation) -> str:
        while not self._stop.is_set():
            news = self._news.wait(self._options.tick_s)
            self._news.clear()
            if isinstance(incarnation.watcher.error, UnavailableError):
                raise incarnation.watcher.error
            if incarnation.problem:
                return incarnation.problem
            self._cut = 0
            self._save_when_due(incarnation, at_once=news)
        return ""

    def _save_when_due(self, incarnation: Incarnation, *, at_once: bool) -> None:
        now = self._time.monotonic()
        if now >= incarnation.delivery.active_until:
            raise self._unsaved or LeaseLostError(LEASE, epoch=self._require_lease().epoch)
        if not at_once and now < self._save_at:
            return
        self._save_at = now + self._options.save_every_s
        try:
            self._save(incarnation, now, must_renew=now >= self._renew_at)
            self._look_for_retries(incarnation)
            self._unsaved = None
        except UnavailableError as error:  # the lease limits how long this may go on
            self._unsaved = error
            logger.warning("progress could not be saved", extra={"action": "save", "error": str(error)})

    def _save(self, incarnation: Incarnation, now: float, *, must_renew: bool) -> None:
        batch = incarnation.delivery.collect()
        if not batch and not must_renew:
            return
        saved = save_progress(
            self._registry,
            self._require_lease(),
            positions=batch.positions,
            drops=batch.drops,
            healed=batch.healed,
            ttl_us=self._ttl_us,
        )
        self._lease = saved.lease
        self._renew_at = now + self._options.renew_every_s
        incarnation.delivery.active_until = now + self._options.lease_ttl_s
        incarnation.delivery.note_saved(batch, saved)

    def _look_for_retries(self, incarnation: Incarnation) -> None:
        """Another process may have requested a retry."""
        if incarnation.delivery.list_parked():
            for (component, table_id), parked in list_parked(self._registry).items():
                if parked.retry:
                    incarnation.delivery.unpark(component, table_id)

    def _end(self, incarnation: Incarnation) -> None:
        started = clock.monotonic()
        if not incarnation.end(started + self._stop_timeout_s):
            logger.error("a handler did not return", extra={"action": "stop"})
        try:
            if self._lease is not None and self._time.monotonic() < incarnation.delivery.active_until:
                self._save(incarnation, self._time.monotonic(), must_renew=False)
        except LakebedError as error:
            logger.warning("the last progress was not saved", extra={"action": "save", "error": str(error)})
        if self._lease is None or self._stop.is_set():
            self._incarnation = None

    def _is_between_incarnations(self) -> bool:
        return self._lease is not None and not self._down

    def _is_too_often(self) -> bool:
        """Whether too many incarnations started within the time window."""
        full = len(self._began) == self._options.max_incarnations
        return full and self._time.monotonic() - self._began[0] <= self._options.incarnations_within_s

    def _backoff_s(self, failures: int) -> float:
        limit = self._options.restart_base_s * 2.0 ** min(20, max(0, failures - 1))
        return min(self._options.restart_cap_s, limit) * (0.5 + self._time.draw() / 2)

    def _require_lease(self) -> Lease:
        if self._lease is None:
            raise LeaseLostError(LEASE, epoch=0)
        return self._lease

    @property
    def _ttl_us(self) -> int:
        return int(self._options.lease_ttl_s * 1_000_000)
