"""An Iceberg table as its files describe it: catalog pointer, metadata, manifest lists, manifests. Read with libraries that the writer does not use."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro

from lakebed.core.errors import FileMissingError, LakebedError, PathRefusedError
from lakebed.storage.locations import find_path, find_paths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from lakebed.check.scan import Scan
    from lakebed.storage.protocol import Storage

_POINTERS = "SELECT catalog_name, table_namespace, table_name, metadata_location FROM iceberg_tables ORDER BY 1, 2, 3"
_OWN_CATALOG = "lakebed"
_THERE = "SELECT 1 FROM information_schema.tables WHERE table_schema = current_schema() AND table_name = 'iceberg_tables'"
_DELETED = 2
_ANY_SNAPSHOT: dict[str, type] = {"snapshot-id": int, "manifest-list": str}
_OUR_SNAPSHOT: dict[str, type] = {**_ANY_SNAPSHOT, "sequence-number": int, "timestamp-ms": int, "summary": dict}
_TOTALS = ("total-records", "total-data-files", "total-files-size", "lakebed.group")
_GZIP_MAGIC = b"\x1f\x8b"
_UNREADABLE = (ValueError, KeyError, TypeError, IndexError, EOFError, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """A row of the catalog's tables; `is_own` unless it belongs to another catalog in the same database."""

    table: str
    is_own: bool
    location: str | None


class TreeError(Exception):
    """Inside the checker only: a part of the tree that cannot be read, and why."""

    def __init__(self, location: str, reason: str) -> None:
        super().__init__(reason)
        self.location, self.reason = location, reason


@dataclass(frozen=True, slots=True)
class Entry:
    """One data file of a manifest."""

    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    live: dict[str, Entry]
    deleted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a manifest list."""

    path: str
    added_by: int


@dataclass(slots=True)
class Tree:
    """Everything below one metadata file; manifests are read once, however many snapshots share them."""

    storage: Storage
    location: str
    metadata: dict[str, Any]
    manifests: dict[str, Manifest] = field(default_factory=dict)
    lists: dict[str, list[Line]] = field(default_factory=dict)

    @property
    def snapshots(self) -> list[dict[str, Any]]:
        return list(self.metadata.get("snapshots", []))

    @property
    def current(self) -> dict[str, Any] | None:
        wanted = self.metadata.get("current-snapshot-id")
        return next((s for s in self.snapshots if s["snapshot-id"] == wanted), None)

    @property
    def group(self) -> int:
        return int(self.properties.get("lakebed.committed-group", 0))

    @property
    def properties(self) -> dict[str, str]:
        return dict(self.metadata.get("properties") or {})

    @property
    def is_ours(self) -> bool:
        """Whether Lakebed made the table, and its current snapshot for the group that the table names."""
        if self.current is None:
            return "lakebed.table-id" in self.properties and self.group == 0
        summary = self.current.get("summary", {})
        return "lakebed.commit-id" in summary and summary.get("lakebed.group") == self.properties.get("lakebed.committed-group")

    def files_of(self, snapshot: dict[str, Any]) -> dict[str, Entry]:
        """Path (as the registry spells it) -> what the manifests say of it."""
        found: dict[str, Entry] = {}
        for manifest in self._manifests_of(snapshot):
            found.update(manifest.live)
        return found

    def count_entries(self, snapshot: dict[str, Any]) -> int:
        return sum(len(manifest.live) for manifest in self._manifests_of(snapshot))

    def list_reachable(self) -> Iterator[str]:
        """Every metadata file that some kept snapshot, or the log, still names."""
        yield self.location
        for entry in self.metadata.get("metadata-log", []):
            yield from find_paths(self.storage, entry["metadata-file"])
        for path in self.list_statistics():
            yield from find_paths(self.storage, path)
        for snapshot in self.snapshots:
            yield from find_paths(self.storage, snapshot["manifest-list"])
            yield from (line.path for line in self._list_of(self._list_path(snapshot)))

    def list_statistics(self) -> list[str]:
        """Locations of the statistics files that the metadata names."""
        return [file["statistics-path"] for kind in ("statistics", "partition-statistics") for file in self.metadata.get(kind) or []]

    def list_foreign_files(self, ours: AbstractSet[int]) -> Iterator[str]:
        """Data and delete files of kept snapshots in manifests that neither Lakebed nor the snapshots `ours` added; they may repeat."""
        known = ours | {s["snapshot-id"] for s in self.snapshots if "lakebed.commit-id" in s.get("summary", {})}
        lines = {line.path: line for snapshot in self.snapshots for line in self._list_of(self._list_path(snapshot))}
        for line in lines.values():
            if line.added_by not in known:
                yield from self._manifest(line).live

    def _manifests_of(self, snapshot: dict[str, Any]) -> Iterator[Manifest]:
        return map(self._manifest, self._list_of(self._list_path(snapshot)))

    def _manifest(self, line: Line) -> Manifest:
        if line.path not in self.manifests:
            self.manifests[line.path] = _read_manifest(self.storage, line.path)
        return self.manifests[line.path]

    def _list_path(self, snapshot: dict[str, Any]) -> str:
        if "manifest-list" not in snapshot:
            raise TreeError(self.location, f"its snapshot {snapshot.get('snapshot-id')} names no manifest list")
        return to_path(self.storage, snapshot["manifest-list"])

    def _list_of(self, path: str) -> list[Line]:
        if path not in self.lists:
            rows = _read_avro(self.storage, path)
            for row in rows:
                _require_length(self.storage, row)
            self.lists[path] = [Line(path=to_path(self.storage, row["manifest_path"]), added_by=row["added_snapshot_id"]) for row in rows]
        return self.lists[path]


def list_pointers(scan: Scan) -> list[Pointer]:
    """Every row of every catalog in the catalog's database; empty where there is no catalog yet."""
    if scan.dialect == "postgresql":
        rows = scan.query(_POINTERS, None) if scan.query(_THERE, None) else []
    else:
        rows = _read_sqlite(Path(scan.catalog_url.removeprefix("sqlite:///")))
    storage = scan.require_storage()
    return [
        Pointer(
            table=f"{namespace}.{name}",
            is_own=catalog == _OWN_CATALOG,
            location=None if location is None else to_path(storage, location),
        )
        for catalog, namespace, name, location in rows
    ]


def read_pointers(scan: Scan) -> dict[str, str | None]:
    """Table name -> the metadata file that Lakebed's own catalog names."""
    return {pointer.table: pointer.location for pointer in list_pointers(scan) if pointer.is_own}


def read_tree(storage: Storage, location: str) -> Tree:
    """A table of Lakebed's format version."""
    tree = read_any_tree(storage, location)
    if tree.metadata.get("format-version") != 2:  # noqa: PLR2004 - Iceberg v2
        raise TreeError(location, "it is not Iceberg metadata of version 2")
    _require_shape(tree, _OUR_SNAPSHOT)
    return tree


def _require_shape(tree: Tree, wanted: dict[str, type]) -> None:
    """The parts that the rules read, each of its kind: a rule must not fail on them, whichever program wrote them."""
    properties = tree.metadata.get("properties", {})
    if not isinstance(properties, dict) or not _is_count(properties.get("lakebed.committed-group", "0")):
        raise TreeError(tree.location, "its properties are not valid")
    snapshots = tree.metadata.get("snapshots", [])
    for snapshot in snapshots if isinstance(snapshots, list) else [snapshots]:
        if wrong := _list_wrong(snapshot, wanted):
            raise TreeError(tree.location, f"a snapshot in it has no valid {', '.join(wrong)}")


def _list_wrong(snapshot: Any, wanted: dict[str, type]) -> list[str]:
    if not isinstance(snapshot, dict):
        return ["content"]
    wrong = [key for key, kind in wanted.items() if not isinstance(snapshot.get(key), kind)]
    summary = snapshot.get("summary", {})
    if not isinstance(summary, dict):
        return sorted({*wrong, "summary"})
    return wrong + [key for key in _TOTALS if not _is_count(summary.get(key, "0"))]


def _is_count(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isdigit()


def read_any_tree(storage: Storage, location: str) -> Tree:
    """Of any table, whichever program made it."""
    try:
        content = _read(storage, location)
        text = gzip.decompress(content) if content.startswith(_GZIP_MAGIC) else content
        metadata = json.loads(text)
        if not isinstance(metadata, dict) or not metadata.get("format-version") or not metadata.get("table-uuid"):
            raise TreeError(location, "it is not Iceberg metadata")
    except _UNREADABLE as exc:
        raise TreeError(location, f"it cannot be read: {exc}") from exc
    tree = Tree(storage, location, metadata)
    _require_shape(tree, _ANY_SNAPSHOT)
    return tree


def to_path(storage: Storage, location: str) -> str:
    """As the registry would spell it; what cannot be a path at all stays as it is, and no storage will open it."""
    try:
        return find_path(storage, location)
    except PathRefusedError:
        return location


def _read_sqlite(path: Path) -> list[tuple[Any, ...]]:
    if not path.name or not path.exists():
        return []
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'iceberg_tables'").fetchone():
            return []
        return connection.execute(_POINTERS).fetchall()


def _read(storage: Storage, path: str) -> bytes:
    try:
        with storage.open_input(path) as source:
            return source.read()
    except FileMissingError as exc:
        raise TreeError(path, "it is not there") from exc
    except LakebedError as exc:
        raise TreeError(path, str(exc)) from exc


def _read_avro(storage: Storage, path: str) -> list[dict[str, Any]]:
    content = _read(storage, path)
    try:
        return [row for row in fastavro.reader(io.BytesIO(content)) if isinstance(row, dict)]
    except _UNREADABLE as exc:
        raise TreeError(path, f"it is not an Avro file: {exc}") from exc


def _require_length(storage: Storage, row: dict[str, Any]) -> None:
    path = to_path(storage, row["manifest_path"])
    try:
        size = storage.stat(path).size_bytes
    except FileMissingError as exc:
        raise TreeError(path, "it is not there") from exc
    if size != row["manifest_length"]:
        raise TreeError(path, f"it has {size} bytes, its manifest list says {row['manifest_length']}")


def _read_manifest(storage: Storage, path: str) -> Manifest:
    live: dict[str, Entry] = {}
    deleted = 0
    for row in _read_avro(storage, path):
        data = row["data_file"]
        if row["status"] == _DELETED:
            deleted += 1
        else:
            live[to_path(storage, data["file_path"])] = Entry(rows=data["record_count"], size_bytes=data["file_size_in_bytes"])
    return Manifest(live=live, deleted=deleted)
