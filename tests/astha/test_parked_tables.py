"""Only a table that cannot be delivered is parked, until it is repaired."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from recorders import (
    ORCHESTRATOR,
    UPDATER,
    Recorder,
    Stepper,
    expected,
    fail_on,
    recorders,
    started,
)

from builders import ORDERS, count, fake_file, make_table, publish
from lakebed.core.names import TableName
from lakebed.registry.journal.changes import last_journal_numbers, purge_journal
from lakebed.registry.journal.cursors import list_dead_letters, list_parked
from lakebed.registry.tables.lake_tables import require_table

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable


RETURNS = TableName("shop", "returns")


@pytest.fixture
def table(registry: Registry) -> LakeTable:
    return make_table(registry)


def park(stepper: Stepper, recorder: Recorder) -> None:
    recorder.before_event = recorder.before_refresh = fail_on(1)
    stepper.settle()
    for _ in range(200):
        stepper.advance(5.0)


def test_a_refresh_that_fails_too_parks_the_table_and_no_other(registry: Registry, table: LakeTable) -> None:
    other = make_table(registry, RETURNS)
    components = recorders(registry, UPDATER, ORCHESTRATOR)
    stepper = started(registry, components)
    marks = last_journal_numbers(registry)
    publish(registry, table, fake_file(1))
    park(stepper, components[UPDATER])
    stepper.save()
    calls = len(components[UPDATER].calls)

    publish(registry, table, fake_file(2))
    publish(registry, other, fake_file(3))
    stepper.advance(1000.0)

    mine = [call for call in components[UPDATER].calls if call[0] == 1]
    assert mine.count((1, 0)) == 1 + 30  # the bootstrap, and the refresh that never worked
    assert len(components[UPDATER].calls) == calls + 1
    assert components[UPDATER].sequences(2) == expected(registry, UPDATER, 2, after=marks[2])
    assert components[ORCHESTRATOR].sequences(1) == expected(registry, ORCHESTRATOR, 1, after=marks[1])
    assert require_table(registry, ORDERS).row.state == "degraded"
    assert require_table(registry, RETURNS).row.state == "ok"
    assert [letter.attempts for letter in list_dead_letters(registry, open_only=True)] == [30, 30]


def test_a_parked_table_stays_parked_for_the_next_process(registry: Registry, table: LakeTable) -> None:
    components = recorders(registry, UPDATER)
    stepper = started(registry, components)
    publish(registry, table, fake_file(1))
    park(stepper, components[UPDATER])
    stepper.save()

    again = recorders(registry, UPDATER)
    second = started(registry, again)

    assert again[UPDATER].calls == []
    assert second.delivery.list_parked() == [(UPDATER, 1)]
    assert list(list_parked(registry)) == [(UPDATER, 1)]


def test_a_repaired_table_is_refreshed_and_goes_on(registry: Registry, table: LakeTable) -> None:
    components = recorders(registry, UPDATER)
    stepper = started(registry, components)
    publish(registry, table, fake_file(1))
    park(stepper, components[UPDATER])
    stepper.save()
    components[UPDATER].before_event = components[UPDATER].before_refresh = lambda _: None

    assert stepper.delivery.unpark(UPDATER, 1)
    assert not stepper.delivery.unpark(UPDATER, 1)
    stepper.settle()
    stepper.save()
    mark = components[UPDATER].refreshes[-1][1]
    publish(registry, table, fake_file(2))
    stepper.settle()

    assert components[UPDATER].sequences() == expected(registry, UPDATER, 1, after=mark)[-1:]
    assert require_table(registry, ORDERS).row.state == "ok"
    assert list_parked(registry) == {}
    assert list_dead_letters(registry, open_only=True) == []


def test_a_parked_lane_does_not_hold_the_journal(registry: Registry, table: LakeTable) -> None:
    components = recorders(registry)
    stepper = started(registry, components)
    publish(registry, table, fake_file(1))
    park(stepper, components[UPDATER])
    stepper.save()
    stepper.settle()
    stepper.save()

    purge_journal(registry, 1)

    assert count(registry, "change_log") == 0


def test_one_poisoned_table_never_delays_another(registry: Registry, table: LakeTable) -> None:
    other = make_table(registry, RETURNS)
    components = recorders(registry)
    stepper, mark = started(registry, components), last_journal_numbers(registry)[2]
    components[UPDATER].before_event = fail_on(1)
    publish(registry, table, fake_file(1))
    for number in range(5):
        publish(registry, other, fake_file(10 + number))
        stepper.settle()  # the clock stands still: nothing waits

    for component, recorder in components.items():
        assert recorder.sequences(2) == expected(registry, component, 2, after=mark)
