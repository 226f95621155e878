"""Going back: from what a caller names (a journal number, a time, a snapshot) to what planning needs."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from lakebed.core.errors import InvalidValueError, SnapshotNotFoundError
from lakebed.core.schema import Schema
from lakebed.core.times import show, to_micros
from lakebed.registry.lake_tables import list_versions
from lakebed.registry.plans import AsOf, AtGroup, find_number_at

if TYPE_CHECKING:
    from lakebed.registry.lake_tables import LakeTable
    from lakebed.registry.transaction import Reader

_FIND = "SELECT group_no, expired_at, timestamp_ms FROM table_snapshots WHERE table_id = :table_id AND snapshot_id = :id"
_KEPT = "SELECT snapshot_id, timestamp_ms FROM table_snapshots WHERE table_id = :table_id AND expired_at IS NULL ORDER BY sequence_number"
_HASHES = """SELECT DISTINCT schema_hash FROM table_files
WHERE table_id = :table_id AND added_group <= :g AND (removed_group IS NULL OR removed_group > :g)"""
_LEAST_SNAPSHOT_ID = 1 << 40  # ids are random and long; no journal of one table comes this far


def resolve_as_of(reader: Reader, table: LakeTable, as_of: int | datetime | None) -> AsOf | None:
    """A snapshot id where the table has or had one of that number, else a journal number; a time is the last change before it."""
    if isinstance(as_of, datetime):
        return find_number_at(reader, table.table_id, to_micros(as_of))
    if isinstance(as_of, bool) or not isinstance(as_of, int | None):
        message = f"{table.name}: as_of={as_of!r} is neither a journal number, a snapshot id nor an aware datetime"
        raise InvalidValueError(message)
    if as_of is None:
        return None
    rows = reader.query(_FIND, {"table_id": table.table_id, "id": as_of})
    if rows and rows[0][1] is None:
        return AtGroup(rows[0][0])
    if rows or as_of >= _LEAST_SNAPSHOT_ID:
        raise _not_kept(reader, table, as_of, at_ms=rows[0][2] if rows else None)
    return as_of


def as_it_was(reader: Reader, table: LakeTable, as_of: AsOf | None) -> LakeTable:
    """The table under the version that a snapshot's files were written for, where readers of today no longer see that version."""
    if not isinstance(as_of, AtGroup):
        return table
    hashes = {row[0] for row in reader.query(_HASHES, {"table_id": table.table_id, "g": as_of.group})}
    versions = {version.schema_hash: version for version in list_versions(reader, table.table_id)}
    old = [versions[found] for found in hashes if versions[found].standing == "incompatible"]
    if not old:
        return table
    newest = max(old, key=lambda version: version.schema_version)
    return replace(table, metadata=newest, schema=Schema.from_json(newest.schema))


def _not_kept(reader: Reader, table: LakeTable, snapshot_id: int, *, at_ms: int | None) -> SnapshotNotFoundError:
    """Names the kept snapshot nearest in time, or the newest when nothing is known of the one that was asked for."""
    kept = reader.query(_KEPT, {"table_id": table.table_id})
    if not kept:
        return SnapshotNotFoundError(str(table.name), snapshot_id, nearest=None)
    nearest = kept[-1] if at_ms is None else min(kept, key=lambda row: abs(row[1] - at_ms))
    return SnapshotNotFoundError(str(table.name), snapshot_id, nearest=nearest[0], at=show(nearest[1] * 1000))
