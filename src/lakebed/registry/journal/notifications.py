"""Hints that something was committed. A hint may be late or lost; only reading the journals' ends is reliable."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Protocol

import psycopg

from lakebed.registry.backends.postgres import PostgresConnection
from lakebed.registry.backends.sqlite import SqliteConnection
from lakebed.registry.schema.journal_triggers import CHANNEL

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry

SWEEP_S = 1.0
_POLL_S = 0.0005
_IDLE_POLL_S = 0.005
_IDLE_AFTER_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """Something may have been committed: to `tables`, and where `others` is set, to any other table as well."""

    tables: frozenset[int] = frozenset()
    others: bool = False

    def __or__(self, other: Hint) -> Hint:
        return Hint(tables=self.tables | other.tables, others=self.others or other.others)

    def concerns(self, table_id: int) -> bool:
        return self.others or table_id in self.tables


ANY_TABLE = Hint(others=True)


class Hints(Protocol):
    """Waits for commits of any process."""

    @property
    def listening(self) -> bool:
        """Whether hints still come; False once only the sweep remains."""

    def wait(self, timeout_s: float) -> Hint | None:
        """What may have changed, as soon as anything may have; None after the timeout."""

    def close(self) -> None: ...


def open_hints(registry: Registry) -> Hints:
    connection = registry.backend.connect()
    if isinstance(connection, SqliteConnection):
        return SqliteHints(registry, connection)
    assert isinstance(connection, PostgresConnection)  # noqa: S101 - there are two databases
    return PostgresHints(connection)


class OwnCommits:
    """The tables of this process's commits, gathered until they are asked for."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._news = threading.Event()
        self._tables: frozenset[int] = frozenset()

    def __call__(self, tables: frozenset[int]) -> None:
        with self._guard:
            self._tables |= tables
            self._news.set()

    def wait(self, timeout_s: float) -> None:
        self._news.wait(timeout_s)

    def take(self) -> frozenset[int] | None:
        """None when there was no commit since the last time."""
        with self._guard:
            if not self._news.is_set():
                return None
            tables, self._tables = self._tables, frozenset()
            self._news.clear()
            return tables


class SqliteHints:
    """Commits of this process name their tables and wake at once; `PRAGMA data_version`, which any commit changes, names none.

    It cannot distinguish our commits from another process's, so each of ours is also a hint for any table.
    """

    def __init__(self, registry: Registry, connection: SqliteConnection) -> None:
        self._registry, self._connection = registry, connection
        self._own = OwnCommits()
        self._seen = self._version()
        self._active_at = time.monotonic()
        registry.add_listener(self._own)

    @property
    def listening(self) -> bool:
        return True

    def wait(self, timeout_s: float) -> Hint | None:
        deadline = time.monotonic() + timeout_s
        while True:
            own, others, now = self._own.take(), self._changed(), time.monotonic()
            if own is not None or others:
                self._active_at = now
                return Hint(tables=own or frozenset(), others=others)
            if now >= deadline:
                return None
            pause = _POLL_S if now - self._active_at < _IDLE_AFTER_S else _IDLE_POLL_S
            self._own.wait(min(pause, deadline - now))

    def close(self) -> None:
        self._registry.remove_listener(self._own)
        self._connection.close()

    def _changed(self) -> bool:
        version = self._version()
        changed, self._seen = version != self._seen, version
        return changed

    def _version(self) -> int:
        return int(self._connection.raw.execute("PRAGMA data_version").fetchone()[0])


class PostgresHints:
    """LISTEN on a connection of its own; each notification names its table. A transaction pooler drops notifications: then only the sweep remains."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self._listening = True
        try:
            connection.raw.execute(f"LISTEN {CHANNEL}")
        except psycopg.Error:
            self._listening = False

    @property
    def listening(self) -> bool:
        return self._listening

    def wait(self, timeout_s: float) -> Hint | None:
        if not self._listening:
            time.sleep(timeout_s)
            return ANY_TABLE
        try:
            heard = [_read_payload(notice.payload) for notice in self._connection.raw.notifies(timeout=timeout_s, stop_after=1)]
        except psycopg.Error:
            self._listening = False
            return ANY_TABLE
        return reduce(or_, heard) if heard else None

    def close(self) -> None:
        with suppress(psycopg.Error):
            self._connection.close()


def _read_payload(payload: str) -> Hint:
    return Hint(tables=frozenset((int(payload),))) if payload.isascii() and payload.isdigit() else ANY_TABLE
