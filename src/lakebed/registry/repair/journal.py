"""Repair the state of Astha: the journal, the cursors, and leases. Changes that are lost are replaced by a refresh."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.core.events import Component
from lakebed.registry.ids import ID_BITS, ids_of_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Transaction

_RANGE = ids_of_table()
_MARK = """INSERT INTO subscriber_cursor (component, table_id, seq, epoch, needs_refresh, updated_at)
VALUES (:component, :table_id, 0, 1, 1, :now) ON CONFLICT (component, table_id) DO UPDATE SET
epoch = subscriber_cursor.epoch + 1, needs_refresh = 1, updated_at = excluded.updated_at,
seq = CASE WHEN subscriber_cursor.seq BETWEEN 0 AND :last THEN subscriber_cursor.seq ELSE 0 END"""
_HIGHEST = f"SELECT COALESCE(max(id), 0) - (:table_id << {ID_BITS}) FROM change_log WHERE {_RANGE}"
_FORGET = f"DELETE FROM change_log WHERE {_RANGE}"
_RAISE = "UPDATE table_seq SET last_seq = CASE WHEN last_seq < :seq THEN :seq ELSE last_seq END WHERE table_id = :table_id"
_PURGED = "UPDATE table_seq SET purged_seq = last_seq WHERE table_id = :table_id"
_BELOW = f"""DELETE FROM change_log WHERE {_RANGE}
AND id <= (:table_id << {ID_BITS}) + (SELECT purged_seq FROM table_seq WHERE table_id = :table_id)"""
_HORIZON = """UPDATE table_seq SET horizon_seq = CASE WHEN horizon_seq < 0 THEN 0 ELSE last_seq END
WHERE table_id = :table_id AND (horizon_seq < 0 OR horizon_seq > last_seq)"""
_LEASE_NUMBERS = """UPDATE lease_numbers SET seq = 0 WHERE seq < 0
OR seq > (SELECT s.last_seq FROM table_seq s WHERE s.table_id = lease_numbers.table_id)"""
_LEASES_OF_NOBODY = "DELETE FROM lease_numbers WHERE NOT EXISTS (SELECT 1 FROM leases l WHERE l.name = lease_numbers.name)"
_UNOWNED = {
    "temporary_files": "UPDATE temporary_files SET table_id = 0 WHERE NOT EXISTS (SELECT 1 FROM tables t WHERE t.id = temporary_files.table_id)",
    "subscriber_cursor": "DELETE FROM subscriber_cursor WHERE NOT EXISTS (SELECT 1 FROM tables t WHERE t.id = subscriber_cursor.table_id)",
    "lease_numbers": "DELETE FROM lease_numbers WHERE NOT EXISTS (SELECT 1 FROM tables t WHERE t.id = lease_numbers.table_id)",
}


def forget_journal(registry: Registry, table_id: int) -> int:
    """Purge the whole journal of a table and have every component refresh it: the rows still hold what the journal lost.

    Numbers that were allocated are never allocated again, also those that are beyond the recorded end.
    """
    with registry.write([table_id]) as tx:
        highest = tx.query(_HIGHEST, {"table_id": table_id})[0][0]
        forgotten = tx.run(_FORGET, {"table_id": table_id})
        tx.run(_RAISE, {"table_id": table_id, "seq": max(highest, 0)})
        tx.run(_PURGED, {"table_id": table_id})
        mark_refresh(tx, table_id, Component)
    return forgotten


def mark_refresh(tx: Transaction, table_id: int, components: Iterable[Component]) -> int:
    """These components read the table from the registry before they follow its changes again; late answers of old epochs are refused."""
    ends = tx.query("SELECT last_seq FROM table_seq WHERE table_id = :id", {"id": table_id})
    marked = [
        tx.run(_MARK, {"component": c.value, "table_id": table_id, "now": tx.now, "last": ends[0][0] if ends else 0}) for c in components
    ]
    return len(marked)


def drop_purged(registry: Registry, table_id: int) -> int:
    """Changes that the purge should have taken."""
    with registry.write([table_id]) as tx:
        return tx.run(_BELOW, {"table_id": table_id})


def lower_horizon(registry: Registry, table_id: int) -> int:
    """A horizon beyond the journal's end is taken for that end: `as_of` then reaches less far back, never further."""
    with registry.write([table_id]) as tx:
        return tx.run(_HORIZON, {"table_id": table_id})


def repair_leases(tx: Transaction) -> int:
    """A lease on an impossible number protects everything until it ends; numbers that no lease holds go."""
    return tx.run(_LEASE_NUMBERS) + tx.run(_LEASES_OF_NOBODY)


def disown(tx: Transaction, registry_table: str) -> int:
    """Delete rows that belong to no lake table, where nothing is lost with them; queue entries stay queued."""
    return tx.run(_UNOWNED[registry_table]) if registry_table in _UNOWNED else 0


def reindex(registry: Registry) -> None:
    """Rebuild every index from its table."""
    statements = registry.backend.system.list_reindexing(registry)
    with registry.write() as tx:
        registry.backend.script(tx.connection, statements)
