"""Times that Spark stored in the hybrid Julian calendar (`org.apache.spark.legacyDateTime`).

Spark marks such files, and reads them correctly; every other engine would silently read other days. Times since the
switch are the same in both calendars: files that hold no others are accepted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.parquet.schema.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.parquet as pq

_FIX = "write it with spark.sql.parquet.datetimeRebaseModeInWrite=CORRECTED"
_SWITCHED_MICROS = -2_208_988_800_000_000  # 1900: time zones, too, were others before
# Spark counts no other types in it: times without a zone and of other units are left alone
_SWITCHED = {"DATE": -141_427, "TIMESTAMP_MILLIS": _SWITCHED_MICROS // 1000, "TIMESTAMP_MICROS": _SWITCHED_MICROS}
_VERSION = b"org.apache.spark.version"
_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
MARK, _FIRST = b"org.apache.spark.legacyDateTime", (3, 0)  # versions before it have no mark, and no other calendar
_INT96_MARK, _INT96_FIRST = b"org.apache.spark.legacyINT96", (3, 1)
_SHOWN_CHARS = 100


def find_old_times(metadata: pq.FileMetaData) -> tuple[Problem, ...]:
    """One problem per column that holds, or may hold, times from before the switch; none of INT96, which has no statistics."""
    return tuple(_list_old(metadata)) if _is_old(metadata, MARK, _FIRST) else ()


def list_doubtful_int96(file: pq.ParquetFile) -> list[int]:
    """The columns with INT96, at the top or deeper, of a file that counts it in the old calendar; only the rows show more."""
    if not _is_old(file.metadata, _INT96_MARK, _INT96_FIRST):
        return []
    leaves = [file.schema.column(number) for number in range(len(file.schema.names))]
    paths = [leaf.path for leaf in leaves if leaf.physical_type == "INT96"]
    names = enumerate(file.schema_arrow.names)
    return [number for number, name in names if any(path == name or path.startswith(f"{name}.") for path in paths)]


def find_old_rows(name: str, values: pa.Array) -> Problem | None:
    """A problem when the column holds a time from before the switch, at any depth, read in microseconds."""
    least = [pc.min(times).cast(pa.int64()).as_py() for times in _walk_times(values)]
    is_old = any(one is not None and one < _SWITCHED_MICROS for one in least)
    return _problem(name, "holds") if is_old else None


def _problem(name: str, verb: str) -> Problem:
    message = f"column {name[:_SHOWN_CHARS]!a} {verb} times before 1900 counted in Spark's old calendar"
    return Problem(kind="old_calendar", message=message, fix=_FIX, column=name)


def _is_old(metadata: pq.FileMetaData, mark: bytes, first: tuple[int, int]) -> bool:
    keys = metadata.metadata or {}
    if _VERSION not in keys:
        return mark in keys or _SCHEMA in keys  # the latter of a Spark so old that it did not record its version
    version = re.match(rb"(\d{1,4})\.(\d{1,4})", keys[_VERSION])
    return mark in keys or (version is not None and (int(version[1]), int(version[2])) < first)


def _list_old(metadata: pq.FileMetaData) -> Iterator[Problem]:
    for number in range(metadata.num_columns):
        column = metadata.schema.column(number)
        if (switched := _SWITCHED.get(column.converted_type)) is None:
            continue
        chunks = [metadata.row_group(group).column(number) for group in range(metadata.num_row_groups)]
        if any(_may_lie_before(chunk, switched) for chunk in chunks):
            yield _problem(column.path, "may hold")


def _may_lie_before(chunk: pq.ColumnChunkMetaData, switched: int) -> bool:
    statistics = chunk.statistics
    if statistics is None or not statistics.has_min_max:
        return bool(chunk.num_values) and (statistics is None or statistics.null_count != chunk.num_values)
    return bool(statistics.min_raw < switched)


def _walk_times(values: pa.Array) -> Iterator[pa.Array]:
    if pa.types.is_timestamp(values.type):
        yield values
    elif pa.types.is_map(values.type):
        yield from _walk_times(values.keys)
        yield from _walk_times(values.items)
    elif pa.types.is_nested(values.type):
        for inner in values.flatten() if pa.types.is_struct(values.type) else [values.flatten()]:
            yield from _walk_times(inner)
