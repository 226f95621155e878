"""A PostgreSQL server that tests may kill, and the ways to do it while a watched client waits."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import psycopg
from system_calls import Fault

from conftest import Databases

if TYPE_CHECKING:
    from collections.abc import Iterator

_OF_CLIENTS = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"


def end_sessions(databases: Databases) -> Fault:
    """The server ends the client's sessions; it goes on itself."""

    def strike(_: int) -> int:
        with psycopg.connect(databases.postgres_url, autocommit=True) as connection:
            connection.execute(f"SELECT pg_terminate_backend(pid, 5000) {_OF_CLIENTS} AND datname LIKE 'copy%'")
        return 0

    return Fault("session ended", strike)


@dataclass(frozen=True, slots=True)
class OwnServer:
    """Nobody else uses it."""

    server: Any
    databases: Databases

    def start(self) -> None:
        """Returns when it answers; does nothing while it runs."""
        self.server.ensure_postgres_running()

    def faults(self) -> tuple[Fault, ...]:
        return (
            Fault("backend killed", self._kill_backends),
            Fault("server killed and started again", self._restart),
            Fault("server killed", self._stop_at_once),
        )

    def _kill_backends(self, _: int) -> int:
        """The server ends every other session too, recovers and goes on."""
        with psycopg.connect(self.databases.postgres_url, autocommit=True) as connection:
            found = connection.execute(f"SELECT pid {_OF_CLIENTS}").fetchall()
        for (pid,) in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for (pid,) in found:
            _wait_for_end(pid)
        self._wait_for_answer()
        return 0

    def _restart(self, pid: int) -> int:
        self._stop_at_once(pid)
        self.start()
        return 0

    def _stop_at_once(self, _: int) -> int:
        """What PostgreSQL calls an immediate shutdown: as if its host had lost power."""
        postmaster = self.server.get_pid()
        os.kill(postmaster, signal.SIGQUIT)
        _wait_for_end(postmaster)
        return 0

    def _wait_for_answer(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.databases.postgres_url).close()
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, "the server does not come back"
            else:
                return


def _wait_for_end(pid: int) -> None:
    with suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(60)


@contextmanager
def own_server() -> Iterator[OwnServer]:
    with tempfile.TemporaryDirectory(prefix="lb-") as directory, ExitStack() as servers:
        databases = Databases(Path(directory), servers)
        databases.new_empty("postgresql")  # so that it runs
        yield OwnServer(databases.server, databases)
