"""The lanes of one component that have work: in turn, and those that wait for their time apart, without a thread."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakebed.astha.delivery.lanes import Lane


class Queue:
    """A lane has one valid place; a newer one makes the older void, so nothing is ever searched."""

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
