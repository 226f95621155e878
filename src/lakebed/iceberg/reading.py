"""What a snapshot held, from Iceberg's own history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.core.errors import InvalidValueError, SnapshotNotFoundError
from lakebed.iceberg.locations import from_uri
from lakebed.iceberg.manifests.cache import ManifestStore
from lakebed.iceberg.metadata.load import TableOpener

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadataV2

    from lakebed.core.names import TableName
    from lakebed.iceberg.catalog import LakeCatalog
    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import Storage


def open_snapshot(registry: Registry, storage: Storage, catalog: LakeCatalog, table: TableName, snapshot_id: int) -> list[str]:
    """The paths of the snapshot's files, sorted; one that is not kept is refused, and the nearest kept one is named."""
    base = TableOpener(registry, storage, catalog).find(table)
    if base is None:
        message = f"{table} has no Iceberg table yet: insert, then wait for its first snapshot"
        raise InvalidValueError(message)
    snapshot = base.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise _not_kept(table, snapshot_id, base.metadata)
    store = ManifestStore(storage)
    paths = (path for manifest in store.load_list(snapshot.manifest_list) for path in store.load_paths(manifest))
    return sorted(map(from_uri, paths))


def _not_kept(table: TableName, snapshot_id: int, metadata: TableMetadataV2) -> SnapshotNotFoundError:
    kept = max(metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms, default=None)
    return SnapshotNotFoundError(str(table), snapshot_id, nearest=None if kept is None else kept.snapshot_id)
