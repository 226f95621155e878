"""Manifests at hand: files never change once written, so what was read or written stays true."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from lakebed.iceberg.locations import from_uri, read_file, to_uri
from lakebed.iceberg.manifests.avro import decode_list, decode_locations, decode_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lakebed.iceberg.manifests.avro import Entry, Manifest
    from lakebed.storage.protocol import Storage

T = TypeVar("T")
MAX_PATHS = 100_000
MAX_LINES = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCounters:
    hits: int
    misses: int
    entries: int
    weight: int


class BoundedCache(Generic[T]):
    """The least recently used values go first; a value weighs what it says. Threads may share it."""

    def __init__(self, max_weight: int) -> None:
        self._max, self._weight = max_weight, 0
        self._hits = self._misses = 0
        self._values: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self._guard = threading.Lock()

    def load(self, key: str, read: Callable[[], tuple[T, int]]) -> T:
        """The value of `key`; `read` gives it and its weight, outside of the lock."""
        if (known := self.find(key)) is not None:
            return known
        value, weight = read()
        self.put(key, value, weight)
        return value

    def find(self, key: str) -> T | None:
        with self._guard:
            known = self._values.get(key)
            self._hits, self._misses = self._hits + (known is not None), self._misses + (known is None)
            if known is None:
                return None
            self._values.move_to_end(key)
            return known[0]

    def put(self, key: str, value: T, weight: int) -> None:
        """In place of what is there under this key."""
        with self._guard:
            self._remove(key)
            self._values[key] = (value, weight)
            self._weight += weight
            while self._weight > self._max and len(self._values) > 1:
                _, (_, gone) = self._values.popitem(last=False)
                self._weight -= gone

    def discard(self, keys: Iterable[str]) -> None:
        with self._guard:
            for key in keys:
                self._remove(key)

    @property
    def counters(self) -> StoreCounters:
        with self._guard:
            return StoreCounters(hits=self._hits, misses=self._misses, entries=len(self._values), weight=self._weight)

    def _remove(self, key: str) -> None:
        _, gone = self._values.pop(key, (None, 0))
        self._weight -= gone


class ManifestStore:
    """Manifest lists and, where the contents of snapshots are needed, the paths in a manifest; manifests themselves are read each time."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._lists: BoundedCache[tuple[Manifest, ...]] = BoundedCache(MAX_LINES)
        self._paths: BoundedCache[frozenset[str]] = BoundedCache(MAX_PATHS)

    def load_list(self, location: str) -> tuple[Manifest, ...]:
        return self._lists.load(location, lambda: self._read_list(location))

    def read(self, manifest: Manifest) -> bytes:
        return read_file(self._storage, manifest.manifest_path)

    def load_entries(self, manifest: Manifest) -> list[Entry]:
        """Live entries: they are many and rarely needed."""
        return decode_manifest(self.read(manifest), manifest)

    def read_locations(self, manifest: Manifest) -> list[str]:
        """Of live files, as the manifest has them now."""
        return decode_locations(self.read(manifest), manifest)

    def load_paths(self, manifest: Manifest) -> frozenset[str]:
        return self._paths.load(manifest.manifest_path, lambda: self._read_paths(manifest))

    def list_held(self, manifest_list: str) -> set[str]:
        """Paths of all files that a snapshot holds, delete files too."""
        return {from_uri(location) for manifest in self.load_list(manifest_list) for location in self.load_paths(manifest)}

    def remember_list(self, location: str, manifests: tuple[Manifest, ...]) -> None:
        self._lists.put(location, manifests, len(manifests))

    def forget(self, paths: Iterable[str]) -> None:
        """Lists and manifests that no snapshot needs any more: the bounds alone would keep them for days."""
        locations = [to_uri(path) for path in paths]
        self._lists.discard(locations)
        self._paths.discard(locations)

    def _read_list(self, location: str) -> tuple[tuple[Manifest, ...], int]:
        lines = decode_list(read_file(self._storage, location), location)
        return lines, len(lines)

    def _read_paths(self, manifest: Manifest) -> tuple[frozenset[str], int]:
        paths = frozenset(self.read_locations(manifest))
        return paths, len(paths)
