"""The registry: one entry point for writing, snapshots for reading."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from lakebed.core.errors import (
    LakebedError,
    OperationConflictError,
    OutcomeUnknownError,
    RegistryLockedError,
    RegistryUnavailableError,
    TableNotFoundError,
)
from lakebed.core.names import TableName
from lakebed.core.tables.snapshots import BackPressure
from lakebed.registry.backends.protocol import CommitUnknownError
from lakebed.registry.open_writes import Attempts, Heartbeat
from lakebed.registry.pool import ConnectionPool
from lakebed.registry.table_cache import TableCache, missing_table
from lakebed.registry.transaction import CommitProof, Reader, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import TypeVar

    from lakebed.core.times import Clock
    from lakebed.registry.backends.protocol import Backend, Connection, RawRows
    from lakebed.registry.backends.statements import Dialect

    T = TypeVar("T")

logger = logging.getLogger(__name__)

_REGISTERED = "SELECT 1 FROM operations WHERE op_id = :op_id AND state = 'registered'"
_PLACEHOLDER = """INSERT INTO runs (id, job, state, plan, result, actor, requested_at) VALUES (:id, '', 'failed', '', '', '', 0)
ON CONFLICT (id) DO NOTHING"""
_LOCK_RUN = "UPDATE runs SET job = job WHERE id = :id"
_MAX_ATTEMPTS = 5


def read_host_clock() -> int:
    return time.time_ns() // 1000


class Listener(Protocol):
    """A listener for this process's commits; must return at once."""

    def __call__(self, tables: frozenset[int], /) -> None:
        """Something was committed as the only writer of these tables, or as their creator."""


class Registry:
    """An open registry. Threads may share it; processes may not (a forked child is refused)."""

    def __init__(self, backend: Backend, *, clock: Clock | None = None, host_clock: Clock = read_host_clock) -> None:
        """`clock` decides instead of the database's and the host's; `host_clock` is what this host says."""
        self.backend = backend
        self._clock, self._host_clock = clock, host_clock
        self._pool = ConnectionPool(backend)
        self.tables = TableCache()
        self._listeners: list[Listener] = []
        self.heartbeat = Heartbeat()
        self.back_pressure = BackPressure()
        self.attempts = Attempts()

    @property
    def dialect(self) -> Dialect:
        return self.backend.dialect

    def now(self) -> int:
        """The clock that decides: the test's, the database server's, or this host's where it is the server."""
        if self._clock is not None:
            return self._clock()
        if not self.backend.is_server:
            return self._host_clock()
        (found,) = self.query("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)")[0]
        return int(found)

    def host_now(self) -> int:
        """For names and identifiers, and to be compared with the database's: never decides anything."""
        return self._clock() if self._clock is not None else self._host_clock()

    def given_now(self) -> int | None:
        """The test's clock, or None where the database's clock decides."""
        return self._clock() if self._clock is not None else None

    # -- reading ------------------------------------------------------------------------------

    def query(self, sql: str, params: Mapping[str, Any] | None = None) -> RawRows:
        """One statement, one snapshot."""
        with self._pool.checked_out(lambda connection: connection.query(sql, params)) as (_, rows):
            return rows

    @contextmanager
    def read(self) -> Iterator[Reader]:
        """Several statements on one snapshot of all tables. Keep it short: on SQLite it holds the WAL."""
        with self._pool.checked_out(self.backend.begin_read) as (connection, _):
            try:
                yield Reader(connection, self.tables, now=self.now)
            finally:
                self.backend.end_read(connection)

    def find_table_id(self, name: TableName) -> int | None:
        return self.tables.find_id(self, name)

    def require_table_id(self, name: TableName) -> int:
        if (found := self.find_table_id(name)) is None:
            raise missing_table(self, name)
        return found

    # -- writing ------------------------------------------------------------------------------

    @contextmanager
    def write(self, tables: Sequence[TableName | int] = (), *, op_id: str | None = None) -> Iterator[Transaction]:
        """The only way to write: as the only writer of `tables` until the block ends.

        Leaves everything as it was when the block raises. When the connection is lost during
        commit, the outcome is looked up under the same lock before anything is raised: by `op_id`, or by the recorded run.
        """
        ids = self._list_ids(tables)
        with self._pool.checked_out(lambda connection: self._open(connection, ids)) as (connection, opened):
            tx = opened
            if self._forget_dropped(tables, tx):
                self.backend.rollback(connection)
                ids = self._list_ids(tables)
                tx = self._open(connection, ids)
            try:
                yield tx
                tx.flush()
            except BaseException:
                self.backend.rollback(connection)
                raise
            self.attempts.send(op_id)
            try:
                self.backend.commit(connection)
            except CommitUnknownError as exc:
                connection.close()
                self._settle(ids, op_id, tx.proof, cause=exc)
            except LakebedError:
                self.attempts.refuse(op_id)
                raise
            except BaseException:  # interrupted in the middle: this connection must not be reused
                self.backend.rollback(connection)
                connection.close()
                raise
        self._announce(frozenset(tx.tables) | tx.created)
        for hook in tx.after_commit:
            hook()

    def call(self, sql: str, values: Sequence[Any], *, table_id: int, op_id: str) -> Any:
        """One statement that is a transaction of its own (PostgreSQL); its answer, or None when it did nothing.

        A lost connection is settled as in `write`; an operation that turns out to be committed raises `OperationConflictError`,
        because its answer is in its row.
        """
        connection, was_idle = self._pool.take()
        try:
            return self._call(connection, sql, values, table_id=table_id, op_id=op_id)
        except RegistryUnavailableError as exc:
            if not was_idle or not isinstance(exc.__cause__, CommitUnknownError):
                raise
        return self._call(self.backend.connect(), sql, values, table_id=table_id, op_id=op_id)  # a session that was lost while idle

    def _call(self, connection: Connection, sql: str, values: Sequence[Any], *, table_id: int, op_id: str) -> Any:
        with self._pool.keeping(connection):
            self.attempts.send(op_id)
            try:
                answer = self.backend.call(connection, sql, values)
            except CommitUnknownError as exc:
                connection.close()
                self._settle([table_id], op_id, None, cause=exc)
                raise OperationConflictError(op_id, wanted="writing", found="registered") from exc
            except LakebedError:
                self.attempts.refuse(op_id)
                raise
            if answer is None:
                self.attempts.refuse(op_id)
        self._announce(frozenset((table_id,)))
        return answer

    def transact(self, body: Callable[[Transaction], T], *, tables: Sequence[TableName | int], op_id: str | None = None) -> T:
        """Run `body` in a write transaction, again (at most 5 times) when another writer's lock was in the way."""
        deadline = time.monotonic() + self.backend.timeout_s
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                with self.write(tables, op_id=op_id) as tx:
                    return body(tx)
            except RegistryLockedError:
                if attempt == _MAX_ATTEMPTS or time.monotonic() >= deadline:  # it has waited its whole timeout already
                    raise
                logger.info("transaction repeated after a lock conflict", extra={"action": "retry", "attempt": attempt})
        raise AssertionError  # pragma: no cover - the loop returns or raises

    def add_listener(self, listener: Listener) -> None:
        """Call `listener` after each of this process's commits: the in-process wake-up hint."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Listener) -> None:
        self._listeners.remove(listener)

    def _announce(self, tables: frozenset[int]) -> None:
        for listener in self._listeners:
            listener(tables)

    def take_idle(self) -> list[Connection]:
        """Return the idle connections, for the caller to close."""
        return self._pool.take_idle()

    def drop_idle(self) -> None:
        """Close the idle connections, where a network may have cut them."""
        self._pool.drop_idle()

    def require_open(self) -> None:
        self._pool.require_open()

    def close(self) -> None:
        """Close every connection, and refuse further ones."""
        if self._pool.is_inherited:
            return  # they are the parent's: closing them here would end its sessions
        self.heartbeat.stop()
        self._pool.close()

    def _list_ids(self, tables: Sequence[TableName | int]) -> list[int]:
        return sorted({self.require_table_id(t) if isinstance(t, TableName) else t for t in tables})

    def _forget_dropped(self, tables: Sequence[TableName | int], tx: Transaction) -> bool:
        """Another process may have dropped a table that we remember, and created one of the same name."""
        names = {table.name for table in tx.tables.values() if table.head.dropped_at is not None}.intersection(tables)
        for name in names:
            self.tables.forget(name)
        return bool(names)

    def _open(self, connection: Connection, ids: list[int]) -> Transaction:
        before = self._host_clock()
        heads, database_now = self.backend.begin_write(connection, ids)
        if self._clock is not None or database_now is None:
            now, host = self.host_now(), None
        else:
            now, host = database_now, (before, self._host_clock())
        missing = set(ids) - {head.table_id for head in heads}
        if missing:
            self.backend.rollback(connection)
            raise TableNotFoundError(f"with id {min(missing)}")
        return Transaction(connection, heads, now=now, cache=self.tables, host=host)

    def _settle(self, ids: list[int], op_id: str | None, proof: CommitProof | None, *, cause: BaseException) -> None:
        """Return when the transaction in doubt did commit; raise what is known otherwise."""
        self._pool.drop_idle(cause)
        if op_id is not None:
            what, asked = f"operation {op_id}", CommitProof(run_id=0, sql=_REGISTERED, params={"op_id": op_id})
        elif proof is not None:
            what, asked = f"run {proof.run_id}", proof
        else:
            raise OutcomeUnknownError("(without an id)") from cause
        try:
            found = self._ask(ids, asked)
        except (
            LakebedError,
            CommitUnknownError,
        ):  # locked, read-only, away: none of these errors gives the outcome of the transaction in doubt
            raise OutcomeUnknownError(op_id or what, run_id=None if op_id is not None else asked.run_id) from cause
        if not found:
            self.attempts.refuse(op_id)
            message = f"the connection was lost before {what} was committed; nothing was changed: retry"
            raise RegistryUnavailableError(message) from cause

    def _ask(self, ids: list[int], proof: CommitProof) -> bool:
        """Once the transaction in doubt has ended: its lock on the tables, and its row in `runs`, are waited for."""
        with self._pool.checked_out(lambda connection: self.backend.begin_write(connection, ids)) as (connection, _):
            try:
                if proof.run_id and self.backend.is_server:  # on SQLite there is one writer
                    connection.run(_PLACEHOLDER, {"id": proof.run_id})  # waits for a transaction that inserts the same row
                    connection.run(_LOCK_RUN, {"id": proof.run_id})  # and for one that changes it
                if connection.query(proof.sql, proof.params):
                    return True
                self.backend.rule_out(connection)
                return False
            finally:
                self.backend.rollback(connection)
