"""Planning: which files a query must read, from one snapshot of the registry, never touching a footer.

Paths come back as one text per query, not one row per file: a hundred thousand rows cost more to
fetch than to find.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakebed.core.errors import InvalidValueError
from lakebed.core.results import single_result
from lakebed.core.rows import TableFiles
from lakebed.core.times import show, to_micros
from lakebed.registry.files.range_index import IS_FOUND, find_slot, position_of, scope_of
from lakebed.registry.ids import ids_of_table
from lakebed.registry.journal.changes import find_change
from lakebed.registry.schema.predicates import VISIBLE_HASHES
from lakebed.registry.table_cache import find_named, missing_table
from lakebed.registry.tables.serving import find_number_of_version_at, list_hashes_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.core.names import TableName
    from lakebed.registry.backends.protocol import Queryable
    from lakebed.registry.transaction import Reader

_HEAD = """SELECT t.id, s.last_seq, s.horizon_seq FROM tables t JOIN table_seq s ON s.table_id = t.id
WHERE t.database = :database AND t.name = :name AND t.dropped_at IS NULL"""
_PATHS = {"sqlite": "group_concat(f.file_path, char(10))", "postgresql": "string_agg(f.file_path, chr(10))"}
_LIVE = "f.retired_seq IS NULL"
_OF_TABLE = "f.table_id = :table_id"
# No index knows journal numbers or times
_IN_RANGE = f"{_OF_TABLE} AND {ids_of_table('f.')}"
_AS_OF = "f.added_seq <= :as_of AND (f.retired_seq IS NULL OR f.retired_seq > :as_of)"
_AT_GROUP = "f.added_group <= :as_of AND (f.removed_group IS NULL OR f.removed_group > :as_of)"
# Null lower or upper: nothing is known, so the file stays
_PRUNED = """NOT EXISTS (SELECT 1 FROM file_columns c WHERE c.file_id = f.id AND c.field_id = :field{n}
AND (c.upper < CAST(:lower{n} AS {blob}) OR c.lower > CAST(:upper{n} AS {blob})))"""
_BLOB = {"sqlite": "blob", "postgresql": "bytea"}
# A column that has no row here (it came later, or is not among those kept) is unknown: the file stays
_WITHOUT_NULLS = "NOT EXISTS (SELECT 1 FROM file_columns c WHERE c.file_id = f.id AND c.field_id = :null{n} AND c.null_count = 0)"
_ONLY_NULLS = "NOT EXISTS (SELECT 1 FROM file_columns c WHERE c.file_id = f.id AND c.field_id = :null{n} AND c.null_count = c.value_count)"
_INSTANCE = "EXISTS (SELECT 1 FROM partitions p WHERE p.id = f.partition_id AND p.view_instance_id = :instance)"
_LIVE_PATHS = "SELECT partition_path FROM table_stats WHERE table_id = :table_id"
_PAST_PATHS = "SELECT DISTINCT f.partition_path FROM table_files f WHERE"
_JSON = "SELECT file_path FROM table_files WHERE file_path IN (:paths*) AND file_type = 'json'"
_EVENTS = """SELECT min(min_event_time), max(max_event_time) FROM partitions
WHERE scope_id IN (SELECT id FROM partition_scopes WHERE table_id = :table_id AND schema_hash IN (:hashes*))"""
_PARQUET = ".parquet"
_NUMBER_AT = f"""SELECT max(n), (SELECT horizon_seq FROM table_seq WHERE table_id = :table_id)
FROM (SELECT max(f.added_seq) AS n FROM table_files f WHERE {_IN_RANGE} AND f.created_at <= :at
UNION ALL SELECT max(f.retired_seq) FROM table_files f WHERE {_IN_RANGE} AND f.retired_seq IS NOT NULL AND f.modified_at <= :at) AS found"""


@dataclass(frozen=True, slots=True)
class AtGroup:
    """The files that an Iceberg snapshot of this group holds."""

    group: int


AsOf = int | AtGroup  # a bare number is the journal's


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRange:
    """Selects rows whose column is between the bounds (closed, sortable bytes; None = open).

    The coordinates let the range index answer when the column is indexed.
    """

    field_id: int
    lower: bytes | None = None
    upper: bytes | None = None
    lower_coordinate: float | None = None
    upper_coordinate: float | None = None


@single_result
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Files to read as they stood at `journal_number`; all of them exist as long as a lease holds that number."""

    table_id: int
    journal_number: int
    paths: list[str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NullTest:
    """Selects rows whose column is null, or is not."""

    field_id: int
    is_null: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCount:
    """How much a plan would read."""

    files: int
    rows: int
    size_bytes: int


def read_plan(
    reader: Reader,
    name: TableName,
    *,
    ranges: Sequence[ColumnRange] = (),
    nulls: Sequence[NullTest] = (),
    partition_paths: Sequence[str] | None = None,
    instance: str | None = None,
    as_of: AsOf | None = None,
) -> Plan:
    """The visible files that may hold wanted rows; pruning never drops one that does. The snapshot is the caller's: a join sees one instant."""
    request = _PlanRequest(ranges=ranges, nulls=nulls, partition_paths=partition_paths, instance=instance, as_of=as_of)
    head = _read_head(reader, name, request)
    text = _select(reader, head, request, _PATHS[reader.dialect])[0]
    number = as_of if isinstance(as_of, int) else head.last_seq
    return Plan(table_id=head.table_id, journal_number=number, paths=text.split("\n") if text else [])


def count_files(
    reader: Reader,
    name: TableName,
    *,
    ranges: Sequence[ColumnRange] = (),
    nulls: Sequence[NullTest] = (),
    partition_paths: Sequence[str] | None = None,
    instance: str | None = None,
    as_of: AsOf | None = None,
) -> FileCount:
    """How much `read_plan` of the same question would name."""
    request = _PlanRequest(ranges=ranges, nulls=nulls, partition_paths=partition_paths, instance=instance, as_of=as_of)
    head = _read_head(reader, name, request)
    sums = "count(*), COALESCE(sum(f.row_count), 0), COALESCE(sum(f.file_size), 0)"
    files, rows, size_bytes = _select(reader, head, request, sums)
    return FileCount(files=int(files), rows=int(rows), size_bytes=int(size_bytes))


def list_partition_paths(reader: Reader, table_id: int, *, as_of: AsOf | None = None) -> list[str]:
    """The partition paths that have files; for the present from the counters, without a look at any file."""
    if as_of is None:
        return [row[0] for row in reader.query(_LIVE_PATHS, {"table_id": table_id})]
    of_table, then, number = _then(as_of)
    sql = f"{_PAST_PATHS} {of_table} AND {then}"
    return [row[0] for row in reader.query(sql, {"table_id": table_id, "as_of": number})]


def list_json(reader: Queryable, paths: Sequence[str]) -> frozenset[str]:
    """Those of `paths` that are JSON files. No JSON file may be called *.parquet, so that nothing is asked for most plans."""
    asked = [path for path in paths if not path.endswith(_PARQUET)]
    return frozenset(row[0] for row in reader.query(_JSON, {"paths": asked})) if asked else frozenset()


def find_event_range(reader: Reader, table_id: int) -> tuple[int, int] | None:
    """The first and the last event time of the visible rows, in microseconds; None when no row has one."""
    hashes = [row[0] for row in reader.query(VISIBLE_HASHES, {"table_id": table_id})]
    ((low, high),) = reader.query(_EVENTS, {"table_id": table_id, "hashes": hashes})
    return None if low is None else (int(low), int(high))


def find_number_at(reader: Queryable, table_id: int, moment: int) -> int:
    """The journal number of the last change of files or columns at or before `moment` (UTC microseconds).

    Files that are gone have no number any more; where the journal still has it, the oldest number kept is exact too.
    """
    ((found, horizon),) = reader.query(_NUMBER_AT, {"table_id": table_id, "at": moment})
    served = find_number_of_version_at(reader, table_id, moment)
    if (found is not None or horizon) and max(found or 0, served) >= horizon:
        return max(int(found or 0), served)
    reached = _find_moment(reader, table_id, horizon)
    if reached is not None and reached <= moment:
        return int(horizon)
    if found is None and not horizon:
        message = f"the table had no file yet at {show(moment)}"
        raise InvalidValueError(message)
    when = "" if reached is None else f" of {show(reached)}"
    message = f"what was there at {show(moment)} is not kept any more: the nearest that is kept is journal number {horizon}{when}"
    raise InvalidValueError(message)


def _find_moment(reader: Queryable, table_id: int, number: int) -> int | None:
    """When this change was made, by its file's own stamp: the journal's is the trigger's, and SQLite's know milliseconds only."""
    event = find_change(reader, table_id, number)
    if event is None:
        return None
    return to_micros(event.data.modified_at if isinstance(event.data, TableFiles) else event.timestamp)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlanRequest:
    ranges: Sequence[ColumnRange]
    nulls: Sequence[NullTest]
    partition_paths: Sequence[str] | None
    instance: str | None
    as_of: AsOf | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    table_id: int
    last_seq: int
    hashes: list[str]


def _read_head(reader: Reader, name: TableName, request: _PlanRequest) -> _Head:
    heads = reader.query(_HEAD, {"database": name.database, "name": name.name})
    if not heads:
        if (alike := find_named(reader, name)) is None:
            raise missing_table(reader, name)
        return _read_head(reader, alike[1], request)
    table_id, last_seq, horizon = heads[0]
    if request.as_of is not None:
        if isinstance(request.as_of, int):
            _require_reachable(name, request.as_of, last_seq, horizon)
        if request.instance is not None:  # a retired partition takes its instance with it
            message = f"{name}: an earlier state can be read for all instances only: leave out instance or as_of"
            raise InvalidValueError(message)
    hashes = list_hashes_at(reader, table_id, request.as_of) if isinstance(request.as_of, int) else None
    hashes = hashes or [row[0] for row in reader.query(VISIBLE_HASHES, {"table_id": table_id})]
    return _Head(table_id=table_id, last_seq=last_seq, hashes=hashes)


def _select(reader: Reader, head: _Head, request: _PlanRequest, what: str) -> Sequence[Any]:
    """One row about all files that the question leaves."""
    of_table, then, number = _then(request.as_of)
    params: dict[str, Any] = {"table_id": head.table_id, "hashes": head.hashes, "as_of": number}
    conditions = [of_table, then]
    if not isinstance(request.as_of, AtGroup):  # what a snapshot holds was visible then, whatever became of its version
        conditions.append("f.schema_hash IN (:hashes*)")
    if request.partition_paths is not None:
        conditions.append("f.partition_path IN (:partition_paths*)")
        params["partition_paths"] = list(request.partition_paths)
    if request.instance is not None:
        conditions.append(_INSTANCE)
        params["instance"] = request.instance
    for n, test in enumerate(request.nulls):
        conditions.append((_WITHOUT_NULLS if test.is_null else _ONLY_NULLS).format(n=n))
        params[f"null{n}"] = test.field_id
    _add_ranges(reader, head.table_id, request.ranges, conditions, params)
    sql = f"SELECT {what} FROM table_files f WHERE {' AND '.join(conditions)}"
    return reader.query(sql, {key: value for key, value in params.items() if f":{key}" in sql})[0]


def _then(as_of: AsOf | None) -> tuple[str, str, int | None]:
    """The condition that finds the table, the one that finds the moment, and its number."""
    match as_of:
        case None:
            return _OF_TABLE, _LIVE, None
        case AtGroup(group=group):
            return _OF_TABLE, _AT_GROUP, group
        case _:
            return _IN_RANGE, _AS_OF, as_of


def require_number(reader: Reader, name: TableName, number: int) -> None:
    """Refuse a journal number that the table has not reached, or whose files may be gone."""
    heads = reader.query(_HEAD, {"database": name.database, "name": name.name})
    _require_reachable(name, number, *heads[0][1:])


def _require_reachable(name: TableName, as_of: int, last_seq: int, horizon: int) -> None:
    if not horizon <= as_of <= last_seq:
        message = f"{name}: journal number {as_of} cannot be read; kept are {horizon} to {last_seq}"
        raise InvalidValueError(message)


def _add_ranges(reader: Reader, table_id: int, ranges: Sequence[ColumnRange], conditions: list[str], params: dict[str, Any]) -> None:
    """Exact comparison for every range; the first indexed one also leads the search."""
    for n, wanted in enumerate(ranges):
        conditions.append(_PRUNED.format(n=n, blob=_BLOB[reader.dialect]))
        params.update({f"field{n}": wanted.field_id, f"lower{n}": wanted.lower, f"upper{n}": wanted.upper})
        slot = find_slot(reader, table_id, wanted.field_id)
        if slot is None or "scope" in params or (wanted.lower_coordinate is None and wanted.upper_coordinate is None):
            continue
        conditions[0] = f"+{_OF_TABLE}"  # the sign keeps the planner from starting with all files of the table
        conditions.append(IS_FOUND[reader.dialect])
        params["scope"] = scope_of(table_id, slot)
        params["low"] = position_of(-math.inf if wanted.lower_coordinate is None else wanted.lower_coordinate)
        params["high"] = position_of(math.inf if wanted.upper_coordinate is None else wanted.upper_coordinate)
