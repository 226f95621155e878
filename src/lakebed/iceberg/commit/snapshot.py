"""One step of a table's history: which manifests to keep, rewrite and merge, and the snapshot that says so."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakebed.core.errors import IcebergDriftError
from lakebed.core.names import GLOBAL_INSTANCE
from lakebed.iceberg.locations import from_uri, new_uuid
from lakebed.iceberg.manifests.avro import DELETED, EXISTING, ManifestFormat, added_entry, describe_manifest, encode_list, with_status
from lakebed.iceberg.metadata.metadata import COMMIT_ID, FORMAT, FORMAT_WRITTEN, GROUP, TRIGGER, UNRECORDED, make_snapshot, summary_of
from lakebed.iceberg.types.schemas import INSTANCE_COLUMN
from lakebed.registry.tables.serving import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from pyiceberg.table.metadata import TableMetadataV2
    from pyiceberg.table.snapshots import Snapshot

    from lakebed.iceberg.locations import MetadataFiles
    from lakebed.iceberg.manifests.avro import Entry, Manifest
    from lakebed.iceberg.manifests.cache import ManifestStore
    from lakebed.iceberg.manifests.data_file import DataFile

MOST_ADDED = 10_000  # entries in one new manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeLimits:
    """`merge_at` manifests that are not full are merged; no commit rewrites more than one full manifest in order to."""

    merge_at: int = 64
    full_files: int = 1_000
    full_bytes: int = 8 << 20


DEFAULT_LIMITS = MergeLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a table gains and loses; `is_rewrite` when all that led there is known to have kept the rows as they are."""

    added: tuple[DataFile, ...] = ()
    removed: frozenset[str] = frozenset()  # locations
    is_rewrite: bool = False
    group: int = 0
    trigger: str = UNRECORDED
    schema_version: int = 1  # of the registry: Iceberg numbers its schemas by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestPlan:
    """What becomes of the manifests of the parent snapshot."""

    kept: tuple[Manifest, ...]
    rewritten: tuple[Manifest, ...]
    merged: tuple[Manifest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A snapshot whose files all lie there, waiting for the metadata that will name it."""

    snapshot: Snapshot
    manifests: tuple[Manifest, ...]
    added: int
    removed: int


@dataclass(slots=True)
class _Sums:
    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    partitions: set[str] = field(default_factory=set)

    def add(self, data_file: DataFile) -> None:
        self.files += 1
        self.rows += data_file["record_count"]
        self.size_bytes += data_file["file_size_in_bytes"]
        self.partitions.add(repr(data_file["partition"]))


def plan_manifests(
    manifests: Sequence[Manifest], touched: AbstractSet[str], *, spec_id: int, limits: MergeLimits = DEFAULT_LIMITS
) -> ManifestPlan:
    """Touched ones and those of another spec are rewritten; when many are small, a bounded portion of them is merged.

    Manifests that hold nothing any more are left behind.
    """
    live = [manifest for manifest in manifests if manifest.live_files]
    rewritten = tuple(m for m in live if m.manifest_path in touched or m.partition_spec_id != spec_id)
    rest = [m for m in live if m.manifest_path not in touched and m.partition_spec_id == spec_id]
    small = [m for m in rest if m.live_files < limits.full_files and m.manifest_length < limits.full_bytes]
    merged = _portion(small, limits) if len(small) >= limits.merge_at else ()
    chosen = {manifest.manifest_path for manifest in merged}
    return ManifestPlan(kept=tuple(m for m in rest if m.manifest_path not in chosen), rewritten=rewritten, merged=merged)


def _portion(small: Sequence[Manifest], limits: MergeLimits) -> tuple[Manifest, ...]:
    """The oldest ones, as many as one full manifest takes: a commit's work stays bounded however long the history is."""
    chosen: list[Manifest] = []
    files = size = 0
    for manifest in sorted(small, key=lambda m: m.sequence_number):
        files, size = files + manifest.live_files, size + manifest.manifest_length
        if chosen and (files > limits.full_files or size > limits.full_bytes):
            break
        chosen.append(manifest)
    return tuple(chosen) if len(chosen) > 1 else ()


def choose_operation(change: Change, *, added_rows: int, removed_rows: int) -> str:
    """`replace` promises readers that no row changed, so it is said only where that is known."""
    if not change.removed:
        return "append"
    if not change.added:
        return "delete"
    return "replace" if change.is_rewrite and added_rows == removed_rows else "overwrite"


@dataclass(slots=True)
class SnapshotWriter:
    """Writes the manifests, the list and the snapshot of one change on top of `metadata`, whose spec and schema it uses."""

    files: MetadataFiles
    store: ManifestStore
    form: ManifestFormat
    metadata: TableMetadataV2
    now_ms: int
    limits: MergeLimits = DEFAULT_LIMITS
    snapshot_id: int = field(default_factory=lambda: secrets.randbits(61) | 1 << 61)  # long, so that nobody takes it for a journal number
    commit_id: str = field(default_factory=lambda: str(new_uuid()))
    _number: int = 0

    def write(self, change: Change, *, table: str) -> Written:
        parent = self.metadata.current_snapshot()
        current = () if parent is None else self.store.load_list(parent.manifest_list)
        touched = self._find_touched(current, change.removed, table)
        plan = plan_manifests(current, touched, spec_id=self.form.partitioning.spec.spec_id, limits=self.limits)
        gained, lost = _Sums(), _Sums()
        made = self._write_added(change.added, gained)
        for manifest in plan.rewritten:
            made += self._write_entries(self._rewrite(manifest, change.removed, lost))
        if plan.merged:
            carried = (with_status(e, EXISTING, snapshot_id=0) for m in plan.merged for e in self.store.load_entries(m))
            made += self._write_entries(list(carried))
        manifests = (*made, *plan.kept)
        location = self._write_list(manifests, None if parent is None else parent.snapshot_id)
        operation = choose_operation(change, added_rows=gained.rows, removed_rows=lost.rows)
        summary = self._summarize(parent, change, gained, lost)
        snapshot = make_snapshot(
            self.metadata,
            snapshot_id=self.snapshot_id,
            manifest_list=location,
            now_ms=self.now_ms,
            operation=operation,
            summary=summary,
        )
        return Written(snapshot=snapshot, manifests=manifests, added=gained.files, removed=lost.files)

    def _find_touched(self, manifests: Sequence[Manifest], removed: frozenset[str], table: str) -> set[str]:
        """Locations of the manifests that hold what is removed; a file in none of them is drift."""
        left, touched = set(removed), set()
        for manifest in manifests:
            if not left:
                break
            if manifest.live_files and (found := left & self.store.load_paths(manifest)):
                touched.add(manifest.manifest_path)
                left -= found
        if left:
            raise IcebergDriftError(table, problem=f"{len(left)} files to remove are in no manifest, {from_uri(min(left))} among them")
        return touched

    def _write_added(self, added: Sequence[DataFile], sums: _Sums) -> tuple[Manifest, ...]:
        for data_file in added:
            sums.add(data_file)
        entries = [added_entry(data_file, self.snapshot_id) for data_file in added]
        return self._write_entries(entries)

    def _rewrite(self, manifest: Manifest, removed: frozenset[str], sums: _Sums) -> list[Entry]:
        entries: list[Entry] = []
        is_respecced = manifest.partition_spec_id != self.form.partitioning.spec.spec_id
        for entry in self.store.load_entries(manifest):
            data_file = entry["data_file"]
            if is_respecced:
                data_file["partition"].setdefault(INSTANCE_COLUMN, GLOBAL_INSTANCE)
            is_gone = data_file["file_path"] in removed
            if is_gone:
                sums.add(data_file)
            entries.append(with_status(entry, DELETED if is_gone else EXISTING, snapshot_id=self.snapshot_id))
        return entries

    def _write_entries(self, entries: Sequence[Entry]) -> tuple[Manifest, ...]:
        return tuple(self._write_manifest(entries[start : start + MOST_ADDED]) for start in range(0, len(entries), MOST_ADDED))

    def _write_manifest(self, entries: Sequence[Entry]) -> Manifest:
        content = self.form.encode(entries)
        location = self.files.write(f"{self.commit_id}-m{self._number}.avro", content)
        self._number += 1
        self.store.remember_paths(location, _live_paths(entries))
        return describe_manifest(
            self.form,
            entries,
            location=location,
            length=len(content),
            snapshot_id=self.snapshot_id,
            sequence_number=self.metadata.last_sequence_number + 1,
        )

    def _write_list(self, manifests: tuple[Manifest, ...], parent_id: int | None) -> str:
        sequence = self.metadata.last_sequence_number + 1
        content = encode_list(manifests, snapshot_id=self.snapshot_id, parent_id=parent_id, sequence_number=sequence)
        location = self.files.write(f"snap-{self.snapshot_id}-0-{self.commit_id}.avro", content)
        self.store.remember_list(location, manifests)
        return location

    def _summarize(self, parent: Snapshot | None, change: Change, gained: _Sums, lost: _Sums) -> dict[str, str]:
        before = {} if parent is None else summary_of(parent)
        numbers = {
            "added-data-files": gained.files,
            "added-records": gained.rows,
            "added-files-size": gained.size_bytes,
            "deleted-data-files": lost.files,
            "deleted-records": lost.rows,
            "removed-files-size": lost.size_bytes,
            "changed-partition-count": len(gained.partitions | lost.partitions),
        }
        totals = {
            "total-data-files": int(before.get("total-data-files", 0)) + gained.files - lost.files,
            "total-records": int(before.get("total-records", 0)) + gained.rows - lost.rows,
            "total-files-size": int(before.get("total-files-size", 0)) + gained.size_bytes - lost.size_bytes,
            "total-delete-files": 0,
            "total-position-deletes": 0,
            "total-equality-deletes": 0,
        }
        told = {key: str(value) for key, value in numbers.items() if value} | {key: str(value) for key, value in totals.items()}
        ours = {GROUP: str(change.group), COMMIT_ID: self.commit_id, SCHEMA_VERSION: str(change.schema_version), FORMAT: FORMAT_WRITTEN}
        return {**told, **ours, TRIGGER: change.trigger}


def _live_paths(entries: Iterable[Entry]) -> list[str]:
    return [entry["data_file"]["file_path"] for entry in entries if entry["status"] != DELETED]
