"""Snapshots by name, for callers that know tables and files and nothing of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.core.errors import FileMissingError, SnapshotNotFoundError
from lakebed.core.names import TableName
from lakebed.core.tables.snapshots import Trigger
from lakebed.registry.tables.groups import find_at_group, seal_table
from lakebed.registry.tables.lake_tables import require_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.iceberg.commit.committer import Committer


def create_iceberg_snapshot(committer: Committer, database: str, table: str, files: Sequence[str]) -> int | None:
    """The current snapshot, which holds `files` (registered paths) and whatever else was pending; a second call changes nothing."""
    name = TableName(database, table)
    table_id = require_table(committer.registry, name).table_id
    seal_table(committer.registry, table_id, trigger=Trigger.MANUAL)
    committer.advance(table_id)
    row = require_table(committer.registry, name).row
    paths = {path: committer.storage.canonical(path) for path in files}
    held = find_at_group(committer.registry, table_id, row.committed_group, list(paths.values()))
    for path, canonical in paths.items():
        if canonical not in held:
            raise FileMissingError(path)
    return row.current_snapshot_id


def update_iceberg_metadata(committer: Committer, database: str, table: str, snapshot: int) -> int:
    """Bring schema, refs and retention to what the registry wants; the number of the metadata that holds `snapshot`."""
    found = require_table(committer.registry, TableName(database, table))
    name = found.name
    committer.advance(found.table_id)
    version, kept = committer.find_version(name)
    if snapshot not in kept:
        raise SnapshotNotFoundError(str(name), snapshot, nearest=kept[-1] if kept else None)
    return version
