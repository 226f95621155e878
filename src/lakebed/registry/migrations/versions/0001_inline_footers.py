"""The first registry: one file per partition, its footer inside the partition row."""

from __future__ import annotations

from alembic import op

from lakebed.registry.migrations.steps import has_table, spell, transaction

revision = "0001"
down_revision = None

_TABLES = (
    """CREATE TABLE tables (id {key}, database TEXT NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL,
    row_count BIGINT NOT NULL DEFAULT 0, file_count BIGINT NOT NULL DEFAULT 0, total_size BIGINT NOT NULL DEFAULT 0,
    last_modified BIGINT NOT NULL, created_at BIGINT NOT NULL, UNIQUE (database, name))""",
    """CREATE TABLE table_metadata (id {key}, table_id BIGINT NOT NULL, schema_version BIGINT NOT NULL, schema {blob} NOT NULL,
    schema_hash TEXT NOT NULL, format TEXT NOT NULL, compression TEXT NOT NULL, partition_by TEXT NOT NULL, sort_by TEXT NOT NULL,
    properties TEXT NOT NULL, last_modified BIGINT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
    UNIQUE (table_id, schema_version))""",
    """CREATE TABLE partitions (id {key}, table_id BIGINT NOT NULL, view_instance_id TEXT NOT NULL, begin_insert_time BIGINT NOT NULL,
    end_insert_time BIGINT NOT NULL, min_event_time BIGINT, max_event_time BIGINT, schema_hash TEXT NOT NULL, source_data_hash TEXT,
    num_rows BIGINT NOT NULL, file_path TEXT UNIQUE, file_size BIGINT NOT NULL DEFAULT 0, file_metadata {blob}, updated BIGINT NOT NULL,
    UNIQUE (table_id, view_instance_id, begin_insert_time, end_insert_time, schema_hash))""",
    "CREATE TABLE temporary_files (file_path TEXT NOT NULL, file_size BIGINT NOT NULL, expiration BIGINT NOT NULL)",
)


def upgrade() -> None:
    bind = op.get_bind()
    if has_table(bind, "tables"):
        return
    with transaction(bind):
        for ddl in _TABLES:
            bind.exec_driver_sql(spell(ddl, bind))
