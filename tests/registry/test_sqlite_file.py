"""The SQLite file itself: private, durable, with a bounded WAL that is never deleted under open connections."""

from __future__ import annotations

import os
import secrets
import sqlite3
import stat
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import workers
from builders import ORDERS, fake_file, fresh_name, make_table, publish
from lakebed.core.errors import RegistryReadOnlyError, RegistryRefusedError
from lakebed.core.files import Footer
from lakebed.registry.backends.sqlite import SAFE_WAL_VERSION, SqliteBackend, SqliteConnection
from lakebed.registry.connect import open_backend, parse_url
from lakebed.registry.open import open_registry
from lakebed.registry.registry import Registry
from lakebed.testing import SteppedBackend, Steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Databases
    from lakebed.registry.backends.protocol import Connection

WAL_ALARM_BYTES = 64 * 1024 * 1024


@pytest.fixture
def file(databases: Databases) -> Path:
    """A SQLite registry that no process has open."""
    path = parse_url(databases.new("sqlite"))
    assert isinstance(path, Path)
    return path


def test_a_new_registry_is_private_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with closing(open_registry(f"sqlite:///{tmp_path}/lake.db", create=True)) as registry:
            make_table(registry)
            modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
    finally:
        os.umask(old)

    assert modes == dict.fromkeys(["lake.db", "lake.db-wal", "lake.db-shm", "lake.db.lock"], 0o600)


def test_strict_mode_refuses_a_sqlite_with_the_wal_reset_bug(file: Path) -> None:
    if sqlite3.sqlite_version_info < SAFE_WAL_VERSION:
        with pytest.raises(RegistryRefusedError, match="has the WAL-reset bug"):
            open_registry(f"sqlite:///{file}", strict=True)
    else:
        open_registry(f"sqlite:///{file}", strict=True).close()


def test_every_connection_is_durable_checked_and_unmapped(file: Path) -> None:
    wanted = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "mmap_size": 0, "cell_size_check": 1}
    with closing(open_registry(f"sqlite:///{file}")) as registry:
        assert {pragma: registry.query(f"PRAGMA {pragma}")[0][0] for pragma in wanted} == wanted


def test_a_new_connection_never_cancels_the_locks_of_the_others(file: Path) -> None:
    """POSIX locks die with any descriptor of the file: then a closing process would delete the WAL under the living."""
    with closing(open_registry(f"sqlite:///{file}")) as registry:
        with registry.read() as reader:
            reader.query("SELECT count(*) FROM tables")  # this connection stands, so the next one is new
            publish(registry, make_table(registry, fresh_name()), fake_file(1))
        wal = Path(f"{file}-wal").stat().st_ino

        assert workers.answer(workers.run("write_nothing", f"sqlite:///{file}")) == "written"

        assert Path(f"{file}-wal").stat().st_ino == wal
        publish(registry, make_table(registry, fresh_name()), fake_file(2))
    with closing(sqlite3.connect(file)) as direct:
        assert direct.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert direct.execute("SELECT count(*) FROM table_files").fetchall() == [(2,)]


def test_the_last_one_to_close_leaves_one_file_that_holds_everything(file: Path) -> None:
    with closing(open_registry(f"sqlite:///{file}")) as registry:
        publish(registry, make_table(registry, fresh_name()), fake_file(1))

    assert not Path(f"{file}-wal").exists()
    with closing(sqlite3.connect(f"file:{file}?immutable=1", uri=True)) as direct:
        assert direct.execute("SELECT count(*) FROM table_files").fetchall() == [(1,)]


@pytest.mark.long
def test_a_long_reader_raises_the_alarm_and_the_wal_shrinks_when_it_ends(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    noise = secrets.token_bytes(400_000)
    heavy = Footer(tail=noise, num_rows=100, checksum="0" * 64)
    with closing(open_registry(f"sqlite:///{file}")) as registry:
        assert isinstance(registry.backend, SqliteBackend)
        table = make_table(registry, fresh_name())
        with registry.read() as reader:
            reader.query("SELECT count(*) FROM tables")
            for number in range(260):
                publish(registry, table, replace(fake_file(number), footer=heavy))
        assert "a long read keeps the registry's WAL from shrinking" in caplog.messages
        assert registry.backend.wal_bytes() >= WAL_ALARM_BYTES

        for number in range(260):
            publish(registry, table, fake_file(number))

        assert registry.backend.wal_bytes() < WAL_ALARM_BYTES


class Fallback(SteppedBackend):
    """What SQLite does when a file cannot be opened for writing: it opens it for reading, and says nothing."""

    is_read_only = False

    def connect(self) -> Connection:
        if not self.is_read_only:
            return self.real.connect()
        path = parse_url(self.shown_url)
        raw = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None, check_same_thread=False)
        return SqliteConnection(raw, self.shown_url)


@pytest.fixture
def fallback(file: Path) -> Iterator[tuple[Registry, Fallback]]:
    backend = Fallback(open_backend(f"sqlite:///{file}"), Steps())
    with closing(open_registry(f"sqlite:///{file}")), closing(Registry(backend)) as registry:
        make_table(registry)
        for connection in registry.take_idle():
            connection.close()
        yield registry, backend


@pytest.mark.parametrize("idle", [1, 3])
def test_a_connection_from_a_time_when_nothing_could_be_written_is_replaced(fallback: tuple[Registry, Fallback], idle: int) -> None:
    registry, backend = fallback
    backend.is_read_only = True
    with ExitStack() as stack:
        for _ in range(idle):
            stack.enter_context(registry.read()).query("SELECT 1")
    backend.is_read_only = False

    for _ in range(idle + 1):
        with registry.write([ORDERS]) as tx:
            tx.run("UPDATE tables SET last_modified = last_modified + 1")


def test_a_file_that_stays_read_only_is_reported_and_writable_again_once_it_is_not(fallback: tuple[Registry, Fallback]) -> None:
    registry, backend = fallback
    backend.is_read_only = True
    for _ in range(2):
        with pytest.raises(RegistryReadOnlyError), registry.write([ORDERS]):
            pass
    assert registry.query("SELECT count(*) FROM tables") == [(1,)]
    backend.is_read_only = False

    with registry.write([ORDERS]) as tx:
        tx.run("UPDATE tables SET last_modified = last_modified + 1")
