"""Look up paths of the warehouse in the registry, for the sweep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.registry.ids import ID_BITS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Reader, Transaction

_INTENTS = "SELECT staging_path FROM operations WHERE state IN ('writing', 'rolling_back') AND staging_path IS NOT NULL"
_REGISTERED = "SELECT file_path FROM table_files WHERE file_path IN (:paths*)"
_KNOWN = f"""{_REGISTERED}
UNION ALL SELECT file_path FROM temporary_files WHERE file_path IN (:paths*)"""
_OPERATIONS = "SELECT op_id FROM operations WHERE op_id IN (:ids*)"
_GIVE_UP = """INSERT INTO operations (op_id, table_id, kind, state, lease_until, error, created_at, updated_at)
VALUES (:op_id, :table_id, 'lost', 'rolled_back', 0, :error, :now, :now) ON CONFLICT (op_id) DO NOTHING"""
_QUEUED = "SELECT file_path FROM temporary_files WHERE file_path IN (:paths*) AND reason = 'orphan'"


def has_files(registry: Registry, table_id: int) -> bool:
    """Whether any file of the table is still registered, retired ones too."""
    bounds = {"first": table_id << ID_BITS, "beyond": (table_id + 1) << ID_BITS}
    return bool(registry.query("SELECT 1 FROM table_files WHERE id >= :first AND id < :beyond LIMIT 1", bounds))


def list_unknown(registry: Registry, paths: Sequence[str]) -> set[str]:
    """Those that are neither registered, nor queued, nor part of an open operation.

    Intents are read first: an operation that registers its files in between is then seen by the second statement.
    """
    intents = tuple(f"{row[0].rstrip('/')}/" for row in registry.query(_INTENTS))
    known = {row[0] for row in registry.query(_KNOWN, {"paths": list(paths)})}
    return {path for path in paths if path not in known and not path.startswith(intents)}


def list_unregistered(registry: Registry, paths: Sequence[str]) -> set[str]:
    """Those that no file row knows, live or retired."""
    return set(paths) - {row[0] for row in registry.query(_REGISTERED, {"paths": list(paths)})}


def list_unknown_operations(registry: Registry, op_ids: Sequence[str]) -> set[str]:
    """Those that this registry does not know. An intent is written before the first byte and stays, so another registry wrote them."""
    known = {row[0] for row in registry.query(_OPERATIONS, {"ids": list(op_ids)})} if op_ids else set()
    return set(op_ids) - known


def give_up_operations(tx: Transaction, op_ids: Sequence[str], table_ids: Mapping[str, int]) -> int:
    """Record operations of a lost history as rolled back, so that their files may be swept."""
    return sum(
        tx.run(_GIVE_UP, {"op_id": op_id, "table_id": table_ids[op_id], "now": tx.now, "error": "given up: the registry was restored"})
        for op_id in op_ids
    )


def list_swept(registry: Registry, paths: Sequence[str]) -> list[str]:
    """Those that a sweep has queued: they may be deleted at any moment."""
    return [row[0] for row in registry.query(_QUEUED, {"paths": list(paths)})] if paths else []


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
