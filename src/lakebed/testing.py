"""Real pieces for tests of Lakebed and of what is built on it: a clock that stands still, a lake that vanishes, faults on demand."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Unpack

from lakebed.core.errors import LakebedError
from lakebed.core.times import to_micros
from lakebed.lake import Lake, connect
from lakebed.registry.connection import CommitUnknownError
from lakebed.storage.access import DeleteOutcome, Deletion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from lakebed.registry.connection import Backend, Connection, Rows, TableHead
    from lakebed.registry.statements import Dialect, Part, Value
    from lakebed.settings import ConnectOptions
    from lakebed.storage.access import Storage


class FixedClock:
    """Stands still until told otherwise; starts at an aware datetime."""

    def __init__(self, start: datetime) -> None:
        self.micros = to_micros(start)

    def __call__(self) -> int:
        return self.micros

    def advance(self, *, seconds: float) -> None:
        self.micros += int(seconds * 1_000_000)


@contextmanager
def temporary_lake(
    url: str | None = None,
    *,
    clock: FixedClock | None = None,
    spark_options: Mapping[str, str] | None = None,
    **chosen: Unpack[ConnectOptions],
) -> Iterator[Lake]:
    """A lake in a temporary directory, on SQLite unless `url` names another registry."""
    with TemporaryDirectory(prefix="lakebed-") as directory:
        registry_url = url or f"sqlite:///{directory}/lake.db"
        place = str(Path(directory) / "warehouse")
        with connect(registry_url, warehouse=place, clock=clock, spark_options=spark_options, **chosen) as lake:
            yield lake


@dataclass(slots=True)
class Steps:
    """Counts what a registry sends to its database and does `act` just before step number `at` (from 1)."""

    at: int = 0
    act: Callable[[str], None] = field(default=lambda _: None)
    done: list[str] = field(default_factory=list)

    def reach(self, what: str) -> None:
        self.done.append(what)
        if len(self.done) == self.at:
            self.act(what)


def kill_self(_: str) -> None:
    """As a power cut would: nothing is flushed, closed or caught."""
    os.kill(os.getpid(), signal.SIGKILL)


class SteppedConnection:
    """A real connection that announces every statement."""

    def __init__(self, real: Connection, steps: Steps) -> None:
        self.real, self._steps = real, steps

    @property
    def dialect(self) -> Dialect:
        return self.real.dialect

    @property
    def closed(self) -> bool:
        return self.real.closed

    def query(self, sql: str, params: Mapping[str, Any] | None = None) -> Rows:
        self._steps.reach(sql)
        return self.real.query(sql, params)

    def run(self, sql: str, params: Mapping[str, Any] | None = None) -> int:
        self._steps.reach(sql)
        return self.real.run(sql, params)

    def send(self, sql: str, params: Mapping[str, Any] | None = None) -> None:
        self._steps.reach(sql)
        self.real.send(sql, params)

    def insert(self, table: str, columns: tuple[str, ...], rows: Sequence[Sequence[Value]]) -> None:
        self._steps.reach(f"insert {table}")
        self.real.insert(table, columns, rows)

    def together(self, parts: Sequence[Part]) -> None:
        self._steps.reach("together")
        self.real.together(parts)

    def run_many(self, sql: str, rows: Sequence[Sequence[Value]]) -> None:
        self._steps.reach(sql)
        self.real.run_many(sql, rows)

    def close(self) -> None:
        self.real.close()


class SteppedBackend:
    """A real backend whose every statement, begin and commit is a step: `Registry(SteppedBackend(backend, steps))`."""

    def __init__(self, real: Backend, steps: Steps) -> None:
        self.real, self.steps = real, steps

    @property
    def dialect(self) -> Dialect:
        return self.real.dialect

    @property
    def shown_url(self) -> str:
        return self.real.shown_url

    @property
    def catalog_url(self) -> str:
        return self.real.catalog_url

    @property
    def timeout_s(self) -> float:
        return self.real.timeout_s

    def connect(self) -> Connection:
        return SteppedConnection(self.real.connect(), self.steps)

    def begin_write(self, connection: Connection, table_ids: Sequence[int]) -> tuple[list[TableHead], int | None]:
        self.steps.reach("begin")
        return self.real.begin_write(_real(connection), table_ids)

    def begin_read(self, connection: Connection) -> None:
        self.real.begin_read(_real(connection))

    def end_read(self, connection: Connection) -> None:
        self.real.end_read(_real(connection))

    def commit(self, connection: Connection) -> None:
        """A typed error before the commit is a refusal, which leaves nothing open; one behind it is an answer that was lost."""
        try:
            self.steps.reach("commit")
        except LakebedError:
            self.real.rollback(_real(connection))
            raise
        self.real.commit(_real(connection))
        self._answer()

    def call(self, connection: Connection, sql: str, values: Sequence[Any]) -> Any:
        self.steps.reach("call")
        answer = self.real.call(_real(connection), sql, values)
        self._answer()
        return answer

    def _answer(self) -> None:
        try:
            self.steps.reach("committed")
        except LakebedError as exc:
            raise CommitUnknownError from exc

    def rollback(self, connection: Connection) -> None:
        self.real.rollback(_real(connection))

    def script(self, connection: Connection, statements: Sequence[str]) -> None:
        self.real.script(_real(connection), statements)

    def close(self) -> None:
        self.real.close()


def _real(connection: Connection) -> Connection:
    return connection.real if isinstance(connection, SteppedConnection) else connection


@dataclass(slots=True)
class StubbornStorage:
    """A real storage that refuses to delete some paths until it is told otherwise: `Lake(lake.registry, StubbornStorage(lake.storage))`."""

    real: Storage
    refused: set[str] = field(default_factory=set)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def delete(self, paths: Sequence[str]) -> list[DeleteOutcome]:
        done = {outcome.path: outcome for outcome in self.real.delete([path for path in paths if path not in self.refused])}
        told = "throttled: try again later"
        return [done.get(path) or DeleteOutcome(path=path, result=Deletion.FAILED, reason=told) for path in paths]
