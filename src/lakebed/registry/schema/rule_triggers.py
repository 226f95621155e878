"""Rules that span rows: overlap, emptiness, event ranges.

The database enforces them, so that no writer, ours or another, can break them.
"""

from __future__ import annotations

# One insertion can only collide with the last partition that begins before its end: the others are disjoint already.
_SQLITE = {
    "partition_overlap": """CREATE TRIGGER partition_overlap BEFORE INSERT ON partitions
WHEN (SELECT end_insert_time FROM partitions WHERE scope_id = NEW.scope_id AND begin_insert_time < NEW.end_insert_time
      ORDER BY begin_insert_time DESC LIMIT 1) > NEW.begin_insert_time
BEGIN SELECT RAISE(ABORT, 'partition_overlap'); END""",
    "partition_moved": """CREATE TRIGGER partition_moved BEFORE UPDATE OF
id, table_id, scope_id, view_instance_id, begin_insert_time, end_insert_time, schema_hash ON partitions
BEGIN SELECT RAISE(ABORT, 'frozen_column: partitions'); END""",
    "partition_event_range": """CREATE TRIGGER partition_event_range BEFORE INSERT ON partitions
WHEN NEW.num_rows > 0 AND NEW.min_event_time IS NULL AND (SELECT event_time_field FROM tables WHERE id = NEW.table_id) IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'partition_event_range'); END""",
    "partition_has_no_file": """CREATE TRIGGER partition_has_no_file BEFORE INSERT ON table_files
WHEN (SELECT num_rows FROM partitions WHERE id = NEW.partition_id) = 0
BEGIN SELECT RAISE(ABORT, 'partition_emptiness'); END""",
}

_POSTGRES = {
    "partition_overlap": """ALTER TABLE partitions ADD CONSTRAINT partition_overlap EXCLUDE USING gist
(numrange(scope_id * 10000000000000000000 + begin_insert_time, scope_id * 10000000000000000000 + end_insert_time) WITH &&)""",
    "partition_moved": """CREATE FUNCTION partition_moved() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  RAISE EXCEPTION 'frozen_column: partitions' USING ERRCODE = 'check_violation'; END $$;
CREATE TRIGGER partition_moved BEFORE UPDATE OF
id, table_id, scope_id, view_instance_id, begin_insert_time, end_insert_time, schema_hash ON partitions
FOR EACH STATEMENT EXECUTE FUNCTION partition_moved()""",
    "partition_event_range": """CREATE FUNCTION partition_event_range() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF NEW.num_rows > 0 AND NEW.min_event_time IS NULL THEN  -- alone, because a condition that asks a table costs on every row
    IF (SELECT event_time_field FROM tables WHERE id = NEW.table_id) IS NOT NULL THEN
      RAISE EXCEPTION 'partition_event_range' USING ERRCODE = 'check_violation', CONSTRAINT = 'partition_event_range';
    END IF;
  END IF;
  RETURN NEW; END $$;
CREATE TRIGGER partition_event_range BEFORE INSERT ON partitions FOR EACH ROW EXECUTE FUNCTION partition_event_range()""",
    "partition_has_no_file": """CREATE FUNCTION partition_has_no_file() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF EXISTS (SELECT 1 FROM new_rows n JOIN partitions p ON p.id = n.partition_id WHERE p.num_rows = 0) THEN
    RAISE EXCEPTION 'partition_emptiness' USING ERRCODE = 'check_violation', CONSTRAINT = 'partition_emptiness';
  END IF;
  RETURN NULL; END $$;
CREATE TRIGGER partition_has_no_file AFTER INSERT ON table_files
REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION partition_has_no_file()""",
}

# the data is compressed with zstd already: a second compression only costs time
_POSTGRES_OPTIONS = ("ALTER TABLE partition_metadata ALTER COLUMN metadata SET STORAGE EXTERNAL",)


def sqlite_rules() -> dict[str, str]:
    return dict(_SQLITE)


def postgres_rules() -> dict[str, str]:
    return dict(_POSTGRES)


def table_options(dialect: str) -> tuple[str, ...]:
    """What the declaration cannot express."""
    return () if dialect == "sqlite" else _POSTGRES_OPTIONS
