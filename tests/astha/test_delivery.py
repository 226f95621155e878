"""Delivery by the fixed clock, without a thread: order, retries, dead letters, refresh, parking."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from recorders import (
    COMPACTOR,
    SNAPSHOTTER,
    UPDATER,
    SickError,
    expected,
    fail,
    fail_times,
    recorders,
    started,
)

from builders import ORDERS, fake_file, grow_schema, make_table, publish, seal_pending, within
from lakebed.core.errors import InvalidValueError
from lakebed.core.events import ChangeKind
from lakebed.registry.journal.changes import last_journal_numbers, purge_journal
from lakebed.registry.journal.cursors import list_dead_letters, read_cursors
from lakebed.registry.tables.lake_tables import require_table
from retiring import retire_by_ids

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable


@pytest.fixture
def table(registry: Registry) -> LakeTable:
    return make_table(registry)


def test_every_component_hears_of_its_tables_in_order_and_once(registry: Registry, table: LakeTable) -> None:
    components = recorders(registry)
    stepper, mark = started(registry, components), last_journal_numbers(registry)[1]

    first = publish(registry, table, *[fake_file(n) for n in range(300)])
    seal_pending(registry)
    grow_schema(registry)
    within(registry, lambda tx: retire_by_ids(tx, ORDERS, {first.partition_id}))
    stepper.settle()

    for component, recorder in components.items():
        assert recorder.sequences() == expected(registry, component, 1, after=mark), component
        assert recorder.refreshes == [(1, mark)]
    assert {e.operation for e in components[UPDATER].seen} == {ChangeKind.INSERT, ChangeKind.UPDATE}


def test_each_change_is_read_once_for_all_components(registry: Registry, table: LakeTable) -> None:
    stepper, mark = started(registry, recorders(registry)), last_journal_numbers(registry)[1]

    publish(registry, table, *[fake_file(n) for n in range(300)])
    stepper.settle()

    assert stepper.pages.read_count == last_journal_numbers(registry)[1] - mark


def test_a_lane_without_a_cursor_refreshes_and_then_follows(registry: Registry, table: LakeTable) -> None:
    publish(registry, table, fake_file(1))
    components = recorders(registry, UPDATER)
    stepper = started(registry, components)
    mark = last_journal_numbers(registry)[1]
    assert components[UPDATER].refreshes == [(1, mark)]
    assert components[UPDATER].seen == []

    publish(registry, table, fake_file(2))
    stepper.settle()

    assert components[UPDATER].sequences() == expected(registry, UPDATER, 1, after=mark)


def test_a_bootstrap_that_races_with_changes_sees_each_once_in_effect(registry: Registry, table: LakeTable) -> None:
    components = recorders(registry, UPDATER)

    def publish_meanwhile(_: int) -> None:
        publish(registry, table, fake_file(1))

    components[UPDATER].before_refresh = publish_meanwhile
    stepper = started(registry, components)
    mark = components[UPDATER].refreshes[0][1]
    assert mark == last_journal_numbers(registry)[1]

    publish(registry, table, fake_file(2))
    stepper.settle()

    assert components[UPDATER].sequences() == expected(registry, UPDATER, 1, after=mark)


def test_a_saved_cursor_is_where_the_next_one_starts(registry: Registry, table: LakeTable) -> None:
    stepper = started(registry, recorders(registry, UPDATER))
    stepper.save()
    mark = last_journal_numbers(registry)[1]
    publish(registry, table, fake_file(1))

    again = recorders(registry, UPDATER)
    started(registry, again)

    assert again[UPDATER].refreshes == []
    assert again[UPDATER].sequences() == expected(registry, UPDATER, 1, after=mark)


@pytest.mark.parametrize("handled", range(9))
def test_a_crash_after_any_event_of_one_transaction_skips_none(registry: Registry, table: LakeTable, handled: int) -> None:
    stepper = started(registry, recorders(registry, UPDATER))
    stepper.save()
    mark = last_journal_numbers(registry)[1]
    publish(registry, table, *[fake_file(n) for n in range(8)])
    first = recorders(registry, UPDATER)
    first[UPDATER].before_event = lambda _: None if len(first[UPDATER].calls) <= handled else fail()()
    crashed = started(registry, first)
    crashed.save()

    second = recorders(registry, UPDATER)
    started(registry, second)

    assert first[UPDATER].sequences() + second[UPDATER].sequences() == expected(registry, UPDATER, 1, after=mark)


def test_a_handler_that_always_fails_is_called_thirty_times_then_dropped_and_refreshed(registry: Registry, table: LakeTable) -> None:
    components = recorders(registry, UPDATER)
    stepper = started(registry, components)
    components[UPDATER].before_event = fail()
    publish(registry, table, fake_file(1))
    stepper.settle()
    for _ in range(200):
        stepper.advance(5.0)
    poisoned = expected(registry, UPDATER, 1)[-1]

    assert components[UPDATER].calls.count((1, poisoned)) == 30
    assert components[UPDATER].refreshes[-1] == (1, last_journal_numbers(registry)[1])
    stepper.save()
    (letter,) = list_dead_letters(registry)
    assert (letter.component, letter.table_id, letter.seq, letter.attempts) == (UPDATER, 1, poisoned, 30)
    assert letter.error == "SickError: no luck today"
    assert letter.resolved_at is not None
    assert require_table(registry, ORDERS).row.state == "ok"


def test_the_calls_come_at_exponential_distances_capped_at_five_seconds(registry: Registry, table: LakeTable) -> None:
    components = recorders(registry, UPDATER)
    stepper, at = started(registry, components), list[float]()

    def note_and_fail(_: object) -> None:
        at.append(stepper.time.now)
        raise SickError

    components[UPDATER].before_event = note_and_fail
    publish(registry, table, fake_file(1))
    stepper.settle()
    while not components[UPDATER].refreshes[1:]:
        due = stepper.delivery._queues[UPDATER].find_next_due()
        assert due is not None
        stepper.advance(due - stepper.time.now)

    gaps = [round(b - a, 6) for a, b in pairwise(at)]
    assert gaps == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2] + [5.0] * 22


def test_a_lane_that_waits_for_its_retry_is_not_called_before(registry: Registry, table: LakeTable) -> None:
    components = recorders(registry, UPDATER)
    stepper = started(registry, components)
    components[UPDATER].before_event = fail_times(1)
    publish(registry, table, fake_file(1))
    stepper.settle()

    stepper.advance(0.049)
    assert components[UPDATER].seen == []
    stepper.advance(0.002)

    assert components[UPDATER].sequences() == [expected(registry, UPDATER, 1)[-1]]
    assert components[UPDATER].refreshes[1:] == []


@pytest.mark.parametrize("error", [InvalidValueError("bad request")], ids=["refused"])
def test_a_permanent_error_is_called_once(registry: Registry, table: LakeTable, error: Exception) -> None:
    components = recorders(registry, UPDATER)
    stepper = started(registry, components)
    components[UPDATER].before_event = fail_times(1, error)
    publish(registry, table, fake_file(1))
    stepper.settle()
    stepper.save()

    assert components[UPDATER].calls.count((1, expected(registry, UPDATER, 1)[-1])) == 1
    assert [letter.attempts for letter in list_dead_letters(registry)] == [1]
    assert len(components[UPDATER].refreshes) == 2


def test_a_gap_in_the_journal_means_refresh(registry: Registry, table: LakeTable) -> None:
    components = recorders(registry, UPDATER)
    stepper, mark = started(registry, components), last_journal_numbers(registry)[1]
    publish(registry, table, *[fake_file(n) for n in range(5)])
    within(registry, lambda tx: tx.run("DELETE FROM change_log WHERE seq = :seq", {"seq": mark + 2}))
    stepper.settle()

    assert components[UPDATER].refreshes[-1] == (1, last_journal_numbers(registry)[1])


def test_changes_lost_at_the_journals_end_mean_refresh(registry: Registry, table: LakeTable) -> None:
    components = recorders(registry, UPDATER)
    stepper, mark = started(registry, components), last_journal_numbers(registry)[1]
    publish(registry, table, fake_file(1))
    within(registry, lambda tx: tx.run("DELETE FROM change_log WHERE seq > :seq", {"seq": mark}))
    stepper.settle()

    assert components[UPDATER].refreshes[-1] == (1, last_journal_numbers(registry)[1])
    assert components[UPDATER].seen == []


def test_a_change_that_cannot_be_decoded_is_a_dead_letter_and_a_refresh(registry: Registry, table: LakeTable) -> None:
    components = recorders(registry, UPDATER)
    stepper = started(registry, components)
    publish(registry, table, fake_file(1))
    end = last_journal_numbers(registry)[1]
    within(registry, lambda tx: tx.run("UPDATE change_log SET operation = 'TRUNCATE' WHERE seq = :seq", {"seq": end}))
    stepper.settle()
    stepper.save()

    assert components[UPDATER].refreshes[-1] == (1, end)
    assert list_dead_letters(registry)[0].error.startswith("undecodable_change")


def test_a_component_more_than_the_cap_behind_refreshes(registry: Registry, table: LakeTable) -> None:
    components = recorders(registry)
    stepper = started(registry, components)
    stepper.save()
    components[COMPACTOR].before_event = fail()
    publish(registry, table, *[fake_file(n) for n in range(50)])
    stepper.settle()
    stepper.save()
    purge_journal(registry, 1, cap=10)
    assert read_cursors(registry)[COMPACTOR, 1].needs_refresh
    components[COMPACTOR].before_event = lambda _: None

    stepper.advance(5.0)
    stepper.save()  # refused: the mark raised the epoch
    stepper.settle()
    stepper.save()

    assert components[COMPACTOR].refreshes[-1] == (1, last_journal_numbers(registry)[1])
    cursor = read_cursors(registry)[COMPACTOR, 1]
    assert (cursor.seq, cursor.needs_refresh) == (last_journal_numbers(registry)[1], False)


def test_a_cursor_that_a_newer_epoch_took_over_is_given_up(registry: Registry, table: LakeTable) -> None:
    components = recorders(registry, UPDATER)
    stepper = started(registry, components)
    stepper.save()
    publish(registry, table, fake_file(1))
    stepper.settle()
    within(registry, lambda tx: tx.run("UPDATE subscriber_cursor SET epoch = 40, needs_refresh = 1"))

    assert set(stepper.save().refused) == {(UPDATER, 1)}
    stepper.settle()
    stepper.save()

    assert len(components[UPDATER].refreshes) == 2
    cursor = read_cursors(registry)[UPDATER, 1]
    assert (cursor.seq, cursor.epoch > 40, cursor.needs_refresh) == (last_journal_numbers(registry)[1], True, False)


@pytest.mark.parametrize("lie", ["the future", "the past", None])
def test_a_refresh_that_cannot_be_true_is_a_failed_call(registry: Registry, table: LakeTable, lie: str | None) -> None:
    components = recorders(registry, SNAPSHOTTER)
    stepper, end = started(registry, components), last_journal_numbers(registry)[1]
    answers = {"the future": end + 1000, "the past": end}
    components[SNAPSHOTTER].on_refresh = lambda _: answers.get(lie or "")  # type: ignore[method-assign,assignment,return-value]
    components[SNAPSHOTTER].before_event = fail(InvalidValueError("poison"))
    publish(registry, table, fake_file(1))
    stepper.settle()

    assert stepper.delivery.list_parked() == [(SNAPSHOTTER, 1)]
    assert "journal number" in stepper.delivery.collect().drops[-1].error


def test_without_the_lease_no_component_is_called(registry: Registry, table: LakeTable) -> None:
    components = recorders(registry)
    stepper = started(registry, components)
    stepper.delivery.active_until = stepper.time.now + 10.0
    publish(registry, table, fake_file(1))

    stepper.time.now += 10.0
    stepper.settle()

    assert all(recorder.seen == [] for recorder in components.values())


def test_nothing_is_left_to_save_after_saving(registry: Registry, table: LakeTable) -> None:
    stepper = started(registry, recorders(registry))
    publish(registry, table, fake_file(1))
    stepper.settle()
    assert stepper.delivery.collect()

    stepper.save()

    assert not stepper.delivery.collect()
    assert {cursor.seq for cursor in read_cursors(registry).values()} == {last_journal_numbers(registry)[1]}


def test_what_was_handled_before_a_long_call_is_saved_during_it(registry: Registry, table: LakeTable) -> None:
    components = recorders(registry, UPDATER)
    stepper = started(registry, components)
    stepper.save()
    saved: list[int] = []

    def save_meanwhile(_: object) -> None:
        stepper.save()
        saved.append(read_cursors(registry)[UPDATER, 1].seq)

    components[UPDATER].before_event = save_meanwhile
    publish(registry, table, *[fake_file(n) for n in range(8)])
    stepper.settle()

    handled = components[UPDATER].sequences()
    assert len(handled) == 8
    assert saved == [sequence - 1 for sequence in handled]
    assert stepper.delivery.collect().positions[0].seq == last_journal_numbers(registry)[1]
