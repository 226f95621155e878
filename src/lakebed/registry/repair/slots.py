"""Slots in the future, allocated while the clock was ahead: they block inserts until their time comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.core import fingerprints
from lakebed.core.errors import TooManyPartitionsError
from lakebed.registry.ids import ids_of_table
from lakebed.registry.repair.rows import PARTITION_COLUMNS
from lakebed.registry.transaction import MAX_SLOT_LEAD_US

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import LockedTable, Transaction

_BLOCKED = """SELECT t.database || '.' || t.name, s.last_slot FROM table_seq s JOIN tables t ON t.id = s.table_id
WHERE s.last_slot > :limit AND t.dropped_at IS NULL ORDER BY s.last_slot DESC"""
# Slices behind the last slot were not allocated: the caller that registered them chose their time
_AHEAD = f"""SELECT {", ".join(PARTITION_COLUMNS)} FROM partitions
WHERE table_id = :table_id AND {ids_of_table()} AND end_insert_time > :now + 1 AND end_insert_time <= :last_slot + 1
ORDER BY begin_insert_time, id"""
_REPARENT = "UPDATE table_files SET partition_id = :new, modified_at = :now WHERE partition_id = :old AND retired_seq IS NULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedTable:
    """A table whose inserts are refused, because its last slot is too far ahead of the clock."""

    name: str
    ahead_s: float


def list_blocked(registry: Registry) -> list[BlockedTable]:
    """The one furthest ahead first."""
    now = registry.now()
    rows = registry.query(_BLOCKED, {"limit": now + MAX_SLOT_LEAD_US})
    return [BlockedTable(name=name, ahead_s=(slot - now) / 1e6) for name, slot in rows]


def reallocate_slots(tx: Transaction, table: LockedTable, *, most: int) -> int:
    """Give the partitions that a blocked table has in the future new slots, in their order, and lower the last slot to them; how many.

    Their content counts as new, so views over them are stale. A merged one that begins in the past only ends earlier. Nothing is done
    where the time of the slots has come.
    """
    if table.last_slot - tx.now <= MAX_SLOT_LEAD_US:
        return 0
    found = tx.query(_AHEAD, {"table_id": table.table_id, "now": tx.now, "last_slot": table.last_slot})
    if len(found) > most:
        raise TooManyPartitionsError(str(table.name), found=len(found), allowed=most)
    table.last_slot = tx.now
    _put_back(tx, table, [dict(zip(PARTITION_COLUMNS, row, strict=True)) for row in found])
    return len(found)


def _put_back(tx: Transaction, table: LockedTable, found: list[dict[str, Any]]) -> None:
    """Under new ids, so that a caller that planned to replace their earlier content is refused."""
    if not found:
        return
    moved = [row | _changes(tx, table, row) for row in found]
    instant = tx.modified_at(table)
    tx.run("DELETE FROM partitions WHERE id IN (:ids*)", {"ids": [row["id"] for row in found]})
    tx.insert("partitions", PARTITION_COLUMNS, [tuple(row.values()) for row in moved])
    for old, new in zip(found, moved, strict=True):
        tx.send(_REPARENT, {"old": old["id"], "new": new["id"], "now": instant})
    tx.send("UPDATE tables SET last_modified = :now WHERE id = :id", {"now": instant, "id": table.table_id})


def _changes(tx: Transaction, table: LockedTable, row: dict[str, Any]) -> dict[str, Any]:
    begin, end = row["begin_insert_time"], tx.now + 1
    if begin > tx.now:
        begin = tx.allocate_slot(table)
        end = begin + 1
    return {
        "id": table.allocate_id(),
        "begin_insert_time": begin,
        "end_insert_time": end,
        "fingerprint": fingerprints.make_fingerprint(has_rows=True) if row["num_rows"] else row["fingerprint"],
        "updated": tx.now,
    }
