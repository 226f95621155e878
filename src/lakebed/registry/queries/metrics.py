"""Metrics of the whole lake: sums that the registry keeps anyway, read from one snapshot, without locking a writer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.registry.schema.predicates import is_pending, is_visible

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry

_TABLES = """SELECT t.id, t.database || '.' || t.name, t.row_count, t.file_count, t.total_size, t.last_group - t.committed_group, t.state,
COALESCE((SELECT sum(s.small_file_count) FROM table_stats s WHERE s.table_id = t.id), 0)
FROM tables t WHERE t.dropped_at IS NULL ORDER BY t.id"""
# Pending ones have an index of their own; sealed ones are looked for only in tables that lag, one after the other: joined, all files are read
_WAITING = f"""SELECT table_id, min(created_at) FROM (
SELECT f.table_id, f.created_at FROM table_files f JOIN table_metadata v ON v.table_id = f.table_id AND v.schema_hash = f.schema_hash
AND {is_visible("v.")} WHERE {is_pending("f.")}
UNION ALL
SELECT t.id, (SELECT min(f.created_at) FROM table_files f
  WHERE f.table_id = t.id AND f.added_group > t.committed_group AND f.retired_seq IS NULL)
FROM tables t WHERE t.last_group > t.committed_group) AS waiting WHERE created_at IS NOT NULL GROUP BY table_id"""
_QUEUE = """SELECT count(*), COALESCE(sum(file_size), 0), COALESCE(sum(CASE WHEN expiration <= :now THEN 1 ELSE 0 END), 0),
COALESCE(sum(CASE WHEN attempts > 0 THEN 1 ELSE 0 END), 0) FROM temporary_files"""
_OPERATIONS = """SELECT count(*), COALESCE(sum(CASE WHEN lease_until < :now THEN 1 ELSE 0 END), 0)
FROM operations WHERE state IN ('writing', 'rolling_back')"""
_LETTERS = "SELECT component, count(*) FROM dead_letter WHERE resolved_at IS NULL GROUP BY component"
_REQUESTED = "SELECT count(*) FROM runs WHERE state = 'requested'"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMetrics:
    """`waiting_s`: how long the oldest visible file has not been in a snapshot; 0 when all are."""

    table: str
    rows: int
    files: int
    size_bytes: int
    small_files: int
    groups_behind: int
    waiting_s: float
    degraded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeMetrics:
    tables: tuple[TableMetrics, ...]
    queued_files: int
    queued_bytes: int
    queued_expired: int
    queued_failed: int
    open_operations: int
    dead_operations: int
    dead_letters: dict[str, int]
    requested_runs: int


def read_metrics(registry: Registry) -> LakeMetrics:
    now = registry.now()
    with registry.read() as reader:
        waiting = {row[0]: max(0, now - row[1]) / 1e6 for row in reader.query(_WAITING)}
        tables = tuple(_metrics_of(row[1:], waiting.get(row[0], 0.0)) for row in reader.query(_TABLES))
        files, size, expired, failed = reader.query(_QUEUE, {"now": now})[0]
        operations, dead = reader.query(_OPERATIONS, {"now": now})[0]
        letters = {str(row[0]): int(row[1]) for row in reader.query(_LETTERS)}
        requested = int(reader.query(_REQUESTED)[0][0])
    return LakeMetrics(
        tables=tables,
        queued_files=int(files),
        queued_bytes=int(size),
        queued_expired=int(expired),
        queued_failed=int(failed),
        open_operations=int(operations),
        dead_operations=int(dead),
        dead_letters=letters,
        requested_runs=requested,
    )


def _metrics_of(row: tuple[str, int, int, int, int, str, int], waiting_s: float) -> TableMetrics:
    table, rows, files, size, behind, state, small = row
    return TableMetrics(
        table=table,
        rows=int(rows),
        files=int(files),
        size_bytes=int(size),
        small_files=int(small),
        groups_behind=int(behind),
        waiting_s=waiting_s,
        degraded=state == "degraded",
    )
