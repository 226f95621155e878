"""File rows: their partitions, their lifetimes, and the rows that depend on them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lakebed.check.scan import Pass, Rule, list_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.check.report import Finding
    from lakebed.check.scan import Scan

PATH_TWICE = Rule(name="path_twice")
FILE_PARTITION = Rule(name="file_partition")
FILE_NUMBERS = Rule(name="file_numbers")
FILE_GROUPS = Rule(name="file_groups")
RETIRED_NOT_QUEUED = Rule(name="retired_not_queued")
QUEUED_BUT_LIVE = Rule(name="queued_but_live")
COLUMN_WITHOUT_FILE = Rule(name="column_without_file")
COLUMN_STATISTICS = Rule(name="column_statistics")
RANGE_MISSING = Rule(name="range_missing")
RANGE_UNEXPECTED = Rule(name="range_unexpected")
TABLE_PROPERTIES = Rule(name="table_properties")

_SLOTS = 8  # of the range index per lake table
_TWICE = "SELECT min(table_id), file_path, count(*) FROM table_files GROUP BY file_path HAVING count(*) > 1 ORDER BY file_path"
_PARTITION = """SELECT f.table_id, f.file_path, CASE WHEN p.id IS NULL THEN 'does not exist' WHEN p.table_id <> f.table_id
THEN 'is one of another table' ELSE 'has another schema' END, f.partition_id FROM table_files f LEFT JOIN partitions p ON p.id = f.partition_id
WHERE f.retired_seq IS NULL AND (p.id IS NULL OR p.table_id <> f.table_id OR p.schema_hash <> f.schema_hash) ORDER BY f.id"""
_NUMBERS = """SELECT f.table_id, f.file_path, f.added_seq, COALESCE(CAST(f.retired_seq AS text), 'never'), s.last_seq
FROM table_files f JOIN table_seq s ON s.table_id = f.table_id
WHERE f.added_seq < 0 OR f.added_seq > s.last_seq OR f.retired_seq <= f.added_seq OR f.retired_seq > s.last_seq ORDER BY f.id"""
# Iceberg holds exactly the visible Parquet files, pending ones apart
_GROUPS = """SELECT x.table_id, x.file_path, x.problem FROM (
  SELECT f.id, f.table_id, f.file_path, CASE
    WHEN f.added_group < 1 OR f.removed_group < 1 OR f.added_group > t.last_group OR f.removed_group > t.last_group
      THEN 'a group that was never allocated'
    WHEN f.removed_group <= f.added_group THEN 'been removed before it was added'
    WHEN f.added_group IS NOT NULL AND f.file_type <> 'parquet' THEN 'entered Iceberg without being Parquet'
    WHEN f.added_group IS NOT NULL AND f.removed_group IS NULL AND (f.retired_seq IS NOT NULL OR v.id IS NULL)
      THEN 'stayed in Iceberg though no reader may see it'
    WHEN f.removed_group IS NOT NULL AND f.retired_seq IS NULL AND v.id IS NOT NULL THEN 'left Iceberg though readers see it'
  END AS problem
  FROM table_files f JOIN tables t ON t.id = f.table_id LEFT JOIN table_metadata v ON v.table_id = f.table_id
  AND v.schema_hash = f.schema_hash AND v.standing IN ('serving', 'readable')) x WHERE x.problem IS NOT NULL ORDER BY x.id"""
_NOT_QUEUED = """SELECT f.table_id, f.file_path FROM table_files f WHERE f.retired_seq IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM temporary_files q WHERE q.file_path = f.file_path) ORDER BY f.id"""
_QUEUED = """SELECT q.table_id, q.file_path FROM temporary_files q JOIN table_files f ON f.file_path = q.file_path
WHERE f.retired_seq IS NULL ORDER BY q.file_path"""
_NO_FILE = """SELECT NULL, 'file ' || c.file_id, count(*) FROM file_columns c
WHERE NOT EXISTS (SELECT 1 FROM table_files f WHERE f.id = c.file_id) GROUP BY c.file_id ORDER BY c.file_id"""
_STATISTICS = """SELECT f.table_id, f.file_path, c.field_id FROM file_columns c JOIN table_files f ON f.id = c.file_id
WHERE c.null_count < 0 OR c.value_count < 0 OR c.null_count > c.value_count OR c.lower > c.upper ORDER BY c.file_id, c.field_id"""
_INDEXED = "SELECT table_id, properties FROM table_metadata WHERE standing = 'serving' ORDER BY table_id"
_SLOT = " UNION ALL ".join(f"SELECT {n} AS slot" for n in range(_SLOTS))
_MISSING_RANGES = f"""SELECT f.table_id, f.file_path, s.slot FROM table_files f CROSS JOIN ({_SLOT}) s
LEFT JOIN file_ranges r ON r.id = f.id * {_SLOTS} + s.slot
WHERE f.table_id IN (:tables*) AND s.slot < :slots AND r.id IS NULL ORDER BY f.id, s.slot"""
_RANGES_OF_NOTHING = (
    f"""SELECT NULL, 'entry ' || r.id FROM file_ranges r LEFT JOIN table_files f ON f.id = r.id / {_SLOTS} WHERE f.id IS NULL"""
)
_RANGES_TOO_MANY = f"""SELECT f.table_id, f.file_path FROM file_ranges r JOIN table_files f ON f.id = r.id / {_SLOTS}
WHERE f.table_id IN (:tables*) AND (r.id & {_SLOTS - 1}) >= :slots"""
_MISPLACED = f"r.scope <> f.table_id * {_SLOTS} + (r.id & {_SLOTS - 1})"


def find_ranges(scan: Scan) -> Iterator[Finding]:
    """One entry per file and indexed column, live or retired, in its own table's scope; no other entry."""
    by_slots: dict[int, list[int]] = {}
    for table_id, properties in scan.query(_INDEXED, None):
        slots = _count_slots(properties)
        if slots is None:
            message = (
                "the properties of the serving version are not a JSON object with at most 8 indexed columns: restore them from a backup"
            )
            yield TABLE_PROPERTIES.broken(scan.name(table_id), "properties", message)
        else:
            by_slots.setdefault(slots, []).append(table_id)
    for slots, tables in sorted(by_slots.items()):
        for table_id, path, slot in scan.query(_MISSING_RANGES, {"tables": tables, "slots": slots}):
            message = (
                f"indexed column {slot + 1} has no entry in the range index, so queries may miss the file's rows: run `lakebed repair`"
            )
            yield RANGE_MISSING.broken(scan.name(table_id), path, message)
    yield from _find_unexpected(scan, by_slots)


def _find_unexpected(scan: Scan, by_slots: dict[int, list[int]]) -> Iterator[Finding]:
    unknown = scan.query(_RANGES_OF_NOTHING, None)
    for slots, tables in sorted(by_slots.items()):
        unknown += scan.query(_RANGES_TOO_MANY, {"tables": tables, "slots": slots})
    for table_id, subject in unknown:
        message = "an entry of the range index belongs to no indexed column of a file: run `lakebed repair` to drop it"
        yield RANGE_UNEXPECTED.broken(scan.name(table_id), subject, message)
    misplaced = f"SELECT f.table_id, f.file_path, r.id FROM file_ranges r JOIN table_files f ON f.id = r.id / {_SLOTS} WHERE "
    for table_id, path, range_id in scan.query(misplaced + _MISPLACED, None):
        message = f"entry {range_id} of the range index has the wrong scope, so queries may miss the file's rows: run `lakebed repair`"
        yield RANGE_UNEXPECTED.broken(scan.name(table_id), path, message)


def _count_slots(properties: str) -> int | None:
    try:
        indexed = json.loads(properties).get("indexed", [])
    except (ValueError, AttributeError):
        return None
    return len(indexed) if isinstance(indexed, list) and len(indexed) <= _SLOTS else None


PASSES = (
    list_rows(
        PATH_TWICE, over="table_files", sql=_TWICE, message="{0} file rows have this path, so its rows are read twice: retire all but one"
    ),
    list_rows(
        FILE_PARTITION,
        over="table_files",
        sql=_PARTITION,
        message="the file is live but its partition {0}: retire the slice and write it again",
    ),
    list_rows(
        FILE_NUMBERS,
        over="table_files",
        sql=_NUMBERS,
        message="added at {0}, retired at {1}, while the journal ends at {2}: reading as of a number is not exact here; report this with the registry's log",
    ),
    list_rows(
        FILE_GROUPS,
        over="table_files",
        sql=_GROUPS,
        message="the file has {0}: the Iceberg table differs from the registry; run `lakebed repair`",
    ),
    list_rows(
        RETIRED_NOT_QUEUED,
        over="table_files",
        sql=_NOT_QUEUED,
        message="the file is retired but not queued for deletion, so it would stay for ever: run `lakebed repair` to queue it again",
    ),
    list_rows(
        QUEUED_BUT_LIVE,
        over="temporary_files",
        sql=_QUEUED,
        message="a live file is queued for deletion: run `lakebed repair` to take it out of the queue",
    ),
    list_rows(
        COLUMN_WITHOUT_FILE,
        over="file_columns",
        sql=_NO_FILE,
        message="statistics of {0} column(s) belong to no file: run `lakebed repair` to drop them",
    ),
    list_rows(
        COLUMN_STATISTICS,
        over="file_columns",
        sql=_STATISTICS,
        message="the statistics of field {0} contradict themselves, so pruning may drop rows: run `lakebed repair` to read them again",
    ),
    Pass(rules=(RANGE_MISSING, RANGE_UNEXPECTED, TABLE_PROPERTIES), over="table_files", find=find_ranges),
)
