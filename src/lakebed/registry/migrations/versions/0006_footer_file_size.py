"""The size of the file beside its footer, filled from the file rows in bounded batches.

PostgreSQL adds the column and fills it. SQLite keeps the text of a declaration, so there the table is made as declared, and every
batch moves rows in one transaction: wherever a kill falls, each footer is in exactly one place.
`schema_0006.json` is `json.dumps(freeze(), indent=1)` of `lakebed.registry.open`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alembic import op
from sqlalchemy import text

from lakebed.registry.migrations.steps import BATCH, has_column, has_table, read_tables, replace_programs, report, transaction

if TYPE_CHECKING:
    from sqlalchemy import Connection

revision = "0006"
down_revision = "0005"

_KEPT = "file_path, table_id, metadata, insert_time, partition_format_version, footer_length, num_rows, checksum"
_FIRST = "SELECT m.rowid FROM old_partition_metadata m ORDER BY m.rowid LIMIT :batch"
# a footer without a file is one that `check` reports: it keeps a size that no file has
_MOVE = text(
    f"""INSERT INTO partition_metadata ({_KEPT}, file_size)
    SELECT {_KEPT}, COALESCE((SELECT f.file_size FROM table_files f WHERE f.file_path = m.file_path), 0)
    FROM old_partition_metadata m WHERE m.rowid IN ({_FIRST})"""
)
_FORGET = text(f"DELETE FROM old_partition_metadata WHERE rowid IN ({_FIRST})")
_PAGE = text(
    "SELECT max(file_path) FROM (SELECT file_path FROM partition_metadata WHERE file_path > :after ORDER BY file_path LIMIT :batch) p"
)
_FILL = text(
    """UPDATE partition_metadata m SET file_size = f.file_size FROM table_files f
    WHERE f.file_path = m.file_path AND m.file_path > :after AND m.file_path <= :last AND m.file_size IS NULL"""
)
_REST = """UPDATE partition_metadata m SET file_size =
COALESCE((SELECT f.file_size FROM table_files f WHERE f.file_path = m.file_path), 0) WHERE m.file_size IS NULL"""


def upgrade() -> None:
    bind = op.get_bind()
    report("writing the sizes of files beside their footers")
    if bind.dialect.name == "sqlite":
        _move_rows(bind)
        return
    _fill_column(bind)
    with transaction(bind):
        bind.exec_driver_sql("LOCK TABLE partition_metadata IN ACCESS EXCLUSIVE MODE")
        bind.exec_driver_sql(_REST)  # what others registered meanwhile
        bind.exec_driver_sql("ALTER TABLE partition_metadata ALTER COLUMN file_size SET NOT NULL")
        replace_programs(bind, down_revision, revision, "postgresql")


def _fill_column(bind: Connection) -> None:
    if not has_column(bind, "partition_metadata", "file_size"):
        bind.exec_driver_sql("ALTER TABLE partition_metadata ADD COLUMN file_size BIGINT")
    after = ""
    while (last := bind.execute(_PAGE, {"after": after, "batch": BATCH}).scalar()) is not None:
        bind.execute(_FILL, {"after": after, "last": last})
        after = last


def _move_rows(bind: Connection) -> None:
    """Triggers and functions are the same as before."""
    if not has_column(bind, "partition_metadata", "file_size"):
        _set_aside(bind)
    if has_table(bind, "old_partition_metadata"):
        while _move_batch(bind):
            pass
        bind.exec_driver_sql("DROP TABLE old_partition_metadata")


def _set_aside(bind: Connection) -> None:
    made = read_tables(revision, "sqlite")
    with transaction(bind):
        bind.exec_driver_sql("ALTER TABLE partition_metadata RENAME TO old_partition_metadata")
        bind.exec_driver_sql("DROP INDEX partition_metadata_old")
        for name in ("partition_metadata", "partition_metadata_old"):
            bind.exec_driver_sql(made[name])


def _move_batch(bind: Connection) -> bool:
    with transaction(bind):
        bind.execute(_MOVE, {"batch": BATCH})
        return bind.execute(_FORGET, {"batch": BATCH}).rowcount > 0
