"""The index of value ranges: which files may hold a value, at a cost that does not grow with the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.registry.lake_tables import MAX_INDEXED, read_indexed
from lakebed.registry.statements import Insert, Run, transpose

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakebed.core.files import NewFile
    from lakebed.registry.statements import Part, Value
    from lakebed.registry.transaction import LockedTable, Reader, Transaction

_EVERYWHERE = 3.0e38  # within a 32-bit float: a file without bounds may hold any value
_COLUMNS = ("id", "scope_low", "scope_high", "lower", "upper")
_INSERT_BOXES = """INSERT INTO file_ranges (id, span) SELECT r.id, box(point(r.scope, r.lower), point(r.scope, r.upper))
FROM unnest(CAST(:ids AS bigint[]), CAST(:scopes AS float8[]), CAST(:lowers AS float8[]), CAST(:uppers AS float8[]))
AS r(id, scope, lower, upper)"""
# Overlap of the file's rectangle with the asked one; exact bounds are compared afterwards
OVERLAPS = {
    "sqlite": "r.scope_low <= :scope AND r.scope_high >= :scope AND r.lower <= :high AND r.upper >= :low",
    "postgresql": "r.span && box(point(CAST(:scope AS float8), CAST(:low AS float8)), point(CAST(:scope AS float8), CAST(:high AS float8)))",
}


def range_parts(tx: Transaction, table: LockedTable, files: Sequence[tuple[int, NewFile]]) -> list[Part]:
    """One entry per file and indexed column."""
    indexed = read_indexed(tx, table.table_id)
    if not indexed:
        return []
    rows = [
        (file_id * MAX_INDEXED + slot, scope_of(table.table_id, slot), *_bounds(file, field_id))
        for file_id, file in files
        for slot, field_id in enumerate(indexed)
    ]
    if tx.dialect == "sqlite":
        values: list[Sequence[Value]] = [(i, scope, scope, low, high) for i, scope, low, high in rows]
        return [Insert("file_ranges", _COLUMNS, values)]
    ids, scopes, lowers, uppers = transpose(rows)
    return [Run(_INSERT_BOXES, {"ids": ids, "scopes": scopes, "lowers": lowers, "uppers": uppers})]


def delete_ranges(tx: Transaction, table_id: int, file_ids: Iterable[int]) -> None:
    slots = range(len(read_indexed(tx, table_id)))
    ids = [file_id * MAX_INDEXED + slot for file_id in file_ids for slot in slots]
    if not ids:
        return
    if tx.dialect == "sqlite":
        # one by one: given a list, the R-tree would scan every node for each value
        tx.run_many("DELETE FROM file_ranges WHERE id = ?", [(i,) for i in ids])
    else:
        tx.send("DELETE FROM file_ranges WHERE id IN (:ids*)", {"ids": ids})


def find_slot(reader: Reader | Transaction, table_id: int, field_id: int) -> int | None:
    indexed = read_indexed(reader, table_id)
    return indexed.index(field_id) if field_id in indexed else None


def scope_of(table_id: int, slot: int) -> float:
    return float(table_id * MAX_INDEXED + slot)


def _bounds(file: NewFile, field_id: int) -> tuple[float, float]:
    found = next((c for c in file.columns if c.field_id == field_id), None)
    if found is None or found.lower_coordinate is None or found.upper_coordinate is None:
        return -_EVERYWHERE, _EVERYWHERE
    return max(found.lower_coordinate, -_EVERYWHERE), min(found.upper_coordinate, _EVERYWHERE)
