"""Footers get a format version: 1 = bare FileMetaData, whose row count and index pointers may be unusable."""

from __future__ import annotations

from alembic import op

from lakebed.registry.migrations.steps import has_column, transaction

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    bind = op.get_bind()
    for table in ("partitions", "partition_metadata"):
        if not has_column(bind, table, "partition_format_version"):
            with transaction(bind):
                bind.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN partition_format_version BIGINT NOT NULL DEFAULT 1")
