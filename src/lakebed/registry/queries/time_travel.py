"""Time travel: resolve a journal number, a time or a snapshot to what planning needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

from lakebed.core.errors import InvalidValueError, SnapshotNotFoundError
from lakebed.core.schema.schema import Schema
from lakebed.core.times import Time, show, to_micros
from lakebed.registry.queries.plans import AsOf, AtGroup, find_number_at, read_plan, require_number
from lakebed.registry.snapshots.foreign import FOREIGN
from lakebed.registry.table_cache import missing_table
from lakebed.registry.tables.lake_tables import read_table
from lakebed.registry.tables.serving import find_version_at, find_version_of
from lakebed.registry.tables.versions import list_versions
from lakebed.registry.transaction import MAX_SKEW_US

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.core.names import TableName
    from lakebed.registry.queries.plans import ColumnRange, Plan
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.transaction import Reader

_FIND = "SELECT group_no, timestamp_ms, summary, expired_at, trigger FROM table_snapshots WHERE table_id = :table_id AND snapshot_id = :id"
_KEPT = f"""SELECT snapshot_id, timestamp_ms FROM table_snapshots
WHERE table_id = :table_id AND expired_at IS NULL AND trigger <> '{FOREIGN}' ORDER BY sequence_number"""
_LEAST_SNAPSHOT_ID = 1 << 40  # ids are random and long; no journal of one table comes this far


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """An earlier state of a table: which files it had, and the table under the version that served then. `at` = None: now."""

    at: AsOf | None
    table: LakeTable


def go_back(reader: Reader, table: LakeTable, as_of: int | Time | None) -> Moment:
    """A snapshot id where the table has or had one of that number, else a journal number; a time is the last change before it."""
    if as_of is None:
        return Moment(at=None, table=table)
    if isinstance(as_of, (date, str)):
        return _at_number(reader, table, find_number_at(reader, table.table_id, require_past(as_of, reader)))
    if isinstance(as_of, bool) or not isinstance(as_of, int):
        message = f"{table.name}: as_of={as_of!r} is not a journal number, a snapshot id or a time"
        raise InvalidValueError(message)
    rows = reader.query(_FIND, {"table_id": table.table_id, "id": as_of})
    if not rows and as_of < _LEAST_SNAPSHOT_ID:
        if as_of < 1:
            message = f"{table.name}: as_of={as_of} is not a journal number, which begin with 1, a snapshot id or a time"
            raise InvalidValueError(message)
        require_number(reader, table.name, as_of)
        return _at_number(reader, table, as_of)
    if rows and rows[0][4] == FOREIGN:
        message = f"{table.name}: another program committed snapshot {as_of}, and only Iceberg's metadata says what it holds: read it with another engine"
        raise InvalidValueError(message)
    if not rows or rows[0][3] is not None:
        raise _not_kept(reader, table, as_of, at_ms=rows[0][1] if rows else None)
    group, at_ms, summary, *_ = rows[0]
    version = find_version_of(reader, table.table_id, group=group, at_ms=at_ms, summary=summary)
    return Moment(at=AtGroup(group), table=_as_version(reader, table, version))


def plan_at(registry: Registry, name: TableName, *, ranges: Sequence[ColumnRange], as_of: int | Time | None) -> Plan:
    """`read_plan` of an earlier state, named as for `go_back`."""
    with registry.read() as reader:
        if as_of is None:
            return read_plan(reader, name, ranges=ranges)
        if (table := read_table(reader, name)) is None:
            raise missing_table(reader, name)
        return read_plan(reader, name, ranges=ranges, as_of=go_back(reader, table, as_of).at)


def require_past(as_of: Time, clock: Registry | Reader) -> int:
    """The time in microseconds, unless it is in the future by the registry's clock, whose state is not known."""
    moment, now = to_micros(as_of), clock.now()
    if moment > now + MAX_SKEW_US:
        message = f"as_of={show(moment)} is in the future: the registry's clock says {show(now)}"
        raise InvalidValueError(message)
    return moment


def _at_number(reader: Reader, table: LakeTable, number: int) -> Moment:
    return Moment(at=number, table=_as_version(reader, table, find_version_at(reader, table.table_id, number)))


def _as_version(reader: Reader, table: LakeTable, version: int | None) -> LakeTable:
    """The table with the columns, and a view set with the definition, of one of its versions."""
    if version in {None, table.metadata.schema_version}:
        return table
    then = next(row for row in list_versions(reader, table.table_id) if row.schema_version == version)
    return replace(table, metadata=then, schema=Schema.from_json(then.schema))


def _not_kept(reader: Reader, table: LakeTable, snapshot_id: int, *, at_ms: int | None) -> SnapshotNotFoundError:
    """Names the kept snapshot nearest in time, or the newest when nothing is known of the one that was asked for."""
    kept = reader.query(_KEPT, {"table_id": table.table_id})
    if not kept:
        return SnapshotNotFoundError(str(table.name), snapshot_id, nearest=None)
    nearest = kept[-1] if at_ms is None else min(kept, key=lambda row: abs(row[1] - at_ms))
    return SnapshotNotFoundError(str(table.name), snapshot_id, nearest=nearest[0], at=show(nearest[1] * 1000))
