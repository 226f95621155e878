"""Explains which files a query would read and why others are pruned, from the registry alone; no data is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.core.results import single_result
from lakebed.core.schema.types import Primitive
from lakebed.core.times import DAY_US, Time, from_micros, show
from lakebed.pipeline.read.planning import ScanRequest, find_scanned_paths, require_in, resolve_scan
from lakebed.pipeline.read.sql import list_requests, require_moment
from lakebed.pipeline.sql.filters import Filter
from lakebed.pipeline.sql.parse import parse_query
from lakebed.registry.queries.plans import count_files, find_event_range

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lakebed.core.schema.bounds import Value
    from lakebed.pipeline.context import Context
    from lakebed.pipeline.sql.predicates import Condition
    from lakebed.registry.queries.plans import FileCount
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.transaction import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class TableScan:
    """One table of a query. Each pruned file is counted once, under the first reason that applies."""

    table: str
    files_in_table: int
    files: int
    rows: int
    size_bytes: int
    pruned_by_event_time: int
    pruned_by_partition: int
    pruned_by_statistics: int
    conditions: tuple[str, ...]  # conditions that can be compared with metadata of files, one per column and comparison
    pruned_by_condition: tuple[int, ...]  # files that each condition alone prunes; several may prune the same file
    first_event: datetime | None  # of the whole table now
    last_event: datetime | None

    @property
    def pruned(self) -> int:
        return self.files_in_table - self.files

    @property
    def reasons(self) -> tuple[str, ...]:
        """One sentence per condition, including those that pruned nothing."""
        if not self.conditions:
            return ("no condition of the query can prune a file",)
        pairs = zip(self.conditions, self.pruned_by_condition, strict=True)
        return tuple(f"{condition} prunes {count} of {self.files_in_table} files" for condition, count in pairs)

    def __str__(self) -> str:
        reasons = f"event time {self.pruned_by_event_time}, partition {self.pruned_by_partition}, statistics {self.pruned_by_statistics}"
        return f"{self.table}: {self.files} of {self.files_in_table} files, {self.rows} rows, {self.size_bytes} bytes (pruned: {reasons})"


@single_result
@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One scan per place where the query names a lake table."""

    text: str
    scans: tuple[TableScan, ...]

    def __str__(self) -> str:
        return "\n".join([self.text, *(f"  {scan}" for scan in self.scans)])


def explain(context: Context, text: str, *, as_of: Time | None = None) -> Explanation:
    """The files that `sql` of the same text would read. No function in it is called.

    Spark is not started: tables of its catalog are found only if a session is running.
    """
    require_moment(context, as_of)
    query = parse_query(text)
    requests = [request for _, request in list_requests(context, query, as_of, in_catalog=False)]
    with context.registry.read() as reader:
        scans = tuple(_scan(reader, request, require_in(reader, context, request.name)) for request in requests)
    return Explanation(text=text, scans=scans)


def _scan(reader: Reader, request: ScanRequest, table: LakeTable) -> TableScan:
    scan = resolve_scan(reader, request, table)
    timed = Filter(conditions=tuple(c for c in scan.used.conditions if c.field.field_id == table.row.event_time_field))

    def count(used: Filter, paths: Sequence[str] | None) -> FileCount:
        return count_files(
            reader, request.name, ranges=used.ranges, nulls=used.nulls, partition_paths=paths, instance=request.instance, as_of=scan.as_of
        )

    def prune(condition: Condition) -> int:
        alone = Filter(conditions=(condition,))
        return every.files - count(alone, find_scanned_paths(reader, scan.table, alone, scan.as_of)).files

    every, in_time = count(Filter(), None), count(timed, None)
    in_place, left = count(timed, scan.partition_paths), count(scan.used, scan.partition_paths)
    events = find_event_range(reader, table.table_id)
    return TableScan(
        table=str(table.name),
        files_in_table=every.files,
        files=left.files,
        rows=left.rows,
        size_bytes=left.size_bytes,
        pruned_by_event_time=every.files - in_time.files,
        pruned_by_partition=in_time.files - in_place.files,
        pruned_by_statistics=in_place.files - left.files,
        conditions=tuple(map(_show, scan.used.conditions)),
        pruned_by_condition=tuple(map(prune, scan.used.conditions)),
        first_event=None if events is None else from_micros(events[0]),
        last_event=None if events is None else from_micros(events[1]),
    )


def _show(condition: Condition) -> str:
    if condition.is_null:
        return f"{condition.field.name} is null"
    if condition.lower is None and condition.upper is None:
        return f"{condition.field.name} is not null"
    low, high = (_text(value, condition) for value in (condition.lower, condition.upper))
    return f"{condition.field.name} in [{low}, {high}]"


def _text(value: Value | None, condition: Condition) -> str:
    if value is None:
        return "..."
    kind = condition.field.type
    if isinstance(value, int) and isinstance(kind, Primitive) and kind.name in {"timestamp", "timestamptz"}:
        return show(value)
    if isinstance(value, int) and isinstance(kind, Primitive) and kind.name == "date":
        return show(value * DAY_US)[:10]
    return repr(value) if isinstance(value, str) else str(value)
