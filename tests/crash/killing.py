"""Kills a process at every step of an action, each time on the same lake, and hands over what is left.

A step is a statement, a begin, a commit, a file written or a file deleted. The killed processes are
forked from a server that has everything imported and nothing open.
"""

from __future__ import annotations

import multiprocessing
import re
import secrets
import shutil
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from builders import ORDERS, SCHEMA, logical_dump
from lakebed.lake import Lake, connect
from lakebed.registry.connect import open_backend
from lakebed.registry.registry import Registry
from lakebed.storage.local import LocalStorage
from lakebed.storage.open import open_storage
from lakebed.testing import FixedClock, SteppedBackend, SteppedConnection, Steps, kill_self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from conftest import Databases
    from lakebed.registry.backends.statements import Statement
    from lakebed.storage.protocol import DeleteOutcome

    Action = Callable[[Lake, Steps], None]
    State = dict[str, list[tuple[Any, ...]]]

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "lakebed.testing",
        "lakebed.registry.schema.tables",
        "lakebed.iceberg.commit.committer",
        "lakebed.iceberg.catalog",
        "lakebed.registry.migrate",
        "lakebed.compaction",
        "pyiceberg.table",
        "pyarrow.parquet",
        "psycopg",
        "pytest",
    ]
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)  # every lease and claim of the dead has run out, no grace period has
# drawn at random by every run: operation ids (their first 48 bits are the clock's) and fingerprints
_DRAWN = re.compile(r"\b[0-9a-f]{32}\b", re.ASCII)


@dataclass(frozen=True, slots=True)
class SteppedStorage(LocalStorage):
    """A real storage whose every deletion is a step, and the moment after it too."""

    steps: Steps

    def delete(self, paths: Sequence[str]) -> list[DeleteOutcome]:
        outcomes: list[DeleteOutcome] = []
        for path in paths:
            self.steps.reach(f"unlink {path}")
            outcomes += LocalStorage.delete(self, [path])
        self.steps.reach("unlinked")
        return outcomes

    def delete_tree(self, directory: str) -> bool:
        for facts in list(self.list_files(directory)):
            self.delete([facts.path])
        found = LocalStorage.delete_tree(self, directory)
        self.steps.reach("tree gone")
        return found

    def sync_tree(self, directory: str) -> None:
        self.steps.reach("sync")
        LocalStorage.sync_tree(self, directory)


class FineConnection(SteppedConnection):
    """What SQLite gets one after the other is a step each."""

    def execute_batch(self, parts: Sequence[Statement]) -> None:
        batches = [parts] if self.dialect == "postgresql" else [[part] for part in parts]
        for batch in batches:
            super().execute_batch(batch)


class FineBackend(SteppedBackend):
    def connect(self) -> FineConnection:
        return FineConnection(self.real.connect(), self.steps)


def stepped(url: str, warehouse: str, steps: Steps, *, at: datetime) -> Lake:
    storage = SteppedStorage(paths=open_storage(warehouse, create=False).paths, steps=steps)
    return Lake(Registry(FineBackend(open_backend(url), steps), clock=FixedClock(at)), storage)


def act_until(action: Action, url: str, warehouse: str, step: int, at: datetime) -> None:
    """The life of one killed process."""
    steps = Steps(at=step, act=kill_self)
    with stepped(url, warehouse, steps, at=at) as lake:
        action(lake, steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A lake that can be set up again, as it was, any number of times."""

    databases: Databases
    directory: Path
    url: str

    @property
    def warehouse(self) -> Path:
        return self.directory / "warehouse"

    def keep(self) -> None:
        shutil.rmtree(self.directory / "kept", ignore_errors=True)
        shutil.copytree(self.warehouse, self.directory / "kept")

    @contextmanager
    def again(self) -> Iterator[str]:
        """Everything as it was kept; the warehouse at its own path, which the registry knows."""
        shutil.rmtree(self.warehouse)
        shutil.copytree(self.directory / "kept", self.warehouse)
        url = copy_database(self.databases, self.url)
        yield url
        self.databases.drop(url)

    @contextmanager
    def opened(self, url: str, *, at: datetime = LATER) -> Iterator[Lake]:
        """As the next process finds it."""
        with connect(url, warehouse=str(self.warehouse), clock=FixedClock(at), create=False) as lake:
            yield lake

    def kill(self, action: Action, url: str, *, step: int, at: datetime = NOW) -> bool:
        """Whether `action` was killed before its step; False when it came to its end first."""
        process = FORKS.Process(target=act_until, args=(action, url, str(self.warehouse), step, at))
        process.start()
        process.join(60)
        assert process.exitcode in (0, -signal.SIGKILL), f"step {step} ended with {process.exitcode}"
        return process.exitcode != 0

    def killed_everywhere(self, action: Action, *, every: int = 1, at: datetime = NOW) -> Iterator[tuple[int, str]]:
        """What is left by a process killed before step 1, 1 + every, ...; the last one was not killed."""
        step, alive = 1, False
        while not alive:
            with self.again() as url:
                alive = not self.kill(action, url, step=step, at=at)
                yield step, url
            step += every

    def after(self, action: Action, *, at: datetime = NOW) -> State:
        """The state that an undisturbed run leaves."""
        with self.again() as url:
            assert not self.kill(action, url, step=0, at=at)
            with self.opened(url) as lake:
                return state_of(lake)


@contextmanager
def staged(databases: Databases, kind: str, directory: Path, fill: Callable[[Lake], object]) -> Iterator[Stage]:
    """A lake with the table of orders and whatever `fill` puts into it."""
    url = databases.new(kind)
    stage = Stage(databases=databases, directory=directory, url=url)
    with connect(url, warehouse=str(stage.warehouse), clock=FixedClock(NOW)) as lake:
        lake.create_table(str(ORDERS), SCHEMA, event_time="ts", index=("id",))
        fill(lake)
    stage.keep()
    yield stage
    databases.drop(url)


def copy_database(databases: Databases, url: str) -> str:
    name = f"copy_{secrets.token_hex(6)}"
    if url.startswith("sqlite"):
        copied = databases.directory / f"{name}.db"
        original = Path(url.removeprefix("sqlite:///"))
        shutil.copy(original, copied)
        if (catalog := original.with_suffix(".iceberg.db")).exists():
            shutil.copy(catalog, copied.with_suffix(".iceberg.db"))
        return f"sqlite:///{copied}"
    template = url.split("?", maxsplit=1)[0].rpartition("/")[2]
    with psycopg.connect(databases.postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    return databases.postgres_url.replace("/postgres?", f"/{name}?")


def state_of(lake: Lake) -> State:
    """Every row and every file, apart from random ids and the journal's own clock; operations are the audit, not the state."""
    dump = logical_dump(lake.registry, without=frozenset({"operations"}))
    dump["change_log"] = [row[:-1] for row in dump["change_log"]]
    files = [(str(path),) for path in sorted(Path(lake.storage.paths.root).rglob("*"))]
    return {name: sorted((tuple(_masked(v) for v in row) for row in rows), key=repr) for name, rows in {**dump, "files": files}.items()}


def _masked(value: Any) -> Any:
    return _DRAWN.sub("*", value) if isinstance(value, str) else value


def stride(kind: str) -> int:
    """Copying a PostgreSQL database takes a tenth of a second: all its steps are for the long run."""
    return 1 if kind == "sqlite" else 3
