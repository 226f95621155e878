"""Sealing as the snapshotter and readers ask for it: what is pending gets its group, in a transaction of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.core.tables.snapshots import Pending, Trigger
from lakebed.registry.tables.groups import PENDING, seal

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Reader, Transaction

_ANY = f"SELECT 1 FROM table_files WHERE {PENDING} LIMIT 1"
_SUMS = f"""SELECT count(*), COALESCE(sum(row_count), 0), COALESCE(sum(file_size), 0), COALESCE(min(created_at), 0)
FROM table_files WHERE {PENDING}"""
_GROUP = "SELECT min(added_group), count(added_group) FROM table_files WHERE id >= :first AND id < :beyond AND file_type = 'parquet'"
_UNDER_WAY = """SELECT last_group FROM tables WHERE id = :table_id AND committed_group < last_group AND EXISTS (
SELECT 1 FROM table_files WHERE id >= :first AND id < :beyond AND file_type = 'parquet' AND added_group IS NULL)"""
_MARK = "SELECT last_seq FROM table_seq WHERE table_id = :table_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """`group` is None when nothing was pending. Every visible file of a change numbered up to `upto` has a group now."""

    group: int | None
    upto: int


def seal_table(registry: Registry, table_id: int, *, trigger: Trigger = Trigger.EVERY_INSERT) -> Sealed:
    """Give what is pending its group, which records the trigger. Looks first without the writers' lock; a dropped table has nothing to seal."""
    with registry.read() as reader:
        ((mark,),) = reader.query(_MARK, {"table_id": table_id})
        if not reader.query(_ANY, {"table_id": table_id}):
            return Sealed(group=None, upto=mark)
    return registry.transact(lambda tx: _seal(tx, table_id, trigger), tables=[table_id])


def _seal(tx: Transaction, table_id: int, trigger: Trigger) -> Sealed:
    table = tx.tables[table_id]
    return Sealed(group=None if table.head.dropped_at is not None else seal(tx, table.name, trigger=trigger), upto=table.head.last_seq)


def read_pending(reader: Registry | Reader, table_id: int) -> Pending:
    files, rows, size, since = reader.query(_SUMS, {"table_id": table_id})[0]
    return Pending(files=int(files), rows=int(rows), bytes=int(size), since=int(since))


def read_mark(reader: Registry | Reader, table_id: int) -> int:
    """The last journal number of the table, as of this snapshot."""
    rows = reader.query(_MARK, {"table_id": table_id})
    return int(rows[0][0]) if rows else 0


def find_group_under_way(registry: Registry, table_id: int, file_ids: range) -> int | None:
    """The newest group, while Iceberg has not reached it and these files have none yet."""
    rows = registry.query(_UNDER_WAY, {"table_id": table_id, "first": file_ids.start, "beyond": file_ids.stop})
    return int(rows[0][0]) if rows else None


def require_group(registry: Registry, table_id: int, file_ids: range) -> int | None:
    """The group in which these files entered or will enter Iceberg, sealed now if need be; None when they hold none (JSON, staged)."""
    params = {"first": file_ids.start, "beyond": file_ids.stop}
    ((group, count),) = registry.query(_GROUP, params)
    if count == 0 and len(file_ids):
        seal_table(registry, table_id)
        ((group, count),) = registry.query(_GROUP, params)
    return None if group is None else int(group)
