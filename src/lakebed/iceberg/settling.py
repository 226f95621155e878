"""After a commit: the registry learns what is true in Iceberg, in one transaction that may be repeated."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lakebed.core.errors import CorruptionError, FileMissingError
from lakebed.iceberg.locations import from_uri, to_uri
from lakebed.iceberg.metadata import GROUP, list_dropped_logs, read_group, summary_of
from lakebed.registry.groups import set_committed_group
from lakebed.registry.leases import require_epoch
from lakebed.registry.retire import DEFAULT_GRACE_US
from lakebed.registry.snapshots import NewSnapshot, add_snapshot, expire_snapshots, list_snapshots, to_summary_text
from lakebed.registry.temporary_files import queue_files

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyiceberg.table.metadata import TableMetadataV2
    from pyiceberg.table.snapshots import Snapshot

    from lakebed.iceberg.manifest_store import ManifestStore
    from lakebed.iceberg.opening import Base
    from lakebed.iceberg.state import TableState
    from lakebed.registry.engine import Registry
    from lakebed.registry.leases import Lease
    from lakebed.registry.transaction import Transaction
    from lakebed.storage.access import Storage

TRIGGER = "groups"  # stored: never rename
REASON = "iceberg metadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settler:
    """Writes into the registry what Iceberg says."""

    registry: Registry
    storage: Storage
    store: ManifestStore

    def settle(self, state: TableState, *, before: Base, after: Base, known: bool, lease: Lease | None) -> None:
        """Committed group, snapshots that came and went, and metadata files that nothing refers to any more.

        `known`: the registry holds all of `before`; otherwise it is asked what it holds, which takes longer the longer
        the history is.
        """
        held = _snapshots(before.metadata) if known else self._list_held(state.table_id)
        present = _snapshots(after.metadata)
        come = [s for s in after.metadata.snapshots if s.snapshot_id not in held and GROUP in summary_of(s)]  # a foreign one has no group
        gone = {snapshot_id: listed for snapshot_id, listed in held.items() if snapshot_id not in present}
        unreachable = _list_unreachable(self.store, gone.values(), after.metadata)
        unreachable |= dict.fromkeys(list_dropped_logs(before.metadata, after.metadata), 0)
        queued = _weigh(self.storage, unreachable)
        if come or gone or queued or not _is_known(state, after.metadata):
            body = partial(_record, state=state, after=after, come=come, gone=list(gone), queued=queued, lease=lease)
            self.registry.transact(body, tables=[state.table_id])

    def _list_held(self, table_id: int) -> dict[int, str]:
        return {row.snapshot_id: to_uri(row.manifest_list) for row in list_snapshots(self.registry, table_id)}


def _record(
    tx: Transaction,
    *,
    state: TableState,
    after: Base,
    come: list[Snapshot],
    gone: list[int],
    queued: dict[str, int],
    lease: Lease | None,
) -> None:
    if lease is not None:
        require_epoch(tx, lease)
    for snapshot in come:
        add_snapshot(tx, state.name, _row(snapshot, after))
    if gone:
        expire_snapshots(tx, state.name, gone)
    if queued:
        queue_files(tx, state.table_id, queued, reason=REASON, grace_us=DEFAULT_GRACE_US)
    if after.metadata.current_snapshot_id is not None:
        set_committed_group(tx, state.name, read_group(after.metadata), snapshot_id=after.metadata.current_snapshot_id)


def _snapshots(metadata: TableMetadataV2) -> dict[int, str]:
    return {snapshot.snapshot_id: snapshot.manifest_list for snapshot in metadata.snapshots}


def _is_known(state: TableState, metadata: TableMetadataV2) -> bool:
    return (state.row.committed_group, state.row.current_snapshot_id) == (read_group(metadata), metadata.current_snapshot_id)


def _row(snapshot: Snapshot, after: Base) -> NewSnapshot:
    summary = summary_of(snapshot)
    operation = "" if snapshot.summary is None else snapshot.summary.operation.value
    return NewSnapshot(
        snapshot_id=snapshot.snapshot_id,
        parent_id=snapshot.parent_snapshot_id,
        sequence_number=snapshot.sequence_number or 0,
        group_no=int(summary.get(GROUP, 0)),
        timestamp_ms=snapshot.timestamp_ms,
        manifest_list=from_uri(snapshot.manifest_list),
        metadata_location=from_uri(after.location),
        summary=to_summary_text({"operation": operation, **summary}),
        schema_id=snapshot.schema_id or 0,
        operation=operation,
        trigger=TRIGGER,
    )


def _list_unreachable(store: ManifestStore, gone: Iterable[str], metadata: TableMetadataV2) -> dict[str, int]:
    """Manifest lists of expired snapshots, and manifests that only they name, with sizes where they are known."""
    expired: dict[str, int] = {}
    for location in gone:
        expired[from_uri(location)] = 0
        with suppress(FileMissingError, CorruptionError):  # then there is nothing left to queue, or nobody can tell
            expired.update((from_uri(m.manifest_path), m.manifest_length) for m in store.load_list(location))
    if expired:
        for snapshot in metadata.snapshots:
            expired.pop(from_uri(snapshot.manifest_list), None)
            for manifest in store.load_list(snapshot.manifest_list):
                expired.pop(from_uri(manifest.manifest_path), None)
    return expired


def _weigh(storage: Storage, locations: dict[str, int]) -> dict[str, int]:
    """Paths with sizes; what is not there any more needs no deletion."""
    weighed: dict[str, int] = {}
    for location, size in locations.items():
        path = from_uri(location)
        with suppress(FileMissingError):
            weighed[path] = size or storage.stat(path).size_bytes
    return weighed
