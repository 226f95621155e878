"""Lake tables and their counters: sums over the visible files, and no rows without a table."""

from __future__ import annotations

from lakebed.check.report import Severity
from lakebed.check.scan import Rule, list_rows

TABLE_COUNTERS = Rule(name="table_counters")
TABLE_STATS = Rule(name="table_stats")
STATS_FOR_NOTHING = Rule(name="stats_for_nothing")
TABLE_UNKNOWN = Rule(name="table_unknown")
TABLE_INCOMPLETE = Rule(name="table_incomplete")
TABLE_GROUPS = Rule(name="table_groups")
SERVING_HISTORY = Rule(name="serving_history")
TABLE_NAME_CASE = Rule(name="table_name_case", severity=Severity.WARNING)  # made before such names were refused

_SMALL_BYTES = 33_554_432
_OWNED = (
    "table_seq", "table_metadata", "partition_scopes", "partitions", "table_files", "partition_metadata", "table_stats", "table_snapshots",
    "temporary_files", "operations", "change_log", "subscriber_cursor", "lease_numbers", "serving_history",
)  # fmt: skip
_VISIBLE = """table_files f JOIN table_metadata v ON v.table_id = f.table_id AND v.schema_hash = f.schema_hash
AND v.standing IN ('serving', 'readable') AND f.retired_seq IS NULL"""

_COUNTERS = f"""SELECT t.id, t.database || '.' || t.name, t.row_count, t.file_count, t.total_size,
COALESCE(s.n_rows, 0), COALESCE(s.n_files, 0), COALESCE(s.n_bytes, 0) FROM tables t LEFT JOIN (
  SELECT f.table_id, CAST(sum(f.row_count) AS bigint) AS n_rows, count(*) AS n_files, CAST(sum(f.file_size) AS bigint) AS n_bytes
  FROM {_VISIBLE} GROUP BY f.table_id) s ON s.table_id = t.id
WHERE t.row_count <> COALESCE(s.n_rows, 0) OR t.file_count <> COALESCE(s.n_files, 0) OR t.total_size <> COALESCE(s.n_bytes, 0)
ORDER BY t.id"""
# Files count up, stored rows count down: what does not end at zero is wrong. Then the sums over `table_stats` equal `tables` too
_STATS = f"""SELECT d.table_id, d.partition_path, CAST(sum(d.n_rows) AS bigint), CAST(sum(d.n_files) AS bigint),
CAST(sum(d.n_small) AS bigint), CAST(sum(d.n_bytes) AS bigint) FROM (
  SELECT f.table_id, f.partition_path, f.row_count AS n_rows, 1 AS n_files,
  CASE WHEN f.file_size < {_SMALL_BYTES} THEN 1 ELSE 0 END AS n_small, f.file_size AS n_bytes FROM {_VISIBLE}
  UNION ALL SELECT table_id, partition_path, -row_count, -file_count, -small_file_count, -total_size FROM table_stats) d
GROUP BY d.table_id, d.partition_path
HAVING sum(d.n_rows) <> 0 OR sum(d.n_files) <> 0 OR sum(d.n_small) <> 0 OR sum(d.n_bytes) <> 0 ORDER BY d.table_id, d.partition_path"""
_NOTHING = f"""SELECT s.table_id, s.partition_path FROM table_stats s WHERE s.file_count = 0 AND s.row_count = 0 AND s.total_size = 0
AND NOT EXISTS (SELECT 1 FROM {_VISIBLE} WHERE f.table_id = s.table_id AND f.partition_path = s.partition_path)
ORDER BY s.table_id, s.partition_path"""
# 0: queued by a registry of an early revision, which did not keep the table, or of a table that a restored registry lost
_UNKNOWN = " UNION ALL ".join(
    f"""SELECT x.table_id, '{owned}', count(*) FROM {owned} x WHERE NOT EXISTS (SELECT 1 FROM tables t WHERE t.id = x.table_id)
{"AND x.table_id <> 0" if owned in {"temporary_files", "operations"} else ""} GROUP BY x.table_id"""
    for owned in _OWNED
)
_INCOMPLETE = """SELECT t.id, t.database || '.' || t.name, CASE WHEN s.table_id IS NULL THEN 'journal' ELSE 'serving version' END
FROM tables t LEFT JOIN table_seq s ON s.table_id = t.id
LEFT JOIN table_metadata v ON v.table_id = t.id AND v.standing = 'serving' WHERE s.table_id IS NULL OR v.id IS NULL ORDER BY t.id"""
_SERVED = """SELECT t.id, t.database || '.' || t.name, v.schema_version, COALESCE(h.schema_version, 0) FROM tables t
JOIN table_metadata v ON v.table_id = t.id AND v.standing = 'serving'
LEFT JOIN serving_history h ON h.table_id = t.id AND h.seq = (SELECT max(x.seq) FROM serving_history x WHERE x.table_id = t.id)
WHERE h.schema_version IS NULL OR h.schema_version <> v.schema_version ORDER BY t.id"""
_GROUPS = """SELECT id, database || '.' || name, 'committed_group ' || committed_group, last_group FROM tables
WHERE committed_group > last_group OR committed_group < 0
UNION ALL SELECT t.id, t.database || '.' || t.name, 'the group ' || s.group_no || ' of snapshot ' || s.snapshot_id, t.last_group
FROM table_snapshots s JOIN tables t ON t.id = s.table_id WHERE s.group_no > t.last_group OR s.group_no < 0"""
_ALIKE = """SELECT t.id, t.database || '.' || t.name, u.database || '.' || u.name FROM tables t
JOIN tables u ON lower(u.database) = lower(t.database) AND lower(u.name) = lower(t.name) AND u.id <> t.id
WHERE t.dropped_at IS NULL AND u.dropped_at IS NULL ORDER BY t.id, u.id"""

PASSES = (
    list_rows(
        TABLE_UNKNOWN,
        over="tables",
        sql=_UNKNOWN,
        message="{0} row(s) belong to a lake table that does not exist: find out who deleted it, and restore its row",
    ),
    list_rows(
        TABLE_INCOMPLETE, over="tables", sql=_INCOMPLETE, message="the table has no {0}, so it cannot be written: restore it from a backup"
    ),
    list_rows(
        TABLE_COUNTERS,
        over="tables",
        sql=_COUNTERS,
        message="the counters say {0} rows, {1} files, {2} bytes; the visible files have {3}, {4}, {5}: run `lakebed repair` to count again",
    ),
    list_rows(
        TABLE_STATS,
        over="table_stats",
        sql=_STATS,
        message="the visible files of this partition path differ from its statistics by {0:+} rows, {1:+} files, {2:+} small files, "
        "{3:+} bytes: run `lakebed repair` to count again",
    ),
    list_rows(
        STATS_FOR_NOTHING,
        over="table_stats",
        sql=_NOTHING,
        message="statistics are kept for a partition path without files: run `lakebed repair` to count again",
    ),
    list_rows(
        TABLE_GROUPS,
        over="tables",
        sql=_GROUPS,
        message="{0} was never allocated, the last group is {1}: investigate before Iceberg commits again",
    ),
    list_rows(
        TABLE_NAME_CASE,
        over="tables",
        sql=_ALIKE,
        message="its name differs only in case from that of {0}, and Spark's catalog takes both for one: name each exactly as it is spelled, and "
        "drop the one that is not needed",
    ),
    list_rows(
        SERVING_HISTORY,
        over="tables",
        sql=_SERVED,
        message="version {0} serves, the history of serving versions ends with {1}, so `as_of` may show other columns than were there: "
        "restore the registry from a backup",
    ),
)
