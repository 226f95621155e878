"""Times that Spark counted in the calendar which was left in 1582.

Spark marks such files, and reads them right; every other engine would see other days, without a word. Times since the
switch are the same in both calendars: files that hold no others are as good as any.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.parquet as pq

FIX = "write it with spark.sql.parquet.datetimeRebaseModeInWrite=CORRECTED"
SWITCHED_MICROS = -2_208_988_800_000_000  # 1900: time zones, too, were others before
# Spark counts no other types in it: times without a zone and of other units are left alone
_SWITCHED = {"DATE": -141_427, "TIMESTAMP_MILLIS": SWITCHED_MICROS // 1000, "TIMESTAMP_MICROS": SWITCHED_MICROS}
_VERSION = b"org.apache.spark.version"
_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
MARK, _FIRST = b"org.apache.spark.legacyDateTime", (3, 0)  # versions before it have no mark, and no other calendar
_INT96_MARK, _INT96_FIRST = b"org.apache.spark.legacyINT96", (3, 1)
_SHOWN_CHARS = 100


def tell_old_times(metadata: pq.FileMetaData) -> tuple[str, ...]:
    """One sentence per column that holds, or may hold, times from before the switch; none of INT96, which has no statistics."""
    return tuple(_tell(metadata)) if _is_old(metadata, MARK, _FIRST) else ()


def has_old_int96(metadata: pq.FileMetaData) -> bool:
    """Whether INT96 times are counted in the old calendar; which of them lie before the switch, only the rows tell."""
    return _is_old(metadata, _INT96_MARK, _INT96_FIRST)


def _is_old(metadata: pq.FileMetaData, mark: bytes, first: tuple[int, int]) -> bool:
    keys = metadata.metadata or {}
    if _VERSION not in keys:
        return mark in keys or _SCHEMA in keys  # the latter of a Spark so old that it did not tell its version
    version = re.match(rb"(\d{1,4})\.(\d{1,4})", keys[_VERSION])
    return mark in keys or (version is not None and (int(version[1]), int(version[2])) < first)


def _tell(metadata: pq.FileMetaData) -> Iterator[str]:
    for number in range(metadata.num_columns):
        column = metadata.schema.column(number)
        if (switched := _SWITCHED.get(column.converted_type)) is None:
            continue
        chunks = [metadata.row_group(group).column(number) for group in range(metadata.num_row_groups)]
        if any(_may_lie_before(chunk, switched) for chunk in chunks):
            yield f"column {column.path[:_SHOWN_CHARS]!a} may hold times before 1900 counted in Spark's old calendar: {FIX}"


def _may_lie_before(chunk: pq.ColumnChunkMetaData, switched: int) -> bool:
    statistics = chunk.statistics
    if statistics is None or not statistics.has_min_max:
        return bool(chunk.num_values) and (statistics is None or statistics.null_count != chunk.num_values)
    return bool(statistics.min_raw < switched)
