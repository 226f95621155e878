"""What the registry knows of paths in the warehouse, for the sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.registry.transaction import ID_BITS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Transaction

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
    """Those that this registry never heard of. An intent is written before the first byte and stays, so another registry wrote them."""
    known = {row[0] for row in registry.query(_OPERATIONS, {"ids": list(op_ids)})} if op_ids else set()
    return set(op_ids) - known


def give_up_operations(tx: Transaction, op_ids: Sequence[str], table_ids: Mapping[str, int]) -> int:
    """Take operations of a lost history for rolled back, so that their files may be swept."""
    return sum(
        tx.run(_GIVE_UP, {"op_id": op_id, "table_id": table_ids[op_id], "now": tx.now, "error": "given up: the registry was restored"})
        for op_id in op_ids
    )


def list_swept(registry: Registry, paths: Sequence[str]) -> list[str]:
    """Those that a sweep has queued: they may be deleted at any moment."""
    return [row[0] for row in registry.query(_QUEUED, {"paths": list(paths)})] if paths else []
