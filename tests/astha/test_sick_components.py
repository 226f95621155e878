"""The breaker and the consume timeout at work, by the fixed clock: no calls while open, one trial, refresh, then delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from recorders import ORCHESTRATOR, SNAPSHOTTER, UPDATER, Recorder, Stepper, fail, recorders

from builders import fake_file, make_table, publish
from lakebed.astha.circuit_breaker import BreakerState
from lakebed.core.events import COMPONENT_SUBSCRIPTIONS, Component
from lakebed.core.names import TableName
from lakebed.core.progress import report_progress
from lakebed.registry.journal.changes import last_journal_numbers, read_changes

if TYPE_CHECKING:
    from lakebed.astha.delivery.jobs import Job
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable


@pytest.fixture
def tables(registry: Registry) -> list[LakeTable]:
    return [make_table(registry, TableName("shop", f"t{n}")) for n in range(3)]


@pytest.fixture
def components(registry: Registry) -> dict[Component, Recorder]:
    return recorders(registry)


@pytest.fixture
def stepper(registry: Registry, tables: list[LakeTable], components: dict[Component, Recorder]) -> Stepper:
    assert len(tables) == 3
    made = Stepper(registry, components)
    made.settle()
    return made


def publish_all(registry: Registry, tables: list[LakeTable], number: int) -> None:
    for table in tables:
        publish(registry, table, fake_file(number))


def open_breaker(registry: Registry, tables: list[LakeTable], stepper: Stepper, sick: Recorder) -> None:
    """Every call fails: five of them over three tables are enough."""
    sick.before_event = sick.before_refresh = fail()
    publish_all(registry, tables, 1)
    stepper.settle()
    for _ in range(20):
        stepper.advance(0.05)
    assert stepper.delivery.breakers[sick.component].state is BreakerState.OPEN


def heal(stepper: Stepper, *recovered: Recorder) -> None:
    for one in recovered:
        one.before_event = one.before_refresh = lambda _: None
        stepper.time.now = max(stepper.time.now, stepper.delivery.breakers[one.component].pause_ends)
        stepper.delivery.heard(one.component, well=True, now=stepper.time.now)


def expected(registry: Registry, component: Component, table_id: int, *, after: int) -> list[int]:
    return [e.sequence for e in read_changes(registry, table_id, after=after) if e.table in COMPONENT_SUBSCRIPTIONS[component]]


def test_a_component_that_fails_over_several_tables_is_called_no_more(
    registry: Registry, tables: list[LakeTable], components: dict[Component, Recorder], stepper: Stepper
) -> None:
    open_breaker(registry, tables, stepper, components[UPDATER])
    calls = len(components[UPDATER].calls)

    publish_all(registry, tables, 2)
    stepper.advance(1000.0)

    assert calls == len(components[UPDATER].calls) == 3 + 5  # three bootstraps, five failures
    assert stepper.delivery.tallies[UPDATER].dead_letters == 0


def test_the_others_are_served_as_if_nothing_had_happened(
    registry: Registry, tables: list[LakeTable], components: dict[Component, Recorder], stepper: Stepper
) -> None:
    marks = last_journal_numbers(registry)
    open_breaker(registry, tables, stepper, components[UPDATER])
    publish_all(registry, tables, 2)
    stepper.settle()

    for component in (SNAPSHOTTER, ORCHESTRATOR):
        for table in tables:
            found = components[component].sequences(table.table_id)
            assert found == expected(registry, component, table.table_id, after=marks[table.table_id])


def test_after_the_pause_and_a_good_health_check_one_trial_is_made(
    registry: Registry, tables: list[LakeTable], components: dict[Component, Recorder], stepper: Stepper
) -> None:
    sick = components[UPDATER]
    open_breaker(registry, tables, stepper, sick)
    calls = len(sick.calls)
    heal(stepper, sick)

    trial = stepper.take(UPDATER)

    assert trial is not None
    assert stepper.take(UPDATER) is None
    stepper.delivery.carry_out(trial)
    assert len(sick.calls) == calls + 1
    assert stepper.delivery.breakers[UPDATER].state is BreakerState.CLOSED


def test_recovery_refreshes_every_table_and_then_delivers(
    registry: Registry, tables: list[LakeTable], components: dict[Component, Recorder], stepper: Stepper
) -> None:
    sick = components[UPDATER]
    open_breaker(registry, tables, stepper, sick)
    publish_all(registry, tables, 2)
    heal(stepper, sick)
    stepper.settle()
    marks = last_journal_numbers(registry)
    assert sorted(sick.refreshes[3:]) == sorted(marks.items())
    assert sick.seen == []

    publish_all(registry, tables, 3)
    stepper.settle()

    for table in tables:
        assert sick.sequences(table.table_id) == expected(registry, UPDATER, table.table_id, after=marks[table.table_id])


def test_failed_trials_rotate_over_the_tables_and_park_none(
    registry: Registry, tables: list[LakeTable], components: dict[Component, Recorder], stepper: Stepper
) -> None:
    sick = components[UPDATER]
    open_breaker(registry, tables, stepper, sick)
    tried = []
    for _ in range(100):
        stepper.time.now = stepper.delivery.breakers[UPDATER].pause_ends
        stepper.delivery.heard(UPDATER, well=True, now=stepper.time.now)
        before = len(sick.calls)
        stepper.settle()
        tried += sick.calls[before:]

    assert len(tried) == 100
    assert {table_id for table_id, _ in tried} == {1, 2, 3}
    assert stepper.delivery.list_parked() == []


def test_a_call_below_the_timeout_is_waited_for(registry: Registry, tables: list[LakeTable], stepper: Stepper) -> None:
    publish(registry, tables[0], fake_file(1))
    stepper.delivery.see(last_journal_numbers(registry))
    job = stepper.take(UPDATER)
    assert job is not None
    assert stepper.delivery._begin(job, 60.0)

    assert stepper.delivery.fence_silent(stepper.time.now + 59.9) == []

    assert stepper.take(UPDATER) is None
    assert stepper.delivery.breakers[UPDATER].state is BreakerState.CLOSED


def test_a_call_silent_past_the_timeout_is_fenced_and_its_late_answer_refused(
    registry: Registry, tables: list[LakeTable], components: dict[Component, Recorder], stepper: Stepper
) -> None:
    publish(registry, tables[0], fake_file(1))
    stepper.delivery.see(last_journal_numbers(registry))
    job = stepper.take(UPDATER)
    assert job is not None
    assert stepper.delivery._begin(job, 60.0)
    stepper.time.now += 60.0

    assert stepper.delivery.fence_silent(stepper.time.now) == [UPDATER]

    stepper.settle()
    refreshed = job.lane.position
    assert not stepper.delivery._answered(job, refreshed - 1)
    assert job.lane.position == refreshed == last_journal_numbers(registry)[1]
    assert stepper.delivery.tallies[UPDATER].late_answers == 1
    assert (1, last_journal_numbers(registry)[1]) in components[UPDATER].refreshes


def begin_call(registry: Registry, table: LakeTable, stepper: Stepper, number: int) -> Job:
    """A call to the updater that is not answered yet."""
    publish(registry, table, fake_file(number))
    stepper.delivery.see(last_journal_numbers(registry))
    job = stepper.take(UPDATER)
    assert job is not None
    assert job.lane.table_id == table.table_id
    assert stepper.delivery._begin(job, 60.0)
    return job


def test_a_table_that_does_not_answer_leaves_the_other_tables_alone(
    registry: Registry, tables: list[LakeTable], components: dict[Component, Recorder], stepper: Stepper
) -> None:
    marks = last_journal_numbers(registry)
    for number in range(5):  # however often
        begin_call(registry, tables[0], stepper, number)
        stepper.time.now += 60.0
        assert stepper.delivery.fence_silent(stepper.time.now) == [UPDATER]
        stepper.settle()
        assert stepper.delivery.breakers[UPDATER].state is BreakerState.CLOSED
    publish_all(registry, tables[1:], 9)
    stepper.settle()

    for table in tables[1:]:
        found = components[UPDATER].sequences(table.table_id)
        assert found == expected(registry, UPDATER, table.table_id, after=marks[table.table_id])
        assert [t for t, _ in components[UPDATER].refreshes].count(table.table_id) == 1  # the bootstrap


def test_silence_over_two_tables_opens_the_breaker(registry: Registry, tables: list[LakeTable], stepper: Stepper) -> None:
    for number in (0, 1):
        begin_call(registry, tables[number], stepper, number)
    stepper.time.now += 60.0

    assert stepper.delivery.fence_silent(stepper.time.now) == [UPDATER, UPDATER]

    assert stepper.delivery.breakers[UPDATER].state is BreakerState.OPEN


def test_a_late_answer_is_refused_but_proves_that_the_component_is_alive(
    registry: Registry, tables: list[LakeTable], stepper: Stepper
) -> None:
    first = begin_call(registry, tables[0], stepper, 0)
    stepper.time.now += 30.0
    begin_call(registry, tables[1], stepper, 1)
    stepper.time.now += 30.0
    assert stepper.delivery.fence_silent(stepper.time.now) == [UPDATER]
    assert not stepper.delivery._answered(first, 1)
    stepper.time.now += 30.0

    assert stepper.delivery.fence_silent(stepper.time.now) == [UPDATER]

    assert stepper.delivery.breakers[UPDATER].state is BreakerState.CLOSED


@pytest.mark.parametrize("reports", [True, False])
def test_a_call_that_reports_progress_is_alive_however_long_it_lasts(
    registry: Registry, tables: list[LakeTable], components: dict[Component, Recorder], stepper: Stepper, *, reports: bool
) -> None:
    publish(registry, tables[0], fake_file(1))
    fenced = []

    def work_long(_: object) -> None:
        for _ in range(10):
            stepper.time.now += 50.0
            if reports:
                report_progress()
            fenced.extend(stepper.delivery.fence_silent(stepper.time.now))

    components[UPDATER].before_event = work_long
    stepper.settle()

    assert bool(fenced) is not reports
    assert bool(stepper.delivery.tallies[UPDATER].late_answers) is not reports


def test_three_failed_health_checks_stop_the_calls(
    registry: Registry, tables: list[LakeTable], components: dict[Component, Recorder], stepper: Stepper
) -> None:
    for _ in range(3):
        stepper.delivery.heard(UPDATER, well=False, now=stepper.time.now)
    publish_all(registry, tables, 1)
    stepper.settle()

    assert components[UPDATER].seen == []
    assert components[SNAPSHOTTER].seen != []


def test_an_answer_that_comes_after_the_breaker_opened_is_refused(
    registry: Registry, tables: list[LakeTable], components: dict[Component, Recorder], stepper: Stepper
) -> None:
    publish(registry, tables[0], fake_file(1))

    def open_meanwhile(_: object) -> None:
        for _ in range(3):
            stepper.delivery.heard(UPDATER, well=False, now=stepper.time.now)

    components[UPDATER].before_event = open_meanwhile
    before = last_journal_numbers(registry)[1]
    stepper.settle()

    lane = stepper.delivery.lanes[UPDATER][1]
    assert (lane.position < before, lane.needs_refresh, lane.busy) == (True, True, False)
    assert stepper.delivery.tallies[UPDATER].late_answers == 1
