"""Waiting until Iceberg has reached a group, from any process."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

from lakebed.core.errors import CommitTimeoutError, TableNotFoundError
from lakebed.registry.wakeup import SWEEP_S, open_hints

if TYPE_CHECKING:
    from lakebed.registry.engine import Registry
    from lakebed.registry.transaction import Reader

_COMMITTED = "SELECT committed_group, current_snapshot_id, last_group, database, name FROM tables WHERE id = :id"
_HOLDER = "SELECT owner FROM leases WHERE name = 'astha' AND expires_at > :now"


def find_committed(reader: Registry | Reader, table_id: int) -> tuple[int, int | None]:
    """The committed group and the snapshot that holds it."""
    rows = reader.query(_COMMITTED, {"id": table_id})
    if not rows:
        raise TableNotFoundError(f"with id {table_id}")
    return rows[0][0], rows[0][1]


def read_backlog(reader: Registry | Reader, table_id: int) -> int:
    """Groups that wait for their Iceberg commit."""
    rows = reader.query(_COMMITTED, {"id": table_id})
    return int(rows[0][2] - rows[0][0]) if rows else 0


def wait_for_group(registry: Registry, table_id: int, group: int, *, timeout_s: float) -> int | None:
    """The snapshot that holds `group` or a later one; a typed timeout names who publishes."""
    deadline = time.monotonic() + timeout_s
    with closing(open_hints(registry)) as hints:
        while True:
            committed, snapshot_id = find_committed(registry, table_id)
            if committed >= group:
                return snapshot_id
            left = deadline - time.monotonic()
            if left <= 0:
                raise timed_out(registry, table_id, group, timeout_s=timeout_s)
            hints.wait(min(left, SWEEP_S))


def timed_out(registry: Registry, table_id: int, group: int, *, timeout_s: float) -> CommitTimeoutError:
    committed, _, _, database, name = registry.query(_COMMITTED, {"id": table_id})[0]
    holders = registry.query(_HOLDER, {"now": registry.now()})
    holder = holders[0][0] if holders else None
    return CommitTimeoutError(f"{database}.{name}", group=group, committed=committed, timeout_s=timeout_s, holder=holder)
