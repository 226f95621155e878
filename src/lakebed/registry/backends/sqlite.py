"""SQLite: one file, one writer at a time, many readers.

Writers queue on a lock file before `BEGIN IMMEDIATE`: SQLite's own busy handler is unfair and
starves some writers. Automatic checkpoints run inside COMMIT, so they too happen only under that lock:
versions below 3.51.3 can corrupt the database when a checkpoint races with a writer.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from lakebed.core.errors import (
    RegistryMissingError,
    RegistryReadOnlyError,
    RegistryRefusedError,
    RegistryUnavailableError,
)
from lakebed.registry.backends.private_files import create_private
from lakebed.registry.backends.protocol import HEAD_COLUMNS, CommitUnknownError, Connection, RawRows, TableHead, head_of
from lakebed.registry.backends.sqlite_errors import translate, was_rolled_back
from lakebed.registry.backends.sqlite_place import require_fit_place
from lakebed.registry.backends.statements import Dialect, Insert, bind, insert_values, render
from lakebed.registry.backends.system_tables import SqliteSystem
from lakebed.registry.backends.write_queue import FileLock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakebed.registry.backends.protocol import SystemTables
    from lakebed.registry.backends.statements import Statement, Value

logger = logging.getLogger(__name__)

SAFE_WAL_VERSION = (3, 51, 3)
_WAL_ALARM_BYTES = 64 * 1024 * 1024
_CHECK_WAL_EVERY = 256
_WAL = "PRAGMA journal_mode=WAL"  # stays in the file, so another program's database must not get it
_PRAGMAS = (
    "PRAGMA synchronous=FULL",
    "PRAGMA foreign_keys=ON",
    "PRAGMA cell_size_check=ON",
    "PRAGMA mmap_size=0",
    "PRAGMA cache_size=-32768",
    "PRAGMA secure_delete=OFF",  # some systems build SQLite to overwrite what is deleted, and to flush the zeros
    "PRAGMA temp_store=MEMORY",  # statement journals of bulk changes would otherwise go to files
    "PRAGMA wal_autocheckpoint=2000",  # 8 MB: a WAL that still grows makes a commit a third slower, and every checkpoint blocks a writer
)
_VERSION_STATES = "(SELECT group_concat(m.schema_hash || ':' || m.standing) FROM table_metadata m WHERE m.table_id = s.table_id)"
# together they change no row, but write a page: what the WAL holds behind it has a wrong checksum then
_WRITE = "INSERT INTO astha_state (key, value, updated_at) VALUES ('overwritten', '', 0)"
_TAKE_BACK = "DELETE FROM astha_state WHERE key = 'overwritten'"
# a file that cannot be opened for writing SQLite opens for reading, for good; BEGIN IMMEDIATE says nothing of it
_PROBE = "DELETE FROM table_seq WHERE 0"
_BIRTH = threading.Lock()
_HOLDS_REGISTRY = "SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'"
_HEADS = f"SELECT {HEAD_COLUMNS}, {_VERSION_STATES} FROM table_seq s JOIN tables t ON t.id = s.table_id WHERE s.table_id IN (:ids*) ORDER BY s.table_id"
_HEAD = f"SELECT {HEAD_COLUMNS}, {_VERSION_STATES} FROM table_seq s JOIN tables t ON t.id = s.table_id WHERE s.table_id = ?"


class SqliteConnection:
    """One sqlite3 connection in autocommit mode: transactions are always explicit."""

    dialect: Dialect = "sqlite"

    def __init__(self, raw: sqlite3.Connection, where: str) -> None:
        self.raw = raw
        self.closed = self.has_written = False
        self._where = where
        self._execute = raw.execute

    def query(self, sql: str, params: Mapping[str, Any] | None = None) -> RawRows:
        try:
            return self._execute(render(sql, "sqlite"), bind(params, "sqlite") if params else {}).fetchall()
        except (sqlite3.Error, UnicodeEncodeError) as exc:
            translate(exc, self._where)

    def query_locked(self, sql: str, params: Mapping[str, Any] | None = None) -> RawRows:
        return self.query(sql, params)  # there is one writer at a time

    def lock_key(self, room: int, key: str = "") -> None:
        """There is one writer at a time."""

    def run(self, sql: str, params: Mapping[str, Any] | None = None) -> int:
        try:
            return self._execute(render(sql, "sqlite"), bind(params, "sqlite") if params else {}).rowcount
        except (sqlite3.Error, UnicodeEncodeError) as exc:
            translate(exc, self._where)

    def send(self, sql: str, params: Mapping[str, Any] | None = None) -> None:
        self.run(sql, params)

    def insert(self, table: str, columns: tuple[str, ...], rows: Sequence[Sequence[Value]]) -> None:
        try:
            if len(rows) == 1:
                self._execute(insert_values(table, columns, "sqlite"), rows[0])
            else:
                self.raw.executemany(insert_values(table, columns, "sqlite"), rows)
        except (sqlite3.Error, UnicodeEncodeError) as exc:
            translate(exc, self._where)

    def execute_batch(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            if isinstance(statement, Insert):
                self.insert(statement.table, statement.columns, statement.rows)
            else:
                self.run(statement.sql, statement.params)

    def run_many(self, sql: str, rows: Sequence[Sequence[Value]]) -> None:
        try:
            self.raw.executemany(sql, rows)
        except (sqlite3.Error, UnicodeEncodeError) as exc:
            translate(exc, self._where)

    def close(self) -> None:
        self.closed = True
        self.raw.close()


class SqliteBackend:
    """The registry as one file beside its lock file."""

    dialect: Dialect = "sqlite"
    is_server = False
    system: SystemTables = SqliteSystem()

    def __init__(self, path: Path, *, timeout_s: float = 30.0, strict: bool = False) -> None:
        self.path = path.absolute()
        self.timeout_s = timeout_s
        self.shown_url = f"sqlite:///{self.path}"
        self.catalog_url = (
            f"sqlite:///{self.path.with_suffix('.iceberg.db')}"  # a file of its own: its writes never wait for the writers' lock
        )
        self._lock = FileLock(Path(f"{self.path}.lock"), timeout_s=timeout_s)
        self._commits = 0
        self._guard = threading.Lock()
        self.holds_registry = False  # as of the last connection
        require_fit_place(self.path)
        if sqlite3.sqlite_version_info < SAFE_WAL_VERSION:
            if strict:
                message = f"SQLite {sqlite3.sqlite_version} has the WAL-reset bug: use 3.51.3 or newer, or drop strict mode"
                raise RegistryRefusedError(message)
            logger.debug("guarded mode for an old SQLite", extra={"action": "open", "version": sqlite3.sqlite_version})

    def connect(self) -> SqliteConnection:
        """Creates no file: one that is gone is missing, however long this process has worked with it."""
        if not self.path.exists():
            raise RegistryMissingError(self.shown_url)
        if not os.access(self.path, os.W_OK, effective_ids=True):
            raise RegistryReadOnlyError(self.shown_url)
        try:
            raw = sqlite3.connect(
                f"{self.path.as_uri()}?mode=rw",
                uri=True,
                timeout=self.timeout_s,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=512,
            )
            try:
                self._prepare(raw)
            except sqlite3.Error:
                raw.close()
                raise
        except sqlite3.Error as exc:
            translate(exc, self.shown_url)
        return SqliteConnection(raw, self.shown_url)

    def is_empty(self) -> bool:
        """Whether there is nothing to connect to. The file is not opened: see `create`."""
        return not self.path.exists() or self.path.stat().st_size == 0

    def create(self) -> None:
        """Private, whatever the umask.

        An existing one is never opened here: closing any descriptor of it would cancel the POSIX locks of
        every connection of this process, and another process could then delete the WAL under them.
        """
        if not self.path.parent.is_dir():
            message = f"the directory of the registry {self.path} does not exist: create it first"
            raise RegistryRefusedError(message)
        with _BIRTH:
            create_private(self.path, what="registry")
        self.holds_registry = True

    def _prepare(self, raw: sqlite3.Connection) -> None:
        for pragma in _PRAGMAS:
            raw.execute(pragma)
        self.holds_registry = self.holds_registry or raw.execute(_HOLDS_REGISTRY).fetchone() is not None
        if self.holds_registry:
            raw.execute(_WAL)

    def begin_write(self, connection: Connection, table_ids: Sequence[int]) -> tuple[list[TableHead], int | None]:
        own = _own(connection)
        raw = own.raw
        self._lock.acquire()
        try:
            raw.execute("BEGIN IMMEDIATE")
            if not own.has_written:
                _require_read_write(raw)
                own.has_written = True
            if len(table_ids) == 1:
                row = raw.execute(_HEAD, (table_ids[0],)).fetchone()
                return ([head_of(row, row[15])] if row else []), None
            return [head_of(row, row[15]) for row in connection.query(_HEADS, {"ids": list(table_ids)})] if table_ids else [], None
        except sqlite3.Error as exc:
            self.rollback(connection)
            translate(exc, self.shown_url)
        except BaseException:
            self.rollback(connection)
            raise

    def begin_read(self, connection: Connection) -> None:
        try:
            _raw(connection).execute("BEGIN")
        except sqlite3.Error as exc:
            translate(exc, self.shown_url)

    def commit(self, connection: Connection) -> None:
        raw = _raw(connection)
        try:
            raw.execute("COMMIT")
        except sqlite3.Error as exc:
            if raw.in_transaction:  # refused before anything was written: lock of another program
                raw.execute("ROLLBACK")
                translate(exc, self.shown_url)
            if was_rolled_back(exc):
                translate(exc, self.shown_url)
            if _overwrite(raw):
                message = f"the commit to {self.shown_url} failed ({exc}); nothing was changed: retry"
                raise RegistryUnavailableError(message) from exc
            raise CommitUnknownError from exc
        finally:
            self._watch_wal(raw)
            self._lock.release()

    def rule_out(self, connection: Connection) -> None:
        connection.run(_WRITE)
        connection.run(_TAKE_BACK)
        self.commit(connection)

    def end_read(self, connection: Connection) -> None:
        self._undo(connection)

    def call(self, connection: Connection, sql: str, values: Sequence[Any]) -> NoReturn:
        raise NotImplementedError  # `try_append` asks for the dialect first

    def rollback(self, connection: Connection) -> None:
        self._undo(connection)
        self._lock.release()

    def script(self, connection: Connection, statements: Sequence[str]) -> None:
        try:
            for statement in statements:
                _raw(connection).execute(statement)
        except sqlite3.Error as exc:
            translate(exc, self.shown_url)

    def is_alone(self, idle: Sequence[Connection]) -> bool:
        """No other connection has it open when an exclusive lock is granted."""
        for connection in idle:
            connection.close()
        probe = sqlite3.connect(self.path, timeout=0, isolation_level=None)
        try:
            for statement in ("PRAGMA locking_mode=EXCLUSIVE", "BEGIN EXCLUSIVE", "ROLLBACK"):
                probe.execute(statement)
        except sqlite3.OperationalError:
            return False
        finally:
            probe.close()
        return True

    @contextmanager
    def migrating(self) -> Iterator[None]:
        self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

    def close_all(self, idle: Sequence[Connection]) -> None:
        """Under the writers' lock, because the last close checkpoints. Where it is taken, another process has the registry open, so this close is not the last."""
        if self.holds_registry and idle:
            self._lock.try_acquire()
        for connection in idle:
            connection.close()
        self._lock.release()
        self.close()

    def close(self) -> None:
        self._lock.close()

    def wal_bytes(self) -> int:
        try:
            return Path(f"{self.path}-wal").stat().st_size
        except FileNotFoundError:
            return 0

    def _undo(self, connection: Connection) -> None:
        raw = _raw(connection)
        if raw.in_transaction:
            with suppress(sqlite3.Error):
                raw.execute("ROLLBACK")

    def _watch_wal(self, raw: sqlite3.Connection) -> None:
        self._commits += 1
        if self._commits % _CHECK_WAL_EVERY or self.wal_bytes() < _WAL_ALARM_BYTES:
            return
        with suppress(sqlite3.Error):
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if self.wal_bytes() >= _WAL_ALARM_BYTES:
            logger.warning("a long read keeps the registry's WAL from shrinking", extra={"action": "wal", "bytes": self.wal_bytes()})


def _require_read_write(raw: sqlite3.Connection) -> None:
    try:
        raw.execute(_PROBE)
    except sqlite3.OperationalError as exc:
        if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_ERROR:  # no such table: the registry is being created
            raise


def _overwrite(raw: sqlite3.Connection) -> bool:
    """Write over a commit that failed behind its last page: it is complete in the WAL, and the next recovery would apply it."""
    try:
        for statement in ("BEGIN IMMEDIATE", _WRITE, _TAKE_BACK, "COMMIT"):
            raw.execute(statement)
    except sqlite3.Error:
        if raw.in_transaction:
            with suppress(sqlite3.Error):
                raw.execute("ROLLBACK")
        return False
    return True


def _own(connection: Connection) -> SqliteConnection:
    assert isinstance(connection, SqliteConnection)  # noqa: S101 - a backend only gets its own connections
    return connection


def _raw(connection: Connection) -> sqlite3.Connection:
    return _own(connection).raw
