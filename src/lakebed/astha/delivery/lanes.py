"""One lane: a component's way through one lake table's journal; and the queue of a component's lanes. No clock, no thread, no I/O."""

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
    """Where delivery stands; any thread may call it. What is in doubt is settled by a refresh, never by skipping.

    It has a lock of its own: at one for all lanes every call would queue, and a thread that got it while another held the
    interpreter would keep it through a whole switch of threads.
    """

    component: Component
    table_id: int
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    position: int = 0
    end: int = 0
    epoch: int = 0
    needs_refresh: bool = False
    floor: int = 0  # what a refresh must have seen at least: else the same trouble would come again at once
    parked: bool = False
    dropped: bool = False  # something of this lane lies among the dead letters
    calls: int = 0  # failed ones of the change (or the refresh) that is next
    due: float = 0.0
    busy: bool = False
    ticket: int = 0  # of its one valid place in a queue; 0 is none
    saved: Position | None = None
    answered: int = 0  # calls, not yet tallied
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def has_work(self) -> bool:
        return not self.parked and (self.needs_refresh or self.position < self.end)

    @property
    def is_retrying(self) -> bool:
        return self.calls > 0

    def is_behind(self, end: int) -> bool:
        """What a handler writes comes before its answer, so before its lane has passed."""
        return self.needs_refresh or self.position < end

    def skipped(self, sequence: int, *, epoch: int) -> None:
        """Changes up to here are not for this component."""
        with self._lock:
            if self.epoch == epoch and sequence > self.position:
                self._pass(sequence)

    def handled(self, sequence: int, *, epoch: int) -> bool:
        """A call was answered well; False when the answer belongs to an epoch that is over."""
        with self._lock:
            if self.epoch != epoch:
                return False
            self.answered += 1  # first: whoever sees the lane at its end finds the call counted
            self._pass(sequence)
            return True

    def refreshed(self, mark: int) -> None:
        """A mark behind the position tells nothing new: those changes were handled already."""
        with self._lock:
            self._pass(max(self.position, mark))
            self.end = max(self.end, self.position)
            self.needs_refresh, self.floor = False, 0

    def must_refresh(self, *, beyond: int = 0) -> None:
        """Start again from the registry under a new epoch; answers of the old one are refused."""
        with self._lock:
            self._restart(beyond=beyond)

    def restart_from(self, sequence: int, *, epoch: int) -> None:
        """Somebody else has been at work on this lane: go on from what the registry says."""
        with self._lock:
            self.position = sequence
            self._restart(epoch=epoch)

    def unpark(self) -> None:
        with self._lock:
            self.parked = False
            self._restart()

    def failed(self, error: BaseException, *, now: float, draw: float) -> Undelivered | None:
        """Wait and try again; or, with the dead letter returned, refresh; or, when that was the refresh, park."""
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
    """Bounded: an error may carry the whole of what it was about."""
    return f"{getattr(error, 'code', type(error).__name__)}: {error}"[:_SHOWN_CHARS]


class LaneQueue:
    """The lanes of one component that have work: in turn, and those that wait for their time apart. Starts no thread.

    A lane has one valid place; a newer one makes the older void, so nothing is ever searched.
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
