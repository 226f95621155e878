"""The registry of today: files of their own, groups, operations, leases, and the change journal.

The old tables are set aside under `old_` names, emptied in batches into the new ones, and dropped.
Each batch moves rows in one transaction, so wherever a kill falls, every row is in exactly one place.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import zstandard
from alembic import op
from sqlalchemy import text

from lakebed.core.errors import RefusedError
from lakebed.core.times import TimeRange
from lakebed.registry.migrations.steps import BATCH, has_table, read_frozen, run_script, transaction
from lakebed.registry.schema.journal_triggers import hash_triggers

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from lakebed.registry.backends.statements import Dialect

revision = "0004"
down_revision = "0003"

_OLD = ("tables", "table_metadata", "partitions", "partition_metadata", "temporary_files")
_FIRST = 1  # journal number of everything that was there before the journal
_OVERLAPS = text(
    """SELECT t.database, t.name, a.begin_insert_time, a.end_insert_time FROM partitions a JOIN partitions b
    ON b.table_id = a.table_id AND b.view_instance_id = a.view_instance_id AND b.schema_hash = a.schema_hash AND b.id <> a.id
    AND b.begin_insert_time < a.end_insert_time AND b.end_insert_time > a.begin_insert_time JOIN tables t ON t.id = a.table_id LIMIT 1"""
)
_TABLES = text(
    """INSERT INTO tables (id, database, name, kind, last_modified, created_at)
    SELECT id, database, name, kind, last_modified, created_at FROM old_tables"""
)
_SEQ = text(
    """INSERT INTO table_seq (table_id, last_seq, purged_seq, last_slot, last_id)
    SELECT t.id, :first, :first, COALESCE((SELECT max(end_insert_time) FROM old_partitions p WHERE p.table_id = t.id), 0),
    2 * (SELECT COALESCE(max(id), 0) FROM old_partitions) + 2 * (SELECT COALESCE(max(id), 0) FROM old_table_metadata) + 2 FROM old_tables t"""
)
_VERSIONS = text(
    """INSERT INTO table_metadata (id, table_id, schema_version, schema, schema_hash, standing, storage_engine, engine_config, format,
    compression, partition_by, sort_by, properties, last_modified, created_at, updated_at)
    SELECT m.table_id * 1099511627776 + 2 * (SELECT COALESCE(max(id), 0) FROM old_partitions) + 2 + m.id, m.table_id, m.schema_version,
    m.schema, m.schema_hash, CASE WHEN m.schema_version = (SELECT max(x.schema_version) FROM old_table_metadata x WHERE x.table_id = m.table_id)
    THEN 'serving' ELSE 'readable' END, 'filesystem', '{}', m.format, m.compression, m.partition_by, m.sort_by, m.properties,
    m.last_modified, m.created_at, m.updated_at FROM old_table_metadata m"""
)
_SCOPES = text(
    """INSERT INTO partition_scopes (table_id, view_instance_id, schema_hash)
    SELECT DISTINCT table_id, view_instance_id, schema_hash FROM old_partitions ORDER BY 1, 2, 3"""
)
_NEXT = text(
    """SELECT p.id, p.table_id, p.file_path, p.file_size, p.num_rows, p.schema_hash, p.updated, m.metadata, m.insert_time,
    m.partition_format_version FROM old_partitions p LEFT JOIN old_partition_metadata m ON m.file_path = p.file_path
    ORDER BY p.id LIMIT :batch"""
)
_PARTITIONS = text(
    """INSERT INTO partitions (id, table_id, scope_id, view_instance_id, begin_insert_time, end_insert_time, min_event_time, max_event_time,
    schema_hash, source_data_hash, fingerprint, num_rows, file_count, partition_format_version, updated)
    SELECT p.table_id * 1099511627776 + 2 * p.id, p.table_id, s.id, p.view_instance_id, p.begin_insert_time, p.end_insert_time,
    p.min_event_time, p.max_event_time, p.schema_hash, p.source_data_hash, :fingerprint, p.num_rows,
    CASE WHEN p.num_rows = 0 THEN 0 ELSE 1 END, p.partition_format_version, p.updated
    FROM old_partitions p JOIN partition_scopes s ON s.table_id = p.table_id AND s.view_instance_id = p.view_instance_id
    AND s.schema_hash = p.schema_hash WHERE p.id = :id"""
)
_FILE = text(
    """INSERT INTO table_files (id, table_id, partition_id, file_name, file_path, file_size, file_type, partition_path, row_count, checksum,
    checksum_kind, is_compressed, schema_hash, added_seq, created_at, modified_at)
    VALUES (:file_id, :table_id, :partition_id, :file_name, :file_path, :file_size, 'parquet', '', :num_rows, '', 'none', 1, :schema_hash,
    :first, :updated, :updated)"""
)
_FOOTER = text(
    """INSERT INTO partition_metadata (file_path, table_id, metadata, insert_time, partition_format_version, footer_length, num_rows, checksum)
    VALUES (:file_path, :table_id, :metadata, :insert_time, :version, :length, :num_rows, :checksum)"""
)
_QUEUE = text(
    """INSERT INTO temporary_files (file_path, file_size, table_id, retired_at, expiration, reason)
    SELECT file_path, max(file_size), 0, max(expiration), max(expiration), 'retired' FROM old_temporary_files GROUP BY file_path"""
)
_COUNT_STATS = text(
    """INSERT INTO table_stats (id, table_id, partition_path, row_count, file_count, small_file_count, total_size, last_modified, created_at,
    updated_at) SELECT f.table_id * 1099511627776 + q.last_id + 1, f.table_id, f.partition_path, sum(f.row_count), count(*),
    sum(CASE WHEN f.file_size < 33554432 THEN 1 ELSE 0 END), sum(f.file_size), max(t.last_modified), max(t.last_modified),
    max(t.last_modified) FROM table_files f JOIN tables t ON t.id = f.table_id JOIN table_seq q ON q.table_id = f.table_id
    JOIN table_metadata m ON m.table_id = f.table_id AND m.schema_hash = f.schema_hash GROUP BY f.table_id, f.partition_path, q.last_id"""
)
_COUNT_TABLES = text(
    """UPDATE tables SET row_count = COALESCE((SELECT sum(row_count) FROM table_stats s WHERE s.table_id = tables.id), 0),
    file_count = COALESCE((SELECT sum(file_count) FROM table_stats s WHERE s.table_id = tables.id), 0),
    total_size = COALESCE((SELECT sum(total_size) FROM table_stats s WHERE s.table_id = tables.id), 0)"""
)


def upgrade() -> None:
    bind = op.get_bind()
    dialect: Dialect = "sqlite" if bind.dialect.name == "sqlite" else "postgresql"
    if not has_table(bind, "table_seq"):
        _require_no_overlap(bind)
        _set_aside(bind, dialect)
    if has_table(bind, "old_partitions"):
        while _move_batch(bind):
            pass
        _finish(bind, dialect)


def _require_no_overlap(bind: Connection) -> None:
    found = bind.execute(_OVERLAPS).first()
    if found is not None:
        where = TimeRange(begin=found[2], end=found[3])
        message = f"{found[0]}.{found[1]} holds overlapping partitions of one schema around {where}: retire one of them, then migrate"
        raise RefusedError(message)


def _set_aside(bind: Connection, dialect: Dialect) -> None:
    with transaction(bind):
        for table in _OLD:
            bind.exec_driver_sql(f"ALTER TABLE {table} RENAME TO old_{table}")
        if dialect == "postgresql":  # constraints keep their names when a table is renamed, and the new ones need them
            for table in _OLD:
                _rename_constraints(bind, f"old_{table}")
        for ddl in read_frozen(revision, dialect)["tables"].values():
            run_script(bind, ddl)
        for statement in (_TABLES, _SEQ, _VERSIONS, _SCOPES):
            bind.execute(statement, {"first": _FIRST} if statement is _SEQ else {})
        if dialect == "postgresql":
            bind.exec_driver_sql(
                "SELECT setval(pg_get_serial_sequence('table_seq', 'table_id'), (SELECT COALESCE(max(table_id), 0) + 1 FROM table_seq), false)"
            )


def _move_batch(bind: Connection) -> bool:
    rows = bind.execute(_NEXT, {"batch": BATCH}).mappings().all()
    if not rows:
        return False
    with transaction(bind):
        for row in rows:
            bind.execute(_PARTITIONS, {"id": row["id"], "fingerprint": hashlib.sha256(f"partition {row['id']}".encode()).hexdigest()[:32]})
            if row["file_path"] is not None:
                _move_file(bind, row)
        bind.execute(text("DELETE FROM old_partitions WHERE id <= :id"), {"id": rows[-1]["id"]})
    return True


def _move_file(bind: Connection, row: Any) -> None:
    base = row["table_id"] << 40
    own = {key: row[key] for key in ("table_id", "file_path", "file_size", "num_rows", "schema_hash", "updated")}
    ids = {"file_id": base + 2 * row["id"] + 1, "partition_id": base + 2 * row["id"]}
    bind.execute(_FILE, {**own, **ids, "file_name": row["file_path"].rpartition("/")[2], "first": _FIRST})
    if row["metadata"] is not None:
        footer = bytes(row["metadata"])
        values = {
            "file_path": row["file_path"],
            "table_id": row["table_id"],
            "metadata": zstandard.compress(footer, 3),
            "insert_time": row["insert_time"],
            "version": row["partition_format_version"],
            "length": len(footer),
            "num_rows": row["num_rows"],
            "checksum": hashlib.sha256(footer).hexdigest(),
        }
        bind.execute(_FOOTER, values)


def _finish(bind: Connection, dialect: Dialect) -> None:
    with transaction(bind):
        for statement in (_QUEUE, _COUNT_STATS, _COUNT_TABLES):
            bind.execute(statement)
        bind.exec_driver_sql("UPDATE table_seq SET last_id = last_id + 1")
        made = read_frozen(revision, dialect)["triggers"]
        for ddl in made.values():
            run_script(bind, ddl)
        facts = text("INSERT INTO registry_facts (key, value) VALUES (:key, :value)")
        bind.execute(facts, {"key": "trigger_hash", "value": hash_triggers(made)})
        identity = hashlib.sha256(repr(bind.execute(text("SELECT min(created_at), count(*) FROM tables")).first()).encode()).hexdigest()
        bind.execute(facts, {"key": "registry_id", "value": identity[:32]})
        for table in _OLD:
            bind.exec_driver_sql(f"DROP TABLE old_{table}")


def _rename_constraints(bind: Connection, table: str) -> None:
    names = bind.execute(text("SELECT conname FROM pg_constraint WHERE conrelid = CAST(:t AS regclass)"), {"t": table}).scalars().all()
    for name in names:
        bind.exec_driver_sql(f'ALTER TABLE {table} RENAME CONSTRAINT "{name}" TO "old_{name}"')
