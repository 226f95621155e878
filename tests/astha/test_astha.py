"""Astha with its threads: push, order, parallel lanes, slow and hung components, start, stop and drain."""

from __future__ import annotations

import threading
import time
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from recorders import (
    COMPACTOR,
    ORCHESTRATOR,
    PATIENCE_S,
    SNAPSHOTTER,
    UPDATER,
    Gate,
    Recorder,
    await_that,
    fail,
    fail_on,
    fail_times,
    recorders,
    running,
)

import workers
from builders import ORDERS, count, fake_file, make_table, publish, seal_pending
from cursors import read_incarnation
from lakebed.astha.circuit_breaker import BreakerState
from lakebed.core.events import COMPONENT_SUBSCRIPTIONS, Component, RegistryTable
from lakebed.core.names import TableName
from lakebed.core.rows import TableFiles
from lakebed.registry.journal.changes import last_journal_numbers, read_changes
from lakebed.registry.journal.cursors import list_dead_letters, read_cursors
from lakebed.registry.tables.lake_tables import require_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.core.events import Event
    from lakebed.core.rows import Row
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable


@pytest.fixture
def table(registry: Registry) -> LakeTable:
    return make_table(registry)


def expected(registry: Registry, component: Component, table_id: int, *, after: int = 0) -> list[int]:
    changes = read_changes(registry, table_id, after=after, limit=100_000)
    return [e.sequence for e in changes if e.table in COMPONENT_SUBSCRIPTIONS[component]]


def has_seen(registry: Registry, recorder: Recorder, mark: int) -> bool:
    return recorder.sequences() == expected(registry, recorder.component, 1, after=mark)


def test_a_commit_is_pushed_to_everyone_who_subscribed(registry: Registry, table: LakeTable) -> None:
    components = recorders(registry)
    with running(registry, components) as astha:
        assert astha.drain(PATIENCE_S)
        mark = last_journal_numbers(registry)[1]
        publish(registry, table, *[fake_file(n) for n in range(10)])
        seal_pending(registry)
        assert astha.drain(PATIENCE_S)

        for component, recorder in components.items():
            assert recorder.sequences() == expected(registry, component, 1, after=mark)
        assert astha.status().of(COMPACTOR).delivered == len(components[COMPACTOR].seen)
        assert astha.status().of(COMPACTOR).behind == 0
    assert {c.seq for c in read_cursors(registry).values()} == {last_journal_numbers(registry)[1]}


@pytest.mark.usefixtures("table")
def test_a_commit_of_another_process_is_pushed(registry: Registry, url: str) -> None:
    components = recorders(registry, UPDATER)
    with running(registry, components, sweep_s=30.0) as astha:
        assert astha.drain(PATIENCE_S)
        worker = workers.run("publish_one", url)
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
        await_that(lambda: any(e.table is RegistryTable.TABLE_FILES for e in components[UPDATER].seen), "the event")  # before any sweep

        workers.answer(worker)


def test_a_component_may_write_to_the_registry_and_drain_waits_for_what_follows(registry: Registry, table: LakeTable) -> None:
    """As the snapshotter does: a pending file is sealed, which is the next event."""
    components = recorders(registry, SNAPSHOTTER, ORCHESTRATOR)

    def seal_it(event: Event[Row]) -> None:
        if isinstance(event.data, TableFiles) and event.data.added_group is None:
            seal_pending(registry)

    components[SNAPSHOTTER].before_event = seal_it
    with running(registry, components) as astha:
        assert astha.drain(PATIENCE_S)
        for number in range(5):
            publish(registry, table, fake_file(number))
        assert astha.drain(PATIENCE_S)

        assert count(registry, "table_files", "added_group IS NULL") == 0
        assert components[SNAPSHOTTER].sequences() == expected(registry, SNAPSHOTTER, 1)[-len(components[SNAPSHOTTER].seen) :]
        assert components[SNAPSHOTTER].sequences()[-1] <= last_journal_numbers(registry)[1]


def test_sixteen_writers_are_delivered_completely_and_in_order(registry: Registry, another: Callable[[], Registry]) -> None:
    tables = [make_table(registry, TableName("shop", f"t{n}")) for n in range(4)]
    components = recorders(registry)

    def write(number: int) -> None:
        mine = another()
        for n in range(6):
            publish(mine, tables[(number + n) % 4], fake_file(number * 100 + n))

    with running(registry, components, page_events=7, turn_s=0.001) as astha:
        assert astha.drain(PATIENCE_S)
        marks = last_journal_numbers(registry)
        writers = [threading.Thread(target=write, args=(n,)) for n in range(16)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert astha.drain(PATIENCE_S * 2)

    for component, recorder in components.items():
        for table in tables:
            assert recorder.sequences(table.table_id) == expected(registry, component, table.table_id, after=marks[table.table_id])


def test_events_of_different_tables_overlap_and_those_of_one_table_never(registry: Registry) -> None:
    tables = [make_table(registry, TableName("shop", f"t{n}")) for n in range(2)]
    meet, spans = threading.Barrier(2), []

    def meet_the_other(event: Event[Row]) -> None:
        began = time.monotonic()
        meet.wait(PATIENCE_S)  # passes only when both tables are being served
        spans.append((event.table_id, began, time.monotonic()))

    components = recorders(registry, UPDATER)
    with running(registry, components) as astha:
        assert astha.drain(PATIENCE_S)
        components[UPDATER].before_event = meet_the_other
        for table in tables:
            publish(registry, table, *[fake_file(table.table_id * 10 + n) for n in range(3)])
        assert astha.drain(PATIENCE_S)

    for table in tables:
        mine = sorted((began, ended) for table_id, began, ended in spans if table_id == table.table_id)
        assert all(earlier[1] <= later[0] for earlier, later in pairwise(mine))


def test_a_slow_component_holds_up_no_other(registry: Registry, table: LakeTable) -> None:
    others = [make_table(registry, TableName("shop", f"t{n}")) for n in range(6)]
    components, gate = recorders(registry), Gate()
    with running(registry, components) as astha:
        assert astha.drain(PATIENCE_S)
        components[COMPACTOR].before_event = gate
        mark = last_journal_numbers(registry)[1]
        for one in (table, *others):
            publish(registry, one, fake_file(one.table_id))
        for component in (UPDATER, SNAPSHOTTER, ORCHESTRATOR):
            await_that(partial(has_seen, registry, components[component], mark))

        assert components[COMPACTOR].seen == []
        gate.opened.set()
        assert astha.drain(PATIENCE_S)


def test_a_hung_handler_is_fenced_out_and_the_table_goes_on(registry: Registry, table: LakeTable) -> None:
    components, gate = recorders(registry, UPDATER, ORCHESTRATOR), Gate()
    hung = components[UPDATER]
    with running(registry, components, consume_timeout_s=0.1) as astha:
        assert astha.drain(PATIENCE_S)
        hung.before_event = gate
        publish(registry, table, fake_file(1))
        assert gate.entered.wait(PATIENCE_S)
        hung.before_event = lambda _: None
        await_that(lambda: hung.refreshes[1:], "the recovery")
        publish(registry, table, fake_file(2))
        assert astha.drain(PATIENCE_S)
        position = astha._incarnation.delivery.lanes[UPDATER][1].position if astha._incarnation else 0
        assert position == last_journal_numbers(registry)[1]

        gate.opened.set()
        await_that(lambda: astha.status().of(UPDATER).late_answers == 1, "the late answer")

        assert astha.status().of(UPDATER).silences == 1
        assert hung.sequences()[-1] <= hung.refreshes[-1][1]  # the late one: the refresh had covered it
    assert list_dead_letters(registry) == []


def test_a_table_that_hangs_beside_others_delays_none_of_them(registry: Registry) -> None:
    slow, *others = [make_table(registry, TableName("shop", f"t{n}")) for n in range(4)]
    components, gate = recorders(registry, UPDATER, ORCHESTRATOR), Gate()

    def hang(what: Any) -> None:
        if (what if isinstance(what, int) else what.table_id) == slow.table_id:
            gate()

    with running(registry, components, consume_timeout_s=1.0) as astha:
        assert astha.drain(PATIENCE_S)
        marks, refreshed = last_journal_numbers(registry), len(components[UPDATER].refreshes)
        components[UPDATER].before_event = components[UPDATER].before_refresh = hang
        publish(registry, slow, fake_file(1))
        await_that(lambda: astha.status().of(UPDATER).silences == 1, "the silence")
        for number in range(3):
            for table in others:
                publish(registry, table, fake_file(number))
        await_that(
            lambda: all(
                components[UPDATER].sequences(t.table_id) == expected(registry, UPDATER, t.table_id, after=marks[t.table_id])
                for t in others
            ),
            "delivery to the others",
        )

        assert astha.status().of(UPDATER).breaker is BreakerState.CLOSED
        assert len(components[UPDATER].refreshes) == refreshed  # none of the others, and the slow one hangs in its own
        gate.opened.set()
        assert astha.drain(PATIENCE_S)


def test_a_stop_leaves_behind_only_the_thread_that_hangs(registry: Registry, table: LakeTable) -> None:
    components, gate = recorders(registry, UPDATER), Gate()
    with running(registry, components) as astha:
        assert astha.drain(PATIENCE_S)
        components[UPDATER].before_event = gate
        publish(registry, table, fake_file(1))
        assert gate.entered.wait(PATIENCE_S)

        astha.stop(timeout_s=0.05)

        assert [t.name for t in threading.enumerate() if t.name.startswith("astha")] == ["astha-iceberg_updater"]
        gate.opened.set()
        await_that(lambda: not [t for t in threading.enumerate() if t.name.startswith("astha")])


@pytest.mark.parametrize("hook", ["raises", "hangs"])
def test_an_ill_component_is_found_by_its_health_and_left_alone_until_it_is_well(registry: Registry, table: LakeTable, hook: str) -> None:
    components, gate = recorders(registry, UPDATER, ORCHESTRATOR), Gate()
    components[UPDATER].before_health = gate if hook == "hangs" else fail()
    with running(registry, components, health_timeout_s=0.05) as astha:
        await_that(lambda: astha.status().of(UPDATER).breaker is BreakerState.OPEN, "the open breaker")
        assert not astha.status().of(UPDATER).well
        assert astha.status().of(ORCHESTRATOR).well
        publish(registry, table, fake_file(1))
        await_that(lambda: components[ORCHESTRATOR].seen)
        assert components[UPDATER].seen == []

        components[UPDATER].before_health = lambda: None
        gate.opened.set()

        assert astha.drain(PATIENCE_S)
        assert astha.status().of(UPDATER).breaker is BreakerState.CLOSED
        assert components[UPDATER].refreshes[-1] == (1, last_journal_numbers(registry)[1])


def test_a_component_that_dies_in_its_handler_is_called_again(registry: Registry, table: LakeTable) -> None:
    components = recorders(registry, UPDATER)
    with running(registry, components) as astha:
        assert astha.drain(PATIENCE_S)
        mark = last_journal_numbers(registry)[1]
        components[UPDATER].before_event = fail_times(2, SystemExit(3))
        publish(registry, table, fake_file(1))

        assert astha.drain(PATIENCE_S)
        assert components[UPDATER].sequences() == expected(registry, UPDATER, 1, after=mark)


def test_a_table_that_cannot_be_handled_is_parked_until_a_retry(registry: Registry, table: LakeTable) -> None:
    components = recorders(registry, UPDATER)
    with running(registry, components) as astha:
        assert astha.drain(PATIENCE_S)
        components[UPDATER].before_event = components[UPDATER].before_refresh = fail_on(1)
        publish(registry, table, fake_file(1))
        await_that(lambda: require_table(registry, ORDERS).row.state == "degraded", "the parked table")
        assert not astha.drain(PATIENCE_S)
        assert astha.status().of(UPDATER).parked == (1,)
        components[UPDATER].before_event = components[UPDATER].before_refresh = lambda _: None

        assert astha.retry(UPDATER, 1)

        await_that(lambda: require_table(registry, ORDERS).row.state == "ok", "the healed table")
        assert astha.drain(PATIENCE_S)
        assert not astha.retry(UPDATER, 1)
    assert [letter.resolved_at is None for letter in list_dead_letters(registry)] == [False, False]


def test_a_drain_that_takes_too_long_says_so(registry: Registry, table: LakeTable) -> None:
    components, gate = recorders(registry, UPDATER), Gate()
    with running(registry, components) as astha:
        assert astha.drain(PATIENCE_S)
        components[UPDATER].before_event = gate
        publish(registry, table, fake_file(1))

        assert not astha.drain(0.05)

        gate.opened.set()
        assert astha.drain(PATIENCE_S)


def test_a_table_made_while_astha_runs_is_followed(registry: Registry) -> None:
    components = recorders(registry)
    with running(registry, components) as astha:
        table = make_table(registry)
        publish(registry, table, fake_file(1))
        assert astha.drain(PATIENCE_S)

        for component, recorder in components.items():
            mark = recorder.refreshes[0][1]
            assert recorder.sequences() == expected(registry, component, 1, after=mark)


def test_handled_changes_are_purged(registry: Registry, table: LakeTable) -> None:
    with running(registry, recorders(registry), purge_every_s=0.05) as astha:
        publish(registry, table, *[fake_file(n) for n in range(20)])
        assert astha.drain(PATIENCE_S)

        await_that(lambda: count(registry, "change_log") == 0, "an empty journal")


def test_a_component_that_does_not_run_cannot_make_the_journal_grow_without_bound(registry: Registry, table: LakeTable) -> None:
    with running(registry, recorders(registry, UPDATER), purge_every_s=0.05, purge_cap=10) as astha:
        publish(registry, table, *[fake_file(n) for n in range(50)])
        assert astha.drain(PATIENCE_S)

        await_that(lambda: count(registry, "change_log") == 0, "an empty journal")
    assert read_cursors(registry)[COMPACTOR, 1].needs_refresh


def test_starting_and_stopping_many_times_leaves_nothing(registry: Registry, table: LakeTable) -> None:
    components = recorders(registry)
    for number in range(5):
        with running(registry, components) as astha:
            publish(registry, table, fake_file(number))
            assert astha.drain(PATIENCE_S)
        assert not astha.is_active
        assert astha.lease is None

    assert read_incarnation(registry) == 5
    for component, recorder in components.items():
        mark = recorder.refreshes[0][1]
        assert recorder.sequences() == expected(registry, component, 1, after=mark)
        assert len(recorder.refreshes) == 1


def test_the_same_instance_can_be_started_again(registry: Registry, table: LakeTable) -> None:
    components: dict[Component, Recorder] = recorders(registry, UPDATER)
    with running(registry, components) as astha:
        assert astha.drain(PATIENCE_S)
        astha.stop()
        publish(registry, table, fake_file(1))
        astha.start()

        assert astha.drain(PATIENCE_S)
        assert components[UPDATER].seen != []
