"""The limit of a change journal: one inserted row until another process sees it. sqlite (polls `data_version`) | postgres (LISTEN)."""

import functools
import multiprocessing
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from harness import emit, fresh, percentile, run_step
from postgres import new_database

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

PAUSE_S = 0.005  # between commits
SYNCHRONOUS = {"sqlite_normal": "NORMAL", "sqlite_full": "FULL"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    latencies_ms: list[float]
    cpu_s: float


def read_sqlite(place: str, commits: int, poll_s: float, results: "Queue[Seen | None]") -> None:
    latencies: list[float] = []
    last, version = 0, None
    with closing(sqlite3.connect(place, timeout=60)) as connection:
        results.put(None)
        start = time.process_time()
        while len(latencies) < commits:
            (now,) = connection.execute("PRAGMA data_version").fetchone()
            if now == version:
                time.sleep(poll_s)
                continue
            version = now
            for seq, at in connection.execute("SELECT seq, at FROM journal WHERE seq > ? ORDER BY seq", (last,)).fetchall():
                last = seq
                latencies.append((time.monotonic_ns() - at) / 1e6)
    results.put(Seen(latencies_ms=latencies, cpu_s=time.process_time() - start))


def read_postgres(dsn: str, commits: int, results: "Queue[Seen | None]") -> None:
    latencies: list[float] = []
    last = 0
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("LISTEN journal")
        results.put(None)
        start = time.process_time()
        while len(latencies) < commits:
            for _ in connection.notifies(timeout=5, stop_after=1):
                pass
            for seq, at in connection.execute("SELECT seq, at FROM journal WHERE seq > %s ORDER BY seq", (last,)).fetchall():
                last = seq
                latencies.append((time.monotonic_ns() - at) / 1e6)
    results.put(Seen(latencies_ms=latencies, cpu_s=time.process_time() - start))


def measure(peer: str, name: str, commits: int, commit: Callable[[], object], read: Callable[..., None], *place: Any) -> None:
    """Commit every 5 ms; a row carries the clock as it was before its transaction began."""
    context = multiprocessing.get_context("spawn")
    results: Queue[Seen | None] = context.Queue()
    reader = context.Process(target=read, args=(*place[:1], commits, *place[1:], results))
    reader.start()
    results.get(timeout=60)
    start = time.perf_counter()
    for _ in range(commits):
        commit()
        time.sleep(PAUSE_S)
    seen = results.get(timeout=60)
    assert seen is not None
    reader.join()
    share = seen.cpu_s / (time.perf_counter() - start)
    for rank in (50, 99):
        emit(peer, "follow", f"{name}_p{rank}", percentile(seen.latencies_ms, rank), "ms", n=commits, reader_cpu=round(share, 3))


def insert(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO journal(at, payload) VALUES (?, 'x')", (time.monotonic_ns(),))


def follow_sqlite(directory: Path, *, commits: int) -> None:
    for peer, synchronous in SYNCHRONOUS.items():
        for poll_ms in (1, 10):
            place = str(fresh(directory, "follow") / "journal.db")
            with closing(sqlite3.connect(place, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute(f"PRAGMA synchronous={synchronous}")
                connection.execute("CREATE TABLE journal(seq INTEGER PRIMARY KEY, at INTEGER, payload TEXT)")
                measure(peer, f"poll_{poll_ms}ms", commits, functools.partial(insert, connection), read_sqlite, place, poll_ms / 1000)


def follow_postgres(_directory: Path, *, commits: int) -> None:
    with new_database("follow") as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE journal(seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at BIGINT, payload TEXT)")

        def commit() -> None:
            with connection.transaction():
                connection.execute("INSERT INTO journal(at, payload) VALUES (%s, 'x')", (time.monotonic_ns(),))
                connection.execute("NOTIFY journal")

        measure("pg", "listen_notify", commits, commit, read_postgres, dsn)


if __name__ == "__main__":
    run_step({"sqlite": follow_sqlite, "postgres": follow_postgres})
