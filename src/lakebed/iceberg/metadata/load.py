"""Finding a table's metadata behind its pointer; making it, or bringing it back, where it is not there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.core.errors import CorruptionError, FileMissingError, ForeignCommitError, LeaseLostError
from lakebed.iceberg.locations import MetadataFiles, parse_version, read_metadata_text, to_uri
from lakebed.iceberg.manifests.avro import ManifestFormat
from lakebed.iceberg.manifests.cache import BoundedCache
from lakebed.iceberg.metadata.metadata import (
    FORMAT_VERSION,
    TABLE_ID,
    create_metadata,
    find_format_version,
    parse_metadata,
    without_snapshots,
)
from lakebed.iceberg.metadata.ownership import belongs, complete, read_written
from lakebed.registry.snapshots.history import list_snapshots

if TYPE_CHECKING:
    from pyiceberg.schema import Schema as IcebergSchema
    from pyiceberg.table.metadata import TableMetadataV2

    from lakebed.core.names import TableName
    from lakebed.iceberg.catalog import LakeCatalog
    from lakebed.iceberg.metadata.state import TableState
    from lakebed.iceberg.types.partitions import Partitioning
    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import Storage

_MAX_SNAPSHOTS = 50_000  # in remembered metadata, over all tables
_MAX_FORMS = 256
_MOST_TRIED = 3
_BROKEN = (FileMissingError, CorruptionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A table's metadata and its location: what a commit is built on."""

    metadata: TableMetadataV2
    location: str


class TableOpener:
    """Pointers are read each time, metadata files once: they never change, so nothing here is ever stale.

    Of each table the newest metadata is kept, with the texts of the snapshots that it names: what a commit leaves behind goes with it.
    """

    def __init__(self, registry: Registry, storage: Storage, catalog: LakeCatalog) -> None:
        self._registry, self._storage, self._catalog = registry, storage, catalog
        self._newest: BoundedCache[Base] = BoundedCache(_MAX_SNAPSHOTS)  # by the directory of the metadata
        self._texts: BoundedCache[dict[int, str]] = BoundedCache(_MAX_SNAPSHOTS)  # by the table's uuid
        self._forms: BoundedCache[ManifestFormat] = BoundedCache(_MAX_FORMS)

    def find(self, name: TableName) -> Base | None:
        """The table as the catalog has it; None where there is none. A pointer to nothing raises."""
        pointer = self._catalog.find_pointer(name)
        if pointer is None or pointer.location is None:
            return None
        return Base(metadata=self.load(pointer.location), location=pointer.location)

    def find_intact(self, name: TableName, table_id: int) -> Base | None:
        """The same for this very table; None when it must be made or brought back first."""
        try:
            base = self.find(name)
        except _BROKEN:
            self._require_format(name)
            return None
        if base is not None and TABLE_ID not in base.metadata.properties and read_written(base.metadata) is None:
            raise ForeignCommitError(str(name), snapshot_id=None, location=base.location)
        return base if base is not None and belongs(base.metadata, table_id) else None

    def restore(self, state: TableState, *, epoch: int) -> Base:
        """The newest metadata that can still be read, without what was expired since; a new table where there is none."""
        pointer = self._catalog.find_pointer(state.name)
        rows = list_snapshots(self._registry, state.table_id)
        candidates = [pointer.previous] if pointer is not None and pointer.previous else []
        candidates += [to_uri(row.metadata_location) for row in reversed(rows[-_MOST_TRIED:])]
        kept = {row.snapshot_id for row in rows}
        gone = {row.snapshot_id for row in list_snapshots(self._registry, state.table_id, expired=True)} - kept
        for location in candidates:
            metadata = self._try_load(location)
            if metadata is None or not belongs(metadata, state.table_id) or metadata.current_snapshot_id not in kept:
                continue
            return self._publish(state, without_snapshots(metadata, gone), parse_version(location) + 1, epoch=epoch, over=True)
        return self.create(state, epoch=epoch, over=pointer is not None or bool(rows))

    def create(self, state: TableState, *, epoch: int, over: bool = False) -> Base:
        """An empty table; `over` takes the place of whatever the pointer says. Sequence numbers go on where they stood."""
        metadata = complete(create_metadata(state.wanted, now_ms=self._registry.now() // 1000), state.wanted.requested)
        rows = list_snapshots(self._registry, state.table_id, expired=True) if over else []
        last = max((row.sequence_number for row in rows), default=0)
        return self._publish(state, metadata.model_copy(update={"last_sequence_number": last}), 0, epoch=epoch, over=over)

    def load(self, location: str) -> TableMetadataV2:
        known = self._newest.find(_directory_of(location))
        if known is not None and known.location == location:
            return known.metadata
        metadata = parse_metadata(read_metadata_text(self._storage, location), location)
        self.remember(location, metadata)
        return metadata

    def remember(self, location: str, metadata: TableMetadataV2) -> None:
        self._newest.put(_directory_of(location), Base(metadata=metadata, location=location), 1 + len(metadata.snapshots))

    def dump(self, metadata: TableMetadataV2) -> str:
        """The text of a metadata file. A snapshot's own text is made once: with a long history it is nearly all there is to write."""
        head = metadata.model_dump_json(exclude={"snapshots"}).removesuffix("}")
        known = self._texts.find(str(metadata.table_uuid)) or {}
        texts = {s.snapshot_id: known.get(s.snapshot_id) or s.model_dump_json() for s in metadata.snapshots}
        self._texts.put(str(metadata.table_uuid), texts, len(texts))
        return f'{head},"snapshots":[{",".join(texts[s.snapshot_id] for s in metadata.snapshots)}]}}'

    def form(self, partitioning: Partitioning, schema: IcebergSchema) -> ManifestFormat:
        key = f"{partitioning.spec.model_dump_json()}{schema.model_dump_json()}"
        return self._forms.load(key, lambda: (ManifestFormat.of(partitioning, schema), 1))

    def _publish(self, state: TableState, metadata: TableMetadataV2, version: int, *, epoch: int, over: bool) -> Base:
        directory = self._storage.paths.metadata_directory(state.table_id, state.name)
        location = MetadataFiles(self._storage, directory, {}).write_metadata(version, self.dump(metadata))
        if not self._catalog.swap(state.name, old=None, new=location, epoch=epoch, force=over):
            raise LeaseLostError(f"iceberg/{state.name}", epoch=epoch)
        self.remember(location, metadata)
        return Base(metadata=metadata, location=location)

    def _require_format(self, name: TableName) -> None:
        """Raises when the pointer names metadata of another format version: that is not damage but another program's work."""
        pointer = self._catalog.find_pointer(name)
        version = None if pointer is None or pointer.location is None else self._find_format(pointer.location)
        if pointer is not None and version not in {None, FORMAT_VERSION}:
            raise ForeignCommitError(str(name), snapshot_id=None, location=str(pointer.location), changed=("format version",))

    def _find_format(self, location: str) -> int | None:
        try:
            return find_format_version(read_metadata_text(self._storage, location))
        except (*_BROKEN, UnicodeDecodeError):
            return None

    def _try_load(self, location: str) -> TableMetadataV2 | None:
        try:
            return self.load(location)
        except _BROKEN:
            return None


def read_first_rows(location: str, rows: int) -> list[dict[str, Any]]:
    """The first rows of a table as PyIceberg reads them, by the location of its metadata."""
    from pyiceberg.table import StaticTable  # noqa: PLC0415 - a committer does not need it

    found: list[dict[str, Any]] = StaticTable.from_metadata(location).scan(limit=rows).to_arrow().to_pylist()
    return found


def _directory_of(location: str) -> str:
    return location.rpartition("/")[0]
