"""The interface between the registry's functions and its two databases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from lakebed.registry.backends.statements import Dialect, Statement, Value

RawRows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHead:
    """A lake table's row and counters as they stand under its lock."""

    table_id: int
    last_seq: int
    last_slot: int
    last_id: int
    database: str
    name: str
    kind: str
    event_time_field: int | None
    last_modified: int
    last_group: int
    committed_group: int
    dropped_at: int | None
    row_count: int
    file_count: int
    total_size: int
    version_states: str

    def find_version_state(self, schema_hash: str) -> str | None:
        """The state of one of the table's versions; None when it has no such version."""
        _, found, rest = f",{self.version_states},".partition(f",{schema_hash}:")
        return rest.partition(",")[0] if found else None


HEAD_COLUMNS = """s.table_id, s.last_seq, s.last_slot, s.last_id, t.database, t.name, t.kind, t.event_time_field,
t.last_modified, t.last_group, t.committed_group, t.dropped_at,
t.row_count, t.file_count, t.total_size"""


def head_of(row: tuple[Any, ...], version_states: str | None) -> TableHead:
    return TableHead(
        table_id=row[0],
        last_seq=row[1],
        last_slot=row[2],
        last_id=row[3],
        database=row[4],
        name=row[5],
        kind=row[6],
        event_time_field=row[7],
        last_modified=row[8],
        last_group=row[9],
        committed_group=row[10],
        dropped_at=row[11],
        row_count=row[12],
        file_count=row[13],
        total_size=row[14],
        version_states=version_states or "",
    )


class Queryable(Protocol):
    """A source of query results: the registry (a snapshot per statement), one snapshot of it, or an open transaction."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def query(self) -> RunsQueries: ...


class RunsQueries(Protocol):
    def __call__(self, sql: str, params: Mapping[str, Any] | None = None, /) -> RawRows:
        """Run and fetch everything."""


class Connection(Protocol):
    """One driver connection. Driver errors leave it already translated."""

    @property
    def dialect(self) -> Dialect: ...

    def query(self, sql: str, params: Mapping[str, Any] | None = None) -> RawRows:
        """Run and fetch everything."""

    def query_locked(self, sql: str, params: Mapping[str, Any] | None = None) -> RawRows:
        """As `query`; no other transaction changes these rows until this one ends."""

    def lock_key(self, room: int, key: str = "") -> None:
        """Become the only writer that holds this key, until the transaction ends."""

    def run(self, sql: str, params: Mapping[str, Any] | None = None) -> int:
        """Run and return the number of rows touched."""

    def send(self, sql: str, params: Mapping[str, Any] | None = None) -> None:
        """Run at any time before the transaction ends; errors are raised by then at the latest."""

    def insert(self, table: str, columns: tuple[str, ...], rows: Sequence[Sequence[Value]]) -> None:
        """Insert any number of rows, errors as with `send`."""

    def execute_batch(self, statements: Sequence[Statement]) -> None:
        """Independent writes, in no promised order and none seeing another: one round trip where that costs. Errors as with `send`."""

    def run_many(self, sql: str, rows: Sequence[Sequence[Value]]) -> None:
        """Run once per row; positional parameters are written `?`."""

    @property
    def closed(self) -> bool: ...

    def close(self) -> None: ...


class SystemTables(Protocol):
    """What a database reports about its own schema."""

    def list_tables(self, source: Queryable) -> set[str]:
        """Names of all tables in it."""

    def list_programs(self, source: Queryable) -> dict[str, str]:
        """The programs in the database (triggers, functions, constraints): by name, the text as it is compared."""

    def shape_of(self, ddl: str) -> str:
        """The text that `list_programs` gives for a program that `ddl` made."""

    def find_strangers(self, found: Collection[str], expected: Collection[str]) -> set[str]:
        """Programs of `found` that are not Lakebed's, where others are not allowed."""

    def drop_program(self, name: str, ddl: str) -> str:
        """The statement that drops what `ddl` made, if it exists."""

    def list_reindexing(self, source: Queryable) -> list[str]:
        """The statements that build every index from its table again, where that is needed."""


class Backend(Protocol):
    """A database as the registry needs it."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def is_server(self) -> bool:
        """Whether the database is a process of its own, with a clock of its own and connections that a network can cut."""

    @property
    def shown_url(self) -> str:
        """The URL without a password."""

    @property
    def catalog_url(self) -> str:
        """The SQLAlchemy URL of this registry's Iceberg catalog; it may hold a password."""

    @property
    def timeout_s(self) -> float:
        """How long a writer waits for the others."""

    def is_empty(self) -> bool:
        """Whether there is nothing to connect to; nothing is opened or created."""

    @property
    def system(self) -> SystemTables:
        """The database's own tables, indexes and programs."""

    def create(self) -> None:
        """Prepare the place of an empty registry, where that is needed."""

    def is_alone(self, idle: Sequence[Connection]) -> bool:
        """Whether it is certain that no other process has the registry open; closes our idle connections to find out."""

    def migrating(self) -> AbstractContextManager[None]:
        """Keep every other migrating process out, and on SQLite every writer."""

    def connect(self) -> Connection:
        """A new connection for reading or writing."""

    def begin_write(self, connection: Connection, table_ids: Sequence[int]) -> tuple[list[TableHead], int | None]:
        """Open a transaction as the only writer of the tables; their heads, and the database's clock where it has its own."""

    def begin_read(self, connection: Connection) -> None:
        """Open a transaction that sees one snapshot."""

    def end_read(self, connection: Connection) -> None:
        """Release the snapshot."""

    def commit(self, connection: Connection) -> None:
        """Commit durably. A lost connection here is CommitUnknown: the outcome must be looked up."""

    def rule_out(self, connection: Connection) -> None:
        """End a look-up that did not find a commit in doubt; raises where it could still come true."""

    def call(self, connection: Connection, sql: str, values: Sequence[Any]) -> Any:
        """One statement as a transaction of its own; only PostgreSQL has functions to call."""

    def rollback(self, connection: Connection) -> None:
        """Undo and free every lock; never raises for a connection that is gone."""

    def script(self, connection: Connection, statements: Sequence[str]) -> None:
        """Run DDL inside the open transaction."""

    def close_all(self, idle: Sequence[Connection]) -> None:
        """Close these connections, the last of this process, and what the backend holds itself."""

    def close(self) -> None:
        """Close what the backend holds itself."""


class CommitUnknownError(Exception):
    """Inside the registry only: the commit was sent and no answer came."""
