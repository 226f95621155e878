"""Repair rows of the registry that contradict each other, from rows that can still be trusted. Nothing here invents data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.registry.backends.protocol import RawRows  # noqa: TC001 - named in a dataclass
from lakebed.registry.partitions.retire import DEFAULT_GRACE_US, PartitionsToRetire, retire_loaded
from lakebed.registry.schema.predicates import is_visible
from lakebed.registry.tables.counters import recount
from lakebed.registry.tables.groups import allocate_group

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lakebed.registry.backends.protocol import Queryable
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import LockedTable, Transaction

_BATCH = 500
_LIVE_SUMS = """SELECT p.id, p.num_rows, p.file_count, CAST(sum(f.row_count) AS bigint), count(*) FROM partitions p
JOIN table_files f ON f.partition_id = p.id AND f.retired_seq IS NULL WHERE p.id IN (:ids*) GROUP BY p.id, p.num_rows, p.file_count"""
_SET_SUMS = "UPDATE partitions SET num_rows = :rows, file_count = :files, updated = :now WHERE id = :id"
_CLEAR = """UPDATE partitions SET file_count = 0, min_event_time = NULL, max_event_time = NULL, updated = :now
WHERE id IN (:ids*) AND num_rows = 0 AND NOT EXISTS (SELECT 1 FROM table_files f WHERE f.partition_id = partitions.id AND f.retired_seq IS NULL)"""
_EVENT_RANGE = "UPDATE partitions SET min_event_time = :low, max_event_time = :high, updated = :now WHERE id = :id AND num_rows > 0"
PARTITION_COLUMNS = (
    "id", "table_id", "scope_id", "view_instance_id", "begin_insert_time", "end_insert_time", "min_event_time", "max_event_time",
    "schema_hash", "source_data_hash", "lookup_hash", "fingerprint", "num_rows", "file_count", "partition_format_version", "updated",
)  # fmt: skip
_SCOPE_AT = PARTITION_COLUMNS.index("scope_id")
_WHOLE = f"SELECT {', '.join(PARTITION_COLUMNS)} FROM partitions WHERE id IN (:ids*)"
_FIND_SCOPE = "SELECT id FROM partition_scopes WHERE table_id = :t AND view_instance_id = :i AND schema_hash = :h"
_ADD_SCOPE = "INSERT INTO partition_scopes (table_id, view_instance_id, schema_hash) VALUES (:t, :i, :h) RETURNING id"
_REQUEUE = """INSERT INTO temporary_files (file_path, file_size, table_id, retired_at, expiration, reason)
SELECT f.file_path, f.file_size, f.table_id, :now, :expiration, 'retired' FROM table_files f
WHERE f.file_path IN (:paths*) AND f.retired_seq IS NOT NULL ON CONFLICT (file_path) DO NOTHING"""
_UNQUEUE = """DELETE FROM temporary_files WHERE file_path IN (:paths*)
AND EXISTS (SELECT 1 FROM table_files f WHERE f.file_path = temporary_files.file_path AND f.retired_seq IS NULL)"""
_RENUMBER = """UPDATE table_files SET retired_seq = :stamp, modified_at = :now
WHERE file_path IN (:paths*) AND table_id = :table_id AND (retired_seq > :last OR retired_seq <= added_seq) AND added_seq <= :last"""
# What Iceberg should hold of each file, in the order of the cases that the check reports
_REGROUP = f"""SELECT f.id, f.added_group, f.removed_group, f.file_type, CASE WHEN f.retired_seq IS NULL AND v.id IS NOT NULL THEN 1 ELSE 0 END
FROM table_files f LEFT JOIN table_metadata v ON v.table_id = f.table_id AND v.schema_hash = f.schema_hash
AND {is_visible("v.")} WHERE f.table_id = :table_id AND f.file_path IN (:paths*)"""
_SET_GROUPS = "UPDATE table_files SET added_group = :added, removed_group = :removed, modified_at = :now WHERE id = :id"
_OWN = """SELECT id FROM partitions WHERE table_id = :table_id AND id IN (:ids*)
UNION ALL SELECT partition_id FROM table_files WHERE table_id = :table_id AND partition_id IN (:ids*) AND retired_seq IS NULL"""
_NOTHINGS = (
    "DELETE FROM file_columns WHERE NOT EXISTS (SELECT 1 FROM table_files f WHERE f.id = file_columns.file_id)",
    "DELETE FROM file_ranges WHERE NOT EXISTS (SELECT 1 FROM table_files f WHERE f.id = file_ranges.id / 8)",
)
_FOOTERS_OF_NOTHING = """DELETE FROM partition_metadata WHERE NOT EXISTS (
SELECT 1 FROM table_files f WHERE f.file_path = partition_metadata.file_path AND f.file_type = 'parquet')"""
_FOOTERS_OF_ANOTHER = """UPDATE partition_metadata SET table_id =
(SELECT f.table_id FROM table_files f WHERE f.file_path = partition_metadata.file_path)
WHERE table_id <> (SELECT f.table_id FROM table_files f WHERE f.file_path = partition_metadata.file_path)"""


def recount_tables(registry: Registry, table_ids: Iterable[int]) -> int:
    """Counters and statistics of these tables from their visible files; how many tables."""
    ids = sorted(table_ids)
    for table_id in ids:
        registry.transact(lambda tx, t=table_id: recount(tx, tx.tables[t]), tables=[table_id])  # type: ignore[misc] # mypy loses the default
    return len(ids)


def recount_partitions(tx: Transaction, ids: Sequence[int]) -> int:
    """Rows and files of partitions from their live files, where only one of the two counts is wrong.

    When both are, a file row was lost or moved: then the partition's own counts are the only evidence of it, and stay.
    """
    wrong = [row for row in tx.query(_LIVE_SUMS, {"ids": list(ids)}) if (row[1] == row[3]) != (row[2] == row[4])]
    for partition_id, _, _, rows, files in wrong:
        tx.run(_SET_SUMS, {"id": partition_id, "rows": rows, "files": files, "now": tx.now})
    return len(wrong)


def clear_empty(tx: Transaction, ids: Sequence[int]) -> int:
    """Partitions without rows and files lose the event range and file count that they cannot have."""
    return tx.run(_CLEAR, {"ids": list(ids), "now": tx.now})


def set_event_range(tx: Transaction, partition_id: int, event_range: tuple[int, int] | None) -> None:
    low, high = event_range or (None, None)
    tx.run(_EVENT_RANGE, {"id": partition_id, "low": low, "high": high, "now": tx.now})


def rescope(tx: Transaction, ids: Sequence[int]) -> int:
    """Give partitions the scope of their table, instance and schema; the row is inserted again, because a scope never changes."""
    for row in tx.query(_WHOLE, {"ids": list(ids)}):
        values = dict(zip(PARTITION_COLUMNS, row, strict=True))
        key = {"t": values["table_id"], "i": values["view_instance_id"], "h": values["schema_hash"]}
        scope = (tx.query(_FIND_SCOPE, key) or tx.query(_ADD_SCOPE, key))[0][0]
        tx.run("DELETE FROM partitions WHERE id = :id", {"id": row[0]})
        tx.insert("partitions", PARTITION_COLUMNS, [(*row[:_SCOPE_AT], scope, *row[_SCOPE_AT + 1 :])])
    return len(ids)


def retire_partition_ids(tx: Transaction, table: LockedTable, ids: Sequence[int], *, reason: str) -> int:
    """Those of the partitions that are this table's, with their live files, whether or not the partition's own row is still there."""
    own = tuple(sorted({row[0] for row in tx.query(_OWN, {"table_id": table.table_id, "ids": list(ids)})}))
    return retire_loaded(tx, table, PartitionsToRetire(partition_ids=own), reason=reason, grace_us=DEFAULT_GRACE_US).files


def requeue_retired(tx: Transaction, paths: Sequence[str]) -> int:
    """Queue retired files that would never be deleted again, for a whole grace period."""
    return tx.run(_REQUEUE, {"paths": list(paths), "now": tx.now, "expiration": tx.now + DEFAULT_GRACE_US})


def unqueue_live(tx: Transaction, paths: Sequence[str]) -> int:
    return tx.run(_UNQUEUE, {"paths": list(paths)})


def renumber_retired(tx: Transaction, table: LockedTable, paths: Sequence[str]) -> int:
    """Retirements at impossible numbers are taken for this moment's: readers of earlier numbers see the file, as they did."""
    params = {
        "paths": list(paths),
        "table_id": table.table_id,
        "stamp": table.journal_number,
        "last": table.head.last_seq,
        "now": tx.modified_at(table),
    }
    return tx.run(_RENUMBER, params)


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The groups of one file, and whether readers see it."""

    added: int | None
    removed: int | None
    is_parquet: bool
    is_visible: bool

    def repaired(self, *, last: int, following: int) -> tuple[int | None, int | None]:
        """Those of a file that Iceberg holds exactly as long as readers see it; `following` is the group that is allocated next."""
        known = self.added is not None and 1 <= self.added <= last and self.is_parquet
        if not known:
            return None, None  # it never entered, or will enter with the next seal
        if self.is_visible:
            return self.added, None
        is_true = self.removed is not None and (self.added or 0) < self.removed <= last
        return self.added, self.removed if is_true else following


def regroup(tx: Transaction, table: LockedTable, paths: Sequence[str]) -> int:
    """Groups of these files as their rows demand; what should have left Iceberg leaves with a new group."""
    last, now = table.last_group, tx.modified_at(table)
    changed = 0
    for file_id, added, removed, file_type, shown in tx.query(_REGROUP, {"table_id": table.table_id, "paths": list(paths)}):
        found = Groups(added=added, removed=removed, is_parquet=file_type == "parquet", is_visible=bool(shown))
        wanted = found.repaired(last=last, following=last + 1)
        if wanted != (added, removed):
            changed += tx.run(_SET_GROUPS, {"id": file_id, "added": wanted[0], "removed": wanted[1], "now": now})
            if (wanted[1] or 0) > table.last_group:
                allocate_group(tx, table, "repair")
    tx.run(
        "UPDATE tables SET last_group = :group, last_modified = :now WHERE id = :id",
        {"group": table.last_group, "now": now, "id": table.table_id},
    )
    return changed


def drop_statistics_of_nothing(tx: Transaction) -> int:
    return sum(tx.run(sql) for sql in _NOTHINGS)


def drop_footers_of_nothing(tx: Transaction) -> int:
    return tx.run(_FOOTERS_OF_NOTHING) + tx.run(_FOOTERS_OF_ANOTHER)


def in_batches(items: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (items[start : start + _BATCH] for start in range(0, len(items), _BATCH))


def list_live_files(reader: Queryable, partition_id: int) -> RawRows:
    """Path and type of the live files of one partition."""
    sql = "SELECT file_path, file_type FROM table_files WHERE partition_id = :id AND retired_seq IS NULL ORDER BY id"
    return reader.query(sql, {"id": partition_id})
