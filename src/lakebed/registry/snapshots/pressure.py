"""Back pressure: writers wait while too many groups of their table wait for Iceberg, whichever process publishes them."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.core.errors import BackPressureError
from lakebed.registry.journal.leases import find_holder
from lakebed.registry.journal.notifications import SWEEP_S, open_hints
from lakebed.registry.snapshots.waiting import await_change

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry

_LONG_QUEUE = """SELECT database || '.' || name, last_group - committed_group FROM tables
WHERE id = :id AND state = 'ok' AND last_group - committed_group > :limit"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Queue:
    table: str
    backlog: int


def wait_for_room(registry: Registry, table_id: int) -> None:
    """Return when the table takes another write; refuse it, with nothing written, when its queue stays too long for too long.

    Nothing is held back while no live process publishes, nor in a table that is stopped or parked: waiting would not shorten its queue.
    """
    if _find_queue(registry, table_id) is None:
        return
    limits = registry.back_pressure
    deadline = time.monotonic() + limits.timeout_s
    with closing(open_hints(registry)) as hints:
        while (queue := _find_queue(registry, table_id)) is not None:
            if deadline <= time.monotonic():
                raise BackPressureError(queue.table, backlog=queue.backlog, limit=limits.backlog)
            await_change(hints, table_id, until=min(deadline, time.monotonic() + SWEEP_S))


def _find_queue(registry: Registry, table_id: int) -> _Queue | None:
    """A queue that is too long while a live process works on it; for most tables, one read of the table's row rules it out."""
    rows = registry.query(_LONG_QUEUE, {"id": table_id, "limit": registry.back_pressure.backlog})
    if not rows or find_holder(registry, "astha") is None:
        return None
    return _Queue(table=rows[0][0], backlog=int(rows[0][1]))
