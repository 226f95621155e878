"""Bare SQL, the limit of any registry: register | concurrent on SQLite and PostgreSQL, plan | retire on SQLite.

One commit is a file row, a footer of 20 KB, the table's counters and a journal row, in one durable transaction.
"""

import functools
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import psycopg

from batches import ROWS, write_files
from harness import Commit, best_ms, emit, file_name, fresh, part_of, run_step, run_writers, settle, timed_commits
from postgres import new_database

FOOTER = os.urandom(20_000)
STATISTICS = '{"id":[1,1000,0],' + ",".join(f'"f{k}":[0.001,0.999,0]' for k in range(7)) + "}"
TABLES = """
CREATE TABLE IF NOT EXISTS lake_table(table_id INTEGER PRIMARY KEY, files {big} NOT NULL, row_cnt {big} NOT NULL,
  bytes {big} NOT NULL, version {big} NOT NULL);
CREATE TABLE IF NOT EXISTS file(file_id {key}, table_id INTEGER NOT NULL, part INTEGER NOT NULL, path TEXT NOT NULL,
  bytes {big} NOT NULL, row_cnt {big} NOT NULL, stats TEXT NOT NULL, status SMALLINT NOT NULL DEFAULT 1, version {big} NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS file_by_path ON file(table_id, path);
CREATE INDEX IF NOT EXISTS file_by_part ON file(table_id, part, status);
CREATE TABLE IF NOT EXISTS footer(file_id {big} PRIMARY KEY, content {blob} NOT NULL);
CREATE TABLE IF NOT EXISTS journal(seq {key}, table_id INTEGER NOT NULL, op TEXT NOT NULL, file_id {big}, payload TEXT NOT NULL,
  at {real} NOT NULL)
"""
SQLITE_TYPES = {"big": "INTEGER", "key": "INTEGER PRIMARY KEY", "blob": "BLOB", "real": "REAL"}
POSTGRES_TYPES = {"big": "BIGINT", "key": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "blob": "BYTEA", "real": "DOUBLE PRECISION"}


class Registry(Protocol):
    peer: str

    def commit(self, numbers: Iterable[int]) -> None: ...

    def list_paths(self) -> list[str]: ...


class SqliteRegistry:
    peer = "sqlite_full"

    def __init__(self, place: str) -> None:
        self.connection = sqlite3.connect(place, timeout=60, isolation_level=None)
        pragmas = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-65536; PRAGMA mmap_size=1073741824;"
        self.connection.executescript(pragmas + TABLES.format(**SQLITE_TYPES))
        self.connection.execute("INSERT OR IGNORE INTO lake_table VALUES (1, 0, 0, 0, 0)")

    def commit(self, numbers: Iterable[int]) -> None:
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        for number in numbers:
            values = (part_of(number), file_name(number), ROWS, STATISTICS, number)
            (file_id,) = execute(
                "INSERT INTO file(table_id, part, path, bytes, row_cnt, stats, version) VALUES (1, ?, ?, 20000, ?, ?, ?) RETURNING file_id",
                values,
            ).fetchone()
            execute("INSERT INTO footer VALUES (?, ?)", (file_id, FOOTER))
            execute(
                "UPDATE lake_table SET files=files+1, row_cnt=row_cnt+?, bytes=bytes+20000, version=version+1 WHERE table_id=1", (ROWS,)
            )
            execute(
                "INSERT INTO journal(table_id, op, file_id, payload, at) VALUES (1, 'add', ?, ?, ?)",
                (file_id, STATISTICS, time.time()),
            )
        execute("COMMIT")

    def list_paths(self) -> list[str]:
        return [path for (path,) in self.connection.execute("SELECT path FROM file")]


class PostgresRegistry:
    """One statement per commit, hence one round trip; the hot counter row comes last, so that its lock is held briefly."""

    peer = "pg"
    statement = """
        WITH f AS (INSERT INTO file(table_id, part, path, bytes, row_cnt, stats, version)
                   VALUES (1, %s, %s, 20000, 1000, %s, %s) RETURNING file_id),
             b AS (INSERT INTO footer SELECT file_id, %s FROM f),
             j AS (INSERT INTO journal(table_id, op, file_id, payload, at) SELECT 1, 'add', file_id, %s, %s FROM f)
        UPDATE lake_table SET files=files+1, row_cnt=row_cnt+1000, bytes=bytes+20000, version=version+1 WHERE table_id=1"""

    def __init__(self, place: str) -> None:
        self.connection = psycopg.connect(place, autocommit=True, prepare_threshold=0)
        self.connection.execute("SET synchronous_commit=on")

    def create(self) -> None:
        for statement in TABLES.format(**POSTGRES_TYPES).split(";"):
            self.connection.execute(statement.encode())
        self.connection.execute("ALTER TABLE footer ALTER COLUMN content SET STORAGE EXTERNAL")
        self.connection.execute("INSERT INTO lake_table VALUES (1, 0, 0, 0, 0)")

    def commit(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            values = (part_of(number), file_name(number), STATISTICS, number, FOOTER, STATISTICS, time.time())
            self.connection.execute(self.statement, values)

    def list_paths(self) -> list[str]:
        return [path for (path,) in self.connection.execute("SELECT path FROM file")]


@contextmanager
def new_registry(directory: Path, backend: str, step: str) -> Iterator[tuple[Registry, str]]:
    """An empty registry and the place where other processes open it."""
    if backend == "postgres":
        with new_database(f"sql_{step}") as dsn:
            registry = PostgresRegistry(dsn)
            registry.create()
            with closing(registry.connection):
                yield registry, dsn
    else:
        place = str(fresh(directory, f"sql_{step}") / "registry.db")
        sqlite = SqliteRegistry(place)
        with closing(sqlite.connection):
            yield sqlite, place


def register(directory: Path, *, backend: str, commits: int) -> None:
    with new_registry(directory, backend, "register") as (registry, _):
        timed_commits(registry.peer, "commit_only", commits, lambda number: registry.commit([number]))


def concurrent(directory: Path, *, backend: str, writers: int, each: int) -> None:
    with new_registry(directory, backend, "concurrent") as (registry, place):
        outcome = run_writers(writers, each, functools.partial(prepare_writer, backend, place))
        outcome.emit(registry.peer, (int(Path(path).stem[1:]) for path in registry.list_paths()))


def prepare_writer(backend: str, place: str, _writer: int) -> Commit:
    registry: Registry = PostgresRegistry(place) if backend == "postgres" else SqliteRegistry(place)
    return lambda number: registry.commit([number])


def plan(directory: Path, *, files: int) -> None:
    place = str(fresh(directory, f"sql_plan_{files}") / "registry.db")
    registry = SqliteRegistry(place)
    start = time.perf_counter()
    fill_planned(registry.connection, files)
    emit(registry.peer, "plan", "build", time.perf_counter() - start, "s", n=files)
    registry.connection.close()
    key = files // 2 * ROWS + 5
    by_statistics = "SELECT f.path FROM column_stats s JOIN file f USING(file_id) WHERE s.col=0 AND s.low<=? AND s.high>=? AND f.status=1"
    by_rtree = "SELECT f.path FROM ranges r JOIN file f ON f.file_id=r.id WHERE r.low<=? AND r.high>=? AND f.status=1"
    # An R-tree holds 32-bit floats, rounded outward: it may name a few neighbours too.
    queries: dict[str, tuple[str, Sequence[Any], range]] = {
        "point": (by_statistics, (key, key), range(1, 2)),
        "point_rtree": (by_rtree, (key, key), range(1, 65)),
        "partition": ("SELECT path FROM file WHERE table_id=1 AND part=37 AND status=1", (), range(files // 100, files // 100 + 1)),
        "all": ("SELECT path FROM file WHERE table_id=1 AND status=1", (), range(files, files + 1)),
    }
    for name, (query, values, wanted) in queries.items():
        cold = best_ms(functools.partial(plan_cold, place, query, values, wanted), 7)
        emit(registry.peer, "plan", f"{name}_cold", cold, "ms", n=files)
        with closing(sqlite3.connect(place)) as connection:
            list_files(connection, query, values, wanted)
            warm = best_ms(functools.partial(list_files, connection, query, values, wanted), 7)
        emit(registry.peer, "plan", f"{name}_warm", warm, "ms", n=files)


def plan_cold(place: str, query: str, values: Sequence[Any], wanted: range) -> None:
    with closing(sqlite3.connect(place)) as connection:
        list_files(connection, query, values, wanted)


def list_files(connection: sqlite3.Connection, query: str, values: Sequence[Any], wanted: range) -> None:
    found = [path for (path,) in connection.execute(query, values)]
    assert len(found) in wanted, (query, len(found))


def fill_planned(connection: sqlite3.Connection, files: int) -> None:
    numbers = range(files)
    connection.execute("BEGIN")
    connection.executemany(
        "INSERT INTO file(file_id, table_id, part, path, bytes, row_cnt, stats, version) VALUES (?, 1, ?, ?, 20000, 1000, ?, ?)",
        ((i + 1, part_of(i, files), f"part={part_of(i, files)}/{file_name(i)}", STATISTICS, i) for i in numbers),
    )
    connection.execute(
        "CREATE TABLE column_stats(col INTEGER, low, high, nulls INTEGER, file_id INTEGER, PRIMARY KEY(col, low, high, file_id))"
        " WITHOUT ROWID"
    )
    connection.execute("CREATE VIRTUAL TABLE ranges USING rtree(id, low, high)")
    insert = "INSERT INTO column_stats VALUES (?, ?, ?, 0, ?)"
    connection.executemany(insert, ((0, i * ROWS, i * ROWS + ROWS - 1, i + 1) for i in numbers))
    for column in range(1, 10):
        connection.executemany(insert, ((column, 0.001, 0.999, i + 1) for i in numbers))
    connection.executemany("INSERT INTO ranges VALUES (?, ?, ?)", ((i + 1, i * ROWS, i * ROWS + ROWS - 1) for i in numbers))
    connection.execute("COMMIT")
    connection.execute("ANALYZE")


def retire(directory: Path, *, files: int) -> None:
    """Mark five of ten partitions with a journal row each, then unlink the files and delete their rows."""
    place = fresh(directory, "sql_retire")
    paths = write_files(place / "in", range(files))
    registry = SqliteRegistry(str(place / "registry.db"))
    registry.commit(range(files))
    execute = registry.connection.execute
    settle()
    start = time.perf_counter()
    execute("BEGIN IMMEDIATE")
    execute(
        "INSERT INTO journal(table_id, op, file_id, payload, at)"
        " SELECT 1, 'retire', file_id, '', 0 FROM file WHERE table_id=1 AND part<5 AND status=1"
    )
    retired = execute("UPDATE file SET status=2 WHERE table_id=1 AND part<5 AND status=1").rowcount
    execute("COMMIT")
    emit(registry.peer, "retire", "metadata", retired / (time.perf_counter() - start), "files/s", n=files)
    start = time.perf_counter()
    execute("BEGIN IMMEDIATE")
    for (file_id,) in execute("SELECT file_id FROM file WHERE status=2").fetchall():
        paths[file_id - 1].unlink()
    execute("DELETE FROM footer WHERE file_id IN (SELECT file_id FROM file WHERE status=2)")
    removed = execute("DELETE FROM file WHERE status=2").rowcount
    execute("COMMIT")
    emit(registry.peer, "retire", "physical", removed / (time.perf_counter() - start), "files/s", n=files, removed=removed)
    assert sum(not path.exists() for path in paths) == removed == files // 2


if __name__ == "__main__":
    run_step({"register": register, "concurrent": concurrent, "plan": plan, "retire": retire})
