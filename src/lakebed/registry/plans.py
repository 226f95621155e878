"""Planning: which files a query must read, from one snapshot of the registry, never touching a footer.

Paths come back as one text per query, not one row per file: a hundred thousand rows cost more to
fetch than to find.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakebed.core.errors import InvalidValueError, TableNotFoundError
from lakebed.core.times import show
from lakebed.registry.ranges import IS_FOUND, find_slot, position_of, scope_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.core.names import TableName
    from lakebed.registry.engine import Registry
    from lakebed.registry.transaction import Reader

_HEAD = """SELECT t.id, s.last_seq, s.horizon_seq FROM tables t JOIN table_seq s ON s.table_id = t.id
WHERE t.database = :database AND t.name = :name AND t.dropped_at IS NULL"""
_HASHES = "SELECT schema_hash FROM table_metadata WHERE table_id = :table_id AND standing IN ('serving', 'readable')"
_PATHS = {"sqlite": "group_concat(f.file_path, char(10))", "postgresql": "string_agg(f.file_path, chr(10))"}
_LIVE = "f.retired_seq IS NULL"
_AS_OF = "f.added_seq <= :as_of AND (f.retired_seq IS NULL OR f.retired_seq > :as_of)"
# Null lower or upper: nothing is known, so the file stays
_PRUNED = """NOT EXISTS (SELECT 1 FROM file_columns c WHERE c.file_id = f.id AND c.field_id = :field{n}
AND (c.upper < CAST(:lower{n} AS {blob}) OR c.lower > CAST(:upper{n} AS {blob})))"""
_BLOB = {"sqlite": "blob", "postgresql": "bytea"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRange:
    """Rows are wanted whose column lies between the bounds (closed, sortable bytes; None = open).

    The coordinates let the range index answer when the column is indexed.
    """

    field_id: int
    lower: bytes | None = None
    upper: bytes | None = None
    lower_coordinate: float | None = None
    upper_coordinate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Files to read as they stood at `journal_number`; all of them exist as long as a lease holds that number."""

    table_id: int
    journal_number: int
    paths: list[str] = field(repr=False)


def plan_files(
    registry: Registry,
    name: TableName,
    *,
    ranges: Sequence[ColumnRange] = (),
    partition_paths: Sequence[str] | None = None,
    as_of: int | None = None,
) -> Plan:
    """The visible files that may hold wanted rows. Pruning never drops one that does."""
    with registry.read() as reader:
        return read_plan(reader, name, ranges=ranges, partition_paths=partition_paths, as_of=as_of)


def read_plan(
    reader: Reader,
    name: TableName,
    *,
    ranges: Sequence[ColumnRange] = (),
    partition_paths: Sequence[str] | None = None,
    as_of: int | None = None,
) -> Plan:
    """`plan_files` inside a snapshot that the caller holds, so that a join sees all its tables at one instant."""
    heads = reader.query(_HEAD, {"database": name.database, "name": name.name})
    if not heads:
        raise TableNotFoundError(str(name))
    table_id, last_seq, horizon = heads[0]
    if as_of is not None:
        _require_reachable(name, as_of, last_seq, horizon)
    hashes = [row[0] for row in reader.query(_HASHES, {"table_id": table_id})]
    params: dict[str, Any] = {"table_id": table_id, "hashes": hashes, "as_of": as_of}
    conditions = ["f.table_id = :table_id", _LIVE if as_of is None else _AS_OF, "f.schema_hash IN (:hashes*)"]
    if partition_paths is not None:
        conditions.append("f.partition_path IN (:partition_paths*)")
        params["partition_paths"] = list(partition_paths)
    _add_ranges(reader, table_id, ranges, conditions, params)
    sql = f"SELECT {_PATHS[reader.dialect]} FROM table_files f WHERE {' AND '.join(conditions)}"
    text = reader.query(sql, {key: value for key, value in params.items() if f":{key}" in sql})[0][0]
    return Plan(table_id=table_id, journal_number=last_seq if as_of is None else as_of, paths=text.split("\n") if text else [])


def find_number_at(reader: Registry | Reader, table_id: int, moment: int) -> int:
    """The journal number of the last change of files at or before `moment` (UTC microseconds)."""
    rows = reader.query(
        """SELECT max(n) FROM (SELECT max(added_seq) AS n FROM table_files WHERE table_id = :id AND created_at <= :at
        UNION ALL SELECT max(retired_seq) FROM table_files WHERE table_id = :id AND retired_seq IS NOT NULL AND modified_at <= :at) AS found""",
        {"id": table_id, "at": moment},
    )
    if rows[0][0] is None:
        message = f"the table had no file yet at {show(moment)}"
        raise InvalidValueError(message)
    return int(rows[0][0])


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
        conditions[0] = "+f.table_id = :table_id"  # the sign keeps the planner from starting with all files of the table
        conditions.append(IS_FOUND[reader.dialect])
        params["scope"] = scope_of(table_id, slot)
        params["low"] = position_of(-math.inf if wanted.lower_coordinate is None else wanted.lower_coordinate)
        params["high"] = position_of(math.inf if wanted.upper_coordinate is None else wanted.upper_coordinate)
