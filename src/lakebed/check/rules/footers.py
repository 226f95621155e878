"""Stored footers: one for every Parquet file, whole, and of the right number of rows."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import zstandard

from lakebed.check.scan import Pass, Rule, list_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.check.report import Finding
    from lakebed.check.scan import Row, Scan

FOOTER_MISSING = Rule(name="footer_missing")
FOOTER_WITHOUT_FILE = Rule(name="footer_without_file")
FOOTER_BYTES = Rule(name="footer_bytes")
FOOTER_ROWS = Rule(name="footer_rows")
FOOTER_FILE_SIZE = Rule(name="footer_file_size")

RAW_TAIL = 2  # format versions
BARE_METADATA = 1
MAX_FOOTER_BYTES = 1 << 30
_CHUNK_BYTES = 1 << 20
_BATCH_BYTES = 8 << 20

_MISSING = """SELECT f.table_id, f.file_path FROM table_files f WHERE f.file_type = 'parquet'
AND NOT EXISTS (SELECT 1 FROM partition_metadata m WHERE m.file_path = f.file_path) ORDER BY f.id"""
_WITHOUT_FILE = """SELECT m.table_id, m.file_path, CASE WHEN f.id IS NULL THEN 'no file' WHEN f.file_type <> 'parquet'
THEN 'a file that is not Parquet' ELSE 'a file of another table' END
FROM partition_metadata m LEFT JOIN table_files f ON f.file_path = m.file_path
WHERE f.id IS NULL OR f.file_type <> 'parquet' OR f.table_id <> m.table_id ORDER BY m.file_path"""
_ROWS = f"""SELECT f.table_id, f.file_path, m.num_rows, f.row_count FROM partition_metadata m JOIN table_files f ON f.file_path = m.file_path
WHERE m.partition_format_version = {RAW_TAIL} AND m.num_rows <> f.row_count ORDER BY f.id"""
_FILE_SIZES = """SELECT f.table_id, f.file_path, m.file_size, f.file_size FROM partition_metadata m
JOIN table_files f ON f.file_path = m.file_path WHERE m.file_size <> f.file_size ORDER BY f.id"""
_SIZES = "SELECT file_path, length(metadata) FROM partition_metadata WHERE file_path > :after ORDER BY file_path LIMIT :size"
_STORED = """SELECT table_id, file_path, metadata, partition_format_version, footer_length, checksum FROM partition_metadata
WHERE file_path IN (:paths*) ORDER BY file_path"""


def unpack(stored: bytes, *, limit: int = MAX_FOOTER_BYTES) -> bytes | None:
    """The decompressed bytes, or None when they are not a whole zstd frame or more than `limit`: never more memory than that."""
    try:
        promised = zstandard.frame_content_size(stored)
        reader = zstandard.ZstdDecompressor().stream_reader(stored)
        chunks: list[bytes] = []
        length = 0
        while chunk := reader.read(_CHUNK_BYTES):
            chunks.append(chunk)
            length += len(chunk)
            if length > limit:
                return None
    except zstandard.ZstdError:
        return None
    return b"".join(chunks) if length and promised in (-1, length) else None


def find_damaged(scan: Scan) -> Iterator[Finding]:
    for page in scan.pages(_SIZES, after=""):
        for paths in _split_by_bytes(page):
            for table_id, path, stored, version, length, checksum in scan.query(_STORED, {"paths": paths}):
                problem = _find_problem(bytes(stored), version, length, checksum)
                if problem is not None:
                    message = f"the stored footer {problem}; readers fall back to the file: run `lakebed repair` to capture it again"
                    yield FOOTER_BYTES.broken(scan.name(table_id), path, message)


def _find_problem(stored: bytes, version: int, length: int, checksum: str) -> str | None:
    if version not in (BARE_METADATA, RAW_TAIL):
        return f"has the unknown format version {version}"
    unpacked = unpack(stored, limit=min(max(length, 0), MAX_FOOTER_BYTES))
    if unpacked is None or len(unpacked) != length:
        return f"cannot be decompressed to {length} bytes"
    return None if hashlib.sha256(unpacked).hexdigest() == checksum else "does not match its checksum"


def _split_by_bytes(page: list[Row]) -> Iterator[list[str]]:
    """Paths whose footers fit in memory together; a large one goes alone."""
    batch: list[str] = []
    total = 0
    for path, size in page:
        if batch and total + size > _BATCH_BYTES:
            yield batch
            batch, total = [], 0
        batch.append(path)
        total += size
    yield batch


PASSES = (
    list_rows(
        FOOTER_MISSING,
        over="table_files",
        sql=_MISSING,
        message="the registry holds no footer for this Parquet file: run `lakebed repair` to capture it again",
    ),
    list_rows(
        FOOTER_WITHOUT_FILE,
        over="partition_metadata",
        sql=_WITHOUT_FILE,
        message="a footer is kept for {0}: run `lakebed repair` to drop it",
    ),
    list_rows(
        FOOTER_ROWS,
        over="partition_metadata",
        sql=_ROWS,
        message="the footer counts {0} rows, the file row {1}: find out which is right before the file is compacted",
    ),
    list_rows(
        FOOTER_FILE_SIZE,
        over="partition_metadata",
        sql=_FILE_SIZES,
        message="the footer's row says that the file has {0} bytes, the file row {1}: run `lakebed repair` to capture it again",
    ),
)
# One row at a time is right or wrong, so no snapshot is held for so long
LONG_PASSES = (Pass(rules=(FOOTER_BYTES,), over="partition_metadata", find=find_damaged),)
