from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from lakebed.core.errors import RefusedError, RegistryNewerError, RegistryOlderError
from lakebed.registry.connect import open_backend
from lakebed.registry.migrate import _engine, list_pending, migrate_registry, upgrade
from lakebed.registry.migrations.steps import read_frozen
from lakebed.registry.open import open_registry
from lakebed.registry.registry import Registry
from lakebed.registry.schema.ddl import freeze, statements
from lakebed.registry.verify import HEAD, REVISIONS, find_revision

if TYPE_CHECKING:
    from conftest import Databases

ROWS = 1234
SIZED = "SELECT count(*) FROM partition_metadata m JOIN table_files f ON f.file_path = m.file_path WHERE m.file_size = f.file_size"
_SCHEMA = json.dumps({"fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]})
_FILL = {
    "tables": "INSERT INTO tables (id, database, name, kind, row_count, file_count, total_size, last_modified, created_at) "
    "VALUES (1, 'shop', 'orders', 'table', 0, 0, 0, 5, 5), (2, 'shop', 'daily', 'view_set', 0, 0, 0, 5, 5)",
    "table_metadata": "INSERT INTO table_metadata (table_id, schema_version, schema, schema_hash, format, compression, partition_by, "
    "sort_by, properties, last_modified, created_at, updated_at) VALUES (1, 1, :schema, 'h1', 'parquet', 'zstd', '[]', '[]', '{}', 5, 5, 5), "
    "(1, 2, :schema, 'h2', 'parquet', 'zstd', '[]', '[]', '{}', 5, 5, 5), (2, 1, :schema, 'h3', 'parquet', 'zstd', '[]', '[]', '{}', 5, 5, 5)",
    "queue": "INSERT INTO temporary_files (file_path, file_size, expiration) VALUES ('/w/gone.parquet', 10, 50), ('/w/gone.parquet', 10, 90)",
}


def fill(url: str, revision: str) -> None:
    """A populated registry of that revision: full and empty partitions, footers where that revision kept them."""
    upgrade(url, revision)
    engine = _engine(url)
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        connection.execute(text(_FILL["tables"]))
        connection.execute(text(_FILL["table_metadata"]), {"schema": _SCHEMA.encode()})
        connection.execute(text(_FILL["queue"]))
        for number in range(ROWS):
            _add_partition(connection, revision, number)
        connection.exec_driver_sql("COMMIT")
    engine.dispose()


def _add_partition(connection: object, revision: str, number: int) -> None:
    empty = number % 10 == 9
    path = None if empty else f"/w/p{number:05d}.parquet"
    values = {
        "table_id": 1 + number % 2,
        "view_instance_id": "global",
        "begin_insert_time": number * 10,
        "end_insert_time": number * 10 + 10,
        "min_event_time": None if empty else number,
        "max_event_time": None if empty else number + 1,
        "schema_hash": "h3" if number % 2 else "h1",
        "num_rows": 0 if empty else number + 1,
        "file_path": path,
        "file_size": 0 if empty else 1000 + number,
        "updated": 7,
    }
    footer = f"footer {number}".encode()
    if revision == "0001":
        values["file_metadata"] = None if empty else footer
    columns = ", ".join(values)
    holders = ", ".join(f":{name}" for name in values)
    execute = connection.execute  # type: ignore[attr-defined]
    execute(text(f"INSERT INTO partitions ({columns}) VALUES ({holders})"), values)
    if revision in ("0002", "0003") and not empty:
        execute(text("INSERT INTO partition_metadata (file_path, metadata, insert_time) VALUES (:p, :m, 7)"), {"p": path, "m": footer})


def assert_nothing_lost(url: str) -> None:
    registry = open_registry(url)
    try:
        full = ROWS - len(range(9, ROWS, 10))
        assert registry.query("SELECT count(*), sum(num_rows) FROM partitions")[0][0] == ROWS
        assert registry.query("SELECT count(*) FROM table_files") == [(full,)]
        assert registry.query("SELECT count(*) FROM partition_metadata WHERE partition_format_version = 1") == [(full,)]
        assert registry.query(SIZED) == [(full,)]
        rows = sum(n + 1 for n in range(ROWS) if n % 10 != 9)
        assert int(registry.query("SELECT sum(row_count) FROM tables")[0][0]) == rows
        assert registry.query("SELECT file_path, expiration FROM temporary_files") == [("/w/gone.parquet", 90)]
        assert registry.query("SELECT standing FROM table_metadata ORDER BY table_id, schema_version") == [
            ("readable",),
            ("serving",),
            ("serving",),
        ]
        assert registry.query("SELECT table_id, seq, schema_version FROM serving_history ORDER BY 1, 2") == [
            (1, 0, 1),
            (1, 1, 2),
            (2, 0, 1),
        ]
    finally:
        registry.close()


@pytest.mark.parametrize("revision", ["0001", "0002", "0003"])
def test_a_populated_registry_of_each_revision_keeps_every_row(empty_url: str, revision: str) -> None:
    fill(empty_url, revision)

    applied = migrate_registry(empty_url)

    assert applied == list(REVISIONS[REVISIONS.index(revision) + 1 :])
    assert_nothing_lost(empty_url)


def test_a_second_run_changes_nothing(empty_url: str) -> None:
    fill(empty_url, "0003")
    migrate_registry(empty_url)

    assert migrate_registry(empty_url) == []
    assert_nothing_lost(empty_url)


_KILLED = """
import os, signal, sys
from sqlalchemy import event
from sqlalchemy.engine import Engine
left = int(sys.argv[2])
@event.listens_for(Engine, "before_cursor_execute")
def count(*_):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
from lakebed.registry.migrations.steps import read_frozen
from lakebed.registry.migrate import migrate_registry
migrate_registry(sys.argv[1])
print("done")
"""


def run_killed_at(url: str, statement: int) -> bool:
    """Whether the migration ended before that statement was reached."""
    done = subprocess.run([sys.executable, "-c", _KILLED, url, str(statement)], capture_output=True, text=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode == 0


@pytest.mark.parametrize("statement", [3, 9, 17, 30, 60, 90, 700, 1900, 4300])
def test_a_migration_killed_at_any_statement_resumes(databases: Databases, kind: str, statement: int) -> None:
    url = databases.new_empty(kind)
    fill(url, "0001")

    run_killed_at(url, statement)
    migrate_registry(url)

    assert_nothing_lost(url)
    databases.drop(url)


@pytest.mark.parametrize("statement", [10, 16])
def test_file_sizes_are_whole_after_a_kill_among_their_batches(databases: Databases, kind: str, statement: int) -> None:
    url = databases.new_empty(kind)
    fill(url, "0003")
    upgrade(url, "0005")

    assert not run_killed_at(url, statement)
    migrate_registry(url)

    assert_nothing_lost(url)
    databases.drop(url)


def test_a_footer_without_a_file_keeps_a_size_that_no_file_has(empty_url: str) -> None:
    """As after a foreign key was dropped by hand: the check then names the footer."""
    fill(empty_url, "0003")
    upgrade(empty_url, "0005")
    engine = _engine(empty_url)
    with engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql("ALTER TABLE partition_metadata DROP CONSTRAINT partition_metadata_file")
        connection.execute(text("UPDATE partition_metadata SET file_path = '/w/gone.parquet' WHERE file_path = '/w/p00003.parquet'"))
    engine.dispose()

    migrate_registry(empty_url)

    with closing(Registry(open_backend(empty_url))) as registry:
        assert registry.query("SELECT file_size FROM partition_metadata WHERE file_path = '/w/gone.parquet'") == [(0,)]


@pytest.mark.long
@pytest.mark.parametrize("start", range(1, 120))
def test_a_migration_killed_at_every_statement_resumes(databases: Databases, kind: str, start: int) -> None:
    url = databases.new_empty(kind)
    fill(url, "0001")
    run_killed_at(url, start)
    migrate_registry(url)
    assert_nothing_lost(url)
    databases.drop(url)


def add_operation(url: str) -> None:
    """Into a registry of revision 0004."""
    engine = _engine(url)
    with engine.connect() as connection:
        connection.execute(
            text(
                "INSERT INTO operations (op_id, table_id, kind, state, app_id, batch_id, result, lease_until, created_at, updated_at) "
                "VALUES ('00000000000000000000000000000001', 1, 'insert', 'registered', 'job', 7, '{}', 1, 2, 3)"
            )
        )
    engine.dispose()


def test_index_builds_are_announced_and_operations_keep_their_columns(empty_url: str) -> None:
    fill(empty_url, "0003")
    upgrade(empty_url, "0004")
    add_operation(empty_url)
    heard: list[str] = []

    assert migrate_registry(empty_url, report=heard.append) == ["0005", "0006"]

    assert heard[0] == "building index table_files_added_group"
    assert heard[1].startswith("built index table_files_added_group in ")
    assert [line.split(" in ")[0] for line in heard[2:]] == [
        "building index table_files_removed_group",
        "built index table_files_removed_group",
        "writing the sizes of files beside their footers",
    ]
    with closing(open_registry(empty_url)) as registry:
        assert registry.query("SELECT table_id, app_id, batch_id, query_id, result, lease_until, updated_at FROM operations") == [
            (1, "job", 7, None, "{}", 1, 3)
        ]


def test_an_index_that_an_interrupted_build_left_invalid_is_built_again(databases: Databases) -> None:
    url = databases.new_empty("postgresql")
    fill(url, "0003")
    upgrade(url, "0004")
    engine = _engine(url)
    with engine.connect() as connection:
        with pytest.raises(IntegrityError):  # a unique build over equal values fails, and leaves its index behind
            connection.exec_driver_sql("CREATE UNIQUE INDEX CONCURRENTLY table_files_added_group ON table_files (table_id)")
        left = connection.exec_driver_sql(
            "SELECT indisvalid FROM pg_index WHERE indexrelid = 'table_files_added_group'::regclass"
        ).scalar_one()
    engine.dispose()
    assert left is False

    migrate_registry(url)

    assert describe(url) == describe(databases.new("postgresql"))
    databases.drop(url)


def test_a_newer_registry_is_refused_with_a_sentence_that_says_what_to_do(url: str) -> None:
    registry = Registry(open_backend(url))
    with registry.write() as tx:
        tx.run("UPDATE alembic_version SET version_num = '0099'")
    registry.close()

    with pytest.raises(RegistryNewerError, match="upgrade Lakebed"):
        open_registry(url)
    with pytest.raises(RegistryNewerError):
        migrate_registry(url)


def test_an_older_registry_migrates_itself_only_where_no_other_process_can_be_using_it(empty_url: str, kind: str) -> None:
    fill(empty_url, "0003")
    if kind == "postgresql":
        with pytest.raises(RegistryOlderError, match="lakebed migrate"):
            open_registry(empty_url)
        assert list_pending(empty_url) == ["0004", "0005", "0006"]
    else:
        open_registry(empty_url).close()
        assert list_pending(empty_url) == []


def test_an_older_sqlite_registry_in_use_is_left_alone(databases: Databases) -> None:
    url = databases.new_empty("sqlite")
    fill(url, "0003")
    holder = open_backend(url)
    connection = holder.connect()
    holder.begin_read(connection)
    connection.query("SELECT count(*) FROM partitions")

    with pytest.raises(RegistryOlderError):
        open_registry(url)

    connection.close()


def test_overlapping_partitions_of_old_data_are_named_not_dropped(empty_url: str) -> None:
    fill(empty_url, "0003")
    engine = _engine(empty_url)
    with engine.connect() as connection:
        connection.execute(text("UPDATE partitions SET end_insert_time = end_insert_time + 50 WHERE id = 3"))
    engine.dispose()

    with pytest.raises(RefusedError, match=r"shop\.orders holds overlapping partitions"):
        migrate_registry(empty_url)

    registry = Registry(open_backend(empty_url))
    assert find_revision(registry) == "0003"
    registry.close()


def test_a_migrated_registry_has_the_declared_schema(databases: Databases, kind: str) -> None:
    migrated, declared = databases.new_empty(kind), databases.new(kind)
    upgrade(migrated, HEAD)

    assert describe(migrated) == describe(declared)
    assert len(statements("sqlite" if kind == "sqlite" else "postgresql")) > 30


def test_the_frozen_schema_of_the_newest_revision_is_todays() -> None:
    """Fails when the declaration changes without a new revision: then write one, with a frozen schema of its own."""
    assert freeze()["sqlite"] == read_frozen(HEAD, "sqlite")
    assert freeze()["postgresql"] == read_frozen(HEAD, "postgresql")


def describe(url: str) -> list[tuple[str, ...]]:
    registry = open_registry(url)
    try:
        if registry.dialect == "sqlite":
            return sorted(
                registry.query(
                    "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' AND name <> 'alembic_version'"
                )
            )
        columns = registry.query(
            "SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns WHERE table_schema = 'public'"
        )
        constraints = registry.query(
            "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid), '', '' FROM pg_constraint WHERE connamespace = 'public'::regnamespace"
        )
        indexes = registry.query("SELECT tablename, indexname, indexdef, '', '' FROM pg_indexes WHERE schemaname = 'public'")
        return sorted((*map(str, row),) for row in [*columns, *constraints, *indexes])
    finally:
        registry.close()


def test_the_kill_of_these_tests_is_a_real_one() -> None:
    killed = subprocess.run([sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert os.name == "posix"
