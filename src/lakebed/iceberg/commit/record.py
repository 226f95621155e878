"""After a commit: the registry learns what is true in Iceberg, in one transaction that may be repeated."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lakebed.core.errors import CorruptionError, FileMissingError, PathRefusedError
from lakebed.iceberg.locations import from_uri, to_uri
from lakebed.iceberg.metadata.metadata import GROUP, TRIGGER, UNRECORDED, list_dropped_logs, read_group, summary_of
from lakebed.iceberg.metadata.ownership import find_own_ancestor, find_pins, is_our_snapshot
from lakebed.registry.files.deletion_queue import queue_files
from lakebed.registry.files.known_paths import list_unknown
from lakebed.registry.journal.leases import require_epoch
from lakebed.registry.partitions.retire import DEFAULT_GRACE_US
from lakebed.registry.snapshots.foreign import FOREIGN, list_foreign_ids, note_refs, read_refs
from lakebed.registry.snapshots.history import NewSnapshot, add_snapshot, expire_snapshots, list_snapshots, to_summary_text
from lakebed.registry.tables.groups import set_committed_group

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyiceberg.table.metadata import TableMetadataV2
    from pyiceberg.table.snapshots import Snapshot

    from lakebed.iceberg.manifests.avro import Manifest
    from lakebed.iceberg.manifests.cache import ManifestStore
    from lakebed.iceberg.metadata.load import Base
    from lakebed.iceberg.metadata.state import TableState
    from lakebed.registry.journal.leases import Lease
    from lakebed.registry.registry import Registry
    from lakebed.registry.snapshots.foreign import ForeignRefs
    from lakebed.registry.transaction import Transaction
    from lakebed.storage.protocol import Storage

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
        come = [s for s in after.metadata.snapshots if s.snapshot_id not in held]
        gone = {snapshot_id: listed for snapshot_id, listed in held.items() if snapshot_id not in present}
        unreachable = self._list_unreachable(state.table_id, gone, after.metadata)
        unreachable |= dict.fromkeys(list_dropped_logs(before.metadata, after.metadata), 0)
        queued = _weigh(self.storage, unreachable)
        pins = None if known else find_pins(after.metadata, state.wanted.requested)  # they change only with a commit of another program
        is_new = pins is not None and pins != read_refs(self.registry, state.table_id)
        if come or gone or queued or is_new or not _is_known(state, after.metadata):
            body = partial(_record, state=state, after=after, come=come, gone=list(gone), queued=queued, pins=pins, lease=lease)
            self.registry.transact(body, tables=[state.table_id])
        self.store.forget(unreachable)

    def _list_held(self, table_id: int) -> dict[int, str]:
        return {row.snapshot_id: to_uri(row.manifest_list) for row in list_snapshots(self.registry, table_id)}

    def _list_unreachable(self, table_id: int, gone: dict[int, str], metadata: TableMetadataV2) -> dict[str, int]:
        """What only expired snapshots named, with sizes where they are known: lists, manifests, and data files of other programs."""
        manifests = _list_expired(self.store, gone.values(), metadata)
        found = dict.fromkeys(map(from_uri, gone.values()), 0) | {from_uri(m.manifest_path): m.manifest_length for m in manifests}
        for snapshot in metadata.snapshots if gone else ():
            found.pop(from_uri(snapshot.manifest_list), None)
        foreign = list_foreign_ids(self.registry, table_id) & gone.keys() if gone else set()
        return found | self._list_foreign_files(manifests, metadata) if foreign else found

    def _list_foreign_files(self, manifests: Iterable[Manifest], metadata: TableMetadataV2) -> dict[str, int]:
        """Files that no file row knows: nothing else would ever delete them. What another kept snapshot of theirs needs stays."""
        files = {path: size for m in manifests for path, size in self._list_files(m)}
        kept = {path for s in metadata.snapshots if not is_our_snapshot(s) for path in self.store.list_held(s.manifest_list)}
        own = [path for path in files if path not in kept and self.storage.paths.is_canonical(path)]
        return {path: files[path] for path in list_unknown(self.registry, own)} if own else {}

    def _list_files(self, manifest: Manifest) -> Iterator[tuple[str, int]]:
        with suppress(FileMissingError, CorruptionError, PathRefusedError):  # outside the warehouse nothing is ours to delete
            for entry in self.store.load_entries(manifest):
                yield from_uri(entry["data_file"]["file_path"]), entry["data_file"]["file_size_in_bytes"]


def _record(
    tx: Transaction,
    *,
    state: TableState,
    after: Base,
    come: list[Snapshot],
    gone: list[int],
    queued: dict[str, int],
    pins: ForeignRefs | None,
    lease: Lease | None,
) -> None:
    if lease is not None:
        require_epoch(tx, lease)
    for snapshot in come:
        add_snapshot(tx, state.name, _row(snapshot, after))
    if pins is not None:
        note_refs(tx, state.table_id, pins)
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
    """One of another program stands at the group of its nearest ancestor of ours: what it shares with us is kept by that."""
    summary, ancestor = summary_of(snapshot), find_own_ancestor(after.metadata, snapshot)
    operation = "" if snapshot.summary is None else snapshot.summary.operation.value
    return NewSnapshot(
        snapshot_id=snapshot.snapshot_id,
        parent_id=snapshot.parent_snapshot_id,
        sequence_number=snapshot.sequence_number or 0,
        group_no=0 if ancestor is None else int(summary_of(ancestor)[GROUP]),
        timestamp_ms=snapshot.timestamp_ms,
        manifest_list=from_uri(snapshot.manifest_list),
        metadata_location=from_uri(after.location),
        summary=to_summary_text({"operation": operation, **summary}),
        schema_id=snapshot.schema_id or 0,
        operation=operation,
        trigger=summary.get(TRIGGER, UNRECORDED) if ancestor is snapshot else FOREIGN,
    )


def _list_expired(store: ManifestStore, gone: Iterable[str], metadata: TableMetadataV2) -> list[Manifest]:
    """Manifests that only expired snapshots name."""
    expired: dict[str, Manifest] = {}
    for location in gone:
        with suppress(FileMissingError, CorruptionError):  # then there is nothing left to queue, or nobody can tell
            expired.update((from_uri(m.manifest_path), m) for m in store.load_list(location))
    for snapshot in metadata.snapshots if expired else ():
        for manifest in store.load_list(snapshot.manifest_list):
            expired.pop(from_uri(manifest.manifest_path), None)
    return list(expired.values())


def _weigh(storage: Storage, locations: dict[str, int]) -> dict[str, int]:
    """Paths with sizes; what is not there any more needs no deletion."""
    weighed: dict[str, int] = {}
    for location, size in locations.items():
        path = from_uri(location)
        with suppress(FileMissingError):
            weighed[path] = size or storage.stat(path).size_bytes
    return weighed
