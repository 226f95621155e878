"""The index of value ranges: which files may hold a value, at a cost that does not grow with the table.

A range goes into the smallest bin that holds it: the bits its two ends share. The values that may be in
a range are in the bins along the path from each of its ends to the top, one per level, so a question
is 64 short lookups in an ordinary B-tree, the same on both databases.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

from lakebed.registry.backends.statements import Insert
from lakebed.registry.tables.lake_tables import MAX_INDEXED, read_indexed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakebed.core.files import ColumnStatistics, NewFile
    from lakebed.registry.backends.statements import Statement, Value
    from lakebed.registry.transaction import LockedTable, Reader, Transaction

_COLUMNS = ("id", "scope", "level", "prefix")
_WORTH_A_RUN = 8  # files per statement, on average, below which one statement with a list is quicker
_SIGN = 1 << 63
_ALL = (1 << 64) - 1
_IN_BIN = """r.scope = :scope AND r.level = q.level
AND r.prefix BETWEEN (CAST(:low AS bigint) >> q.level) AND (CAST(:high AS bigint) >> q.level)"""
# The files in bins that overlap the asked range. Some may be beside it: exact bounds are compared afterwards.
# Each form makes its planner look up one bin per level and then the files that were found, instead of comparing all files with
# them. PostgreSQL's estimate of the bins would otherwise choose a hash join over the whole index once it is analyzed: OFFSET 0
# keeps the lookup from being joined.
IS_FOUND = {
    "sqlite": f"""f.id IN (SELECT r.id / {MAX_INDEXED} FROM (
WITH RECURSIVE levels(level) AS (SELECT 0 UNION ALL SELECT level + 1 FROM levels WHERE level < 63) SELECT level FROM levels) AS q
CROSS JOIN file_ranges r WHERE {_IN_BIN})""",
    "postgresql": f"""f.id = ANY(ARRAY(SELECT r.id / {MAX_INDEXED} FROM generate_series(0, 63) AS q(level)
CROSS JOIN LATERAL (SELECT r.id FROM file_ranges r WHERE {_IN_BIN} OFFSET 0) AS r))""",
}


def range_statements(tx: Transaction, table: LockedTable, files: Sequence[tuple[int, NewFile]]) -> list[Statement]:
    """One entry per file and indexed column."""
    rows = bins_of(table.table_id, files, read_indexed(tx, table.table_id))
    return [Insert("file_ranges", _COLUMNS, rows)] if rows else []


def bins_of(table_id: int, files: Sequence[tuple[int, NewFile]], indexed: Sequence[int]) -> list[Sequence[Value]]:
    """Rows of `file_ranges` for files under the given numbers."""
    return [row for number, file in files for row in bins_of_columns(table_id, number, file.columns, indexed)]


def bins_of_columns(table_id: int, number: int, columns: Sequence[ColumnStatistics], indexed: Sequence[int]) -> list[Sequence[Value]]:
    """The same for one file, of which only its statistics are known."""
    return [(number * MAX_INDEXED + slot, scope_of(table_id, slot), *_bin(columns, field_id)) for slot, field_id in enumerate(indexed)]


def delete_statistics(tx: Transaction, table_id: int, file_ids: Sequence[int]) -> None:
    """Column statistics and index entries of files, given in ascending order.

    Files of one partition have neighbouring ids, and a run is deleted in one walk; a list is looked up entry by entry.
    """
    runs = list(_runs(file_ids))
    if len(runs) * _WORTH_A_RUN > len(file_ids):
        _delete_listed(tx, table_id, file_ids)
        return
    for first, last in runs:
        tx.send("DELETE FROM file_columns WHERE file_id BETWEEN :first AND :last", {"first": first, "last": last})
        entries = {"first": first * MAX_INDEXED, "last": last * MAX_INDEXED + MAX_INDEXED - 1}
        tx.send("DELETE FROM file_ranges WHERE id BETWEEN :first AND :last", entries)


def _delete_listed(tx: Transaction, table_id: int, file_ids: Sequence[int]) -> None:
    tx.send("DELETE FROM file_columns WHERE file_id IN (:ids*)", {"ids": list(file_ids)})
    slots = range(len(read_indexed(tx, table_id)))
    if entries := [file_id * MAX_INDEXED + slot for file_id in file_ids for slot in slots]:
        tx.send("DELETE FROM file_ranges WHERE id IN (:ids*)", {"ids": entries})


def _runs(ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of neighbours."""
    start = 0
    for end in range(1, len(ids) + 1):
        if end == len(ids) or ids[end] != ids[end - 1] + 1:
            yield ids[start], ids[end - 1]
            start = end


def find_slot(reader: Reader | Transaction, table_id: int, field_id: int) -> int | None:
    indexed = read_indexed(reader, table_id)
    return indexed.index(field_id) if field_id in indexed else None


def scope_of(table_id: int, slot: int) -> int:
    return table_id * MAX_INDEXED + slot


def position_of(coordinate: float) -> int:
    """63 bits in the order of the numbers; neighbours of the last bit share a position."""
    bits = int.from_bytes(struct.pack(">d", coordinate), "big")
    return (bits ^ _ALL if bits & _SIGN else bits | _SIGN) >> 1


def _bin(columns: Sequence[ColumnStatistics], field_id: int) -> tuple[int, int]:
    """Level and prefix; a file without bounds may hold any value and is in the topmost bin."""
    found = next((c for c in columns if c.field_id == field_id), None)
    low, high = -math.inf, math.inf
    if found is not None and found.lower_coordinate is not None and found.upper_coordinate is not None:
        low, high = found.lower_coordinate, found.upper_coordinate
    first, last = position_of(low), position_of(high)
    level = (first ^ last).bit_length()
    return level, first >> level
