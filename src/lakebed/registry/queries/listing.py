"""What the registry holds, as typed rows: one per partition, one per file, one per view set."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.core.partitions import PARTITION_FORMAT
from lakebed.core.results import Rows
from lakebed.core.rows import TableFiles, list_columns
from lakebed.core.times import from_micros
from lakebed.registry.codec import decode_row
from lakebed.registry.ids import ID_BITS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from lakebed.registry.backends.protocol import Queryable

PARTITION_COLUMNS = """p.id, t.database || '.' || t.name, p.table_id, p.view_instance_id, p.begin_insert_time, p.end_insert_time,
p.min_event_time, p.max_event_time, p.schema_hash, p.source_data_hash, p.lookup_hash, p.fingerprint, p.num_rows,
p.partition_format_version, p.updated, p.file_count,
COALESCE((SELECT sum(f.file_size) FROM table_files f WHERE f.partition_id = p.id AND f.retired_seq IS NULL), 0),
CASE WHEN p.file_count = 1 THEN (SELECT f.file_path FROM table_files f WHERE f.partition_id = p.id AND f.retired_seq IS NULL) END"""
_PARTITIONS = f"SELECT {PARTITION_COLUMNS} FROM partitions p JOIN tables t ON t.id = p.table_id WHERE {{where}} ORDER BY p.id LIMIT :limit"
# what is shown of a partition costs a look at its files: only for those of the page
_PARTITIONS_IN_TIME = f"""SELECT {PARTITION_COLUMNS} FROM partitions p JOIN tables t ON t.id = p.table_id WHERE p.id IN
(SELECT p.id FROM partitions p JOIN tables t ON t.id = p.table_id WHERE {{where}} ORDER BY p.begin_insert_time, p.id LIMIT :limit)
ORDER BY p.begin_insert_time, p.id"""
_FILE_COLUMNS = list_columns(TableFiles)
_FILES = f"""SELECT {", ".join(f"f.{column}" for column in _FILE_COLUMNS)}, t.database || '.' || t.name FROM table_files f
JOIN tables t ON t.id = f.table_id WHERE {{where}} ORDER BY f.id LIMIT :limit"""
_VIEW_SETS = f"""SELECT t.id, t.database || '.' || t.name, v.schema_hash, v.schema_version, s.schema_hash, v.properties, v.schema,
(SELECT count(*) FROM partitions p WHERE p.id >= (t.id << {ID_BITS}) AND p.id < ((t.id + 1) << {ID_BITS})), t.row_count, t.file_count, t.total_size, t.state, t.created_at, t.last_modified
FROM tables t JOIN table_metadata v ON v.table_id = t.id AND v.standing = 'serving'
LEFT JOIN table_metadata s ON s.table_id = t.id AND s.standing = 'staged'
WHERE t.kind = 'view_set' AND t.dropped_at IS NULL ORDER BY t.database, t.name"""
_ALL = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """One partition with the sums of its files; `file_path` only when there is exactly one."""

    partition_id: int
    view_set_name: str
    table_id: int
    view_instance_id: str
    begin_insert_time: datetime
    end_insert_time: datetime
    min_event_time: datetime | None
    max_event_time: datetime | None
    schema_hash: str
    source_data_hash: str | None
    lookup_hash: str | None
    fingerprint: str
    num_rows: int
    partition_format_version: int
    updated: datetime
    file_count: int
    file_size: int
    file_path: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRow:
    """One file: the columns of `table_files`, and the name of its table."""

    id: int
    table_id: int
    partition_id: int
    file_name: str
    file_path: str
    file_size: int
    file_type: str
    partition_path: str
    row_count: int
    checksum: str
    checksum_kind: str
    is_compressed: bool
    schema_hash: str
    added_seq: int
    retired_seq: int | None
    added_group: int | None
    removed_group: int | None
    created_at: datetime
    modified_at: datetime
    view_set_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSetRow:
    """One view set with its serving version; `staged_schema_hash` while a next definition is being built."""

    table_id: int
    view_set_name: str
    schema_hash: str
    schema_version: int
    staged_schema_hash: str | None
    definition: str
    schema: str
    partition_count: int
    row_count: int
    file_count: int
    total_size: int
    state: str
    created_at: datetime
    last_modified: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFilter:
    """The filter of a listing; None = any. Ranges are half-open microseconds, each end may be missing, and overlapping them is enough."""

    table_id: int | None = None
    instance: str | None = None
    schema_hash: str | None = None
    insert_begin: int | None = None
    insert_end: int | None = None
    begin: int | None = None
    end: int | None = None
    expired_before: int | None = None
    ids: list[int] | None = None


_CONDITIONS = {
    "instance": "p.view_instance_id = :instance",
    "schema_hash": "p.schema_hash = :schema_hash",
    "insert_begin": "p.end_insert_time > :insert_begin",
    "insert_end": "p.begin_insert_time < :insert_end",
    "begin": "p.max_event_time >= :begin",
    "end": "p.min_event_time < :end",
    "expired_before": "COALESCE(p.max_event_time, p.end_insert_time) < :expired_before",
    "ids": "p.id IN (:ids*)",
}


def find_partitions(
    reader: Queryable, wanted: PartitionFilter, *, after: tuple[int, int] | None = None, limit: int = _ALL
) -> Rows[PartitionRow]:
    """Partitions in the order of insert time, those of dropped tables only by id; `after` a begin and an id continues a page."""
    given = {name: value for name in _CONDITIONS if (value := getattr(wanted, name)) is not None}
    conditions = ["p.id > :after", "p.id < :beyond", *([] if wanted.ids is not None else ["t.dropped_at IS NULL"])]
    if after is not None:
        conditions.append("(p.begin_insert_time, p.id) > (:last_begin, :last_id)")
        given |= {"last_begin": after[0], "last_id": after[1]}
    sql = _PARTITIONS_IN_TIME.format(where=" AND ".join([*conditions, *(_CONDITIONS[name] for name in given if name in _CONDITIONS)]))
    rows = reader.query(sql, {**_window(wanted.table_id, 0), **given, "limit": limit})
    return Rows(PartitionRow, map(partition_row, rows))


def find_begin(reader: Queryable, partition_id: int) -> int | None:
    """Where the slice of a partition begins, None when it is not there."""
    rows = reader.query("SELECT begin_insert_time FROM partitions WHERE id = :id", {"id": partition_id})
    return rows[0][0] if rows else None


def list_partitions(reader: Queryable, table_id: int, *, after: int = 0, limit: int = _ALL) -> Rows[PartitionRow]:
    """Partitions of one table, dropped or not."""
    sql = _PARTITIONS.format(where="p.id > :after AND p.id < :beyond")
    return Rows(PartitionRow, map(partition_row, reader.query(sql, {**_window(table_id, after), "limit": limit})))


def list_files(
    reader: Queryable, table_id: int | None = None, *, retired: bool = False, after: int = 0, limit: int = _ALL
) -> Rows[FileRow]:
    """Live files in the order they were added, on request those too that wait for their deletion."""
    where = "f.id > :after AND f.id < :beyond"
    where += "" if retired else " AND f.retired_seq IS NULL"
    where += " AND t.dropped_at IS NULL" if table_id is None else ""
    rows = reader.query(_FILES.format(where=where), {**_window(table_id, after), "limit": limit})
    return Rows(FileRow, map(_file_row, rows))


def list_view_sets(reader: Queryable) -> Rows[ViewSetRow]:
    return Rows(ViewSetRow, map(_view_set_row, reader.query(_VIEW_SETS)))


def list_null_counts(reader: Queryable, path: str) -> dict[int, int]:
    """Of the columns of one file that have statistics, by field id."""
    sql = """SELECT c.field_id, c.null_count FROM file_columns c JOIN table_files f ON f.id = c.file_id
WHERE f.file_path = :path AND c.null_count IS NOT NULL"""
    return {row[0]: row[1] for row in reader.query(sql, {"path": path})}


def find_existing_range(reader: Queryable, table_id: int | None = None) -> tuple[datetime, datetime] | None:
    """First and last insert time of the partitions, for error messages."""
    sql = "SELECT min(begin_insert_time), max(end_insert_time) FROM partitions WHERE id > :after AND id < :beyond"
    low, high = reader.query(sql, _window(table_id, 0))[0]
    return None if low is None else (from_micros(low), from_micros(high))


def _window(table_id: int | None, after: int) -> Mapping[str, int]:
    """Ids contain the number of their table, so a table is a range of ids."""
    if table_id is None:
        return {"after": after, "beyond": _ALL}
    return {"after": max(after, table_id << ID_BITS), "beyond": (table_id + 1) << ID_BITS}


def partition_row(r: tuple[Any, ...]) -> PartitionRow:
    """From the columns `PARTITION_COLUMNS`."""
    return PartitionRow(
        partition_id=r[0],
        view_set_name=r[1],
        table_id=r[2],
        view_instance_id=r[3],
        begin_insert_time=from_micros(r[4]),
        end_insert_time=from_micros(r[5]),
        min_event_time=None if r[6] is None else from_micros(r[6]),
        max_event_time=None if r[7] is None else from_micros(r[7]),
        schema_hash=r[8],
        source_data_hash=r[9],
        lookup_hash=r[10],
        fingerprint=r[11],
        num_rows=r[12],
        partition_format_version=r[13],
        updated=from_micros(r[14]),
        file_count=r[15],
        file_size=int(r[16]),
        file_path=r[17],
    )


def _file_row(row: tuple[Any, ...]) -> FileRow:
    decoded = decode_row(TableFiles, row[:-1])
    return FileRow(**{column: getattr(decoded, column) for column in _FILE_COLUMNS}, view_set_name=row[-1])


def _view_set_row(r: tuple[Any, ...]) -> ViewSetRow:
    return ViewSetRow(
        table_id=r[0],
        view_set_name=r[1],
        schema_hash=r[2],
        schema_version=r[3],
        staged_schema_hash=r[4],
        definition=json.loads(r[5]).get("definition", ""),
        schema=bytes(r[6]).decode(),
        partition_count=r[7],
        row_count=r[8],
        file_count=r[9],
        total_size=r[10],
        state=r[11],
        created_at=from_micros(r[12]),
        last_modified=from_micros(r[13]),
    )


# What the SQL functions show: never rename
UNKNOWN_VIEW_SET, SCHEMA, FORMAT = "unknown view set", "schema", "format"
_LOWEST_FORMAT = 1
# A staged version is being built: its partitions are not incompatible
_SELECT = f"""SELECT p.id, COALESCE(t.database || '.' || t.name, ''), p.table_id, p.view_instance_id, p.begin_insert_time, p.end_insert_time,
CASE WHEN t.id IS NULL OR t.dropped_at IS NOT NULL THEN '{UNKNOWN_VIEW_SET}' WHEN m.id IS NULL THEN '{SCHEMA}' ELSE '{FORMAT}' END,
p.schema_hash, CASE WHEN t.dropped_at IS NULL THEN s.schema_hash END, p.partition_format_version, p.num_rows, p.file_count,
COALESCE((SELECT sum(f.file_size) FROM table_files f WHERE f.partition_id = p.id AND f.retired_seq IS NULL), 0),
CASE WHEN p.file_count = 1 THEN (SELECT f.file_path FROM table_files f WHERE f.partition_id = p.id AND f.retired_seq IS NULL) END
FROM partitions p LEFT JOIN tables t ON t.id = p.table_id
LEFT JOIN table_metadata s ON s.table_id = p.table_id AND s.standing = 'serving'
LEFT JOIN table_metadata m ON m.table_id = p.table_id AND m.schema_hash = p.schema_hash AND m.standing <> 'incompatible'
WHERE (t.id IS NULL OR t.dropped_at IS NOT NULL OR m.id IS NULL
OR p.partition_format_version NOT BETWEEN {_LOWEST_FORMAT} AND {PARTITION_FORMAT}) AND {{where}} ORDER BY p.id"""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncompatibleRow:
    """One partition, empty or not, and why it is out of sight. No current hash when its table was dropped.

    `incompatible_schema_hash` is `schema_hash` under the name of the specification; `file_path` only when there is exactly one file.
    """

    partition_id: int
    view_set_name: str
    table_id: int
    view_instance_id: str
    begin_insert_time: datetime
    end_insert_time: datetime
    reason: str
    schema_hash: str
    incompatible_schema_hash: str
    current_schema_hash: str | None
    partition_format_version: int
    num_rows: int
    file_count: int
    file_size: int
    file_path: str | None


def list_incompatible(reader: Queryable, table_id: int | None = None, *, ids: list[int] | None = None) -> Rows[IncompatibleRow]:
    """In the order of their ids; nothing that a reader can see, or will see after a promotion, is ever among them."""
    conditions, params = ["1 = 1"], {}
    if table_id is not None:
        conditions.append("p.id > :after AND p.id < :beyond")
        params = {"after": table_id << ID_BITS, "beyond": (table_id + 1) << ID_BITS}
    if ids is not None:
        conditions.append("p.id IN (:ids*)")
    rows = reader.query(_SELECT.format(where=" AND ".join(conditions)), {**params, **({} if ids is None else {"ids": ids})})
    return Rows(IncompatibleRow, map(_row, rows))


def _row(r: tuple[Any, ...]) -> IncompatibleRow:
    return IncompatibleRow(
        partition_id=r[0],
        view_set_name=r[1],
        table_id=r[2],
        view_instance_id=r[3],
        begin_insert_time=from_micros(r[4]),
        end_insert_time=from_micros(r[5]),
        reason=r[6],
        schema_hash=r[7],
        incompatible_schema_hash=r[7],
        current_schema_hash=r[8],
        partition_format_version=r[9],
        num_rows=r[10],
        file_count=r[11],
        file_size=int(r[12]),
        file_path=r[13],
    )
