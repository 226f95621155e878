"""Hints wake a follower at once; what it then reads is complete and in commit order, whoever wrote it."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

import workers
from builders import fake_file, make_table, publish
from lakebed.core.events import RegistryTable
from lakebed.registry.journal import read_changes, read_ends
from lakebed.registry.wakeup import Follower, PostgresHints, open_hints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakebed.core.events import Event
    from lakebed.core.rows import Row
    from lakebed.registry.engine import Registry

LONG_S = 30.0  # far beyond the sweep: only a hint can end such a wait early


@pytest.fixture
def follower(registry: Registry) -> Iterator[Follower]:
    made = Follower(registry)
    yield made
    made.close()


def test_a_commit_of_this_process_wakes_at_once(registry: Registry, follower: Follower) -> None:
    table = make_table(registry)
    follower.poll()
    seen: list[Event[Row]] = []
    timer = threading.Timer(0.1, publish, args=(registry, table, fake_file(1)))
    timer.start()

    while not any(e.table is RegistryTable.TABLE_FILES for e in seen):
        assert follower.wait(LONG_S)  # hints of earlier commits may still be on their way
        seen += follower.poll()

    timer.join()
    assert [e.sequence for e in seen] == list(range(seen[0].sequence, seen[0].sequence + len(seen)))


def test_a_commit_of_another_process_wakes_within_a_second(registry: Registry, url: str, follower: Follower) -> None:
    make_table(registry)
    follower.poll()
    worker = workers.run("publish_one", url)
    assert worker.stdin is not None
    worker.stdin.write("go\n")
    worker.stdin.flush()
    seen: list[Event[Row]] = []

    while not any(e.table is RegistryTable.TABLE_FILES for e in seen):
        assert follower.wait(LONG_S)
        seen += follower.poll()
    received = time.time()

    assert received - float(workers.answer(worker)) < 1.0


def test_a_rollback_wakes_nobody_with_news(registry: Registry, follower: Follower) -> None:
    make_table(registry)
    follower.poll()

    def fail() -> None:
        with registry.write() as tx:
            tx.run("UPDATE tables SET state = 'degraded'")
            raise InterruptedError

    with pytest.raises(InterruptedError):
        fail()

    assert follower.poll() == []


def test_without_a_commit_the_wait_ends_after_its_timeout(registry: Registry) -> None:
    make_table(registry)
    with closing(open_hints(registry)) as hints:
        hints.wait(0.01)
        started = time.monotonic()

        assert not hints.wait(0.05)

        assert time.monotonic() - started >= 0.05


def test_a_follower_starts_where_it_was_told_and_remembers_where_it_is(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1))
    middle = read_ends(registry)[table.table_id]
    publish(registry, table, fake_file(2))

    with closing(Follower(registry, {table.table_id: middle})) as follower:
        events = follower.poll()

        assert [e.sequence for e in events] == list(range(middle + 1, read_ends(registry)[table.table_id] + 1))
        assert follower.positions == read_ends(registry)
        assert follower.poll() == []


def test_following_yields_every_change_until_it_is_stopped(registry: Registry, another: Callable[[], Registry]) -> None:
    table, writer, stop = make_table(registry), another(), threading.Event()
    seen: list[Event[Row]] = []
    with closing(Follower(registry)) as follower:
        thread = threading.Thread(target=lambda: seen.extend(follower.follow(stop)))
        thread.start()
        for number in range(10):
            publish(writer, table, fake_file(number))
        end = read_ends(registry)[table.table_id]
        while follower.positions.get(table.table_id, 0) < end:
            time.sleep(0.001)
        stop.set()
        thread.join()

    assert seen == read_changes(registry, table.table_id, after=0)


def test_a_follower_whose_connection_is_cut_goes_on_by_sweeping(registry: Registry, kind: str) -> None:
    table = make_table(registry)
    with closing(Follower(registry)) as follower:
        follower.poll()
        if kind == "postgresql":
            assert isinstance(follower._hints, PostgresHints)
            pid = follower._hints._connection.raw.info.backend_pid
            registry.query("SELECT pg_terminate_backend(CAST(:pid AS integer))", {"pid": pid})
        publish(registry, table, fake_file(1))

        assert follower.wait(1.0)

        assert any(e.table is RegistryTable.TABLE_FILES for e in follower.poll())
