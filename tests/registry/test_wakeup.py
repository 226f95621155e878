"""Hints wake a follower at once; what it then reads is complete and in commit order, whichever process wrote it."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

import workers
from builders import fake_file, make_table, publish
from lakebed.core.events import RegistryTable
from lakebed.core.names import TableName
from lakebed.registry.journal.changes import last_journal_numbers, read_changes
from lakebed.registry.journal.notifications import ANY_TABLE, Hint, PostgresHints, open_hints
from lakebed.registry.snapshots.waiting import await_change
from lakebed.testing import Follower

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakebed.core.events import Event
    from lakebed.core.rows import Row
    from lakebed.registry.journal.notifications import Hints
    from lakebed.registry.registry import Registry

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


def test_a_commit_of_another_process_wakes(registry: Registry, url: str, follower: Follower) -> None:
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

    assert workers.answer(worker) == "published"


def test_a_rollback_wakes_no_follower(registry: Registry, follower: Follower) -> None:
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


def await_hint(hints: Hints, table_id: int) -> Hint:
    """Every hint up to the first one that names the table, as one."""
    heard = Hint()
    while table_id not in heard.tables:
        hint = hints.wait(LONG_S)
        assert hint is not None
        heard |= hint
    return heard


def test_a_commit_of_this_process_names_its_table(registry: Registry, kind: str) -> None:
    table, _ = make_table(registry), make_table(registry, TableName("shop", "returns"))
    with closing(open_hints(registry)) as hints:
        publish(registry, table, fake_file(1))
        hint = await_hint(hints, table.table_id)

        assert hint.tables == {table.table_id}
        assert hint.others is (kind == "sqlite")  # which cannot distinguish its own commits from those of others
        assert hint.concerns(table.table_id)


def test_a_new_table_is_named_by_its_first_hint(registry: Registry) -> None:
    with closing(open_hints(registry)) as hints:
        table = make_table(registry)

        assert await_hint(hints, table.table_id).tables == {table.table_id}


def test_a_commit_of_another_process_names_its_table_where_the_database_can(
    registry: Registry, another: Callable[[], Registry], kind: str
) -> None:
    table, writer = make_table(registry), another()
    with closing(open_hints(registry)) as hints:
        hints.wait(0.0)
        publish(writer, table, fake_file(1))
        hint = hints.wait(LONG_S)

        assert hint == (ANY_TABLE if kind == "sqlite" else Hint(tables=frozenset((table.table_id,))))


def test_a_notification_that_names_no_table_may_mean_any(registry: Registry, kind: str) -> None:
    if kind == "sqlite":
        pytest.skip("it has no notifications")
    with closing(open_hints(registry)) as hints:
        registry.query("SELECT pg_notify('lakebed_journal', 'all of them')")

        assert hints.wait(LONG_S) == ANY_TABLE


def test_waiting_for_a_group_asks_only_at_hints_of_its_own_table(registry: Registry) -> None:
    mine, other = make_table(registry), make_table(registry, TableName("shop", "returns"))
    hints = [Hint(tables=frozenset((other.table_id,)))] * 5 + [Hint(tables=frozenset((mine.table_id,)))] * 2
    given = ScriptedHints(hints)

    await_change(given, mine.table_id, until=time.monotonic() + LONG_S)

    assert given.left == 1


class ScriptedHints:
    """The given hints one by one, and then none."""

    listening = True

    def __init__(self, hints: list[Hint]) -> None:
        self._hints = hints

    @property
    def left(self) -> int:
        return len(self._hints)

    def wait(self, timeout_s: float) -> Hint | None:
        assert timeout_s >= 0.0
        return self._hints.pop(0) if self._hints else None

    def close(self) -> None:
        self._hints.clear()


def test_a_follower_starts_at_the_given_position_and_remembers_its_own(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1))
    middle = last_journal_numbers(registry)[table.table_id]
    publish(registry, table, fake_file(2))

    with closing(Follower(registry, {table.table_id: middle})) as follower:
        events = follower.poll()

        assert [e.sequence for e in events] == list(range(middle + 1, last_journal_numbers(registry)[table.table_id] + 1))
        assert follower.positions == last_journal_numbers(registry)
        assert follower.poll() == []


def test_following_yields_every_change_until_it_is_stopped(registry: Registry, another: Callable[[], Registry]) -> None:
    table, writer, stop = make_table(registry), another(), threading.Event()
    seen: list[Event[Row]] = []
    with closing(Follower(registry)) as follower:
        thread = threading.Thread(target=lambda: seen.extend(follower.follow(stop)))
        thread.start()
        for number in range(10):
            publish(writer, table, fake_file(number))
        end = last_journal_numbers(registry)[table.table_id]
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
