"""Partitions: disjoint inside one schema, with exact counts of their files, and without files where they are empty."""

from __future__ import annotations

from lakebed.check.report import Severity
from lakebed.check.scan import Rule, list_rows, list_slices

OVERLAP = Rule(name="partition_overlap")
SUMS = Rule(name="partition_sums")
EMPTY = Rule(name="partition_empty")
RANGE = Rule(name="partition_range")
EVENT_RANGE = Rule(name="partition_event_range")
SCOPE = Rule(name="partition_scope")
INCOMPATIBLE = Rule(name="partition_incompatible", severity=Severity.INFO)

_SLICE = "p.id, p.table_id, p.view_instance_id, p.begin_insert_time, p.end_insert_time"
# The greatest end so far: a partition may overlap one that is several places before it
_OVERLAP = f"""SELECT {_SLICE}, p.schema_hash FROM (
  SELECT q.*, max(q.end_insert_time) OVER (PARTITION BY q.table_id, q.view_instance_id, q.schema_hash
  ORDER BY q.begin_insert_time, q.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS covered_to FROM partitions q) p
WHERE p.covered_to > p.begin_insert_time ORDER BY p.id"""
_LIVE = """partitions p LEFT JOIN (
  SELECT partition_id, CAST(sum(row_count) AS bigint) AS n_rows, count(*) AS n_files FROM table_files
  WHERE retired_seq IS NULL GROUP BY partition_id) s ON s.partition_id = p.id"""
_SUMS = f"""SELECT {_SLICE}, p.num_rows, p.file_count, COALESCE(s.n_rows, 0), COALESCE(s.n_files, 0) FROM {_LIVE}
WHERE p.num_rows <> 0 AND (p.num_rows <> COALESCE(s.n_rows, 0) OR p.file_count <> COALESCE(s.n_files, 0)) ORDER BY p.id"""
_EMPTY = f"""SELECT {_SLICE}, CASE WHEN s.n_files > 0 THEN 'live files' WHEN p.file_count <> 0 THEN 'a file count' ELSE 'an event range' END
FROM {_LIVE} WHERE p.num_rows = 0 AND (s.n_files > 0 OR p.file_count <> 0 OR p.min_event_time IS NOT NULL OR p.max_event_time IS NOT NULL)
ORDER BY p.id"""
_RANGE = f"SELECT {_SLICE} FROM partitions p WHERE p.begin_insert_time >= p.end_insert_time ORDER BY p.id"
_EVENT_RANGE = f"""SELECT {_SLICE}, CASE WHEN p.min_event_time > p.max_event_time THEN 'ends before it begins' ELSE 'lacks a bound' END
FROM partitions p LEFT JOIN tables t ON t.id = p.table_id WHERE p.num_rows <> 0 AND (p.min_event_time > p.max_event_time
  OR (p.min_event_time IS NULL AND p.max_event_time IS NOT NULL) OR (p.min_event_time IS NOT NULL AND p.max_event_time IS NULL)
  OR (p.min_event_time IS NULL AND t.event_time_field IS NOT NULL)) ORDER BY p.id"""
_SCOPE = f"""SELECT {_SLICE}, p.scope_id FROM partitions p LEFT JOIN partition_scopes s ON s.id = p.scope_id
AND s.table_id = p.table_id AND s.view_instance_id = p.view_instance_id AND s.schema_hash = p.schema_hash WHERE s.id IS NULL ORDER BY p.id"""
_INCOMPATIBLE = """SELECT p.table_id, 'schema ' || p.schema_hash, count(*), CAST(sum(p.num_rows) AS bigint), COALESCE(v.standing, 'unknown')
FROM partitions p LEFT JOIN table_metadata v ON v.table_id = p.table_id AND v.schema_hash = p.schema_hash
WHERE v.id IS NULL OR v.standing = 'incompatible' GROUP BY p.table_id, p.schema_hash, v.standing ORDER BY p.table_id, p.schema_hash"""

PASSES = (
    list_slices(
        OVERLAP,
        sql=_OVERLAP,
        message="the slice overlaps an earlier one of the same schema {0}, so rows may be read twice: retire one of the two",
    ),
    list_slices(
        SUMS,
        sql=_SUMS,
        message="the partition says {0} rows in {1} files, its live files have {2} in {3}: run `lakebed repair`, or retire and rebuild the slice",
    ),
    list_slices(EMPTY, sql=_EMPTY, message="the partition counts as empty but has {0}: retire and rebuild the slice"),
    list_slices(RANGE, sql=_RANGE, message="the slice has no width: retire it by its id"),
    list_slices(EVENT_RANGE, sql=_EVENT_RANGE, message="the event range {0}, so pruning may miss its rows: retire and rebuild the slice"),
    list_slices(
        SCOPE,
        sql=_SCOPE,
        message="scope {0} is not that of its table, instance and schema, so overlap is not refused here: run `lakebed repair`",
    ),
    list_rows(
        INCOMPATIBLE,
        over="partitions",
        sql=_INCOMPATIBLE,
        message="{0} partition(s) with {1} rows are of a version that is {2}, and not read: `lakebed partitions retire-incompatible`",
    ),
)
