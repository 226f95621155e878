"""One step of a table's history: its manifests, their list, and the snapshot that names it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakebed.core.errors import IcebergDriftError
from lakebed.iceberg.commit.merging import DEFAULT_LIMITS, MergeLimits, plan_manifests
from lakebed.iceberg.commit.removal import Removals, RemovalSearch
from lakebed.iceberg.locations import new_uuid
from lakebed.iceberg.manifests.avro import ManifestFormat, encode_list
from lakebed.iceberg.manifests.carry import carry
from lakebed.iceberg.manifests.writer import ManifestWriter
from lakebed.iceberg.metadata.metadata import COMMIT_ID, FORMAT, FORMAT_WRITTEN, GROUP, TRIGGER, UNRECORDED, make_snapshot, summary_of
from lakebed.registry.tables.serving import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyiceberg.table.metadata import TableMetadataV2
    from pyiceberg.table.snapshots import Snapshot

    from lakebed.iceberg.locations import MetadataFiles
    from lakebed.iceberg.manifests.avro import Manifest
    from lakebed.iceberg.manifests.cache import ManifestStore
    from lakebed.iceberg.manifests.data_file import DataFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a table gains and loses; `is_rewrite` when all that led there is known to have kept the rows as they are."""

    added: Iterable[tuple[int, DataFile]] = ()  # by file ids, which rise; read once, as the manifests are written
    removed: Removals = field(default_factory=Removals)
    is_rewrite: bool = False
    group: int = 0
    trigger: str = UNRECORDED
    schema_version: int = 1  # of the registry: Iceberg numbers its schemas by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A snapshot whose files are all written; the metadata that names it is not."""

    snapshot: Snapshot
    manifests: tuple[Manifest, ...]
    added: int
    removed: int


@dataclass(slots=True)
class Sums:
    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    partitions: set[str] = field(default_factory=set)

    def add(self, data_file: DataFile) -> None:
        self.files += 1
        self.rows += data_file["record_count"]
        self.size_bytes += data_file["file_size_in_bytes"]
        self.partitions.add(repr(data_file["partition"]))


def choose_operation(gained: Sums, lost: Sums, *, is_rewrite: bool) -> str:
    """`replace` promises readers that no row changed, so it is said only where that is known."""
    if not lost.files:
        return "append"
    if not gained.files:
        return "delete"
    return "replace" if is_rewrite and gained.rows == lost.rows else "overwrite"


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
        search = RemovalSearch(removals=change.removed, form=self.form, store=self.store)
        search.run(current, table=table)
        plan = plan_manifests(search.improve(current), search.touched, spec_id=self.form.spec_id, limits=self.limits)
        gained, lost = Sums(), Sums()
        made = [*self._write_added(change.added, gained), *(self._rewrite(m, search.locations_in(m), lost) for m in plan.rewritten)]
        if lost.files != search.files_found:
            raise IcebergDriftError(table, problem=f"{search.files_found} files were found to remove, and {lost.files} were removed")
        if plan.merged:
            made.append(self._merge(plan.merged))
        manifests = (*made, *plan.kept)
        location = self._write_list(manifests, None if parent is None else parent.snapshot_id)
        snapshot = make_snapshot(
            self.metadata,
            snapshot_id=self.snapshot_id,
            manifest_list=location,
            now_ms=self.now_ms,
            operation=choose_operation(gained, lost, is_rewrite=change.is_rewrite),
            summary=self._summarize(parent, change, gained, lost),
        )
        return Written(snapshot=snapshot, manifests=manifests, added=gained.files, removed=lost.files)

    def _write_added(self, added: Iterable[tuple[int, DataFile]], sums: Sums) -> Iterator[Manifest]:
        """One manifest after the other: what was described before is not held any more."""
        writer = self._start()
        for file_id, data_file in added:
            sums.add(data_file)
            writer.add(file_id, data_file)
            if writer.entries >= self.limits.full_files or writer.packed_bytes >= self.limits.full_bytes:
                yield self._finish(writer)
                writer = self._start()
        if writer.entries:
            yield self._finish(writer)

    def _rewrite(self, manifest: Manifest, removed: frozenset[str], sums: Sums) -> Manifest:
        writer = self._start()
        for entry in carry(writer, manifest, self.store.read(manifest), gone=removed):
            sums.add(entry["data_file"])
        return self._finish(writer)

    def _merge(self, manifests: Iterable[Manifest]) -> Manifest:
        writer = self._start()
        for manifest in manifests:
            carry(writer, manifest, self.store.read(manifest))
        return self._finish(writer)

    def _start(self) -> ManifestWriter:
        return ManifestWriter(self.form, snapshot_id=self.snapshot_id, sequence_number=self.metadata.last_sequence_number + 1)

    def _finish(self, writer: ManifestWriter) -> Manifest:
        content = writer.encode()
        location = self.files.write(f"{self.commit_id}-m{self._number}.avro", content)
        self._number += 1
        return writer.describe(location=location, length=len(content))

    def _write_list(self, manifests: tuple[Manifest, ...], parent_id: int | None) -> str:
        sequence = self.metadata.last_sequence_number + 1
        content = encode_list(manifests, snapshot_id=self.snapshot_id, parent_id=parent_id, sequence_number=sequence)
        location = self.files.write(f"snap-{self.snapshot_id}-0-{self.commit_id}.avro", content)
        self.store.remember_list(location, manifests)
        return location

    def _summarize(self, parent: Snapshot | None, change: Change, gained: Sums, lost: Sums) -> dict[str, str]:
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
