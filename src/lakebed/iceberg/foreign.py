"""Snapshots that another program put on a table's lineage: found, set aside, never destroyed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import SnapshotLogEntry

from lakebed.iceberg.metadata import COMMIT_ID, COMMITTED_GROUP, FOREIGN_TAG, GROUP, make_ref, summary_of
from lakebed.registry.lake_tables import require_table
from lakebed.registry.listing import list_files
from lakebed.writing import register_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.table.metadata import TableMetadataV2
    from pyiceberg.table.snapshots import Snapshot

    from lakebed.core.names import TableName
    from lakebed.registry.engine import Registry
    from lakebed.storage.access import Storage


def find_last_ours(metadata: TableMetadataV2) -> Snapshot | None:
    """The nearest ancestor of the current snapshot that Lakebed committed; None when there is none."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    snapshot = metadata.current_snapshot()
    seen: set[int] = set()
    while snapshot is not None and not _is_ours(snapshot) and snapshot.snapshot_id not in seen:
        seen.add(snapshot.snapshot_id)
        snapshot = by_id.get(snapshot.parent_snapshot_id or 0)
    if snapshot is not None and _is_ours(snapshot):
        return snapshot
    ours = [known for known in metadata.snapshots if _is_ours(known)]  # a rollback may have left our lineage altogether
    return max(ours, key=lambda known: known.sequence_number or 0, default=None)


def rewind(metadata: TableMetadataV2, *, now_ms: int) -> TableMetadataV2:
    """The table back at our last snapshot; what was current stays reachable as a tag."""
    ours, current = find_last_ours(metadata), metadata.current_snapshot()
    refs = {name: ref for name, ref in metadata.refs.items() if name != MAIN_BRANCH}
    if current is not None and not _is_ours(current):
        refs[f"{FOREIGN_TAG}{current.snapshot_id}"] = make_ref(current.snapshot_id, SnapshotRefType.TAG)
    changes: dict[str, Any] = {"refs": refs, "current_snapshot_id": None}
    group = "0"
    if ours is not None:
        refs[MAIN_BRANCH] = make_ref(ours.snapshot_id, SnapshotRefType.BRANCH)
        group = summary_of(ours)[GROUP]
        latest = metadata.snapshot_log[-1].timestamp_ms if metadata.snapshot_log else 0
        entry = SnapshotLogEntry.model_validate({"snapshot-id": ours.snapshot_id, "timestamp-ms": max(now_ms, latest + 1)})
        changes |= {"current_snapshot_id": ours.snapshot_id, "snapshot_log": [*metadata.snapshot_log, entry]}
    changes["properties"] = {**metadata.properties, COMMITTED_GROUP: group}
    return metadata.model_copy(update=changes)


def _is_ours(snapshot: Snapshot) -> bool:
    summary = summary_of(snapshot)
    return COMMIT_ID in summary and GROUP in summary


def adopt_files(registry: Registry, storage: Storage, name: TableName, paths: Sequence[str]) -> None:
    """Register files of another writer where they lie, by their column names where they hold no ids; a second call finds them there."""
    table = require_table(registry, name)
    known = {row.file_path for row in list_files(registry, table.table_id, retired=True)}
    if new := [path for path in paths if path not in known]:
        register_files(registry, storage, table, new, adopt=True)
