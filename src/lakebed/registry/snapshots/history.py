"""The registry's record of Iceberg snapshots."""

from __future__ import annotations

import json
import sys
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from lakebed.core.rows import TableSnapshots, list_columns
from lakebed.registry.codec import decode_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.core.names import TableName
    from lakebed.registry.backends.protocol import Queryable
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Transaction

_COLUMNS = list_columns(TableSnapshots)
_MANY = 1000
_INSTANCES = """SELECT f.id, p.view_instance_id FROM table_files f JOIN partitions p ON p.id = f.partition_id
WHERE f.id IN (:ids*) AND p.view_instance_id <> 'global'"""
_HAS_INSTANCES = "SELECT 1 FROM partition_scopes WHERE table_id = :id AND view_instance_id <> 'global' LIMIT 1"
_TOTALS = """SELECT count(*), COALESCE(sum(row_count), 0), COALESCE(sum(file_size), 0) FROM table_files
WHERE table_id = :id AND added_group <= :g AND (removed_group IS NULL OR removed_group > :g)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSnapshot:
    """A snapshot that the Iceberg catalog holds."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    group_no: int
    timestamp_ms: int
    manifest_list: str
    metadata_location: str
    summary: str
    schema_id: int
    operation: str
    trigger: str


def add_snapshot(tx: Transaction, name: TableName, snapshot: NewSnapshot) -> bool:
    """Record a snapshot; False, and nothing changed, when it is known already."""
    table = tx.require(name)
    known = tx.query(
        "SELECT 1 FROM table_snapshots WHERE table_id = :id AND snapshot_id = :s", {"id": table.table_id, "s": snapshot.snapshot_id}
    )
    if known:
        return False
    values = (table.allocate_id(), table.table_id, *astuple(snapshot), None)
    tx.insert("table_snapshots", _COLUMNS, [values])
    return True


def expire_snapshots(tx: Transaction, name: TableName, snapshot_ids: list[int]) -> int:
    """Mark snapshots as expired: files that only they held may be deleted from now on."""
    table = tx.require(name)
    return tx.run(
        "UPDATE table_snapshots SET expired_at = :now WHERE table_id = :id AND snapshot_id IN (:ids*) AND expired_at IS NULL",
        {"now": tx.now, "id": table.table_id, "ids": snapshot_ids},
    )


def list_snapshots(reader: Queryable, table_id: int, *, expired: bool = False) -> list[TableSnapshots]:
    rows = reader.query(
        f"SELECT {', '.join(_COLUMNS)} FROM table_snapshots WHERE table_id = :id AND (:expired = 1 OR expired_at IS NULL) ORDER BY sequence_number",
        {"id": table_id, "expired": int(expired)},
    )
    return [decode_row(TableSnapshots, row) for row in rows]


def list_ids(reader: Queryable, table_id: int) -> set[int]:
    """Of the snapshots that are not expired."""
    return {
        row[0]
        for row in reader.query("SELECT snapshot_id FROM table_snapshots WHERE table_id = :id AND expired_at IS NULL", {"id": table_id})
    }


def list_ids_with(registry: Registry, table_id: int, summary_key: str) -> set[int]:
    """Snapshots whose summary has the key, expired ones too."""
    sql = "SELECT snapshot_id FROM table_snapshots WHERE table_id = :id AND summary LIKE :key"
    return {row[0] for row in registry.query(sql, {"id": table_id, "key": f'%"{summary_key}"%'})}


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The sums over the files of one group."""

    files: int
    rows: int
    size_bytes: int


def sum_at_group(reader: Queryable, table_id: int, group: int) -> Totals:
    files, rows, size = reader.query(_TOTALS, {"id": table_id, "g": group})[0]
    return Totals(files=int(files), rows=int(rows), size_bytes=int(size))


def has_instances(reader: Queryable, table_id: int) -> bool:
    """Whether anything was ever published for another instance than the global one."""
    return bool(reader.query(_HAS_INSTANCES, {"id": table_id}))


def find_instances(reader: Queryable, file_ids: Sequence[int]) -> dict[int, str]:
    """The instances of those files that belong to another one than the global one; each instance is one text in memory."""
    found: dict[int, str] = {}
    for start in range(0, len(file_ids), _MANY):
        rows = reader.query(_INSTANCES, {"ids": list(file_ids[start : start + _MANY])})
        found.update((file_id, sys.intern(instance)) for file_id, instance in rows)
    return found


def list_queued(reader: Queryable, table_id: int) -> set[str]:
    """Paths of the table that wait for their deletion."""
    return {row[0] for row in reader.query("SELECT file_path FROM temporary_files WHERE table_id = :id", {"id": table_id})}


def to_summary_text(summary: dict[str, str]) -> str:
    return json.dumps(summary, sort_keys=True)
