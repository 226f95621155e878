"""A transaction's view of the registry: statements, the locked tables, one clock, one journal stamp per table."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakebed.core.errors import ClockRegressedError, ClockSkewedError, ReadExpiredError
from lakebed.core.names import TableName
from lakebed.core.times import MAX_MICROS, from_micros
from lakebed.registry.backends.statements import Execute
from lakebed.registry.ids import ID_BITS
from lakebed.registry.table_cache import TableCache, missing_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lakebed.core.times import Clock
    from lakebed.registry.backends.protocol import Connection, RawRows, TableHead
    from lakebed.registry.backends.statements import Dialect

MAX_READ_S = 300.0
MAX_SLOT_LEAD_US = 5 * 60 * 1_000_000
MAX_SKEW_US = 5 * 60 * 1_000_000
_SAVE_SEQ = "UPDATE table_seq SET last_slot = :last_slot, last_id = :last_id WHERE table_id = :table_id"


class Reader:
    """Statements on one snapshot, for a bounded time: an old snapshot keeps SQLite's WAL and PostgreSQL's dead rows."""

    def __init__(self, connection: Connection, cache: TableCache, *, now: Clock, max_age_s: float = MAX_READ_S) -> None:
        self._connection, self.now = connection, now
        self._ends_at = time.monotonic() + max_age_s
        self.indexed_fields = cache.indexed_fields

    def query(self, sql: str, params: Mapping[str, Any] | None = None) -> RawRows:
        if time.monotonic() > self._ends_at:
            message = "this snapshot of the registry is too old: close it and read again"
            raise ReadExpiredError(message)
        return self._connection.query(sql, params)

    @property
    def dialect(self) -> Dialect:
        return self._connection.dialect


@dataclass(slots=True)
class LockedTable:
    """One lake table under this transaction's lock; what is allocated here is saved when the transaction ends."""

    head: TableHead
    last_slot: int = field(init=False)
    last_id: int = field(init=False)
    last_group: int = field(init=False)
    last_modified: int = field(init=False)
    counters: tuple[int, ...] = field(init=False)  # rows, files and bytes, as this transaction has shifted them
    saved: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.saved = self.last_slot, self.last_id = self.head.last_slot, self.head.last_id
        self.last_group, self.last_modified = self.head.last_group, self.head.last_modified
        self.counters = (self.head.row_count, self.head.file_count, self.head.total_size)

    @property
    def table_id(self) -> int:
        return self.head.table_id

    @property
    def name(self) -> TableName:
        return TableName(self.head.database, self.head.name)

    @property
    def journal_number(self) -> int:
        """The journal number of this transaction's first change: all its files carry it, so no `as_of` can split them."""
        return self.head.last_seq + 1

    def save_allocated(self) -> Execute | None:
        """The statement that saves what was allocated since the last time; None when nothing was."""
        if (self.last_slot, self.last_id) == self.saved:
            return None
        self.saved = (self.last_slot, self.last_id)
        return Execute(_SAVE_SEQ, {"table_id": self.table_id, "last_slot": self.last_slot, "last_id": self.last_id})

    def allocate_id(self, count: int = 1) -> int:
        """The first of `count` fresh row ids."""
        first = self.last_id + 1
        self.last_id += count
        return (self.table_id << ID_BITS) + first


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitProof:
    """A query that finds something if and only if the transaction was committed, by its row in `runs`."""

    run_id: int
    sql: str
    params: Mapping[str, Any]


class Transaction:
    """One open write transaction. Functions of the registry take it first; nothing else writes."""

    def __init__(
        self, connection: Connection, heads: Sequence[TableHead], *, now: int, cache: TableCache, host: tuple[int, int] | None = None
    ) -> None:
        self.connection, self.now, self.cache = connection, now, cache
        self._host = host  # its clock before and after the database was asked for its own; None where there is one clock only
        self.tables = {head.table_id: LockedTable(head) for head in heads}
        self.created: set[int] = set()
        self.proof: CommitProof | None = None
        self.after_commit: list[Callable[[], None]] = []
        self.query, self.run, self.send, self.insert = connection.query, connection.run, connection.send, connection.insert
        self.query_locked, self.lock_key = connection.query_locked, connection.lock_key
        self.run_many, self.execute_batch = connection.run_many, connection.execute_batch
        self.indexed_fields = cache.indexed_fields

    @property
    def dialect(self) -> Dialect:
        return self.connection.dialect

    def require(self, name: TableName) -> LockedTable:
        """The locked table of that name; refuses one that was dropped or was never locked here."""
        there = [table for table in self.tables.values() if table.head.dropped_at is None]
        exact = [table for table in there if table.name == name]
        if len(found := exact or [table for table in there if table.name.is_like(name)]) == 1:
            return found[0]
        self.cache.forget(name)
        raise missing_table(self, name)

    def require_host_in_step(self) -> None:
        """Refuse a host more than five minutes off the database; a wait for the answer does not count."""
        if self._host is None:
            return
        before, after = self._host
        host = min(max(self.now, before), after)
        if abs(host - self.now) > MAX_SKEW_US:
            raise ClockSkewedError(host=from_micros(host), database=from_micros(self.now))

    def next_slot(self, table: LockedTable) -> int:
        """The next free microsecond of the table: never before an earlier one, whatever the clock does."""
        slot = max(self.now, table.last_slot + 1)
        if slot - self.now > MAX_SLOT_LEAD_US:
            raise ClockRegressedError(str(table.name), slot=from_micros(min(slot, MAX_MICROS)), now=from_micros(self.now))
        return slot

    def allocate_slot(self, table: LockedTable) -> int:
        table.last_slot = self.next_slot(table)
        return table.last_slot

    def modified_at(self, table: LockedTable) -> int:
        """The instant of this change: later than the table's last one, the same in every row that changes with it."""
        if table.last_modified == table.head.last_modified:
            table.last_modified = max(self.now, table.head.last_modified + 1)
        return table.last_modified

    def flush(self) -> None:
        """Save what was allocated; the last statements of the transaction."""
        for table in self.tables.values():
            if (statement := table.save_allocated()) is not None:
                self.send(statement.sql, statement.params)
