"""Delivery: chooses the next lane, makes one call per event and evaluates each answer. Thread-safe; starts no thread itself."""

from __future__ import annotations

import logging
import math
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from lakebed.astha.circuit_breaker import BreakerState, CircuitBreaker
from lakebed.astha.delivery.jobs import Batch, Job, facts_of, log_failure
from lakebed.astha.delivery.lanes import Lane, LaneQueue
from lakebed.astha.status import Tally
from lakebed.core.errors import InvalidValueError, JournalGapError, LakebedError, UndecodableChangeError
from lakebed.core.progress import progress_to

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakebed.astha.event_router import EventRouter
    from lakebed.astha.journal_pages import JournalPages
    from lakebed.astha.options import AsthaOptions, Time
    from lakebed.core.events import Component, Event
    from lakebed.core.rows import Row
    from lakebed.registry.journal.cursors import LaneKey, LaneStates, Saved, Undelivered

logger = logging.getLogger(__name__)

_REGISTRY_PAUSE_S = 0.2  # between two attempts to read a page when the registry does not answer


class Delivery:
    """The lanes of one incarnation. Calls are made outside its lock; an answer counts only under the epoch of its call.

    Successful answers, by far the most frequent, do not take the lock either: only the lane and its thread are involved.
    """

    def __init__(
        self,
        router: EventRouter,
        pages: JournalPages,
        *,
        options: AsthaOptions,
        time: Time,
        tallies: Mapping[Component, Tally] | None = None,
        breakers: Mapping[Component, CircuitBreaker] | None = None,
    ) -> None:
        self.subscribers, self.options, self.time = router.subscribers, options, time
        self._router, self._pages = router, pages
        self.lock = threading.Lock()
        self.tallies = dict(tallies or {c: Tally() for c in self.subscribers})
        self.breakers = dict(breakers or {c: CircuitBreaker(policy=options.breaker) for c in self.subscribers})
        self.lanes: dict[Component, dict[int, Lane]] = {c: {} for c in self.subscribers}
        self.jobs: dict[Component, set[Job]] = {c: set() for c in self.subscribers}
        self._queues = {c: LaneQueue() for c in self.subscribers}
        self.wakes = {c: threading.Condition(self.lock) for c in self.subscribers}
        self.changed = threading.Condition(self.lock)
        self._ends: dict[int, int] = {}
        self._dirty: set[Lane] = set()
        self._drops: list[Undelivered] = []
        self._healed: list[LaneKey] = []
        self.active_until = math.inf
        self.stopped = False
        self.on_work: Callable[[Component], None] = lambda _: None  # called with the lock held
        self.on_news: Callable[[], None] = lambda: None  # progress must be saved soon

    # -- finding work -------------------------------------------------------------------------

    def open(self, states: LaneStates) -> None:
        """Lanes from the saved cursors; a lane that never started or has a gap refreshes first."""
        with self.lock:
            for table_id in states.ends:
                for component in self.subscribers:
                    self._add_lane(component, table_id, states)
        self.see(states.ends)

    def see(self, ends: Mapping[int, int]) -> None:
        """Takes the newest journal numbers just read."""
        with self.lock:
            for table_id, end in ends.items():
                if self._ends.get(table_id) != end:
                    self._ends[table_id] = end
                    self._see_table(table_id, end)

    def take(self, component: Component, now: float) -> Job | None:
        """The next lane in turn, with the lock held; none while the breaker is open or this instance has no lease."""
        breaker = self.breakers[component]
        if self.stopped or now >= self.active_until or not breaker.allows:
            return None
        trial = breaker.state is BreakerState.HALF_OPEN
        if trial and self.jobs[component]:
            return None
        while (lane := self._queues[component].pop(now)) is not None:
            if lane.has_work:
                lane.busy = True
                self._dirty.add(lane)
                job = Job(lane, lane.epoch, trial)
                self.jobs[component].add(job)
                return job
        return None

    def has_ready(self, component: Component) -> bool:
        return self._queues[component].has_ready()

    def wait_s(self, component: Component, now: float) -> float | None:
        """How long an idle worker may sleep; None: until it is woken."""
        due = self._queues[component].find_next_due() if self.breakers[component].allows else None
        return None if due is None else max(0.0, due - now)

    # -- making calls -------------------------------------------------------------------------

    def carry_out(self, job: Job) -> None:
        """Refresh, or deliver up to a turn of events; never raises."""
        try:
            with progress_to(partial(self._hear, job)):
                if job.lane.needs_refresh:
                    self._refresh(job)
                else:
                    self._deliver(job)
        finally:
            self._finish(job)

    def _refresh(self, job: Job) -> None:
        lane = job.lane
        if not self._begin(job, self.options.refresh_timeout_s):
            return
        try:
            mark = self.subscribers[lane.component].on_refresh(lane.table_id)
            self._require_mark(lane, mark)
        except BaseException as error:  # noqa: BLE001 - any exception of a component is a failed call, not an error of delivery
            self._failed(job, error)
        else:
            self._refreshed(job, mark)

    def _require_mark(self, lane: Lane, mark: Any) -> None:
        """An impossible mark would make the lane refresh for ever, or skip changes that were not delivered."""
        if not isinstance(mark, int) or mark < lane.floor or (mark > lane.end and mark > self._pages.last_journal_number(lane.table_id)):
            message = (
                f"on_refresh of {lane.component} for table {lane.table_id} returned {mark!r}: expected the journal number that "
                f"the state it read reflects, from {lane.floor} to the journal's end"
            )
            raise InvalidValueError(message)

    def _deliver(self, job: Job) -> None:
        lane, on_event = job.lane, self.subscribers[job.lane.component].on_event
        events = self._read(job)
        passed, ends_at = lane.position, math.inf  # before the first call: a turn always makes progress
        for event in events:
            if self._router.is_for(lane.component, event.table):
                lane.skipped(passed, epoch=job.epoch)
                if not self._begin(job, self.options.consume_timeout_s, ends_at=ends_at):
                    break
                ends_at = min(ends_at, job.called_at + self.options.turn_s)
                try:
                    on_event(event)
                except BaseException as error:  # noqa: BLE001 - as above
                    self._failed(job, error)
                    return
                if not self._answered(job, event.sequence):
                    return
            passed = event.sequence
        lane.skipped(passed, epoch=job.epoch)

    def _read(self, job: Job) -> Sequence[Event[Row]]:
        lane = job.lane
        try:
            events = self._pages.read(lane.table_id, after=lane.position)
        except JournalGapError:
            self._lost(job)
        except UndecodableChangeError as error:
            self._failed(job, error, of_component=False)
        except LakebedError as error:
            logger.warning("a page of the journal could not be read", extra={"action": "page", "table": lane.table_id, "error": str(error)})
            self._pause(job)
        else:
            if not events:  # the end was read before the page: a number below it that is missing is lost
                self._lost(job)
            return events
        return ()

    # -- evaluating answers -------------------------------------------------------------------

    def _begin(self, job: Job, timeout_s: float, *, ends_at: float = math.inf) -> bool:
        """Whether the call may be made: the turn is not over, and the lease, the lane and the component allow it."""
        now = self.time.monotonic()
        over = now >= min(ends_at, self.active_until) or self.stopped
        if over or self._is_stale(job) or not self.breakers[job.lane.component].allows:
            return False
        job.timeout_s, job.called_at = timeout_s, now  # in this order: the monitor reads the second one first
        return True

    def _hear(self, job: Job) -> None:
        """The call reported progress."""
        job.heard_at = self.time.monotonic()
        component = job.lane.component
        if self.breakers[component].silent:
            with self.lock:
                self._set_breaker(component, self.breakers[component].after_progress())

    def _answered(self, job: Job, sequence: int) -> bool:
        job.called_at = 0.0
        if not job.lane.handled(sequence, epoch=job.epoch):
            with self.lock:
                self._refuse(job)
            return False
        breaker = self.breakers[job.lane.component]
        if breaker.after_success() is not breaker:  # rare
            with self.lock:
                self._went_well(job)
        return True

    def _refreshed(self, job: Job, mark: int) -> None:
        with self.lock:
            if self._is_late(job):
                return
            lane = job.lane
            lane.refreshed(mark)
            self.tallies[lane.component].refreshed += 1
            self._went_well(job)
            if lane.dropped:
                lane.dropped = False
                self._healed.append((lane.component, lane.table_id))
                self.on_news()

    def _failed(self, job: Job, error: BaseException, *, of_component: bool = True) -> None:
        with self.lock:
            if self._is_late(job):
                return
            lane, now = job.lane, self.time.monotonic()
            self.tallies[lane.component].failures += 1
            # a failed trial concerns the component, not the table it was made with
            drop = None if job.trial else lane.failed(error, now=now, draw=self.time.draw())
            log_failure(lane, error, drop)
            if drop is not None:
                self.tallies[lane.component].dead_letters += 1
                self._drops.append(drop)
                self.on_news()
            if of_component:
                self._set_breaker(lane.component, self.breakers[lane.component].after_failure(lane.table_id, now))

    def _lost(self, job: Job) -> None:
        with self.lock:
            if not self._is_stale(job):
                logger.warning("changes are missing from the journal", extra={"action": "gap", **facts_of(job.lane)})
                job.lane.must_refresh(beyond=job.lane.position + 1)

    def _pause(self, job: Job) -> None:
        with self.lock:
            job.lane.due = self.time.monotonic() + _REGISTRY_PAUSE_S

    def _finish(self, job: Job) -> None:
        with self.lock:
            lane = job.lane
            self.jobs[lane.component].discard(job)
            self.tallies[lane.component].delivered += lane.take_answered()
            if not job.abandoned:
                lane.busy = False
                self._queue(lane)
            self.changed.notify_all()

    def _went_well(self, job: Job) -> None:
        component = job.lane.component
        self._set_breaker(component, self.breakers[component].after_success())

    def _is_stale(self, job: Job) -> bool:
        return job.abandoned or job.lane.epoch != job.epoch

    def _is_late(self, job: Job) -> bool:
        job.called_at = 0.0
        if late := self._is_stale(job):
            self._refuse(job)
        return late

    def _refuse(self, job: Job) -> None:
        self._set_breaker(job.lane.component, self.breakers[job.lane.component].after_progress())
        self.tallies[job.lane.component].late_answers += 1
        logger.warning("a late answer was refused", extra={"action": "late", **facts_of(job.lane)})

    # -- breaker, silence, health, parking ----------------------------------------------------

    def fence_silent(self, now: float) -> list[Component]:
        """Abandon calls that neither answer nor report progress in time: their threads are lost until they return, their answers are refused.

        Each is first a problem of its table; the breaker decides whether it is one of the component.
        """
        with self.lock:
            silent = [job for jobs in self.jobs.values() for job in jobs if job.is_silent(now)]
            for job in silent:
                component = job.lane.component
                logger.error("a call was not answered in time", extra={"action": "silence", **facts_of(job.lane)})
                job.abandoned, job.lane.busy = True, False
                self.jobs[component].discard(job)
                self.tallies[component].silences += 1
                job.lane.must_refresh()
                self._set_breaker(component, self.breakers[component].after_silence(job.lane.table_id, now))
                self._queue(job.lane)
            return [job.lane.component for job in silent]

    def heard(self, component: Component, *, well: bool, now: float) -> None:
        """Takes the answer of a health check."""
        with self.lock:
            self._set_breaker(component, self.breakers[component].after_health(well=well, now=now))

    def unpark(self, component: Component, table_id: int) -> bool:
        with self.lock:
            lane = self.lanes.get(component, {}).get(table_id)
            if lane is None or not lane.parked:
                return False
            lane.unpark()
            self._requeue(lane)
            return True

    def list_parked(self) -> list[LaneKey]:
        with self.lock:
            return [(c, t) for c, lanes in self.lanes.items() for t, lane in lanes.items() if lane.parked]

    def stop(self) -> None:
        """No further call starts; running calls may end."""
        with self.lock:
            self.stopped = True
            for wake in self.wakes.values():
                wake.notify_all()
            self.changed.notify_all()

    # -- saving -------------------------------------------------------------------------------

    def collect(self) -> Batch:
        with self.lock:
            unsaved = {lane: position for lane in self._dirty if (position := lane.to_save()) != lane.saved}
            self._dirty = {lane for lane in self._dirty if lane.busy or lane in unsaved}
            return Batch(tuple(unsaved.values()), tuple(self._drops), tuple(self._healed))

    def note_saved(self, batch: Batch, saved: Saved) -> None:
        """Refused positions belong to a newer epoch: their lanes restart from the registry."""
        with self.lock:
            del self._drops[: len(batch.drops)], self._healed[: len(batch.healed)]
            for position in batch.positions:
                lane = self.lanes[position.component][position.table_id]
                cursor = saved.refused.get((position.component, position.table_id))
                if cursor is not None:
                    logger.warning("a cursor was refused", extra={"action": "cursor", **facts_of(lane)})
                    lane.restart_from(cursor.seq, epoch=cursor.epoch + 1)
                    self._requeue(lane)
                else:
                    lane.saved = position

    # -- with the lock held -------------------------------------------------------------------

    def _add_lane(self, component: Component, table_id: int, states: LaneStates | None = None) -> Lane:
        cursor = states.cursors.get((component, table_id)) if states else None
        parked = states.parked.get((component, table_id)) if states else None
        lane = Lane(component=component, table_id=table_id, retry=self.options.retry, needs_refresh=True)
        if cursor is not None:
            lane.position, lane.epoch, lane.needs_refresh = cursor.seq, cursor.epoch, cursor.needs_refresh or parked is not None
            lane.saved = lane.to_save()
        lane.parked, lane.dropped = parked is not None and not parked.retry, parked is not None
        self.lanes[component][table_id] = lane
        return lane

    def _see_table(self, table_id: int, end: int) -> None:
        for component, lanes in self.lanes.items():
            lane = lanes.get(table_id) or self._add_lane(component, table_id)
            lane.end = max(lane.end, end)
            self._queue(lane)

    def _queue(self, lane: Lane) -> None:
        if lane.has_work and not lane.busy and not lane.ticket:
            self._queues[lane.component].put(lane, self.time.monotonic())
            if self.breakers[lane.component].allows:
                self.wakes[lane.component].notify()
                self.on_work(lane.component)

    def _requeue(self, lane: Lane) -> None:
        lane.ticket = 0
        self._queue(lane)

    def _set_breaker(self, component: Component, new: CircuitBreaker) -> None:
        old, self.breakers[component] = self.breakers[component], new
        if new.state is old.state:
            return
        logger.warning(
            "a breaker changed its state", extra={"action": "breaker", "component": component, "state": new.state, "reason": new.reason}
        )
        if new.state is BreakerState.OPEN:
            self._refresh_all(component)
        else:
            self.wakes[component].notify_all()
            self.on_work(component)

    def _refresh_all(self, component: Component) -> None:
        """Lanes keep their order, so that trials rotate; lanes that wait for a retry become ready."""
        for lane in self.lanes[component].values():
            if not lane.parked:
                waited = lane.due > 0.0
                lane.must_refresh()
                self._dirty.add(lane)
                (self._requeue if waited else self._queue)(lane)
