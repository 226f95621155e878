"""Retiring: unlink now, delete the file after a grace period.

The partition row goes, its files are stamped and queued, in one transaction. Footers stay until the
deletion is final: a reader that planned a partition can always load its metadata.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.core.errors import AmbiguousPartitionError, InvalidValueError, PartitionNotFoundError, VictimsChangedError
from lakebed.core.names import require_instance
from lakebed.core.partitions import SMALL_FILE_BYTES, Slice, join_event_ranges
from lakebed.core.times import TimeRange
from lakebed.registry.ids import ids_of_table
from lakebed.registry.schema.predicates import VISIBLE_HASHES
from lakebed.registry.tables.counters import FileCounts, update_table_statistics
from lakebed.registry.tables.expired import EXPIRED, note_expired
from lakebed.registry.tables.groups import allocate_group

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from lakebed.core.partitions import NewPartition
    from lakebed.registry.backends.protocol import RawRows
    from lakebed.registry.transaction import LockedTable, Transaction

DEFAULT_GRACE_US = 24 * 3600 * 1_000_000
DEFAULT_GRACE_S = DEFAULT_GRACE_US / 1e6
_PARTITIONS = "SELECT id, min_event_time, max_event_time FROM partitions WHERE table_id = :table_id AND id IN (:ids*)"
_KEPT = """SELECT f.id, f.row_count FROM table_files f JOIN partitions p ON p.id = f.partition_id
WHERE f.partition_id IN (:ids*) AND f.retired_seq IS NULL AND f.id IN (:keeping*)
AND p.schema_hash = :schema_hash AND p.view_instance_id = :instance"""
# Of what leaves: whole partitions, or (True) all but some files of them
_LEAVING = {
    False: "partition_id IN (:ids*) AND retired_seq IS NULL",
    True: "partition_id IN (:ids*) AND retired_seq IS NULL AND NOT id IN (:keeping*)",
}
# Grouped by schema too, so that what depends on the version is asked once per group and not per file
_SUMS = {
    keeps: f"""SELECT partition_path, CASE WHEN schema_hash IN (
  {VISIBLE_HASHES}) THEN 1 ELSE 0 END,
sum(row_count), count(*), sum(CASE WHEN file_size < {SMALL_FILE_BYTES} THEN 1 ELSE 0 END), sum(file_size),
sum(CASE WHEN added_group IS NOT NULL AND removed_group IS NULL THEN 1 ELSE 0 END)
FROM table_files WHERE {leaving} GROUP BY partition_path, schema_hash"""
    for keeps, leaving in _LEAVING.items()
}
_MARK_RETIRED = {
    keeps: f"""UPDATE table_files SET retired_seq = :journal_number, removed_group = COALESCE(removed_group, CAST(:gone AS bigint)), modified_at = :now
WHERE {leaving}"""
    for keeps, leaving in _LEAVING.items()
}
_QUEUE = """INSERT INTO temporary_files (file_path, file_size, table_id, retired_at, expiration, reason)
SELECT file_path, file_size, table_id, :now, :expiration, :reason FROM table_files
WHERE partition_id IN (:ids*) AND retired_seq = :journal_number ORDER BY file_path
ON CONFLICT (file_path) DO UPDATE SET expiration =
CASE WHEN excluded.expiration > temporary_files.expiration THEN excluded.expiration ELSE temporary_files.expiration END"""
_DELETE = "DELETE FROM partitions WHERE id IN (:ids*)"
_BY_KEY = """SELECT id, schema_hash FROM partitions
WHERE scope_id IN (SELECT id FROM partition_scopes WHERE table_id = :table_id AND view_instance_id = :instance) AND begin_insert_time = :begin AND end_insert_time = :end"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsToRetire:
    """Partitions to retire as they stand under the table's lock, and what of them is kept."""

    partition_ids: tuple[int, ...] = ()
    event_range: tuple[int, int] | None = None
    kept_ids: tuple[int, ...] = ()
    kept_rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Retired:
    """What a retirement did. Its files are scheduled for deletion, not deleted."""

    partitions: int = 0
    files: int = 0
    group: int | None = None


def require_by_key(tx: Transaction, table: LockedTable, *, instance: str, insert_range: TimeRange, schema_hash: str | None) -> int:
    """The id of the one partition with exactly this key."""
    name = table.name
    wanted = str(Slice(table=name, instance=require_instance(instance), insert_range=insert_range))
    params = {"table_id": table.table_id, "instance": instance, "begin": insert_range.begin, "end": insert_range.end}
    found = [row for row in tx.query(_BY_KEY, params) if schema_hash is None or row[1] == schema_hash]
    if not found:
        raise PartitionNotFoundError(wanted if schema_hash is None else f"{wanted} under schema {schema_hash}", hint=_existing(tx, table))
    if len(found) > 1:
        raise AmbiguousPartitionError(wanted, schema_hashes=tuple(sorted(row[1] for row in found)))
    return int(found[0][0])


def load_partitions_to_retire(
    tx: Transaction,
    table: LockedTable,
    ids: AbstractSet[int],
    *,
    exactly: bool,
    keeping: AbstractSet[int] = frozenset(),
    kept_by: NewPartition | None = None,
) -> PartitionsToRetire:
    """Refuses when a partition is gone, or when a file to keep is not there under the schema and instance of its new partition."""
    rows = tx.query(_PARTITIONS, {"table_id": table.table_id, "ids": sorted(ids)})
    found = {row[0] for row in rows}
    if exactly and found != ids:
        raise VictimsChangedError(str(table.name), missing=tuple(sorted(ids - found)))
    kept: RawRows = []
    if keeping and kept_by is not None:
        params = {"ids": sorted(found), "keeping": sorted(keeping), "schema_hash": kept_by.schema_hash, "instance": kept_by.instance}
        kept = tx.query(_KEPT, params)
    if len(kept) != len(keeping):
        gone = keeping - {row[0] for row in kept}
        raise VictimsChangedError(str(table.name), missing=tuple(sorted(gone)), what="files")
    return PartitionsToRetire(
        partition_ids=tuple(sorted(found)),
        event_range=join_event_ranges(None if None in row[1:3] else (row[1], row[2]) for row in rows),
        kept_ids=tuple(sorted(keeping)),
        kept_rows=sum(row[1] for row in kept),
    )


def retire_loaded(
    tx: Transaction, table: LockedTable, retiring: PartitionsToRetire, *, reason: str, grace_us: int, group: int | None = None
) -> Retired:
    """Stamp, queue, delete, count. Without a `group` a new one is allocated if Iceberg may hold any of the files."""
    if grace_us < 0:
        message = f"{table.name}: the grace period cannot be negative"
        raise InvalidValueError(message)
    if not retiring.partition_ids:
        return Retired()
    keeps = bool(retiring.kept_ids)
    params = {"ids": list(retiring.partition_ids), **({"keeping": list(retiring.kept_ids)} if keeps else {})}
    sums = tx.query(_SUMS[keeps], {**params, "table_id": table.table_id})
    if group is None and any(row[6] for row in sums):
        group = allocate_group(tx, table, "retire")
    instant = tx.modified_at(table)
    if sums:
        tx.send(_MARK_RETIRED[keeps], {**params, "journal_number": table.journal_number, "gone": group, "now": instant})
        queued = {
            "ids": params["ids"],
            "journal_number": table.journal_number,
            "now": tx.now,
            "expiration": tx.now + grace_us,
            "reason": reason,
        }
        tx.send(_QUEUE, queued)
    if reason == EXPIRED:
        note_expired(tx, table.table_id, retiring.partition_ids)
    tx.send(_DELETE, {"ids": params["ids"]})
    update_table_statistics(tx, table, _tally_visible(sums))
    return Retired(partitions=len(retiring.partition_ids), files=sum(row[3] for row in sums), group=group)


def _tally_visible(sums: RawRows) -> dict[str, FileCounts]:
    """What leaves the counters, per partition path: files of a version that readers do not see were never counted."""
    tallies: dict[str, FileCounts] = defaultdict(FileCounts)
    for path, is_visible, *counted, _ in sums:
        if is_visible:
            tallies[path] += -FileCounts(*(int(value) for value in counted))
    return tallies


def _existing(tx: Transaction, table: LockedTable) -> str:
    """Names the range that exists, so that the next request can be right."""
    sql = f"SELECT min(begin_insert_time), max(end_insert_time) FROM partitions WHERE {ids_of_table()}"
    ((low, high),) = tx.query(sql, {"table_id": table.table_id})
    if low is None:
        return "the table has no partitions"
    return f"its partitions are in {TimeRange(begin=low, end=high)}"
