"""When tasks are due: by cron expressions, the clock and the state in the registry only."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.core.errors import InvalidValueError
from lakebed.core.tasks import DEFAULT_SCHEDULE, Task
from lakebed.core.times import to_micros
from lakebed.maintenance.schedule import MAX_JITTER_US, MAX_TRIES, Schedule, Timetable, due_tasks, first_windows, make_schedule
from lakebed.registry.maintenance.schedules import KeptWindow

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(hours: float = 0, **more: float) -> int:
    """Micros of a moment after noon."""
    return to_micros(NOON + timedelta(hours=hours, **more))


def kept(window: int, outcome: str = "done", tries: int = 0) -> KeptWindow:
    return KeptWindow(window=window, outcome=outcome, tries=tries, succeeded_at=None)


def hourly(task: Task = Task.CLEAN, jitter: float = 0.0) -> Schedule:
    return {task: Timetable(task=task, cron="0 * * * *", jitter=jitter)}


def test_a_window_is_due_once() -> None:
    (due,) = due_tasks(at(1), {"clean": kept(at(0))}, hourly())
    assert (due.task, due.window) == (Task.CLEAN, at(1))
    assert due_tasks(at(1, minutes=59), {"clean": kept(due.window)}, hourly()) == []


def test_windows_missed_in_a_downtime_are_run_together_once() -> None:
    (due,) = due_tasks(at(49.5), {"clean": kept(at(0))}, hourly())
    assert due.window == at(49)
    assert due_tasks(at(49.9), {"clean": kept(due.window)}, hourly()) == []


def test_a_task_seen_for_the_first_time_waits_for_its_next_window() -> None:
    assert due_tasks(at(0.5), {}, hourly()) == []
    counted_from = first_windows(at(0.5), {}, hourly())
    assert counted_from == {"clean": at(0)}
    assert due_tasks(at(0.9), {"clean": kept(at(0))}, hourly()) == []
    assert [d.window for d in due_tasks(at(1), {"clean": kept(at(0))}, hourly())] == [at(1)]


def test_a_window_that_a_wrong_clock_put_into_the_future_does_not_stop_the_task_for_ever() -> None:
    last = {"clean": kept(at(9999))}
    assert due_tasks(at(0), last, hourly()) == []
    assert first_windows(at(0), last, hourly()) == {"clean": at(0)}


def test_a_run_that_was_cut_off_is_repeated_and_then_given_up_until_the_next_window() -> None:
    for tries in range(1, MAX_TRIES):
        (due,) = due_tasks(at(0.5), {"clean": kept(at(0), "running", tries)}, hourly())
        assert (due.window, due.tries) == (at(0), tries + 1)
    assert due_tasks(at(0.5), {"clean": kept(at(0), "running", MAX_TRIES)}, hourly()) == []
    assert [d.tries for d in due_tasks(at(1), {"clean": kept(at(0), "running", MAX_TRIES)}, hourly())] == [1]


def test_a_failed_run_waits_for_the_next_window() -> None:
    assert due_tasks(at(0.5), {"clean": kept(at(0), "failed")}, hourly()) == []


def test_a_task_that_is_off_is_never_due() -> None:
    schedule = make_schedule({**DEFAULT_SCHEDULE, Task.CHECK: " OFF "}, lake_id="a")
    last = {task.value: kept(at(-10_000)) for task in Task}
    due = {d.task for d in due_tasks(at(0), last, schedule)}
    assert due == set(Task) - {Task.CHECK}
    assert Task.CHECK not in first_windows(at(0), {}, schedule)


def test_tasks_that_are_due_together_run_in_their_order() -> None:
    last = {task.value: kept(at(-10_000)) for task in Task}
    assert [d.task for d in due_tasks(at(0), last, make_schedule(DEFAULT_SCHEDULE, lake_id="a"))] == list(Task)


def test_jitter_is_the_same_for_every_process_of_a_lake_and_differs_between_lakes_and_tasks() -> None:
    first, again, other = (make_schedule(DEFAULT_SCHEDULE, lake_id=lake) for lake in ("a", "a", "b"))
    assert first == again
    assert len({table.jitter for schedule in (first, other) for table in schedule.values()}) == 2 * len(Task)


def test_jitter_puts_a_window_off_and_never_past_the_next() -> None:
    table = replace(hourly()[Task.CLEAN], jitter=0.999)
    shift = table.jitter_us(NOON)
    assert 0 < shift <= min(MAX_JITTER_US, 360 * 1_000_000)
    assert table.find_window(at(0) + shift - 1) == at(-1)
    assert table.find_window(at(0) + shift) == at(0)


@pytest.mark.parametrize(
    "cron", ["", "* * *", "61 * * * *", "* * * * MOON", "soon", "0 0 31 2 *", "*/0 * * * *", "a" * 500, "\x00 * * * *"]
)
def test_a_bad_expression_is_refused_with_its_setting_and_its_value(cron: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        make_schedule({**DEFAULT_SCHEDULE, Task.MERGE: cron}, lake_id="a")
    assert "schedule.merge" in str(caught.value)
    assert repr(cron) in str(caught.value)


CRONS = st.sampled_from(
    ["* * * * *", "*/7 * * * *", "0 * * * *", "30 4 * * *", "0 0 * * SUN", "0 0 29 2 *", "15,45 8-18 * * MON-FRI", "*/20 * * * * *"]
)


@given(cron=CRONS, jitter=st.floats(0, 0.999), steps=st.lists(st.integers(1, 4 * 86_400), min_size=1, max_size=40))
def test_at_any_pace_of_checks_no_window_runs_twice_and_the_newest_is_never_lost(cron: str, jitter: float, steps: list[int]) -> None:
    schedule = {Task.CLEAN: Timetable(task=Task.CLEAN, cron=cron, jitter=jitter)}
    now, ran = at(0), []
    last = {"clean": kept(first_windows(now, {}, schedule)["clean"])}
    for seconds in steps:
        now += seconds * 1_000_000
        for due in due_tasks(now, last, schedule):
            ran.append(due.window)
            last["clean"] = kept(due.window)
        begun = schedule[Task.CLEAN].find_window(now)
        assert begun is None or last["clean"].window >= begun
    assert ran == sorted(set(ran))
