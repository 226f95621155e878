"""Plans which files a query reads: takes a lease, then selects from one snapshot of the registry the files that may hold wanted rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakebed.core.names import TableName, require_instance
from lakebed.pipeline.read.combine import find_keys
from lakebed.pipeline.sql.filters import Filter, prune_paths
from lakebed.registry.queries.plans import list_partition_paths, read_plan
from lakebed.registry.queries.time_travel import go_back
from lakebed.registry.table_cache import missing_table
from lakebed.registry.tables.lake_tables import read_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakebed.core.times import Time
    from lakebed.pipeline.context import Context
    from lakebed.registry.queries.plans import AsOf, Plan
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.transaction import Reader

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """The request of a query for one table; `find` derives its conditions once the table's schema is known."""

    name: TableName
    find: Callable[[LakeTable], Filter] = field(default=lambda _: Filter())
    as_of: int | Time | None = None
    instance: str | None = None
    with_current_columns: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedScan:
    """A table with the files that may hold wanted rows, as of its planning."""

    table: LakeTable
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedScan:
    """`table` has the version of `as_of`; `partition_paths` = None: all of them."""

    table: LakeTable
    used: Filter
    as_of: AsOf | None
    partition_paths: list[str] | None


def plan_scans(context: Context, requests: Sequence[ScanRequest]) -> list[PlannedScan]:
    """Plan every table of a query on one snapshot of the registry. The lease is taken first, so that planned files cannot be deleted before they are read."""
    for _ in range(_ATTEMPTS):
        ids = {context.registry.require_table_id(request.name) for request in requests}
        context.lease.hold(ids)
        with context.registry.read() as reader:
            tables = [require_in(reader, context, request.name) for request in requests]
            if {table.table_id for table in tables} <= ids:
                return [plan_scan(reader, request, table) for request, table in zip(requests, tables, strict=True)]
        for request in requests:  # dropped and recreated by another process: the cached id was the old one
            context.registry.tables.forget(request.name)
    raise missing_table(context.registry, requests[0].name)


def plan_scan(reader: Reader, request: ScanRequest, table: LakeTable) -> PlannedScan:
    """The plan of one table inside a snapshot."""
    scan = resolve_scan(reader, request, table)
    used = scan.used
    plan = read_plan(
        reader,
        request.name,
        ranges=used.ranges,
        nulls=used.nulls,
        partition_paths=scan.partition_paths,
        instance=request.instance,
        as_of=scan.as_of,
    )
    return PlannedScan(table=scan.table, plan=plan)


def resolve_scan(reader: Reader, request: ScanRequest, table: LakeTable) -> ResolvedScan:
    """The conditions for pruning, and the journal number."""
    if request.instance is not None:
        require_instance(request.instance)
    moment = go_back(reader, table, request.as_of)
    # a plain table reads the files of its earlier versions, a view set does not
    then = table if request.with_current_columns and table.row.kind == "table" else moment.table
    used = _usable(then, request.find(then))
    return ResolvedScan(table=then, used=used, as_of=moment.at, partition_paths=find_scanned_paths(reader, then, used, moment.at))


def find_scanned_paths(reader: Reader, table: LakeTable, used: Filter, as_of: AsOf | None) -> list[str] | None:
    """The partition paths that the conditions leave; None if the table has none or all are left."""
    if not used.conditions:
        return None
    sources = {source.field_id for _, source in table.transforms}
    if not any(condition.field.field_id in sources for condition in used.conditions):
        return None
    return prune_paths(list_partition_paths(reader, table.table_id, as_of=as_of), table.transforms, used.conditions)


def _usable(table: LakeTable, found: Filter) -> Filter:
    """Partial results may be pruned only by columns that combining leaves unchanged."""
    keys = find_keys(table)
    return found if keys is None else found.only(keys)


def require_in(reader: Reader, context: Context, name: TableName) -> LakeTable:
    """The table as of this snapshot."""
    if (table := read_table(reader, name)) is None:
        context.registry.tables.forget(name)
        raise missing_table(reader, name)
    return table
