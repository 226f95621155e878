"""Groups: the numbered steps that make Iceberg a pure function of the registry."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakebed.core.errors import InvalidValueError
from lakebed.core.rows import TableFiles, list_columns
from lakebed.core.tables.snapshots import Pending, Trigger
from lakebed.registry.codec import decode_row
from lakebed.registry.journal.changes import last_journal_number
from lakebed.registry.journal.leases import require_epoch
from lakebed.registry.schema.predicates import VISIBLE_HASHES, is_pending

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from lakebed.core.names import TableName
    from lakebed.registry.backends.protocol import Queryable
    from lakebed.registry.journal.leases import Lease
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import LockedTable, Transaction

_COLUMNS = ", ".join(f"f.{column}" for column in list_columns(TableFiles))
PENDING = f"""table_id = :table_id AND {is_pending()}
AND schema_hash IN ({VISIBLE_HASHES})"""
_AT_GROUP = f"""SELECT {_COLUMNS} FROM table_files f
WHERE f.table_id = :table_id AND f.added_group <= :g AND (f.removed_group IS NULL OR f.removed_group > :g) ORDER BY f.id"""
# Two queries that share no row, each led by its own index: an OR of the two would read every file of every table
_ADDED = """SELECT f.id FROM table_files f
WHERE f.table_id = :table_id AND f.added_group > :low AND f.added_group <= :high AND (f.removed_group IS NULL OR f.removed_group > :high)
ORDER BY f.id"""
_REMOVED = """SELECT f.id FROM table_files f
WHERE f.table_id = :table_id AND f.removed_group > :low AND f.removed_group <= :high AND f.added_group <= :low
ORDER BY f.id"""
_IDS_AT_GROUP = """SELECT f.id FROM table_files f
WHERE f.table_id = :table_id AND f.added_group <= :g AND (f.removed_group IS NULL OR f.removed_group > :g) ORDER BY f.id"""
# PostgreSQL would lead a condition on groups by their index, and read every file of the table: what the paths find is compared outside
_BY_PATH = "SELECT f.file_path, f.id, f.table_id, f.added_group, f.removed_group FROM table_files f WHERE f.file_path IN (:paths*)"
_BY_ID = f"SELECT {_COLUMNS} FROM table_files f WHERE f.id IN (:ids*) ORDER BY f.id"
_PATHS = "SELECT f.file_path, f.id FROM table_files f WHERE f.id IN (:ids*)"
_MANY = 500
_TOUCHED = """SELECT added_group FROM table_files WHERE table_id = :table_id AND added_group > :low AND added_group <= :high
UNION SELECT removed_group FROM table_files WHERE table_id = :table_id AND removed_group > :low AND removed_group <= :high"""
_NOTE = "INSERT INTO table_groups (table_id, group_no, kind) VALUES (:table_id, :g, :kind)"
_KINDS = "SELECT group_no, kind FROM table_groups WHERE table_id = :table_id AND group_no > :low AND group_no <= :high"
REWRITES = frozenset({"compact", "merge"})  # kinds of operations that keep the rows as they are; stored: never rename


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStep:
    """What Iceberg must add and remove to go from one group to another: ids of files, in order, because a step may have millions."""

    added: Sequence[int]
    removed: Sequence[int]
    is_rewrite: bool = False  # every group in between only wrote the same rows again
    instances: Mapping[int, str] = field(default_factory=dict)  # of the added files, other than the global one, as the step was planned
    trigger: str | None = None  # what made the newest of these groups; None when no record of it is left


def allocate_group(tx: Transaction, table: LockedTable, kind: str) -> int:
    """The next group, for a change of this kind."""
    table.last_group += 1
    note_kind(tx, table, table.last_group, kind)
    return table.last_group


def note_kind(tx: Transaction, table: LockedTable, group: int, kind: str) -> None:
    """What made a group, until Iceberg has it: the kind of a change, or the trigger that sealed what was pending."""
    tx.send(_NOTE, {"table_id": table.table_id, "g": group, "kind": kind})


def seal(tx: Transaction, name: TableName, *, trigger: Trigger = Trigger.EVERY_INSERT) -> int | None:
    """Give the pending files the next group; None, and nothing changed, when none is pending."""
    table = tx.require(name)
    params = {"table_id": table.table_id}
    if not tx.query(f"SELECT 1 FROM table_files WHERE {PENDING} LIMIT 1", params):
        return None
    allocate_group(tx, table, trigger.recorded)
    instant = tx.modified_at(table)
    tx.send(
        f"UPDATE table_files SET added_group = :g, modified_at = :now WHERE {PENDING}", {**params, "g": table.last_group, "now": instant}
    )
    tx.send(
        "UPDATE tables SET last_group = :g, last_modified = :now WHERE id = :table_id", {**params, "g": table.last_group, "now": instant}
    )
    return table.last_group


def list_files_at_group(reader: Queryable, table_id: int, group: int) -> list[TableFiles]:
    """Exactly what Iceberg holds at `group`."""
    return [decode_row(TableFiles, row) for row in reader.query(_AT_GROUP, {"table_id": table_id, "g": group})]


def plan_step(reader: Queryable, table_id: int, *, since: int, until: int) -> GroupStep:
    """The difference between two groups; a file that came and went in between is in neither."""
    if since > until:
        message = f"group {since} is after {until}"
        raise InvalidValueError(message)
    params = {"table_id": table_id, "low": since, "high": until}
    kinds: dict[int, str] = dict(reader.query(_KINDS, params))
    return GroupStep(
        is_rewrite=_are_rewrites(kinds, {row[0] for row in reader.query(_TOUCHED, params)}),
        trigger=kinds[max(kinds)] if kinds else None,
        added=_list_ids(reader, _ADDED, params),
        removed=_list_ids(reader, _REMOVED, params),
    )


def list_ids_at_group(reader: Queryable, table_id: int, group: int) -> Sequence[int]:
    """Of the files that Iceberg holds at `group`, in order."""
    return _list_ids(reader, _IDS_AT_GROUP, {"table_id": table_id, "g": group})


def find_at_group(reader: Queryable, table_id: int, group: int, paths: Sequence[str]) -> dict[str, int]:
    """Those of the paths that Iceberg holds at `group`, with their ids."""
    return {
        path: file_id
        for path, file_id, owner, added, removed in _find_by_path(reader, paths)
        if owner == table_id and added is not None and added <= group and (removed is None or removed > group)
    }


def load_files(reader: Queryable, ids: Sequence[int]) -> list[TableFiles]:
    """Files by their ids, in order; those that are gone are left out."""
    starts = range(0, len(ids), _MANY)
    return [decode_row(TableFiles, row) for at in starts for row in reader.query(_BY_ID, {"ids": list(ids[at : at + _MANY])})]


def find_paths(reader: Queryable, ids: Sequence[int]) -> dict[str, int]:
    """Paths of the files with these ids; those that are gone are left out."""
    starts = range(0, len(ids), _MANY)
    return {row[0]: row[1] for at in starts for row in reader.query(_PATHS, {"ids": list(ids[at : at + _MANY])})}


def find_ids(reader: Queryable, paths: Sequence[str]) -> list[int]:
    """Of the files with these paths, in any order; paths without a row are left out."""
    return [row[1] for row in _find_by_path(reader, paths)]


def _find_by_path(reader: Queryable, paths: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    for start in range(0, len(paths), _MANY):
        yield from reader.query(_BY_PATH, {"paths": list(paths[start : start + _MANY])})


def _list_ids(reader: Queryable, sql: str, params: Mapping[str, int]) -> array[int]:
    return array("q", (row[0] for row in reader.query(sql, params)))


def _are_rewrites(kinds: Mapping[int, str], touched: AbstractSet[int]) -> bool:
    """A file that came and went in between may have brought rows, so all groups that hold a file count, not only those of the difference."""
    rewrites = {group for group, kind in kinds.items() if kind in REWRITES}
    return bool(rewrites) and rewrites >= touched


def set_committed_group(tx: Transaction, name: TableName, group: int, *, snapshot_id: int, lease: Lease | None = None) -> None:
    """Record that Iceberg reached `group`; never goes back, and only the holder of the lease may say so."""
    if lease is not None:
        require_epoch(tx, lease)
    table = tx.require(name)
    if group > table.last_group:
        message = f"{name}: group {group} was never allocated, the last one is {table.last_group}"
        raise InvalidValueError(message)
    tx.send("DELETE FROM table_groups WHERE table_id = :id AND group_no <= :g", {"id": table.table_id, "g": group})
    if group >= table.head.committed_group:
        tx.run(
            "UPDATE tables SET committed_group = :g, current_snapshot_id = :s, last_modified = :now WHERE id = :id",
            {"g": group, "s": snapshot_id, "now": tx.modified_at(table), "id": table.table_id},
        )


_ANY = f"SELECT 1 FROM table_files WHERE {PENDING} LIMIT 1"
_SUMS = f"""SELECT count(*), COALESCE(sum(row_count), 0), COALESCE(sum(file_size), 0), COALESCE(min(created_at), 0)
FROM table_files WHERE {PENDING}"""
_GROUP = "SELECT min(added_group), count(added_group) FROM table_files WHERE id >= :first AND id < :beyond AND file_type = 'parquet'"
_UNDER_WAY = """SELECT last_group FROM tables WHERE id = :table_id AND committed_group < last_group AND EXISTS (
SELECT 1 FROM table_files WHERE id >= :first AND id < :beyond AND file_type = 'parquet' AND added_group IS NULL)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """`group` is None when nothing was pending. Every visible file of a change numbered up to `upto` has a group now."""

    group: int | None
    upto: int


def seal_table(registry: Registry, table_id: int, *, trigger: Trigger = Trigger.EVERY_INSERT) -> Sealed:
    """Give what is pending its group, which records the trigger. Looks first without the writers' lock; a dropped table has nothing to seal."""
    with registry.read() as reader:
        upto = last_journal_number(reader, table_id)
        if not reader.query(_ANY, {"table_id": table_id}):
            return Sealed(group=None, upto=upto)
    return registry.transact(lambda tx: _seal(tx, table_id, trigger), tables=[table_id])


def _seal(tx: Transaction, table_id: int, trigger: Trigger) -> Sealed:
    table = tx.tables[table_id]
    return Sealed(group=None if table.head.dropped_at is not None else seal(tx, table.name, trigger=trigger), upto=table.head.last_seq)


def read_pending(reader: Queryable, table_id: int) -> Pending:
    files, rows, size, since = reader.query(_SUMS, {"table_id": table_id})[0]
    return Pending(files=int(files), rows=int(rows), bytes=int(size), since=int(since))


def find_group_under_way(registry: Registry, table_id: int, file_ids: range) -> int | None:
    """The newest group, while Iceberg has not reached it and these files have none yet."""
    rows = registry.query(_UNDER_WAY, {"table_id": table_id, "first": file_ids.start, "beyond": file_ids.stop})
    return int(rows[0][0]) if rows else None


def require_group(registry: Registry, table_id: int, file_ids: range) -> int | None:
    """The group in which these files entered or will enter Iceberg, sealed now if need be; None when they hold none (JSON, staged)."""
    params = {"first": file_ids.start, "beyond": file_ids.stop}
    ((group, count),) = registry.query(_GROUP, params)
    if count == 0 and len(file_ids):
        seal_table(registry, table_id)
        ((group, count),) = registry.query(_GROUP, params)
    return None if group is None else int(group)
