"""Connections of one registry: each is used by one caller at a time, and one that was lost while idle is replaced."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakebed.core.errors import ForkedConnectionError, LakebedError, LakeClosedError, RegistryReadOnlyError, RegistryUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    from lakebed.registry.backends.protocol import Backend, Connection

    T = TypeVar("T")


class ConnectionPool:
    """Threads may share it; processes may not (a forked child is refused)."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._pid, self._is_closed = os.getpid(), False
        self._idle: list[Connection] = []
        self._guard = threading.Lock()

    @property
    def is_inherited(self) -> bool:
        """Whether this process is a fork of the one that opened it."""
        return os.getpid() != self._pid

    @contextmanager
    def checked_out(self, begin: Callable[[Connection], T]) -> Iterator[tuple[Connection, T]]:
        """A connection, and what `begin` gave on it. One that was lost while it was idle is replaced without an error."""
        connection, was_idle = self.take()
        try:
            begun = begin(connection)
        except BaseException as exc:
            is_stale = was_idle and isinstance(exc, LakebedError) and (connection.closed or isinstance(exc, RegistryReadOnlyError))
            self._let_go(connection, exc)
            if not is_stale:
                raise
            connection = self._backend.connect()
            with self.keeping(connection, gives_back=False):
                begun = begin(connection)
        with self.keeping(connection):
            yield connection, begun

    def take(self) -> tuple[Connection, bool]:
        """A connection for this caller alone, and whether it was used before."""
        if os.getpid() != self._pid:
            raise ForkedConnectionError
        if self._is_closed:
            raise LakeClosedError
        with self._guard:
            connection = self._idle.pop() if self._idle else None
        return (self._backend.connect(), False) if connection is None else (connection, True)

    @contextmanager
    def keeping(self, connection: Connection, *, gives_back: bool = True) -> Iterator[None]:
        """Give the connection back when the block ends, or close it where the error says that it may be gone."""
        try:
            yield
        except BaseException as exc:
            self._let_go(connection, exc)
            raise
        if gives_back:
            self._give_back(connection)

    def take_idle(self) -> list[Connection]:
        """Return the idle connections, for the caller to close."""
        with self._guard:
            idle, self._idle = self._idle, []
        return idle

    def drop_idle(self, cause: BaseException | None = None) -> None:
        """What cut one connection to a server has probably cut the idle ones too; on SQLite they share what was opened read-only."""
        if self._backend.is_server or isinstance(cause, RegistryReadOnlyError):
            for connection in self.take_idle():
                connection.close()

    def require_open(self) -> None:
        if self._is_closed:
            raise LakeClosedError

    def close(self) -> None:
        """Close every idle connection, and refuse further ones."""
        self._is_closed = True
        self._backend.close_all(self.take_idle())

    def _let_go(self, connection: Connection, cause: BaseException) -> None:
        if isinstance(cause, RegistryUnavailableError | RegistryReadOnlyError):
            connection.close()  # it may be gone, or was opened while nothing could be written; the next caller gets a fresh one
            self.drop_idle(cause)
        else:
            self._give_back(connection)

    def _give_back(self, connection: Connection) -> None:
        if self._is_closed:
            connection.close()
        elif not connection.closed:
            with self._guard:
                self._idle.append(connection)
