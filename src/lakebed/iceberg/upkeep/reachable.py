"""Which files the catalog's pointers reach, no matter which program wrote them; what cannot be read is never given up."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from lakebed.core.errors import CorruptionError, FileChangedError, FileMissingError, PathRefusedError
from lakebed.core.files import Needed, SkippedTable
from lakebed.core.names import TableName
from lakebed.iceberg.catalog import CATALOG_NAME, looking_at_catalog
from lakebed.iceberg.locations import from_uri, read_metadata_text
from lakebed.iceberg.manifests.cache import ManifestStore
from lakebed.iceberg.metadata.metadata import COMMIT_ID, TABLE_ID, is_ours, parse_metadata
from lakebed.registry.files.known_paths import has_files, list_unregistered
from lakebed.registry.snapshots.history import list_ids_with
from lakebed.registry.tables.lake_tables import list_all_tables
from lakebed.storage.locations import find_paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from lakebed.core.rows import Tables
    from lakebed.iceberg.catalog import NamedPointer
    from lakebed.iceberg.manifests.avro import Manifest
    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import FileFacts, Storage

_BATCH = 1000
_UNREADABLE = (FileMissingError, CorruptionError, PathRefusedError)


def find_needed(registry: Registry, storage: Storage) -> Needed:
    """As of now: a commit that is under way is not among it, which is why only old files may be swept.

    Registered data files are left out: the registry itself knows them.
    """
    with looking_at_catalog(registry, storage) as catalog:
        pointers = [] if catalog is None else catalog.list_pointers()
    reach = _Reach(registry, storage, {table.id: table for table in list_all_tables(registry)})
    for pointer in pointers:
        reach.follow(pointer)
    reach.keep_lost({pointer.table for pointer in pointers if pointer.catalog == CATALOG_NAME and pointer.location is not None})
    return Needed(paths=frozenset(reach.paths), unsure=tuple(reach.unsure), skipped=tuple(reach.skipped))


@dataclass(slots=True)
class _Reach:
    registry: Registry
    storage: Storage
    tables: dict[int, Tables]
    paths: set[str] = field(default_factory=set)
    unsure: list[str] = field(default_factory=list)
    skipped: list[SkippedTable] = field(default_factory=list)

    def follow(self, pointer: NamedPointer) -> None:
        """Everything below one row of the catalog; rows of other programs count too, as far as their files are in the warehouse."""
        if pointer.location is None:
            return
        own = self._find_table(pointer)
        try:
            root = read_root(self.storage, pointer.location)
            self._take(root, own)
        except _UNREADABLE as exc:
            self._skip(pointer, own, None, f"what its pointer reaches cannot be read ({exc}): `lakebed check` names it")
        else:
            self._judge(pointer, root, own)

    def keep_lost(self, pointed: set[str]) -> None:
        """A table without a pointer: it is lost, or readers that opened the table before it was dropped still read its metadata."""
        for table in self.tables.values():
            name = TableName(table.database, table.name)
            if not table.committed_group or (table.dropped_at is None and str(name) in pointed):
                continue
            if table.dropped_at is None:
                self.unsure.append(self._directory(table))
                self.skipped.append(SkippedTable(table=str(name), reason="the catalog has no pointer to it: run `lakebed repair`"))
            elif has_files(self.registry, table.id):
                self.unsure.append(self.storage.paths.metadata_directory(table.id, name) + "/")

    def _find_table(self, pointer: NamedPointer) -> Tables | None:
        found = (t for t in self.tables.values() if t.dropped_at is None and f"{t.database}.{t.name}" == pointer.table)
        return next(found, None) if pointer.catalog == CATALOG_NAME else None

    def _take(self, root: Root, own: Tables | None) -> None:
        store = ManifestStore(self.storage)
        self.paths |= list_reachable(self.storage, store, root)
        ours = set() if own is None else root.committed_by_us | list_ids_with(self.registry, own.id, COMMIT_ID)
        files = list_data_files(self.storage, store, root, ours=ours)
        while batch := list(islice(files, _BATCH)):
            self.paths |= list_unregistered(self.registry, batch)

    def _judge(self, pointer: NamedPointer, root: Root, own: Tables | None) -> None:
        if own is not None and not self._is_ours(root, own):
            repair = f"`lakebed repair {pointer.table} --how adopt_foreign` or `--how discard_foreign`"
            self._skip(pointer, own, root, f"another program committed to it: {repair} settles that")
        elif own is None and root.properties.get(TABLE_ID) not in {str(table_id) for table_id in self.tables}:
            self._skip(pointer, own, root, "it is in the catalog but not in the registry: its files belong to the program that made it")

    def _is_ours(self, root: Root, own: Tables) -> bool:
        try:
            metadata = parse_metadata(read_metadata_text(self.storage, root.location), root.location)
        except CorruptionError:  # of another format version, for example
            return False
        return metadata.properties.get(TABLE_ID) == str(own.id) and is_ours(metadata)

    def _skip(self, pointer: NamedPointer, own: Tables | None, root: Root | None, reason: str) -> None:
        directories = [] if own is None else [self._directory(own)]
        for location in (_guess_directory(pointer.location or ""), None if root is None else root.metadata.get("location")):
            directories += [f"{path}/" for path in find_paths(self.storage, str(location))]
        if directories:
            self.unsure += directories
            self.skipped.append(SkippedTable(table=pointer.table, reason=reason))

    def _directory(self, table: Tables) -> str:
        return self.storage.paths.table_directory(table.id, TableName(table.database, table.name)) + "/"


def _guess_directory(location: str) -> str:
    """Of a table whose metadata is at `location`: metadata is in a directory of its own beside the data."""
    parent, _, name = location.rpartition("/")[0].rpartition("/")
    return parent if name == "metadata" else f"{parent}/{name}"


_STATISTICS = ("statistics", "partition-statistics")
_NOT_ICEBERG = (ValueError, KeyError, TypeError, AttributeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """A metadata file, from which everything else that a table needs is reached."""

    location: str
    metadata: Mapping[str, Any]

    @property
    def properties(self) -> Mapping[str, str]:
        return dict(self.metadata.get("properties") or {})

    @property
    def snapshots(self) -> list[Mapping[str, Any]]:
        return list(self.metadata.get("snapshots") or ())

    @property
    def committed_by_us(self) -> set[int]:
        return {snapshot["snapshot-id"] for snapshot in self.snapshots if COMMIT_ID in snapshot.get("summary", {})}


def read_root(storage: Storage, location: str) -> Root:
    text = read_metadata_text(storage, location)
    with _readable(location):
        return Root(location=location, metadata=dict(json.loads(text)))


def list_reachable(storage: Storage, store: ManifestStore, root: Root) -> set[str]:
    """Every metadata file that the table needs: its own, those in its log, statistics, and all lists and manifests of kept snapshots."""
    with _readable(root.location):
        return {path for location in _list_locations(store, root) for path in find_paths(storage, location)}


def list_data_files(storage: Storage, store: ManifestStore, root: Root, *, ours: AbstractSet[int]) -> Iterator[str]:
    """Data and delete files of kept snapshots, except those in manifests that the snapshots `ours` added: these are registered."""
    with _readable(root.location):
        for manifest in _list_manifests(store, root):
            if manifest.added_snapshot_id not in ours:
                for location in store.load_paths(manifest):
                    yield from find_paths(storage, location)


def list_leftovers(files: Iterable[FileFacts], *, reachable: set[str], queued: set[str], before_us: int) -> list[str]:
    """Old enough, named by nothing, and not on their way out already."""
    return sorted(f.path for f in files if f.modified_micros <= before_us and f.path not in reachable and f.path not in queued)


def _list_locations(store: ManifestStore, root: Root) -> Iterator[str]:
    yield root.location
    yield from (entry["metadata-file"] for entry in root.metadata.get("metadata-log") or ())
    yield from (file["statistics-path"] for kind in _STATISTICS for file in root.metadata.get(kind) or ())
    yield from (snapshot["manifest-list"] for snapshot in root.snapshots)
    yield from (manifest.manifest_path for manifest in _list_manifests(store, root))


def _list_manifests(store: ManifestStore, root: Root) -> Iterator[Manifest]:
    """Each once, however many snapshots share it."""
    seen: set[str] = set()
    for snapshot in root.snapshots:
        for manifest in store.load_list(snapshot["manifest-list"]):
            if manifest.manifest_path not in seen:
                seen.add(manifest.manifest_path)
                yield manifest


@contextmanager
def _readable(location: str) -> Iterator[None]:
    """Whatever another program wrote there instead of metadata that can be followed."""
    try:
        yield
    except _NOT_ICEBERG as exc:
        raise FileChangedError(
            from_uri(location), reason="it, or a file that it names, is not Iceberg metadata that can be followed"
        ) from exc
