"""Counters of the visible files: `tables` for the whole, `table_stats` per partition path, equal in every transaction."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.core.errors import InvalidValueError
from lakebed.core.partitions import SMALL_FILE_BYTES
from lakebed.registry.backends.statements import Execute
from lakebed.registry.schema.predicates import is_visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakebed.core.files import NewFile
    from lakebed.core.names import TableName
    from lakebed.registry.transaction import LockedTable, Transaction

_MAX = 2**63 - 1
_ADD_TABLE = """UPDATE tables SET row_count = row_count + :rows, file_count = file_count + :files, total_size = total_size + :bytes,
last_modified = :now, last_group = :last_group WHERE id = :table_id"""
_ADD_STATS = """INSERT INTO table_stats (id, table_id, partition_path, row_count, file_count, small_file_count, total_size,
last_modified, created_at, updated_at) VALUES (:id, :table_id, :path, :rows, :files, :small, :bytes, :now, :now, :now)
ON CONFLICT (table_id, partition_path) DO UPDATE SET row_count = table_stats.row_count + excluded.row_count,
file_count = table_stats.file_count + excluded.file_count, small_file_count = table_stats.small_file_count + excluded.small_file_count,
total_size = table_stats.total_size + excluded.total_size, last_modified = excluded.last_modified, updated_at = excluded.updated_at"""
_SUBTRACT_STATS = """UPDATE table_stats SET row_count = row_count + :rows, file_count = file_count + :files,
small_file_count = small_file_count + :small, total_size = total_size + :bytes, last_modified = :now, updated_at = :now
WHERE table_id = :table_id AND partition_path = :path"""
_DROP_EMPTY = "DELETE FROM table_stats WHERE table_id = :table_id AND file_count = 0"
_VISIBLE_SUMS = f"""SELECT f.partition_path, sum(f.row_count), count(*),
sum(CASE WHEN f.file_size < {SMALL_FILE_BYTES} THEN 1 ELSE 0 END), sum(f.file_size)
FROM table_files f JOIN table_metadata m ON m.table_id = f.table_id AND m.schema_hash = f.schema_hash
WHERE f.table_id = :table_id AND f.retired_seq IS NULL AND {is_visible("m.")} GROUP BY f.partition_path"""


@dataclass(frozen=True, slots=True)
class FileCounts:
    """A change of the counters; negative when files leave."""

    rows: int = 0
    files: int = 0
    small: int = 0
    bytes: int = 0

    def __add__(self, other: FileCounts) -> FileCounts:
        return FileCounts(self.rows + other.rows, self.files + other.files, self.small + other.small, self.bytes + other.bytes)

    def __neg__(self) -> FileCounts:
        return FileCounts(-self.rows, -self.files, -self.small, -self.bytes)


def tally_of(*, rows: int, size_bytes: int) -> FileCounts:
    return FileCounts(rows, 1, int(size_bytes < SMALL_FILE_BYTES), size_bytes)


def count_by_path(files: Sequence[NewFile]) -> dict[str, FileCounts]:
    """What these files add, per partition path."""
    tallies: dict[str, FileCounts] = defaultdict(FileCounts)
    for f in files:
        tallies[f.partition_path] += tally_of(rows=f.row_count, size_bytes=f.size_bytes)
    return dict(tallies)


def add_to_counters(tx: Transaction, table: LockedTable, tallies: Mapping[str, FileCounts]) -> None:
    """Add one tally per partition path, and their sum to the table."""
    for part in count_statements(tx, table, tallies):
        tx.send(part.sql, part.params)
    if any(tally.files < 0 for tally in tallies.values()):
        tx.send(_DROP_EMPTY, {"table_id": table.table_id})


def count_statements(tx: Transaction, table: LockedTable, tallies: Mapping[str, FileCounts]) -> list[Execute]:
    """The statements of `add_to_counters`; none depends on another as long as nothing leaves."""
    total = sum(tallies.values(), FileCounts())
    shared = {"table_id": table.table_id, "now": tx.modified_at(table)}
    counted = {"rows": total.rows, "files": total.files, "bytes": total.bytes, "last_group": table.last_group}
    parts = [Execute(_ADD_TABLE, {**shared, **counted})]
    for path, tally in sorted(tallies.items()):
        values = {**shared, "path": path, "rows": tally.rows, "files": tally.files, "small": tally.small, "bytes": tally.bytes}
        if tally.files > 0:
            parts.append(Execute(_ADD_STATS, {**values, "id": table.allocate_id()}))
        elif tally != FileCounts():
            parts.append(Execute(_SUBTRACT_STATS, values))
    return parts


def update_table_statistics(
    tx: Transaction, name: TableName, *, rows: int, size_bytes: int, files: int = 1, partition_path: str = ""
) -> None:
    """Shift the counters by deltas, for a tool that moved files itself; refuses what would leave 64 bits or go below zero."""
    table = tx.require(name)
    if any(abs(delta) > _MAX for delta in (rows, size_bytes, files)):
        message = f"{name}: a counter has 64 bits"
        raise InvalidValueError(message)
    current = tx.query("SELECT row_count, file_count, total_size FROM tables WHERE id = :id", {"id": table.table_id})[0]
    for before, delta in zip(current, (rows, files, size_bytes), strict=True):
        if not 0 <= before + delta <= _MAX:
            message = f"{name}: a counter at {before} cannot change by {delta}"
            raise InvalidValueError(message)
    add_to_counters(tx, table, {partition_path: FileCounts(rows, files, 0, size_bytes)})


def recount(tx: Transaction, table: LockedTable) -> None:
    """Set the counters from the visible files: after promotion, and as a repair."""
    instant = tx.modified_at(table)
    tx.run("DELETE FROM table_stats WHERE table_id = :id", {"id": table.table_id})
    sums = [(row[0], FileCounts(*(int(v) for v in row[1:]))) for row in tx.query(_VISIBLE_SUMS, {"table_id": table.table_id})]
    tx.run(
        "UPDATE tables SET row_count = 0, file_count = 0, total_size = 0, last_modified = :now WHERE id = :id",
        {"id": table.table_id, "now": instant},
    )
    add_to_counters(tx, table, dict(sums))
