"""Which files a table's metadata names, and which metadata files nothing names: what a killed commit left behind.

Metadata is read as plain JSON: tables of any format version, whoever made them, can be followed.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.core.errors import FileChangedError
from lakebed.iceberg.locations import from_uri, read_metadata_text
from lakebed.iceberg.metadata.metadata import COMMIT_ID
from lakebed.storage.locations import find_paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from lakebed.iceberg.manifests.avro import Manifest
    from lakebed.iceberg.manifests.cache import ManifestStore
    from lakebed.storage.protocol import FileFacts, Storage

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
