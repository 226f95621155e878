"""Waiting until all committed changes have been handled, including follow-up changes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lakebed.registry.journal.changes import last_journal_numbers
from lakebed.registry.journal.cursors import list_parked, read_lane_states

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lakebed.astha.delivery.delivery import Delivery
    from lakebed.core.events import Component
    from lakebed.registry.registry import Registry

_POLL_S = 0.05


def drain_here(registry: Registry, delivery: Delivery, *, deadline: float) -> bool:
    """True if every lane passed the journal's end and nothing was added meanwhile; False at the deadline, or if a lane is parked."""
    ends = last_journal_numbers(registry)
    while True:
        delivery.see(ends)
        if not _await_passed(delivery, ends, deadline):
            return False
        newer = last_journal_numbers(registry)
        if newer == ends:
            return True
        ends = newer


def drain_elsewhere(registry: Registry, components: Collection[Component], *, deadline: float) -> bool:
    """The same, judged by the cursors that the active instance saves."""
    while True:
        if _has_passed(registry, components):
            return True
        if list_parked(registry) or time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)


def _await_passed(delivery: Delivery, ends: Mapping[int, int], deadline: float) -> bool:
    with delivery.lock:
        while not delivery.stopped:
            waiting = [lane for lanes in delivery.lanes.values() for lane in lanes.values() if lane.is_behind(ends.get(lane.table_id, 0))]
            if not waiting:
                return True
            left = deadline - time.monotonic()
            if left <= 0 or all(lane.parked for lane in waiting):
                return False
            delivery.changed.wait(left)
    return False


def _has_passed(registry: Registry, components: Collection[Component]) -> bool:
    states = read_lane_states(registry)
    for table_id, end in states.ends.items():
        for component in components:
            cursor = states.cursors.get((component, table_id))
            if cursor is None or cursor.needs_refresh or cursor.seq < end:
                return False
    return True
