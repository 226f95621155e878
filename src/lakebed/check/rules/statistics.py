"""Pruning statistics against the footers they were taken from: a bound that is too narrow hides rows from queries, silently.

Read with the checker's own reader of the compact protocol. Only a deep check runs it: every footer is parsed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.check.rules.footers import MAX_FOOTER_BYTES, RAW_TAIL, unpack
from lakebed.check.scan import Pass, Rule
from lakebed.check.thrift import read_footer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakebed.check.report import Finding
    from lakebed.check.scan import Scan

STALE = Rule(name="statistics_stale")

_PAGE = 200
_FOOTERS = f"""SELECT f.id, f.table_id, f.file_path, m.metadata FROM table_files f JOIN partition_metadata m ON m.file_path = f.file_path
WHERE f.id > :after AND m.partition_format_version = {RAW_TAIL} ORDER BY f.id LIMIT :size"""
_COLUMNS = "SELECT file_id, field_id, null_count, value_count, lower, upper FROM file_columns WHERE file_id IN (:ids*)"

# As the Parquet specification numbers the fields of FileMetaData, SchemaElement, RowGroup, ColumnChunk, ColumnMetaData and Statistics
_SCHEMA, _ROW_GROUPS, _CHUNKS, _CHUNK_METADATA = 2, 4, 1, 3
_TYPE, _CHILDREN, _CONVERTED, _FIELD_ID, _LOGICAL = 1, 5, 6, 9, 10
_VALUES, _STATISTICS, _NULLS, _MAX, _MIN = 5, 12, 3, 5, 6
_FLOAT = 4
_DECIMAL, _LOGICAL_DECIMAL, _LOGICAL_TIMESTAMP, _UNIT, _MICROS = 5, 5, 8, 2, 2
_UNSIGNED = frozenset({11, 12, 13, 14})
_SIGN, _ALL = 1 << 63, (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a footer says of one column; bounds as sortable bytes, None where it does not say them in a way that can be compared."""

    values: int
    nulls: int | None
    low: bytes | None
    high: bytes | None


def find_stale(scan: Scan) -> Iterator[Finding]:
    if not scan.deep:
        return
    for page in scan.pages(_FOOTERS, after=0, size=_PAGE):
        stored: dict[int, list[Sequence[Any]]] = {}
        for row in scan.query(_COLUMNS, {"ids": [row[0] for row in page]}):
            stored.setdefault(row[0], []).append(row[1:])
        for file_id, table_id, path, footer in page:
            for field_id, problem in _compare(_measure(bytes(footer)), stored.get(file_id, ())):
                message = f"field {field_id} {problem}, so queries may miss rows of the file: run `lakebed repair` to read them again"
                yield STALE.broken(scan.name(table_id), path, message)


def _compare(measured: dict[int, Measured], stored: Sequence[Sequence[Any]]) -> Iterator[tuple[int, str]]:
    for field_id, nulls, values, lower, upper in stored:
        found = measured.get(field_id)
        if found is None:
            continue
        if values is not None and values != found.values:
            yield field_id, f"has {found.values} values, its statistics count {values}"
        elif nulls is not None and found.nulls is not None and nulls != found.nulls:
            yield field_id, f"has {found.nulls} NULLs, its statistics count {nulls}"
        elif _is_above(lower, found.low) or _is_above(found.high, upper):
            yield field_id, "has values outside the bounds of its statistics"


def _is_above(one: object, other: object) -> bool:
    """No bound at all excludes nothing."""
    return isinstance(one, bytes | memoryview) and isinstance(other, bytes | memoryview) and bytes(one) > bytes(other)


def _measure(stored: bytes) -> dict[int, Measured]:
    """By field id; empty for footers without ids, or that cannot be read (other rules report those)."""
    tail = unpack(stored, limit=MAX_FOOTER_BYTES)
    footer = None if tail is None else read_footer(tail)
    if footer is None:
        return {}
    try:
        leaves = [element for element in footer[_SCHEMA][1:] if not element.get(_CHILDREN)]
        groups = [[chunk[_CHUNK_METADATA] for chunk in group[_CHUNKS]] for group in footer[_ROW_GROUPS]]
        return {leaf[_FIELD_ID]: _sum(leaf, [group[i] for group in groups]) for i, leaf in enumerate(leaves) if _FIELD_ID in leaf}
    except (LookupError, TypeError, ValueError, struct.error):
        return {}


def _sum(leaf: dict[int, Any], chunks: Sequence[dict[int, Any]]) -> Measured:
    statistics_of_chunks = [chunk.get(_STATISTICS, {}) for chunk in chunks]
    nulls = [statistics.get(_NULLS) for statistics in statistics_of_chunks]
    bounds = [(_encode(leaf, s[_MIN]), _encode(leaf, s[_MAX])) for s in statistics_of_chunks if _MIN in s and _MAX in s]
    lows, highs = [low for low, _ in bounds], [high for _, high in bounds]
    return Measured(
        values=sum(chunk[_VALUES] for chunk in chunks),
        nulls=None if None in nulls else sum(nulls),
        low=min(low for low in lows if low is not None) if lows and None not in lows else None,
        high=max(high for high in highs if high is not None) if highs and None not in highs else None,
    )


def _encode(leaf: dict[int, Any], plain: bytes) -> bytes | None:
    """A plainly encoded value in bytes that sort as the values do; None for types whose bytes alone are not enough."""
    logical, converted = leaf.get(_LOGICAL, {}), leaf.get(_CONVERTED)
    if converted == _DECIMAL or converted in _UNSIGNED or _LOGICAL_DECIMAL in logical:
        return None
    if _LOGICAL_TIMESTAMP in logical and _MICROS not in logical[_LOGICAL_TIMESTAMP][_UNIT]:
        return None
    match leaf.get(_TYPE):
        case 1 | 2:  # INT32, INT64
            return (int.from_bytes(plain, "little", signed=True) + _SIGN).to_bytes(8, "big")
        case 4 | 5:  # FLOAT, DOUBLE
            (number,) = struct.unpack("<f" if leaf[_TYPE] == _FLOAT else "<d", plain)
            bits = int.from_bytes(struct.pack(">d", number), "big")
            return (bits ^ _ALL if bits & _SIGN else bits | _SIGN).to_bytes(8, "big")
        case 6:  # BYTE_ARRAY
            return plain
        case _:
            return None


LONG_PASSES = (Pass(rules=(STALE,), over="file_columns", find=find_stale),)
