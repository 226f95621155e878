"""PostgreSQL: many hosts, one writer per lake table at a time.

READ COMMITTED with the tables' `table_seq` and `tables` rows locked first, in id order: under
REPEATABLE READ the lock would be granted on a snapshot that is already stale. Only
transaction-scoped locks and no session state, so that a transaction pooler works; statements of
one transaction travel in a pipeline, because a round trip costs more than most of them.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg import errors as pg
from psycopg.types.numeric import Int8Dumper

from lakebed.core.errors import (
    CorruptionError,
    InvalidValueError,
    RegistryLockedError,
    RegistryReadOnlyError,
    RegistryRefusedError,
    RegistryUnavailableError,
    StorageFullError,
)
from lakebed.core.redaction import Redactor, find_passwords, hide_secrets
from lakebed.registry.backends.constraints import raise_unstorable, raise_violation
from lakebed.registry.backends.protocol import HEAD_COLUMNS, CommitUnknownError, Connection, Rows, TableHead, head_of
from lakebed.registry.backends.statements import Dialect, combine, insert_arrays, insert_values, render, transpose

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakebed.registry.backends.statements import Part, Value

_HEADS = f"SELECT {HEAD_COLUMNS} FROM table_seq s JOIN tables t ON t.id = s.table_id WHERE s.table_id = ANY(%(ids)s) ORDER BY s.table_id FOR UPDATE"
# A statement of its own: its clock and snapshot are younger than the wait for the lock
_CLOCK = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, NULL"
_FRESH = """SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, (SELECT json_object_agg(v.table_id, v.listed) FROM (
SELECT table_id, string_agg(schema_hash || ':' || standing, ',') AS listed FROM table_metadata WHERE table_id = ANY(%(ids)s) GROUP BY 1) v)"""
# a peer that is gone is noticed within a minute, whether we wait for it or it for us
_LINE = {"keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3", "tcp_user_timeout": "60000"}
_IDLE_S = 60.0
_DAY_S = 86_400.0
_OURS = frozenset({"prepared", "idle_in_transaction_s"})
_LOCAL = frozenset({"", "localhost", "127.0.0.1", "::1"})
_SAFE_SSL = frozenset({"verify-full", "verify-ca"})


class PostgresConnection:
    """One psycopg connection in autocommit mode; inside a write its statements are pipelined."""

    dialect: Dialect = "postgresql"

    def __init__(self, raw: psycopg.Connection[tuple[Any, ...]], where: str, types: Mapping[str, Mapping[str, str]]) -> None:
        self.raw, self._where, self._types = raw, where, types
        self.pipeline: psycopg.Pipeline | None = None
        self._scope = ExitStack()

    def query(self, sql: str, params: Mapping[str, Any] | None = None) -> Rows:
        try:
            return self.raw.execute(render(sql, "postgresql"), params).fetchall()
        except (psycopg.Error, UnicodeEncodeError) as exc:
            translate(exc, self._where)

    def run(self, sql: str, params: Mapping[str, Any] | None = None) -> int:
        try:
            cursor = self.raw.execute(render(sql, "postgresql"), params)
            if self.pipeline is not None:
                self.pipeline.sync()  # the count is known only when the answer is here
        except (psycopg.Error, UnicodeEncodeError) as exc:
            translate(exc, self._where)
        return cursor.rowcount

    def send(self, sql: str, params: Mapping[str, Any] | None = None) -> None:
        try:
            self.raw.execute(render(sql, "postgresql"), params)
        except (psycopg.Error, UnicodeEncodeError) as exc:
            translate(exc, self._where)

    def insert(self, table: str, columns: tuple[str, ...], rows: Sequence[Sequence[Value]]) -> None:
        try:
            if len(rows) == 1:
                self.raw.execute(insert_values(table, columns, "postgresql"), rows[0])
            else:
                types = tuple(self._types[table][column] for column in columns)
                self.raw.execute(insert_arrays(table, columns, types), transpose(rows))
        except (psycopg.Error, UnicodeEncodeError) as exc:
            translate(exc, self._where)

    def together(self, parts: Sequence[Part]) -> None:
        sql, values = combine(parts, self._types)
        try:
            psycopg.RawCursor(self.raw).execute(sql, values)
        except (psycopg.Error, UnicodeEncodeError) as exc:
            translate(exc, self._where)

    def enter_pipeline(self) -> None:
        self._scope = ExitStack()
        self.pipeline = self._scope.enter_context(self.raw.pipeline())

    def leave_pipeline(self) -> None:
        """Wait for everything that was sent; its first error is raised here."""
        self.pipeline = None
        self._scope.close()

    def run_many(self, sql: str, rows: Sequence[Sequence[Value]]) -> None:
        try:
            self.raw.cursor().executemany(sql, rows)
        except (psycopg.Error, UnicodeEncodeError) as exc:
            translate(exc, self._where)

    @property
    def closed(self) -> bool:
        return self.raw.closed

    def close(self) -> None:
        with suppress(psycopg.Error):
            self.raw.close()


class PostgresBackend:
    """The registry in the schema that the URL's role sees first."""

    dialect: Dialect = "postgresql"

    def __init__(self, url: str, *, types: Mapping[str, Mapping[str, str]], timeout_s: float = 30.0) -> None:
        self._dsn, options = _split_options(url)
        self._prepare_after = None if options.get("prepared") == "off" else 2
        self._types, self.timeout_s = types, timeout_s
        # of the transaction, because a pooler lends sessions to others
        self._bounded = (
            f"SELECT set_config('lock_timeout', '{max(1, int(timeout_s * 1000))}', true), "
            f"set_config('idle_in_transaction_session_timeout', '{_read_idle_ms(options)}', true)"
        )
        self.shown_url = hide_password(url)
        self.catalog_url = self._dsn.replace("postgresql://", "postgresql+psycopg://", 1)
        require_safe_transport(self._dsn)

    def connect(self) -> PostgresConnection:
        try:
            raw = psycopg.connect(
                self._dsn, autocommit=True, prepare_threshold=self._prepare_after, connect_timeout=max(1, int(self.timeout_s))
            )
        except psycopg.Error as exc:
            message = f"the registry {self.shown_url} does not answer: {Redactor(find_passwords([self._dsn]))(first_line(exc))}"
            raise RegistryUnavailableError(message) from None  # the driver's text may hold the password
        raw.adapters.register_dumper(int, Int8Dumper)  # by default the type follows the value, and each mixture would be prepared anew
        return PostgresConnection(raw, self.shown_url, self._types)

    def begin_write(self, connection: Connection, table_ids: Sequence[int]) -> tuple[list[TableHead], int | None]:
        own = _own(connection)
        try:
            own.enter_pipeline()
            own.raw.execute("BEGIN")
            own.raw.execute(self._bounded)
            heads = own.raw.execute(_HEADS, {"ids": list(table_ids)}) if table_ids else None
            fresh = own.raw.execute(_FRESH, {"ids": list(table_ids)}) if table_ids else own.raw.execute(_CLOCK)
            rows = heads.fetchall() if heads is not None else []
            now, standings = fresh.fetchone() or (0, None)
        except psycopg.Error as exc:
            self.rollback(connection)
            translate(exc, self.shown_url)
        except BaseException:
            self.rollback(connection)
            raise
        return [head_of(row, (standings or {}).get(str(row[0]))) for row in rows], now

    def begin_read(self, connection: Connection) -> None:
        connection.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def end_read(self, connection: Connection) -> None:
        with suppress(psycopg.Error):
            _own(connection).raw.commit()  # a rollback would make psycopg forget every prepared statement of the connection

    def commit(self, connection: Connection) -> None:
        own = _own(connection)
        try:
            if own.pipeline is not None:
                done = own.raw.execute("COMMIT")
                own.leave_pipeline()
                if done.statusmessage != "COMMIT":  # a queued statement failed and the server rolled back
                    message = f"the transaction was rolled back by {self.shown_url}"
                    raise RegistryUnavailableError(message)
            else:
                own.raw.execute("COMMIT")
        except psycopg.Error as exc:
            if _is_in_doubt(exc):
                raise CommitUnknownError from exc
            self.rollback(connection)
            translate(exc, self.shown_url)

    def rule_out(self, connection: Connection) -> None:
        self.rollback(connection)

    def call(self, connection: Connection, sql: str, values: Sequence[Any]) -> Any:
        own = _own(connection)
        try:
            ((answer,),) = psycopg.RawCursor(own.raw).execute(sql, values).fetchall()
        except psycopg.Error as exc:
            if _is_in_doubt(exc):
                raise CommitUnknownError from exc
            translate(exc, self.shown_url)
        return answer

    def rollback(self, connection: Connection) -> None:
        own = _own(connection)
        with suppress(psycopg.Error):
            own.leave_pipeline()
        with suppress(psycopg.Error):
            own.raw.rollback()

    def script(self, connection: Connection, statements: Sequence[str]) -> None:
        for statement in statements:
            for part in split_script(statement):
                connection.send(part.replace("%", "%%"), {})

    def close(self) -> None:
        """Nothing is shared between connections."""


def _own(connection: Connection) -> PostgresConnection:
    assert isinstance(connection, PostgresConnection)  # noqa: S101 - a backend only ever meets its own connections
    return connection


def _is_in_doubt(exc: psycopg.Error) -> bool:
    """Of an error while a commit is under way: only an answer of the server, other than a farewell, says that nothing was committed."""
    return exc.sqlstate is None or isinstance(exc, pg.AdminShutdown | pg.CrashShutdown)


def split_script(statement: str) -> list[str]:
    """A function and its trigger are two statements; inside `$$` a semicolon does not end one."""
    parts, inside = [""], False
    for line in statement.split("\n"):
        if line.count("$$") % 2:
            inside = not inside
        parts[-1] += line + "\n"
        if not inside and line.rstrip().endswith(";"):
            parts.append("")
    return [part for part in (p.strip().removesuffix(";") for p in parts) if part]


def _split_options(url: str) -> tuple[str, dict[str, str]]:
    """Libpq refuses parameters it does not know, so ours are taken out: `prepared=off` for old poolers, and `idle_in_transaction_s`."""
    parts = _split(url)
    ours = {key: value for key, value in parse_qsl(parts.query) if key in _OURS}
    theirs = {**_LINE, **{key: value for key, value in parse_qsl(parts.query) if key not in _OURS}}
    scheme = "postgresql"
    return urlunsplit((scheme, parts.netloc, parts.path, urlencode(theirs), "")), ours


def _read_idle_ms(options: Mapping[str, str]) -> int:
    """How long the server waits for the next statement of a write before it ends the session; 0 is for ever."""
    given = options.get("idle_in_transaction_s", str(_IDLE_S))
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < _DAY_S:
        message = f"invalid idle_in_transaction_s={given[:40]!a} in the registry's URL: expected seconds from 0 (no limit) to a day"
        raise InvalidValueError(message)
    return int(seconds * 1000)


def _split(url: str) -> SplitResult:
    """Python's own words about a URL it cannot read quote what stands where a port should: that may be a password."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        message = "the registry's URL cannot be read: write postgresql://user:password@host:5432/database, special letters as %40"
        raise InvalidValueError(message) from None
    return parts


def hide_password(url: str) -> str:
    """As it may be shown; of another database's URL only the password is taken out."""
    if not url.startswith(("postgresql:", "postgres:")):
        return hide_secrets(url)
    parts = _split(url)
    user = f"{parts.username}@" if parts.username else ""
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    return f"postgresql://{user}{host}{port}{parts.path}"


def require_safe_transport(dsn: str) -> None:
    parts = urlsplit(dsn)
    query = dict(parse_qsl(parts.query))
    host = query.get("host", parts.hostname or "")
    if host in _LOCAL or host.startswith("/") or query.get("sslmode") in _SAFE_SSL:
        return
    message = f"the registry on {host} would be reached without a checked certificate: add ?sslmode=verify-full to the URL"
    raise RegistryRefusedError(message)


def first_line(exc: BaseException) -> str:
    text = str(exc).strip().splitlines()
    return text[0][:200] if text else type(exc).__name__


def translate(exc: psycopg.Error | UnicodeEncodeError, where: str) -> NoReturn:
    """Raise what the caller can act on."""
    match exc:
        case UnicodeEncodeError():
            raise_unstorable(exc)
        case pg.IntegrityError():
            raise_violation(exc.diag.constraint_name or first_line(exc), cause=exc)
        case pg.LockNotAvailable():
            message = f"another program holds a lock on {where}: find it in pg_stat_activity, end its transaction and retry"
            raise RegistryLockedError(message) from exc
        case pg.DeadlockDetected() | pg.SerializationFailure():
            message = f"another writer was in the way on {where}: retry"
            raise RegistryLockedError(message) from exc
        case pg.ReadOnlySqlTransaction() | pg.InsufficientPrivilege():
            raise RegistryReadOnlyError(where) from exc
        case pg.DiskFull():
            message = f"no room is left on the disk of {where}: free some and retry; nothing was changed"
            raise StorageFullError(message) from exc
        case pg.DataCorrupted() | pg.IndexCorrupted():
            message = f"{where} reports damaged data: {first_line(exc)}"
            raise CorruptionError(message) from exc
        case _ if exc.sqlstate is None:  # the driver's own words may be about its pipeline
            message = f"the connection to the registry {where} was lost: retry"
            raise RegistryUnavailableError(message) from exc
        case _:
            message = f"the registry {where} failed: {first_line(exc)}"
            raise RegistryUnavailableError(message) from exc
