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
    from lakebed.registry.backends.statements import Statement
    from lakebed.registry.transaction import LockedTable, Transaction

_MAX = 2**63 - 1
_MAX_BATCH = 16  # a statement per partition path must not become one of unbounded length
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


def update_table_statistics(
    tx: Transaction, table: LockedTable, changes: Mapping[str, FileCounts], *, beside: Sequence[Statement] = ()
) -> None:
    """Shift the counters of the table, and those of each partition path; refuses what would leave 64 bits or go below zero.

    The statements `beside`, and what was allocated, travel with them: as few round trips as are bounded. Alone they are sent one by one,
    as statements that the database knows.
    """
    total = sum(changes.values(), FileCounts())
    table.counters = _shift(table, total)
    own = _list_statements(tx, table, changes, total)
    if not beside:
        for statement in own:
            tx.send(statement.sql, statement.params)
    else:
        allocated = table.save_allocated()
        statements: list[Statement] = [*beside, *own, *([allocated] if allocated is not None else [])]
        for start in range(0, len(statements), _MAX_BATCH):
            tx.execute_batch(statements[start : start + _MAX_BATCH])
    if any(change.files < 0 for change in changes.values()):
        tx.send(_DROP_EMPTY, {"table_id": table.table_id})


def _shift(table: LockedTable, total: FileCounts) -> tuple[int, ...]:
    shifted = []
    for before, delta in zip(table.counters, (total.rows, total.files, total.bytes), strict=True):
        if abs(delta) > _MAX:
            message = f"{table.name}: a counter has 64 bits"
            raise InvalidValueError(message)
        if not 0 <= before + delta <= _MAX:
            message = f"{table.name}: a counter at {before} cannot change by {delta}"
            raise InvalidValueError(message)
        shifted.append(before + delta)
    return tuple(shifted)


def _list_statements(tx: Transaction, table: LockedTable, changes: Mapping[str, FileCounts], total: FileCounts) -> list[Execute]:
    """None depends on another: a path is counted once."""
    shared = {"table_id": table.table_id, "now": tx.modified_at(table)}
    counted = {"rows": total.rows, "files": total.files, "bytes": total.bytes, "last_group": table.last_group}
    statements = [Execute(_ADD_TABLE, {**shared, **counted})]
    for path, change in sorted(changes.items()):
        values = {**shared, "path": path, "rows": change.rows, "files": change.files, "small": change.small, "bytes": change.bytes}
        if change.files > 0:
            statements.append(Execute(_ADD_STATS, {**values, "id": table.allocate_id()}))
        elif change != FileCounts():
            statements.append(Execute(_SUBTRACT_STATS, values))
    return statements


def recount(tx: Transaction, table: LockedTable) -> None:
    """Set the counters from the visible files: after promotion, and as a repair."""
    instant = tx.modified_at(table)
    tx.run("DELETE FROM table_stats WHERE table_id = :id", {"id": table.table_id})
    sums = [(row[0], FileCounts(*(int(v) for v in row[1:]))) for row in tx.query(_VISIBLE_SUMS, {"table_id": table.table_id})]
    tx.run(
        "UPDATE tables SET row_count = 0, file_count = 0, total_size = 0, last_modified = :now WHERE id = :id",
        {"id": table.table_id, "now": instant},
    )
    table.counters = (0, 0, 0)
    update_table_statistics(tx, table, dict(sums))
