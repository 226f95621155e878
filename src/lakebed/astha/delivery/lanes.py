"""One lane: a component's position in one lake table's journal; and the queue of a component's lanes. No clock, no thread, no I/O."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from lakebed.astha.retry import Again, RetryPolicy
from lakebed.registry.journal.cursors import Position, Undelivered

if TYPE_CHECKING:
    from lakebed.core.events import Component

_SHOWN_CHARS = 2000


@dataclass(slots=True, kw_only=True, eq=False)
class Lane:
    """The position of delivery; thread-safe. Doubt is resolved by a refresh, never by skipping.

    Each lane has its own lock: with one lock for all lanes every call would queue, and a thread that takes the lock while another
    runs in the interpreter would hold it for a whole thread switch.
    """

    component: Component
    table_id: int
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    position: int = 0
    end: int = 0
    epoch: int = 0
    needs_refresh: bool = False
    floor: int = 0  # the least number that a refresh must have read; below it the same failure would recur at once
    parked: bool = False
    dropped: bool = False  # this lane has dead letters
    calls: int = 0  # failed calls of the next change or refresh
    due: float = 0.0
    busy: bool = False
    ticket: int = 0  # number of its one valid place in a queue; 0: none
    saved: Position | None = None
    answered: int = 0  # calls not yet counted
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def has_work(self) -> bool:
        return not self.parked and (self.needs_refresh or self.position < self.end)

    @property
    def is_retrying(self) -> bool:
        return self.calls > 0

    def is_behind(self, end: int) -> bool:
        """A handler writes before it answers, so its writes come before its lane passes."""
        return self.needs_refresh or self.position < end

    def skipped(self, sequence: int, *, epoch: int) -> None:
        """Changes up to this number are not for this component."""
        with self._lock:
            if self.epoch == epoch and sequence > self.position:
                self._pass(sequence)

    def handled(self, sequence: int, *, epoch: int) -> bool:
        """A call succeeded; False if the answer belongs to an earlier epoch."""
        with self._lock:
            if self.epoch != epoch:
                return False
            self.answered += 1  # first: a thread that sees the lane at its end finds the call counted
            self._pass(sequence)
            return True

    def refreshed(self, mark: int) -> None:
        """A mark behind the position is ignored: those changes were already handled."""
        with self._lock:
            self._pass(max(self.position, mark))
            self.end = max(self.end, self.position)
            self.needs_refresh, self.floor = False, 0

    def must_refresh(self, *, beyond: int = 0) -> None:
        """Restart from the registry under a new epoch; answers of the old epoch are refused."""
        with self._lock:
            self._restart(beyond=beyond)

    def restart_from(self, sequence: int, *, epoch: int) -> None:
        """Another instance has worked on this lane: continue from the state in the registry."""
        with self._lock:
            self.position = sequence
            self._restart(epoch=epoch)

    def unpark(self) -> None:
        with self._lock:
            self.parked = False
            self._restart()

    def failed(self, error: BaseException, *, now: float, draw: float) -> Undelivered | None:
        """Wait and retry; or return a dead letter and refresh; or, if the refresh failed, park."""
        with self._lock:
            self.calls += 1
            decision = self.retry.decide(error, calls=self.calls, draw=draw)
            if isinstance(decision, Again):
                self.due = now + decision.delay_s
                return None
            return self._drop(error)

    def to_save(self) -> Position:
        with self._lock:
            return Position(
                component=self.component, table_id=self.table_id, seq=self.position, epoch=self.epoch, needs_refresh=self.needs_refresh
            )

    def take_answered(self) -> int:
        with self._lock:
            many, self.answered = self.answered, 0
            return many

    # -- with the lock held -------------------------------------------------------------------

    def _pass(self, sequence: int) -> None:
        self.position, self.calls, self.due = sequence, 0, 0.0

    def _restart(self, *, epoch: int = 0, beyond: int = 0) -> None:
        self.epoch = max(self.epoch + 1, epoch)
        self.floor = max(self.floor, beyond)
        self.needs_refresh, self.calls, self.due = True, 0, 0.0

    def _drop(self, error: BaseException) -> Undelivered:
        refreshing = self.needs_refresh
        drop = Undelivered(
            component=self.component,
            table_id=self.table_id,
            seq=self.position if refreshing else self.position + 1,
            attempts=self.calls,
            error=describe(error),
            parked=refreshing,
        )
        self.dropped = True
        self._restart(beyond=drop.seq)
        self.parked = refreshing
        return drop


def describe(error: BaseException) -> str:
    """Bounded: an error may contain all the data it concerns."""
    return f"{getattr(error, 'code', type(error).__name__)}: {error}"[:_SHOWN_CHARS]


class LaneQueue:
    """The lanes of one component that have work: ready lanes in turn, and lanes that wait for a time. Starts no thread.

    A lane has one valid place; a newer place invalidates the older one, so the queue is never searched.
    """

    def __init__(self) -> None:
        self._ready: deque[tuple[int, Lane]] = deque()
        self._waiting: list[tuple[float, int, Lane]] = []
        self._tickets = count(1)

    def put(self, lane: Lane, now: float) -> None:
        lane.ticket = next(self._tickets)
        if lane.due > now:
            heappush(self._waiting, (lane.due, lane.ticket, lane))
        else:
            self._ready.append((lane.ticket, lane))

    def pop(self, now: float) -> Lane | None:
        self._move_due(now)
        while self._ready:
            ticket, lane = self._ready.popleft()
            if lane.ticket == ticket:
                lane.ticket = 0
                return lane
        return None

    def has_ready(self) -> bool:
        return bool(self._ready)

    def find_next_due(self) -> float | None:
        return self._waiting[0][0] if self._waiting else None

    def _move_due(self, now: float) -> None:
        while self._waiting and self._waiting[0][0] <= now:
            _, ticket, lane = heappop(self._waiting)
            if lane.ticket == ticket:
                self._ready.append((ticket, lane))
