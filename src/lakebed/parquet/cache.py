"""A cache of parsed footers, so that a query reads none twice."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.parquet.inspect import TRUSTED, ParseLimits, parse

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow.parquet as pq

DEFAULT_BYTES = 64 << 20
# Measured with pyarrow 26: a parsed footer takes 5 to 10 times the memory of its bytes.
_PARSED_FACTOR = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheCounters:
    hits: int
    misses: int
    entries: int
    size_bytes: int


class FooterCache:
    """The least recently used footers go first. Paths are never reused, so an entry never becomes stale."""

    def __init__(self, *, max_bytes: int = DEFAULT_BYTES, limits: ParseLimits = TRUSTED) -> None:
        self._max_bytes, self._limits = max_bytes, limits
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, tuple[pq.FileMetaData, int]] = OrderedDict()
        self._size = self._hits = self._misses = 0

    def load(self, path: str, read: Callable[[], bytes]) -> pq.FileMetaData:
        """The parsed footer of `path`; `read` gives its tail and is called only on a miss, outside of the lock."""
        if (known := self.find(path)) is not None:
            return known
        metadata = parse(read(), limits=self._limits)
        self._add(path, metadata)
        return metadata

    def find(self, path: str) -> pq.FileMetaData | None:
        with self._lock:
            entry = self._entries.get(path)
            if entry is None:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end(path)
            return entry[0]

    def discard(self, path: str) -> None:
        with self._lock:
            self._remove(path)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._size = 0

    @property
    def counters(self) -> CacheCounters:
        with self._lock:
            return CacheCounters(hits=self._hits, misses=self._misses, entries=len(self._entries), size_bytes=self._size)

    def _add(self, path: str, metadata: pq.FileMetaData) -> None:
        cost = metadata.serialized_size * _PARSED_FACTOR
        if cost > self._max_bytes:
            return
        with self._lock:
            self._remove(path)
            self._entries[path] = (metadata, cost)
            self._size += cost
            while self._size > self._max_bytes:
                self._remove(next(iter(self._entries)))

    def _remove(self, path: str) -> None:
        entry = self._entries.pop(path, None)
        if entry is not None:
            self._size -= entry[1]
