"""A registry that is read-only, locked, foreign, damaged or down: a typed error that says what to do, and nothing changed."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

import workers
from builders import ORDERS, fake_file, logical_dump, make_table, publish
from lakebed.core.errors import (
    CorruptionError,
    LakebedError,
    RegistryLockedError,
    RegistryReadOnlyError,
    RegistryRefusedError,
    RegistryUnavailableError,
    StorageFullError,
)
from lakebed.core.names import TableName
from lakebed.registry.create import open_registry
from lakebed.registry.engine import parse_url
from lakebed.registry.postgres import translate as translate_postgres
from lakebed.registry.sqlite import SAFE_WAL_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Databases
    from lakebed.registry.engine import Registry


@pytest.fixture
def file(databases: Databases) -> Path:
    """The file of a SQLite registry that nobody has open."""
    path = parse_url(databases.new("sqlite"))
    assert isinstance(path, Path)
    return path


@pytest.fixture
def postgres(databases: Databases) -> Iterator[str]:
    """The URL of a PostgreSQL registry that nobody has open."""
    url = databases.new("postgresql")
    yield url
    databases.drop(url)


def run_sql(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


# -- read-only ---------------------------------------------------------------------------------


def test_a_file_without_write_permission_is_read_only(file: Path) -> None:
    file.chmod(0o400)

    said = workers.answer(workers.run("write_without_privileges", f"sqlite:///{file}"))

    assert said.startswith("registry_read_only: ")
    assert "give it write permission on file and directory" in said


def test_a_directory_without_write_permission_is_read_only(file: Path, tmp_path: Path) -> None:
    moved = tmp_path / "lake.db"
    file.rename(moved)
    tmp_path.chmod(0o500)

    said = workers.answer(workers.run("write_without_privileges", f"sqlite:///{moved}"))

    tmp_path.chmod(0o700)
    assert said.startswith("registry_read_only: ")


def test_a_read_only_postgresql_is_told_apart_from_one_that_is_down(postgres: str) -> None:
    run_sql(postgres, "DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET default_transaction_read_only = on'; END $$")

    with closing(open_registry(postgres)) as registry, pytest.raises(RegistryReadOnlyError), registry.write() as tx:
        tx.run("DELETE FROM astha_state")


def test_a_role_that_may_only_read_reads(postgres: str) -> None:
    role = f"reader_{os.getpid()}"
    run_sql(postgres, f"CREATE ROLE {role} LOGIN", f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
    url = postgres.replace("postgresql://postgres:@", f"postgresql://{role}@")

    with closing(open_registry(url)) as registry:
        assert registry.query("SELECT count(*) FROM tables") == [(0,)]
        with pytest.raises(RegistryReadOnlyError), registry.write() as tx:
            tx.run("DELETE FROM astha_state")
    run_sql(postgres, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


# -- locked ------------------------------------------------------------------------------------


def test_a_sqlite_locked_by_another_program_is_locked(file: Path) -> None:
    with (
        closing(open_registry(f"sqlite:///{file}", timeout_s=0.2)) as registry,
        closing(sqlite3.connect(file, isolation_level=None)) as other,
    ):
        table = make_table(registry)
        before = logical_dump(registry)
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(RegistryLockedError, match="another program holds the write lock of .* close it"):
            publish(registry, table, fake_file(1))

        other.execute("ROLLBACK")
        assert logical_dump(registry) == before
        publish(registry, table, fake_file(1))


@pytest.mark.parametrize("lock", ["SELECT * FROM table_seq FOR UPDATE", "LOCK TABLE table_files IN ACCESS EXCLUSIVE MODE"])
def test_a_postgresql_locked_by_another_program_is_locked(postgres: str, lock: str) -> None:
    with closing(open_registry(postgres, timeout_s=0.3)) as registry, psycopg.connect(postgres) as other:
        table = make_table(registry)
        before = logical_dump(registry)
        other.execute(lock.encode())

        with pytest.raises(RegistryLockedError, match="find it in pg_stat_activity, end its transaction and retry"):
            publish(registry, table, fake_file(1))

        other.rollback()
        assert logical_dump(registry) == before
        publish(registry, table, fake_file(1))


def test_a_stopped_writer_is_named_as_the_likely_cause_and_gone_when_killed(registry: Registry, url: str) -> None:
    table = make_table(registry)
    worker = workers.run("hold_write_lock", url, str(ORDERS))
    assert worker.stdout is not None
    assert worker.stdout.readline() == "held\n"
    worker.send_signal(signal.SIGSTOP)

    with (
        closing(open_registry(url, timeout_s=0.3)) as impatient,
        pytest.raises(RegistryLockedError, match="may be stopped|pg_stat_activity"),
    ):
        publish(impatient, table, fake_file(1))

    worker.kill()
    worker.communicate()
    publish(registry, table, fake_file(1))


def test_readers_go_on_while_a_writer_is_stopped(registry: Registry, url: str) -> None:
    make_table(registry)
    with stopped_writer(url):
        assert registry.query("SELECT count(*) FROM tables") == [(1,)]


def test_closing_never_waits_for_another_writer(registry: Registry, url: str) -> None:
    make_table(registry)
    other = open_registry(url, timeout_s=60)
    other.query("SELECT 1")
    with stopped_writer(url):
        started = time.monotonic()

        other.close()

        assert time.monotonic() - started < 5


# -- not ours, or damaged ----------------------------------------------------------------------


def test_a_database_with_other_tables_is_refused(empty_url: str, kind: str) -> None:
    if kind == "sqlite":
        with closing(sqlite3.connect(empty_url.removeprefix("sqlite:///"))) as other:
            other.execute("CREATE TABLE invoices (id INTEGER)")
    else:
        run_sql(empty_url, "CREATE TABLE invoices (id INTEGER)")

    with pytest.raises(RegistryRefusedError, match=r"holds other tables \(invoices\): give Lakebed a database of its own"):
        open_registry(empty_url)


@pytest.mark.parametrize("content", [b"garbage" * 1000, b"SQLite format 3\x00" + b"\xff" * 5000, b"PAR1"])
def test_a_file_that_is_no_database_is_corrupt_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lake.db"
    path.write_bytes(content)
    path.chmod(0o600)

    with pytest.raises(CorruptionError, match="damaged or no SQLite database"):
        open_registry(f"sqlite:///{path}")

    assert path.read_bytes() == content


def test_a_truncated_registry_is_corrupt(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)

    with pytest.raises(CorruptionError, match="restore it from a backup"), closing(open_registry(f"sqlite:///{file}")) as registry:
        make_table(registry)


def test_a_file_that_others_may_read_is_refused(file: Path) -> None:
    file.chmod(0o644)

    with pytest.raises(RegistryRefusedError, match=r"open to others \(mode 0644\): run `chmod 600` on it"):
        open_registry(f"sqlite:///{file}")


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_regular_file_is_refused(tmp_path: Path, make: object) -> None:
    path = tmp_path / "lake.db"
    assert callable(make)
    make(path)

    with pytest.raises(RegistryRefusedError, match="is no regular file"):
        open_registry(f"sqlite:///{path}")


def test_a_directory_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RegistryRefusedError, match="create it first"):
        open_registry(f"sqlite:///{tmp_path}/nowhere/lake.db")


def test_a_new_registry_is_private_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        open_registry(f"sqlite:///{tmp_path}/lake.db").close()
    finally:
        os.umask(old)

    assert {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()} == {0o600}


def test_strict_mode_refuses_a_sqlite_with_the_wal_reset_bug(file: Path) -> None:
    if sqlite3.sqlite_version_info < SAFE_WAL_VERSION:
        with pytest.raises(RegistryRefusedError, match="has the WAL-reset bug"):
            open_registry(f"sqlite:///{file}", strict=True)
    else:
        open_registry(f"sqlite:///{file}", strict=True).close()


def test_every_sqlite_connection_is_durable_checked_and_unmapped(file: Path) -> None:
    with closing(open_registry(f"sqlite:///{file}")) as registry:
        wanted = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "mmap_size": 0, "cell_size_check": 1}

        assert {pragma: registry.query(f"PRAGMA {pragma}")[0][0] for pragma in wanted} == wanted


def test_a_new_connection_never_cancels_the_locks_of_the_others(file: Path) -> None:
    """POSIX locks die with any descriptor of the file: then a closing process would delete the WAL under the living."""
    with closing(open_registry(f"sqlite:///{file}")) as registry, registry.read() as reader:
        make_table(registry)
        publish(registry, make_table(registry, TableName("shop", "returns")), fake_file(1))
        reader.query("SELECT 1")
        wal = Path(f"{file}-wal").stat().st_ino

        closed = workers.answer(workers.run("write_without_privileges", f"sqlite:///{file}"))

        assert (closed, Path(f"{file}-wal").stat().st_ino) == ("written", wal)
        publish(registry, make_table(registry, TableName("shop", "others")), fake_file(2))
    with closing(sqlite3.connect(file)) as direct:
        assert direct.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert direct.execute("SELECT count(*) FROM table_files").fetchall() == [(2,)]


# -- down --------------------------------------------------------------------------------------


def test_a_postgresql_that_does_not_answer_is_unavailable() -> None:
    with pytest.raises(RegistryUnavailableError, match="does not answer"):
        open_registry("postgresql://postgres@127.0.0.1:1/lake", timeout_s=1)


def test_a_connection_that_the_server_ended_is_replaced(postgres: str) -> None:
    with closing(open_registry(postgres)) as registry:
        table = make_table(registry)
        kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        run_sql(postgres, kill)

        with pytest.raises(RegistryUnavailableError):
            publish(registry, table, fake_file(1))

        publish(registry, table, fake_file(1))


def test_a_remote_postgresql_without_a_checked_certificate_is_refused() -> None:
    for mode in ("", "?sslmode=require", "?sslmode=prefer", "?sslmode=disable"):
        with pytest.raises(RegistryRefusedError, match=r"add \?sslmode=verify-full"):
            open_registry(f"postgresql://u@db.example.com/lake{mode}")


def test_a_full_postgresql_disk_is_storage_full() -> None:
    with pytest.raises(StorageFullError, match="free some and retry; nothing was changed"):
        translate_postgres(psycopg.errors.DiskFull("no space left on device"), "postgresql://x/y")


# -- secrets -----------------------------------------------------------------------------------

CANARY = "s3cret-canary"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{CANARY}@127.0.0.1:1/lake",
        f"postgresql://ann:{CANARY}@db.example.com/lake",
        f"postgresql://ann@127.0.0.1:1/lake?password={CANARY}",
        f"mysql://ann:{CANARY}@host/lake",
        f"postgresql://ann:{CANARY}@127.0.0.1:1/lake?unknown_option={CANARY}",
    ],
)
def test_a_password_is_in_no_error_and_no_log(url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")

    with pytest.raises(LakebedError) as refused:
        open_registry(url, timeout_s=1)

    said = [repr(refused.value), str(refused.value), *[repr(e) for e in _causes(refused.value)], *caplog.messages]
    assert not [text for text in said if CANARY in text]


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        yield cause
        yield from _causes(cause)
