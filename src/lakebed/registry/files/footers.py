"""Stored footers: loaded from cache or table, upgraded from format version 1, and read from the file where the row is unusable."""

from __future__ import annotations

import hashlib
import logging
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import zstandard

from lakebed.core.errors import CorruptionError, FooterCorruptError, FooterNotFoundError, LakebedError
from lakebed.core.partitions import PARTITION_FORMAT
from lakebed.core.progress import report_progress
from lakebed.parquet.footer.framing import read_tail
from lakebed.parquet.footer.upgrade import upgrade_v1

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyarrow.parquet import FileMetaData

    from lakebed.core.files import Footer
    from lakebed.parquet.cache import FooterCache
    from lakebed.registry.backends.protocol import Queryable
    from lakebed.registry.backends.statements import Value
    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import Storage

logger = logging.getLogger(__name__)

MAX_FOOTER_BYTES = 1 << 30
FOOTER_COLUMNS = (
    "file_path", "table_id", "file_size", "metadata", "insert_time", "partition_format_version", "footer_length", "num_rows", "checksum",
)  # fmt: skip
_LOCAL = threading.local()
_OLDEST = 1
_MANY = 500
_LOAD = "SELECT metadata, partition_format_version, footer_length, num_rows, checksum FROM partition_metadata WHERE file_path = :path"
_LOAD_MANY = """SELECT metadata, partition_format_version, footer_length, num_rows, checksum, file_path FROM partition_metadata
WHERE file_path IN (:paths*)"""
_NEXT_OLD = """SELECT file_path, metadata, footer_length, num_rows, checksum, table_id FROM partition_metadata
WHERE partition_format_version < 2 AND file_path > :after ORDER BY file_path LIMIT :limit"""
_REPLACE = """UPDATE partition_metadata SET metadata = :metadata, partition_format_version = :version, footer_length = :length,
num_rows = :rows, checksum = :checksum WHERE file_path = :path AND partition_format_version = 1 AND checksum = :was"""


def compress_footer(footer: Footer) -> bytes:
    """As it is stored. One compressor per thread: making one costs as much as compressing a footer."""
    if not hasattr(_LOCAL, "compressor"):
        _LOCAL.compressor = zstandard.ZstdCompressor(level=3)
    compressed: bytes = _LOCAL.compressor.compress(footer.tail)
    return compressed


def footer_row(path: str, footer: Footer, *, table_id: int, file_size: int, now: int) -> tuple[Value, ...]:
    """One row of `partition_metadata`, in the order of FOOTER_COLUMNS."""
    return (path, table_id, file_size, compress_footer(footer), now, PARTITION_FORMAT, footer.length, footer.num_rows, footer.checksum)


def load_footer(reader: Queryable, path: str) -> bytes:
    """The raw tail of a registered file, whatever version is stored; a missing row is a typed error."""
    rows = reader.query(_LOAD, {"path": path})
    if not rows:
        raise FooterNotFoundError(path)
    return _decode(path, rows[0])


def load_footers(reader: Queryable, paths: Sequence[str]) -> dict[str, bytes]:
    """The raw tails of any number of registered files, by path; a missing row is a typed error."""
    found: dict[str, bytes] = {}
    for start in range(0, len(paths), _MANY):
        rows = reader.query(_LOAD_MANY, {"paths": list(paths[start : start + _MANY])})
        found.update((row[5], _decode(row[5], row)) for row in rows)
        report_progress()
    for path in paths:
        if path not in found:
            raise FooterNotFoundError(path)
    return found


def _decode(path: str, row: tuple[Any, ...]) -> bytes:
    metadata, version, length, num_rows, checksum = row[:5]
    stored = _decompress(path, bytes(metadata), length, checksum)
    match version:
        case 2:
            return stored
        case 1:
            return upgrade_v1(stored, registry_rows=num_rows).tail
        case _:
            message = (
                f"the footer of {path} has format version {version}, this program knows {_OLDEST} to {PARTITION_FORMAT}: upgrade Lakebed"
            )
            raise FooterCorruptError(message)


def load_partition_metadata(registry: Registry, path: str, *, cache: FooterCache) -> FileMetaData:
    """The parsed footer of a registered file, from this process's cache or the registry; never from the file."""
    return cache.load(path, partial(load_footer, registry, path))


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackCounters:
    """How often a query had to read a footer from its file, and why."""

    missing: int
    damaged: int


class FooterIndex:
    """Footers for queries: the registry first, the file itself where a row is missing, damaged or of an unknown version."""

    def __init__(self, registry: Registry, storage: Storage, *, cache: FooterCache, enabled: bool = True) -> None:
        self._registry, self._storage, self._cache, self._enabled = registry, storage, cache, enabled
        self._lock = threading.Lock()
        self._missing = self._damaged = 0

    def load(self, path: str) -> FileMetaData:
        return self._cache.load(path, partial(self._read, path))

    @property
    def fallbacks(self) -> FallbackCounters:
        with self._lock:
            return FallbackCounters(missing=self._missing, damaged=self._damaged)

    def _read(self, path: str) -> bytes:
        if self._enabled:
            try:
                return load_footer(self._registry, path)
            except FooterNotFoundError:
                self._count(path, damaged=False)
            except CorruptionError as exc:
                self._count(path, damaged=True, reason=str(exc))
        size = self._storage.stat(path).size_bytes
        return read_tail(partial(self._storage.read_range, path), size, path=path, limit=MAX_FOOTER_BYTES)

    def _count(self, path: str, *, damaged: bool, reason: str = "no row") -> None:
        with self._lock:
            self._damaged += damaged
            self._missing += not damaged
        logger.warning("footer read from the file", extra={"action": "footer_fallback", "path": path, "reason": reason})


@dataclass(frozen=True, slots=True, kw_only=True)
class FooterUpgrade:
    """What `migrate_footers` did; `failed` maps paths to reasons, and their rows stay as they were."""

    upgraded: int = 0
    skipped: int = 0
    failed: dict[str, str] = field(default_factory=dict)


def count_old_footers(reader: Queryable) -> int:
    """Footers that `migrate_footers` would look at."""
    return int(reader.query("SELECT count(*) FROM partition_metadata WHERE partition_format_version < 2")[0][0])


def migrate_footers(registry: Registry, *, batch: int = 200, progress: Callable[[int, int], None] | None = None) -> FooterUpgrade:
    """Upgrade every version-1 footer in bounded transactions. Killed anywhere, a second run finishes; a third changes nothing."""
    upgraded, skipped, after = 0, 0, ""
    waiting = count_old_footers(registry) if progress is not None else 0
    failed: dict[str, str] = {}
    while rows := registry.query(_NEXT_OLD, {"after": after, "limit": batch}):
        upgrades: list[tuple[str, Footer, str]] = []
        for path, metadata, length, num_rows, checksum, _ in rows:
            try:
                upgrades.append((path, upgrade_v1(_decompress(path, bytes(metadata), length, checksum), registry_rows=num_rows), checksum))
            except LakebedError as exc:
                failed[path] = str(exc)
        changed = _replace(registry, upgrades)
        upgraded, skipped = upgraded + changed, skipped + len(upgrades) - changed
        after = rows[-1][0]
        if progress is not None:
            progress(upgraded + skipped + len(failed), waiting)
    return FooterUpgrade(upgraded=upgraded, skipped=skipped, failed=failed)


def _replace(registry: Registry, upgrades: list[tuple[str, Footer, str]]) -> int:
    """Compare-and-swap by checksum: a row that was finalized or upgraded meanwhile is left alone."""
    changed = 0
    with registry.write() as tx:
        for path, footer, was in upgrades:
            values = {
                "path": path,
                "was": was,
                "metadata": zstandard.compress(footer.tail, 3),
                "version": PARTITION_FORMAT,
                "length": footer.length,
                "rows": footer.num_rows,
                "checksum": footer.checksum,
            }
            changed += tx.run(_REPLACE, values)
    return changed


def _decompress(path: str, stored: bytes, length: int, checksum: str) -> bytes:
    """The stored length bounds the output: a damaged frame cannot ask for more memory than the row admits."""
    if not 0 < length <= MAX_FOOTER_BYTES:
        message = f"the stored footer of {path} has an impossible length of {length} bytes"
        raise FooterCorruptError(message)
    try:
        footer = zstandard.ZstdDecompressor().decompress(stored, max_output_size=length)
    except zstandard.ZstdError as exc:
        message = f"the stored footer of {path} cannot be unpacked: {exc}; run `lakebed check`"
        raise FooterCorruptError(message) from exc
    if len(footer) != length or hashlib.sha256(footer).hexdigest() != checksum:
        message = f"the stored footer of {path} does not match its checksum; run `lakebed check`"
        raise FooterCorruptError(message)
    return footer
