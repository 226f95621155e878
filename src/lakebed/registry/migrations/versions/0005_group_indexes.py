"""Indexes on groups, kinds of groups, the history of serving versions, files left out, and the query of a stream.

The indexes are built first: they take longest, and on PostgreSQL writers go on meanwhile. The rest is one transaction.
`schema_0005.json` is `json.dumps(freeze(), indent=1)` of `lakebed.registry.open`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alembic import op

from lakebed.registry.migrations.serving_backfill import backfill_serving
from lakebed.registry.migrations.steps import build_index, has_column, has_table, read_tables, replace_programs, run_script, transaction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from lakebed.registry.backends.statements import Dialect

revision = "0005"
down_revision = "0004"

_INDEXES = ("table_files_added_group", "table_files_removed_group")
_TABLES = ("left_out_files", "table_groups", "serving_history")


def upgrade() -> None:
    bind = op.get_bind()
    dialect: Dialect = "sqlite" if bind.dialect.name == "sqlite" else "postgresql"
    made = read_tables(revision, dialect)
    for index in _INDEXES:
        build_index(bind, index, made[index])
    with transaction(bind):
        for table in _TABLES:
            if not has_table(bind, table):
                run_script(bind, made[table])
        backfill_serving(bind)
        if not has_column(bind, "operations", "query_id"):
            _add_query_id(bind, made)
        replace_programs(bind, down_revision, revision, dialect)


def _add_query_id(bind: Connection, made: Mapping[str, str]) -> None:
    """SQLite keeps the text of a declaration, so there the table is made as declared and filled from the old one."""
    if bind.dialect.name == "postgresql":
        bind.exec_driver_sql("ALTER TABLE operations ADD COLUMN query_id TEXT")
        return
    columns = ", ".join(str(row[1]) for row in bind.exec_driver_sql("PRAGMA table_info(operations)"))
    bind.exec_driver_sql("ALTER TABLE operations RENAME TO old_operations")
    bind.exec_driver_sql(made["operations"])
    bind.exec_driver_sql(f"INSERT INTO operations ({columns}) SELECT {columns} FROM old_operations")
    bind.exec_driver_sql("DROP TABLE old_operations")  # and its indexes, whose names are needed next
    for index in ("operations_batch_once", "operations_open"):
        bind.exec_driver_sql(made[index])
