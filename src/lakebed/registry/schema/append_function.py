"""PostgreSQL's own side of an append: lock, allocate, write and commit in one round trip.

The table's lock is held only while the server works. Whatever is not a plain append of readable
rows returns NULL with nothing done, and the general path takes over and says why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakebed.core.partitions import PARTITION_FORMAT
from lakebed.registry.ids import ID_BITS
from lakebed.registry.schema.predicates import is_visible
from lakebed.registry.transaction import MAX_SLOT_LEAD_US

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "lakebed_append"  # stored: never rename
_ARGUMENTS = (
    ("p_timeout", "text"), ("p_table", "bigint"), ("p_scope", "bigint"), ("p_instance", "text"), ("p_hash", "text"), ("p_now", "bigint"),
    ("p_low", "bigint"), ("p_high", "bigint"), ("p_source", "text"), ("p_lookup", "text"), ("p_fingerprint", "text"),
    ("p_op", "text"), ("p_intent", "boolean"), ("p_kind", "text"), ("p_staging", "text"), ("p_mode", "text"), ("p_app", "text"),
    ("p_batch", "bigint"),
    ("f_name", "text[]"), ("f_path", "text[]"), ("f_size", "bigint[]"), ("f_type", "text[]"), ("f_values", "text[]"), ("f_rows", "bigint[]"),
    ("f_sum", "text[]"), ("f_kind", "text[]"), ("f_zip", "smallint[]"),
    ("m_path", "text[]"), ("m_size", "bigint[]"), ("m_data", "bytea[]"), ("m_length", "bigint[]"), ("m_rows", "bigint[]"), ("m_sum", "text[]"),
    ("c_file", "bigint[]"), ("c_field", "bigint[]"), ("c_nulls", "bigint[]"), ("c_values", "bigint[]"), ("c_lower", "bytea[]"),
    ("c_upper", "bytea[]"),
    ("r_file", "bigint[]"), ("r_scope", "bigint[]"), ("r_level", "bigint[]"), ("r_prefix", "bigint[]"),
    ("s_values", "text[]"), ("s_rows", "bigint[]"), ("s_files", "bigint[]"), ("s_small", "bigint[]"), ("s_bytes", "bigint[]"),
)  # fmt: skip
_NAMES = tuple(name for name, _ in _ARGUMENTS)
CALL = f"SELECT {NAME}({', '.join(f'{name} => ${n}::{kind}' for n, (name, kind) in enumerate(_ARGUMENTS, start=1))})"
_BODY = f"""
DECLARE
  h record; at_us bigint; slot bigint; part bigint; file bigint; rows_all bigint; files bigint; stats int; changed bigint; answer bigint[];
BEGIN
  PERFORM set_config('lock_timeout', p_timeout, true);
  SELECT s.last_seq, s.last_slot, s.last_id, t.last_modified, t.last_group, t.dropped_at, t.event_time_field INTO h
  FROM table_seq s JOIN tables t ON t.id = s.table_id WHERE s.table_id = p_table FOR UPDATE;
  IF NOT FOUND OR h.dropped_at IS NOT NULL OR NOT EXISTS (SELECT 1 FROM table_metadata m
     WHERE m.table_id = p_table AND m.schema_hash = p_hash AND {is_visible("m.")}) THEN RETURN NULL; END IF;
  files := coalesce(array_length(f_path, 1), 0);
  at_us := coalesce(p_now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
  slot := greatest(at_us, h.last_slot + 1);
  IF slot - at_us > {MAX_SLOT_LEAD_US} OR (files > 0 AND p_low IS NULL AND h.event_time_field IS NOT NULL) THEN RETURN NULL; END IF;
  IF p_app IS NOT NULL AND EXISTS (SELECT 1 FROM operations o
     WHERE o.table_id = p_table AND o.app_id = p_app AND o.batch_id = p_batch AND o.state = 'registered') THEN RETURN NULL; END IF;
  part := (p_table << {ID_BITS}) + h.last_id + 1;
  file := part + 1;
  changed := greatest(at_us, h.last_modified + 1);
  answer := ARRAY[part, p_table, slot, slot + 1, h.last_seq + 1, NULL, file, files];
  IF p_intent THEN
    UPDATE operations SET state = 'registered', result = array_to_json(answer)::text, updated_at = at_us WHERE op_id = p_op AND state = 'writing';
    IF NOT FOUND THEN RETURN NULL; END IF;
  ELSE
    INSERT INTO operations (op_id, table_id, kind, state, staging_path, mode, app_id, batch_id, result, lease_until, created_at, updated_at)
    VALUES (p_op, p_table, p_kind, 'registered', p_staging, p_mode, p_app, p_batch, array_to_json(answer)::text, at_us, at_us, at_us);
  END IF;
  rows_all := coalesce((SELECT sum(r) FROM unnest(f_rows) r), 0);
  stats := coalesce(array_length(s_values, 1), 0);
  UPDATE table_seq SET last_slot = slot, last_id = h.last_id + 1 + files + stats WHERE table_id = p_table;
  INSERT INTO partitions (id, table_id, scope_id, view_instance_id, begin_insert_time, end_insert_time, min_event_time, max_event_time,
    schema_hash, source_data_hash, lookup_hash, fingerprint, num_rows, file_count, partition_format_version, updated)
  VALUES (part, p_table, p_scope, p_instance, slot, slot + 1, p_low, p_high, p_hash, p_source, p_lookup, p_fingerprint, rows_all, files,
    {PARTITION_FORMAT}, at_us);
  IF files > 0 THEN
    INSERT INTO table_files (id, table_id, partition_id, file_name, file_path, file_size, file_type, partition_path, row_count, checksum,
      checksum_kind, is_compressed, schema_hash, added_seq, created_at, modified_at)
    SELECT file + u.n - 1, p_table, part, u.name, u.path, u.size, u.type, u.vals, u.rows, u.sum, u.kind, u.zip, p_hash, h.last_seq + 1, at_us, at_us
    FROM unnest(f_name, f_path, f_size, f_type, f_values, f_rows, f_sum, f_kind, f_zip) WITH ORDINALITY
      AS u(name, path, size, type, vals, rows, sum, kind, zip, n);
    INSERT INTO partition_metadata (file_path, table_id, file_size, metadata, insert_time, partition_format_version,
      footer_length, num_rows, checksum)
    SELECT u.path, p_table, u.size, u.data, at_us, {PARTITION_FORMAT}, u.length, u.rows, u.sum
    FROM unnest(m_path, m_size, m_data, m_length, m_rows, m_sum) AS u(path, size, data, length, rows, sum);
    INSERT INTO file_columns (file_id, field_id, null_count, value_count, lower, upper)
    SELECT file + u.n, u.field, u.nulls, u.vals, u.lower, u.upper
    FROM unnest(c_file, c_field, c_nulls, c_values, c_lower, c_upper) AS u(n, field, nulls, vals, lower, upper);
    INSERT INTO file_ranges (id, scope, level, prefix)
    SELECT file * 8 + u.n, u.scope, u.level, u.prefix FROM unnest(r_file, r_scope, r_level, r_prefix) AS u(n, scope, level, prefix);
    FOR i IN 1..stats LOOP
      UPDATE table_stats SET row_count = row_count + s_rows[i], file_count = file_count + s_files[i],
        small_file_count = small_file_count + s_small[i], total_size = total_size + s_bytes[i], last_modified = changed, updated_at = changed
      WHERE table_id = p_table AND partition_path = s_values[i];
      IF NOT FOUND THEN
        INSERT INTO table_stats (id, table_id, partition_path, row_count, file_count, small_file_count, total_size, last_modified,
          created_at, updated_at)
        VALUES (file + files + i - 1, p_table, s_values[i], s_rows[i], s_files[i], s_small[i], s_bytes[i], changed, changed, changed);
      END IF;
    END LOOP;
  END IF;
  UPDATE tables SET row_count = row_count + rows_all, file_count = file_count + files,
    total_size = total_size + coalesce((SELECT sum(b) FROM unnest(s_bytes) b), 0), last_modified = changed WHERE id = p_table;
  RETURN answer;
END """


def order_arguments(given: Mapping[str, Any]) -> list[Any]:
    """The values of `CALL`, which names them to the server as well; one too few or too many is a KeyError."""
    if unknown := given.keys() - set(_NAMES):
        raise KeyError(*unknown)
    return [given[name] for name in _NAMES]


def append_function() -> dict[str, str]:
    """Function name to DDL."""
    listed = ", ".join(f"{name} {kind}" for name, kind in _ARGUMENTS)
    return {NAME: f"CREATE FUNCTION {NAME}({listed}) RETURNS bigint[] LANGUAGE plpgsql AS $${_BODY}$$"}
