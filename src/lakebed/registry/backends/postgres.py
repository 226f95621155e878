"""PostgreSQL: many hosts, one writer per lake table at a time.

READ COMMITTED with the tables' `table_seq` and `tables` rows locked first, in id order: under
REPEATABLE READ the lock would be granted on a snapshot that is already stale. Only
transaction-scoped locks and no session state, so that a transaction pooler works; statements of
one transaction travel in a pipeline, because a round trip costs more than most of them.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.types.numeric import Int8Dumper

from lakebed.core.errors import (
    RegistryUnavailableError,
)
from lakebed.core.redaction import Redactor, find_passwords
from lakebed.registry.backends.postgres_errors import first_line, is_in_doubt, translate
from lakebed.registry.backends.postgres_url import hide_password, read_idle_ms, require_safe_transport, split_options
from lakebed.registry.backends.protocol import HEAD_COLUMNS, CommitUnknownError, Connection, RawRows, TableHead, head_of
from lakebed.registry.backends.statements import Dialect, combine, insert_arrays, insert_values, render, transpose
from lakebed.registry.backends.system_tables import PostgresSystem, split_script

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakebed.registry.backends.protocol import SystemTables
    from lakebed.registry.backends.statements import Statement, Value

_MIGRATE_LOCK = 7_521_904  # never change: other versions of this program take it too
_HEADS = f"SELECT {HEAD_COLUMNS} FROM table_seq s JOIN tables t ON t.id = s.table_id WHERE s.table_id = ANY(%(ids)s) ORDER BY s.table_id FOR UPDATE"
# A statement of its own: its clock and snapshot are younger than the wait for the lock
_CLOCK = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, NULL"
_FRESH = """SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, (SELECT json_object_agg(v.table_id, v.listed) FROM (
SELECT table_id, string_agg(schema_hash || ':' || standing, ',') AS listed FROM table_metadata WHERE table_id = ANY(%(ids)s) GROUP BY 1) v)"""


class PostgresConnection:
    """One psycopg connection in autocommit mode; inside a write its statements are pipelined."""

    dialect: Dialect = "postgresql"

    def __init__(self, raw: psycopg.Connection[tuple[Any, ...]], where: str, types: Mapping[str, Mapping[str, str]]) -> None:
        self.raw, self._where, self._types = raw, where, types
        self.pipeline: psycopg.Pipeline | None = None
        self._scope = ExitStack()

    def query(self, sql: str, params: Mapping[str, Any] | None = None) -> RawRows:
        try:
            return self.raw.execute(render(sql, "postgresql"), params).fetchall()
        except (psycopg.Error, UnicodeEncodeError) as exc:
            translate(exc, self._where)

    def query_locked(self, sql: str, params: Mapping[str, Any] | None = None) -> RawRows:
        return self.query(f"{sql} FOR UPDATE", params)

    def lock_key(self, room: int, key: str = "") -> None:
        if key:
            self.query("SELECT pg_advisory_xact_lock(CAST(:room AS integer), hashtext(:key))", {"room": room, "key": key})
        else:
            self.query("SELECT pg_advisory_xact_lock(:room)", {"room": room})

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

    def execute_batch(self, statements: Sequence[Statement]) -> None:
        sql, values = combine(statements, self._types)
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
            self.raw.cursor().executemany(sql.replace("?", "%s"), rows)
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
    is_server = True
    system: SystemTables = PostgresSystem()

    def __init__(self, url: str, *, types: Mapping[str, Mapping[str, str]], timeout_s: float = 30.0) -> None:
        self._dsn, options = split_options(url)
        self._prepare_after = None if options.get("prepared") == "off" else 2
        self._types, self.timeout_s = types, timeout_s
        # of the transaction, because a pooler lends sessions to others
        self._bounded = (
            f"SELECT set_config('lock_timeout', '{max(1, int(timeout_s * 1000))}', true), "
            f"set_config('idle_in_transaction_session_timeout', '{read_idle_ms(options)}', true)"
        )
        self.shown_url = hide_password(url)
        self.catalog_url = self._dsn.replace("postgresql://", "postgresql+psycopg://", 1)
        require_safe_transport(self._dsn)

    def is_empty(self) -> bool:
        return False

    def create(self) -> None:
        """The database is there, or cannot be connected to."""

    def is_alone(self, idle: Sequence[Connection]) -> bool:
        """Other hosts may have it open."""
        for connection in idle:
            connection.close()
        return False

    @contextmanager
    def migrating(self) -> Iterator[None]:
        """A lock of the transaction, on a connection of its own."""
        connection = self.connect()
        try:
            self.begin_write(connection, ())
            connection.lock_key(_MIGRATE_LOCK)
            # it waits while indexes are built; and a statement without a snapshot must come last, or a concurrent build waits for this transaction
            connection.run("SET LOCAL idle_in_transaction_session_timeout = 0")
            yield
        finally:
            self.rollback(connection)
            connection.close()

    def connect(self) -> PostgresConnection:
        try:
            raw = psycopg.connect(
                self._dsn, autocommit=True, prepare_threshold=self._prepare_after, connect_timeout=max(1, int(self.timeout_s))
            )
        except psycopg.Error as exc:
            message = f"the registry {self.shown_url} does not answer: {Redactor(find_passwords([self._dsn]))(first_line(exc))}"
            raise RegistryUnavailableError(message) from None  # the driver's text may hold the password
        raw.adapters.register_dumper(int, Int8Dumper)  # by default the type follows the value, and each mixture would be prepared again
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
            now, version_states = fresh.fetchone() or (0, None)
        except psycopg.Error as exc:
            self.rollback(connection)
            translate(exc, self.shown_url)
        except BaseException:
            self.rollback(connection)
            raise
        return [head_of(row, (version_states or {}).get(str(row[0]))) for row in rows], now

    def begin_read(self, connection: Connection) -> None:
        connection.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def end_read(self, connection: Connection) -> None:
        with suppress(psycopg.Error):
            _own(connection).raw.commit()  # a rollback would make psycopg drop every prepared statement of the connection

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
            if is_in_doubt(exc):
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
            if is_in_doubt(exc):
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

    def close_all(self, idle: Sequence[Connection]) -> None:
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Nothing is shared between connections."""


def _own(connection: Connection) -> PostgresConnection:
    assert isinstance(connection, PostgresConnection)  # noqa: S101 - a backend only gets its own connections
    return connection
