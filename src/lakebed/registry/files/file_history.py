"""What the registry knows of one path, from the intent of its writer to its deletion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakebed.registry.transaction import Reader

_FILE = """SELECT f.id, f.table_id, t.database || '.' || t.name, f.partition_id, f.row_count, f.file_size, f.added_seq, f.retired_seq,
f.added_group, f.removed_group, f.created_at, f.modified_at, p.view_instance_id, p.begin_insert_time, p.end_insert_time
FROM table_files f JOIN tables t ON t.id = f.table_id LEFT JOIN partitions p ON p.id = f.partition_id WHERE f.file_path = :path"""
_OPERATION = """SELECT op_id, table_id, kind, state, created_at, updated_at, lease_until, error, app_id, batch_id FROM operations
WHERE op_id = :op_id"""
_QUEUE = "SELECT table_id, retired_at, expiration, reason, attempts, claimed_until FROM temporary_files WHERE file_path = :path"
_SNAPSHOTS = """SELECT snapshot_id, group_no, timestamp_ms, operation, expired_at FROM table_snapshots
WHERE table_id = :table_id AND group_no >= :group ORDER BY group_no LIMIT 1"""
_KEEPING = """SELECT count(*) FROM table_snapshots WHERE table_id = :table_id AND expired_at IS NULL
AND group_no >= :added AND group_no < :removed"""
_RUNS = """SELECT id, job, state, actor, started_at FROM runs
WHERE started_at <= :at AND (finished_at IS NULL OR finished_at >= :at) AND (table_id = :table_id OR table_id IS NULL) ORDER BY id"""
_LEASES = """SELECT l.name, l.owner, l.expires_at FROM lease_numbers n JOIN leases l ON l.name = n.name
WHERE n.table_id = :table_id AND l.expires_at > :now AND n.seq < :retired_seq ORDER BY l.name"""
_TABLE = "SELECT database || '.' || name FROM tables WHERE id = :id"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFile:
    """The file row, where there still is one."""

    file_id: int
    table_id: int
    table: str
    partition_id: int
    row_count: int
    size_bytes: int
    added_seq: int
    retired_seq: int | None
    added_group: int | None
    removed_group: int | None
    created_at: int
    modified_at: int
    instance: str | None
    begin: int | None
    end: int | None


def find_file(reader: Reader, path: str) -> KnownFile | None:
    rows = reader.query(_FILE, {"path": path})
    return KnownFile(**dict(zip(KnownFile.__dataclass_fields__, rows[0], strict=True))) if rows else None


def find_intent(reader: Reader, op_id: str) -> tuple[Any, ...] | None:
    """Id, table, kind, state, created, updated, lease, error, application, batch."""
    rows = reader.query(_OPERATION, {"op_id": op_id})
    return rows[0] if rows else None


def find_queued(reader: Reader, path: str) -> tuple[Any, ...] | None:
    """Table, queued at, expiration, reason, attempts, claimed until."""
    rows = reader.query(_QUEUE, {"path": path})
    return rows[0] if rows else None


def find_snapshot_at(reader: Reader, table_id: int, group: int) -> tuple[Any, ...] | None:
    """The first snapshot that holds the group: id, group, milliseconds, operation, expired at."""
    rows = reader.query(_SNAPSHOTS, {"table_id": table_id, "group": group})
    return rows[0] if rows else None


def count_keeping(reader: Reader, table_id: int, *, added: int, removed: int) -> int:
    return int(reader.query(_KEEPING, {"table_id": table_id, "added": added, "removed": removed})[0][0])


def list_runs_at(reader: Reader, table_id: int, at: int) -> list[tuple[Any, ...]]:
    """Runs that were under way at that moment: id, job, state, actor, started at."""
    return reader.query(_RUNS, {"table_id": table_id, "at": at})


def list_holders(reader: Reader, table_id: int, *, retired_seq: int, now: int) -> list[tuple[Any, ...]]:
    """Leases that keep a retired file: name, owner, expiry."""
    return reader.query(_LEASES, {"table_id": table_id, "retired_seq": retired_seq, "now": now})


def find_table_name(reader: Reader, table_id: int) -> str:
    rows = reader.query(_TABLE, {"id": table_id})
    return str(rows[0][0]) if rows else f"table {table_id}"
