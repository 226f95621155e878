"""What another program made of a table: its snapshots are set aside and never destroyed, the table goes back to what we wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import SnapshotLogEntry
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, UNSORTED_SORT_ORDER_ID

from lakebed.core.errors import CorruptionError, FileMissingError, InvalidValueError, PathRefusedError
from lakebed.core.files import Needed
from lakebed.core.names import TableName
from lakebed.iceberg.catalog import looking_at_catalog
from lakebed.iceberg.manifests.cache import ManifestStore
from lakebed.iceberg.metadata.load import TableOpener
from lakebed.iceberg.metadata.metadata import COMMITTED_GROUP, FOREIGN_TAG, GROUP, TABLE_ID, make_ref, summary_of
from lakebed.iceberg.metadata.ownership import MAIN, OWN_KEYS, WRITTEN, find_own_ancestor, is_our_snapshot, read_written
from lakebed.registry.queries.listing import list_files
from lakebed.registry.tables.lake_tables import find_row, require_table
from lakebed.staging.register import register_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyiceberg.table.metadata import TableMetadataV2
    from pyiceberg.table.snapshots import Snapshot

    from lakebed.core.tables.snapshots import SnapshotRequests
    from lakebed.iceberg.metadata.metadata import TableDefinition
    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import Storage


def find_last_ours(metadata: TableMetadataV2) -> Snapshot | None:
    """The snapshot that Lakebed made current last; without a record of it, the nearest of ours. None when there is none."""
    main = (read_written(metadata) or {}).get("main")
    recorded = next((known for known in metadata.snapshots if known.snapshot_id == main and is_our_snapshot(known)), None)
    if recorded is not None:
        return recorded
    ours = [known for known in metadata.snapshots if is_our_snapshot(known)]  # a rollback may have left our lineage altogether
    nearest = find_own_ancestor(metadata, metadata.current_snapshot())
    return nearest or max(ours, key=lambda known: known.sequence_number or 0, default=None)


def name_tag(metadata: TableMetadataV2) -> str | None:
    """The tag under which another program's current snapshot stays; None when the current one is ours."""
    current = metadata.current_snapshot()
    return None if current is None or is_our_snapshot(current) else f"{FOREIGN_TAG}{current.snapshot_id}"


def list_old_tags(metadata: TableMetadataV2, requested: SnapshotRequests) -> dict[str, int]:
    """Tags that discarding made before it recorded them as requested: from then on they can be taken off like any other."""
    if read_written(metadata) is not None:
        return {}
    return {name: r.snapshot_id for name, r in metadata.refs.items() if name.startswith(FOREIGN_TAG) and name not in requested.tags}


def rewind(metadata: TableMetadataV2, wanted: TableDefinition, *, now_ms: int) -> TableMetadataV2:
    """The table as we wrote it last, in all but schema and spec, which follow the registry. Every snapshot stays."""
    written = read_written(metadata) or {}
    ours = find_last_ours(metadata)
    own = {
        **written.get("properties", {}),
        TABLE_ID: str(wanted.table_id),
        COMMITTED_GROUP: "0" if ours is None else summary_of(ours)[GROUP],
    }
    others = {key: value for key, value in metadata.properties.items() if key == WRITTEN or not key.startswith(OWN_KEYS)}
    unsorted = any(order.order_id == UNSORTED_SORT_ORDER_ID for order in metadata.sort_orders)
    changes: dict[str, Any] = {
        "properties": {**others, **own},
        "location": written.get("location", metadata.location),
        "table_uuid": UUID(written["uuid"]) if "uuid" in written else metadata.table_uuid,
        "default_sort_order_id": UNSORTED_SORT_ORDER_ID,
        "sort_orders": metadata.sort_orders if unsorted else [UNSORTED_SORT_ORDER, *metadata.sort_orders],
    }
    return metadata.model_copy(update=changes | _main_back(metadata, ours, now_ms=now_ms))


def _main_back(metadata: TableMetadataV2, ours: Snapshot | None, *, now_ms: int) -> dict[str, Any]:
    snapshot_id = None if ours is None else ours.snapshot_id
    if snapshot_id == metadata.current_snapshot_id:
        return {}
    refs = {name: ref for name, ref in metadata.refs.items() if name != MAIN_BRANCH}
    if snapshot_id is None:
        return {"refs": refs, "current_snapshot_id": None}
    latest = metadata.snapshot_log[-1].timestamp_ms if metadata.snapshot_log else 0
    entry = SnapshotLogEntry.model_validate({"snapshot-id": snapshot_id, "timestamp-ms": max(now_ms, latest + 1)})
    refs[MAIN_BRANCH] = make_ref(snapshot_id, SnapshotRefType.BRANCH)
    return {"refs": refs, "current_snapshot_id": snapshot_id, "snapshot_log": [*metadata.snapshot_log, entry]}


def list_added(name: TableName, store: ManifestStore, metadata: TableMetadataV2, changed: Sequence[str]) -> list[str]:
    """Paths of the files that another program added to the table; refused when that is not all it did."""
    ours, current = find_last_ours(metadata), metadata.current_snapshot()
    before = set() if ours is None else store.list_held(ours.manifest_list)
    after = set() if current is None else store.list_held(current.manifest_list)
    deletes = 0 if current is None else sum(m.live_files for m in store.load_list(current.manifest_list) if m.content)
    others = [what for what in changed if what != MAIN]
    if others:
        raise _not_adoptable(name, f"changed the table's {', '.join(others)}")
    if before - after:
        raise _not_adoptable(name, f"removed {len(before - after)} files")
    if deletes:
        raise _not_adoptable(name, f"removed rows by {deletes} delete files")
    return sorted(after - before)


def _not_adoptable(name: TableName, what: str) -> InvalidValueError:
    return InvalidValueError(
        f"{name}: the other program {what}, and only files that it added can be adopted; nothing was changed: "
        f"discard it (`lakebed repair {name} --how discard_foreign --execute`), then make the change through Lakebed"
    )


def adopt_files(registry: Registry, storage: Storage, name: TableName, paths: Sequence[str]) -> None:
    """Register files of another writer where they are, by their column names where they hold no ids; a second call finds them there."""
    table = require_table(registry, name)
    known = {row.file_path for row in list_files(registry, table.table_id, retired=True)}
    if new := [path for path in paths if path not in known]:
        register_files(registry, storage, table, new, adopt=True)


def find_foreign_files(registry: Registry, storage: Storage, table_ids: Iterable[int]) -> Needed:
    """Files that other programs' snapshots of these tables reach; of a table that cannot be read, everything.

    Read from the catalog: no group of ours says that they are needed.
    """
    rows = [find_row(registry, table_id) for table_id in table_ids]
    tables = [row for row in rows if row is not None and row.dropped_at is None]
    paths: set[str] = set()
    unsure: list[str] = []
    with looking_at_catalog(registry, storage) as catalog:
        if catalog is None:
            return Needed(paths=frozenset(), unsure=())
        opener, store = TableOpener(registry, storage, catalog), ManifestStore(storage)
        for row in tables:
            name = TableName(row.database, row.name)
            try:
                paths.update(_list_reached(opener, store, name))
            except (FileMissingError, CorruptionError, PathRefusedError):
                unsure.append(storage.paths.table_directory(row.id, name) + "/")
    return Needed(paths=frozenset(paths), unsure=tuple(unsure))


def _list_reached(opener: TableOpener, store: ManifestStore, name: TableName) -> Iterator[str]:
    base = opener.find(name)
    for snapshot in () if base is None else base.metadata.snapshots:
        if not is_our_snapshot(snapshot):
            yield from store.list_held(snapshot.manifest_list)
