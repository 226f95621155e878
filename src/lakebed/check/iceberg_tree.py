"""An Iceberg table as its files tell it: catalog pointer, metadata, manifest lists, manifests. Read with libraries that the writer does not use."""

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

from lakebed.core.errors import FileMissingError, LakebedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.check.scan import Scan
    from lakebed.storage.access import Storage

_POINTERS = "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables WHERE catalog_name = 'lakebed'"
_THERE = "SELECT 1 FROM information_schema.tables WHERE table_schema = current_schema() AND table_name = 'iceberg_tables'"
_DELETED = 2
_UNREADABLE = (ValueError, KeyError, TypeError, IndexError, EOFError, OSError)


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


@dataclass(slots=True)
class Tree:
    """Everything below one metadata file; manifests are read once, however many snapshots share them."""

    storage: Storage
    location: str
    metadata: dict[str, Any]
    manifests: dict[str, Manifest] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)

    @property
    def snapshots(self) -> list[dict[str, Any]]:
        return list(self.metadata.get("snapshots", []))

    @property
    def current(self) -> dict[str, Any] | None:
        wanted = self.metadata.get("current-snapshot-id")
        return next((s for s in self.snapshots if s["snapshot-id"] == wanted), None)

    @property
    def group(self) -> int:
        return int(self.metadata.get("properties", {}).get("lakebed.committed-group", 0))

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
            yield to_path(entry["metadata-file"])
        for snapshot in self.snapshots:
            manifest_list = to_path(snapshot["manifest-list"])
            yield manifest_list
            yield from self._list_of(manifest_list)

    def _manifests_of(self, snapshot: dict[str, Any]) -> Iterator[Manifest]:
        for path in self._list_of(to_path(snapshot["manifest-list"])):
            if path not in self.manifests:
                self.manifests[path] = _read_manifest(self.storage, path)
            yield self.manifests[path]

    def _list_of(self, path: str) -> list[str]:
        if path not in self.lists:
            rows = _read_avro(self.storage, path)
            for row in rows:
                _require_length(self.storage, row)
            self.lists[path] = [to_path(row["manifest_path"]) for row in rows]
        return self.lists[path]


def read_pointers(scan: Scan) -> dict[str, str | None]:
    """Table name -> the metadata file that the catalog names; empty where there is no catalog yet."""
    if scan.dialect == "postgresql":
        rows = scan.query(_POINTERS, None) if scan.query(_THERE, None) else []
    else:
        rows = _read_sqlite(Path(scan.catalog_url.removeprefix("sqlite:///")))
    return {f"{namespace}.{name}": None if location is None else to_path(location) for namespace, name, location in rows}


def read_tree(storage: Storage, location: str) -> Tree:
    try:
        content = _read(storage, location)
        text = gzip.decompress(content) if location.endswith(".gz.metadata.json") else content
        metadata = json.loads(text)
        if not isinstance(metadata, dict) or metadata.get("format-version") != 2 or not metadata.get("table-uuid"):  # noqa: PLR2004 - Iceberg v2
            raise TreeError(location, "it is no Iceberg metadata of version 2")
    except _UNREADABLE as exc:
        raise TreeError(location, f"it cannot be read: {exc}") from exc
    return Tree(storage, location, metadata)


def to_path(uri: str) -> str:
    return uri.removeprefix("file://")


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
        raise TreeError(path, f"it is no Avro file: {exc}") from exc


def _require_length(storage: Storage, row: dict[str, Any]) -> None:
    path = to_path(row["manifest_path"])
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
            live[to_path(data["file_path"])] = Entry(rows=data["record_count"], size_bytes=data["file_size_in_bytes"])
    return Manifest(live=live, deleted=deleted)
