"""Astha heals itself: a dead watcher, lost connections, a missing trigger; and says why when it stays down."""

from __future__ import annotations

from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest
from recorders import PATIENCE_S, UPDATER, Recorder, await_that, recorders, running

from builders import count, fake_file, make_table, publish, within
from cursors import read_incarnation
from lakebed.core.errors import LeaseHeldError, RegistryUnavailableError, StorageFullError, TriggersChangedError, UnavailableError
from lakebed.core.events import COMPONENT_SUBSCRIPTIONS, Component
from lakebed.registry.connect import open_backend
from lakebed.registry.journal.changes import last_journal_numbers, read_changes
from lakebed.registry.journal.leases import acquire_lease
from lakebed.registry.registry import Registry
from lakebed.registry.verify import restore_programs, verify_triggers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakebed.astha import Astha
    from lakebed.core.names import TableName
    from lakebed.registry.journal.notifications import Hint, Hints
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.transaction import Transaction

DROPS = {"sqlite": "DROP TRIGGER {0}", "postgresql": "DROP TRIGGER {0} ON {1}"}


@pytest.fixture
def table(registry: Registry) -> LakeTable:
    return make_table(registry)


def lives(astha: Astha, incarnation: int) -> bool:
    return astha.status().incarnation == incarnation and astha.is_active  # in this order: the one before is over by then


class DeadHints:
    """What the watcher listens to, gone from one moment to the next."""

    listening = True

    def __init__(self, real: Hints, error: Exception) -> None:
        self._real, self._error = real, error

    def wait(self, _: float) -> Hint | None:
        raise self._error

    def close(self) -> None:
        self._real.close()


DEFECT = RuntimeError("a defect of the watcher")
CUT = RegistryUnavailableError("the connection was lost")


def kill_watcher(astha: Astha, error: Exception = DEFECT) -> None:
    assert astha._incarnation is not None
    astha._incarnation.watcher._hints = DeadHints(astha._incarnation.watcher._hints, error)


def publish_when_possible(registry: Registry, table: LakeTable, number: int) -> bool:
    """Every pooled connection that was cut fails once."""
    try:
        publish(registry, table, fake_file(number))
    except UnavailableError:
        return False
    return True


def handled(registry: Registry, recorder: Recorder, *, after: int) -> set[int]:
    """Numbers that were handled, by event or by a refresh that saw them."""
    mark = max((m for t, m in recorder.refreshes if t == 1), default=0)
    return set(recorder.sequences()) | {n for n in expected(registry, recorder.component, after=after) if n <= mark}


def expected(registry: Registry, component: Component, *, after: int) -> list[int]:
    return [e.sequence for e in read_changes(registry, 1, after=after, limit=10_000) if e.table in COMPONENT_SUBSCRIPTIONS[component]]


def test_a_dead_watcher_is_replaced_and_nothing_is_lost(registry: Registry, table: LakeTable) -> None:
    components = recorders(registry)
    with running(registry, components) as astha:
        assert astha.drain(PATIENCE_S)
        mark = last_journal_numbers(registry)[1]
        kill_watcher(astha)
        for number in range(20):
            publish(registry, table, fake_file(number))
        await_that(lambda: astha.status().incarnation == 2, "the second incarnation")
        publish(registry, table, fake_file(99))
        assert astha.drain(PATIENCE_S)

        assert astha.status().restarts == 1
        assert astha.status().problem.startswith("the watcher failed")
        assert read_incarnation(registry) == 2
    for component, recorder in components.items():
        assert handled(registry, recorder, after=mark) >= set(expected(registry, component, after=mark))


def test_lost_connections_heal_unattended(registry: Registry, table: LakeTable, kind: str) -> None:
    if kind == "sqlite":
        pytest.skip("a file has no connection to lose")
    components = recorders(registry)
    with running(registry, components) as astha:
        assert astha.drain(PATIENCE_S)
        mark = last_journal_numbers(registry)[1]
        for number in range(5):
            publish(registry, table, fake_file(number))
        registry.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        await_that(lambda: astha.status().incarnation >= 2 and astha.is_active, "the next incarnation")
        await_that(partial(publish_when_possible, registry, table, 99), "a connection")
        assert astha.drain(PATIENCE_S)
    for component, recorder in components.items():
        assert handled(registry, recorder, after=mark) >= set(expected(registry, component, after=mark))


@pytest.mark.parametrize("trigger", ["capture_table_files_insert", "capture_tables_update"])
def test_a_missing_trigger_is_put_back_and_what_it_missed_is_refreshed(
    registry: Registry, table: LakeTable, kind: str, trigger: str
) -> None:
    components = recorders(registry)
    with running(registry, components) as astha:
        assert astha.drain(PATIENCE_S)
        marks = len(components[UPDATER].refreshes)
        target = trigger.removeprefix("capture_").rpartition("_")[0]
        within(registry, lambda tx: tx.run(DROPS[kind].format(trigger, target)))
        publish(registry, table, fake_file(1))  # captured in part only
        await_that(lambda: len(components[UPDATER].refreshes) > marks, "the refresh")
        assert astha.drain(PATIENCE_S)
        verify_triggers(registry)
        assert "triggers were altered" in astha.status().problem
        before = count(registry, "change_log")

        publish(registry, table, fake_file(2))

        assert astha.drain(PATIENCE_S)
        assert count(registry, "change_log") > before
        assert all(recorder.refreshes[marks:] for recorder in components.values())


def test_an_altered_program_is_put_back(registry: Registry, kind: str) -> None:
    name = "frozen_table_files"
    if kind == "sqlite":
        body = "AFTER INSERT ON table_files BEGIN SELECT 1; END"
        with registry.write() as tx:
            tx.run(f"DROP TRIGGER {name}")
            tx.run(f"CREATE TRIGGER {name} {body}")
    else:
        with registry.write() as tx:
            tx.run(f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")

    assert restore_programs(registry) == (name,)
    assert restore_programs(registry) == ()


def test_a_foreign_trigger_is_not_touched(registry: Registry, kind: str) -> None:
    if kind != "sqlite":
        pytest.skip("only SQLite must trust its whole schema")
    with registry.write() as tx:
        tx.run("CREATE TRIGGER theirs AFTER INSERT ON runs BEGIN SELECT 1; END")

    with pytest.raises(TriggersChangedError):
        restore_programs(registry)

    assert count(registry, "sqlite_master", "name = 'theirs'") == 1


def can_take_the_lease(registry: Registry) -> bool:
    try:
        acquire_lease(registry, "astha", owner="somebody else")
    except LeaseHeldError:
        return False
    return True


@pytest.mark.usefixtures("table")
def test_five_incarnations_in_ten_minutes_are_too_many(registry: Registry) -> None:
    components = recorders(registry)
    with running(registry, components) as astha:
        for number in range(1, 6):
            await_that(partial(lives, astha, number), f"incarnation {number}")
            kill_watcher(astha)
        await_that(lambda: astha.status().down, "giving up")

        status = astha.status()
        assert (status.active, status.incarnation, status.restarts) == (False, 5, 5)
        assert status.problem.startswith("the watcher failed")
        await_that(partial(can_take_the_lease, registry))
        assert not astha.drain(0.01)


def test_repeatedly_lost_connections_do_not_keep_it_down(registry: Registry, table: LakeTable) -> None:
    components = recorders(registry, UPDATER)
    with running(registry, components) as astha:
        for number in range(1, 9):
            await_that(partial(lives, astha, number), f"incarnation {number}")
            kill_watcher(astha, CUT)
        await_that(partial(lives, astha, 9), "the ninth incarnation")
        publish(registry, table, fake_file(1))
        assert astha.drain(PATIENCE_S)
        assert (astha.status().down, astha.status().restarts) == (False, 8)

        kill_watcher(astha)  # the first defect after them is the first one that counts

        await_that(partial(lives, astha, 10), "the tenth incarnation")
        assert not astha.status().down
    assert handled(registry, components[UPDATER], after=0) == set(expected(registry, UPDATER, after=0))


def test_one_that_stayed_down_can_be_started_again(registry: Registry, table: LakeTable) -> None:
    components = recorders(registry, UPDATER)
    with running(registry, components, max_incarnations=1) as astha:
        kill_watcher(astha)
        await_that(lambda: astha.status().down, "giving up")
        publish(registry, table, fake_file(1))
        await_that(lambda: astha._thread is not None and not astha._thread.is_alive())

        astha.start()

        assert astha.drain(PATIENCE_S)
        assert handled(registry, components[UPDATER], after=0) == set(expected(registry, UPDATER, after=0))


class Full(Registry):
    """On a disk without room, for as long as it is said to be full."""

    is_full = False

    @contextmanager
    def write(self, tables: Sequence[TableName | int] = (), *, op_id: str | None = None) -> Iterator[Transaction]:
        if self.is_full:
            message = "no room is left on the disk: free some and retry; nothing was changed"
            raise StorageFullError(message)
        with super().write(tables, op_id=op_id) as tx:
            yield tx


def test_a_full_disk_while_the_lease_is_renewed_is_reported_as_such_and_heals(
    url: str, registry: Registry, table: LakeTable, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(Full(open_backend(url))) as bounded, running(bounded, recorders(bounded), lease_ttl_s=1.0) as astha:
        assert astha.drain(PATIENCE_S)
        bounded.is_full = True
        await_that(lambda: "no room is left" in astha.status().problem, "the reason")
        assert "the lease was lost" not in caplog.text
        bounded.is_full = False
        await_that(lambda: astha.is_active, "the lease again")
        publish(registry, table, fake_file(1))
        assert astha.drain(PATIENCE_S)
