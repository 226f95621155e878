"""Requests on a table's Iceberg history, changed in one transaction; the change is the updater's event."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lakebed.core.tables.snapshots import REQUESTS, SnapshotRequests, parse_requests
from lakebed.registry.snapshots.history import list_ids
from lakebed.registry.tables.versions import set_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lakebed.registry.backends.protocol import Queryable
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Transaction

_PROPERTIES = "SELECT properties FROM table_metadata WHERE table_id = :id AND standing = 'serving'"


def change_requests(registry: Registry, table_id: int, change: Callable[[SnapshotRequests], SnapshotRequests]) -> SnapshotRequests:
    """What is requested afterwards; nothing is written when `change` changes nothing."""
    return registry.transact(lambda tx: change_locked(tx, table_id, change), tables=[table_id])


def request_expiry(tx: Transaction, table_id: int, going: Iterable[int]) -> SnapshotRequests:
    """Ask for these snapshots to expire. Earlier requests whose snapshots are gone are dropped: the list stays as long as the history."""
    present = list_ids(tx, table_id)
    return change_locked(tx, table_id, lambda requested: requested.expiring(going, present=present))


def change_locked(tx: Transaction, table_id: int, change: Callable[[SnapshotRequests], SnapshotRequests]) -> SnapshotRequests:
    """`change_requests` in a transaction that has the table's lock."""
    table = tx.tables[table_id]
    before = parse_requests(tx.query(_PROPERTIES, {"id": table_id})[0][0])
    after = change(before)
    if after != before and table.head.dropped_at is None:
        set_properties(tx, table.name, {REQUESTS: after.to_property()})
    return after


def read_properties(reader: Queryable, table_id: int) -> str:
    rows = reader.query(_PROPERTIES, {"id": table_id})
    return str(rows[0][0]) if rows else json.dumps({})
