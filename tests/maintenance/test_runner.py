"""The runner on both databases, with the clock in the test's hand and the lease taken by the test."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from builders import DAILY, HOUR, ORDERS, SCHEMA, make_table, new_partition, operation, write_partition
from lakebed import admin
from lakebed.core.errors import InvalidValueError, LeaseLostError, StorageUnavailableError
from lakebed.core.tables.view_sets import Definition
from lakebed.core.tasks import OFF, Task
from lakebed.core.times import from_micros
from lakebed.maintenance.reports import Report
from lakebed.maintenance.runner import REQUESTED, Runner
from lakebed.maintenance.schedule import make_schedule
from lakebed.maintenance.tasks import TASKS
from lakebed.maintenance.workplace import Workplace
from lakebed.registry.files.operations import open_operation
from lakebed.registry.journal.leases import acquire_lease, release_lease
from lakebed.registry.maintenance.runs import Run, add_run, finish_run, list_runs
from lakebed.registry.maintenance.schedules import begin_requested, begin_window, list_requested, read_windows
from lakebed.registry.partitions.publish import publish_partition
from lakebed.registry.processes import make_owner
from lakebed.registry.tables.lake_tables import TableSpec, create_table
from lakebed.registry.tables.versions import set_properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.lake import Lake
    from lakebed.registry.journal.leases import Lease
    from lakebed.testing import FixedClock

JOBS = ("materialize_partitions", "regenerate_partitions")


def lead(lake: Lake) -> Lease:
    return acquire_lease(lake.registry, "astha", owner=make_owner("full"), ttl_us=365 * 24 * HOUR)


def runner_of(lake: Lake, lease: Lease | None, *, crons: dict[Task, str] | None = None, **options: Any) -> Runner:
    schedule = make_schedule({**dict.fromkeys(Task, OFF), **(crons or {})}, lake_id="lake")
    place = Workplace(registry=lake.registry, storage=lake.storage, context=lambda: lake._context, actor="test")
    return Runner(place, schedule, lease=lambda: lease, **options)


def runs_of(lake: Lake, job: str) -> list[Run]:
    return list_runs(lake.registry, job=job)


def failing(_: Workplace) -> Report:
    message = "the disk of postgresql://me:hidden-word@db/lake is on fire"
    raise StorageUnavailableError(message)


def broken(_: Workplace) -> Report:
    message = "not even a typed error"
    raise RuntimeError(message)


def test_missed_windows_run_once_after_a_downtime_whoever_starts_next(timed_lake: Lake, clock: FixedClock) -> None:
    crons = {Task.RECOVER: "*/5 * * * *", Task.CHECK: "0 3 * * *"}
    lease = lead(timed_lake)
    assert runner_of(timed_lake, lease, crons=crons).run_due() == []

    clock.advance(seconds=3 * 24 * 3600)
    assert runner_of(timed_lake, lease, crons=crons).run_due() == [Task.RECOVER, Task.CHECK]
    assert runner_of(timed_lake, lease, crons=crons).run_due() == []

    (done,) = runs_of(timed_lake, "task/check")
    assert (done.state, done.result["clean"], done.actor) == ("done", True, "test")
    assert read_windows(timed_lake.registry)["check"].succeeded_at == clock.micros
    assert timed_lake.check().clean


def test_a_task_that_fails_is_recorded_and_counted_and_the_others_run(timed_lake: Lake, clock: FixedClock) -> None:
    crons = {Task.RECOVER: "0 * * * *", Task.CLEAN: "0 * * * *", Task.CHECK: "0 * * * *"}
    tasks = {**TASKS, Task.RECOVER: failing, Task.CLEAN: broken}
    runner = runner_of(timed_lake, lead(timed_lake), crons=crons, tasks=tasks)
    runner.run_due()
    clock.advance(seconds=7200)

    assert runner.run_due() == [Task.RECOVER, Task.CLEAN, Task.CHECK]

    (first,), (second,) = runs_of(timed_lake, "task/recover"), runs_of(timed_lake, "task/clean")
    assert (first.state, second.state) == ("failed", "failed")
    assert "storage_unavailable" in first.result["error"]
    assert "hidden-word" not in json.dumps(first.result)
    assert "not even a typed error" in second.result["error"]
    tallies = runner.tallies()
    assert [(tallies[t].runs, tallies[t].failures) for t in (Task.RECOVER, Task.CLEAN, Task.CHECK)] == [(1, 1), (1, 1), (1, 0)]
    assert read_windows(timed_lake.registry)["recover"].succeeded_at is None


def test_nothing_runs_without_the_lease_and_nothing_begins_once_it_is_lost(timed_lake: Lake, clock: FixedClock) -> None:
    crons = {Task.CHECK: "0 * * * *"}
    old = lead(timed_lake)
    runner_of(timed_lake, old, crons=crons).run_due()
    clock.advance(seconds=7200)
    assert runner_of(timed_lake, None, crons=crons).run_due() == []

    release_lease(timed_lake.registry, old)
    clock.advance(seconds=1)
    new = lead(timed_lake)
    with pytest.raises(LeaseLostError):
        runner_of(timed_lake, old, crons=crons).run_due()

    assert runs_of(timed_lake, "task/check") == []
    assert runner_of(timed_lake, new, crons=crons).run_due() == [Task.CHECK]


def test_a_run_that_a_dead_service_left_open_is_closed_and_repeated_by_the_next(timed_lake: Lake, clock: FixedClock) -> None:
    crons = {Task.CLEAN: "0 * * * *"}
    old = lead(timed_lake)
    runner_of(timed_lake, old, crons=crons).run_due()
    clock.advance(seconds=3600)
    begin_window(timed_lake.registry, old, "clean", window=clock.micros, tries=1, actor="dead")
    release_lease(timed_lake.registry, old)
    clock.advance(seconds=1)

    assert runner_of(timed_lake, lead(timed_lake), crons=crons).run_due() == [Task.CLEAN]

    again, cut_off = runs_of(timed_lake, "task/clean")
    assert (cut_off.state, cut_off.actor) == ("failed", "dead")
    assert "ended in the middle" in cut_off.result["error"]
    assert (again.state, again.plan["try"]) == ("done", 2)


def test_only_the_newest_runs_that_ended_well_are_kept(timed_lake: Lake, clock: FixedClock) -> None:
    with timed_lake.registry.write() as tx:
        for state in ["failed"] * 3 + ["done"] * 104:
            finish_run(tx, add_run(tx, "task/recover", actor="before", plan={}), state=state, result={})
    runner = runner_of(timed_lake, lead(timed_lake), crons={Task.RECOVER: "* * * * *"})
    runner.run_due()
    clock.advance(seconds=60)
    runner.run_due()
    states = [run.state for run in list_runs(timed_lake.registry, job="task/recover", limit=1000)]
    assert (states.count("done"), states.count("failed")) == (100, 3)


def test_operations_of_dead_writers_are_undone_as_soon_as_a_process_leads(timed_lake: Lake, clock: FixedClock) -> None:
    make_table(timed_lake.registry)
    open_operation(timed_lake.registry, ORDERS, operation())  # and its process is gone
    clock.advance(seconds=24 * 3600)
    runner = runner_of(timed_lake, lead(timed_lake), crons={Task.RECOVER: "0 0 1 1 *"})

    assert runner.run_due() == [Task.RECOVER]

    assert runner.tallies()[Task.RECOVER].result == {"undone": 1, "leftovers": 0}
    assert timed_lake.check().clean


def make_view_over_orders(lake: Lake) -> None:
    definition = Definition(sql="SELECT * FROM shop.orders", over=ORDERS, slice_us=HOUR, event_time="ts").to_json()
    create_table(lake.registry, TableSpec(name=DAILY, schema=SCHEMA, kind="view_set", event_time="ts", definition=definition))


def add_empty_hours(lake: Lake, *hours: int) -> None:
    table = lake.table(str(ORDERS))
    for hour in hours:
        publish_partition(lake.registry, new_partition(table, hours=(hour, hour + 1)), operation())


def test_what_is_stale_is_built_and_no_session_is_asked_for_where_no_row_is_read(timed_lake: Lake, clock: FixedClock) -> None:
    make_table(timed_lake.registry)
    make_view_over_orders(timed_lake)
    add_empty_hours(timed_lake, 0, 1, 2)
    runner = runner_of(timed_lake, lead(timed_lake), crons={Task.MATERIALIZE: "*/10 * * * *", Task.MERGE: "0 0 * * *"})
    runner.run_due()
    clock.advance(seconds=600)
    runner.run_due()
    assert {key: runner.tallies()[Task.MATERIALIZE].result[key] for key in ("views", "empty", "failed")} == {
        "views": 1,
        "empty": 3,
        "failed": 0,
    }

    clock.advance(seconds=24 * 3600)
    assert runner.run_due() == [Task.MATERIALIZE, Task.MERGE]

    assert runner.tallies()[Task.MATERIALIZE].result["fresh"] == 3
    assert runner.tallies()[Task.MERGE].result["partitions"] == 3
    assert len(timed_lake.list_partitions(str(DAILY))) == 1
    assert timed_lake.check().clean


def test_requested_work_is_carried_out_once_and_its_failure_is_reported(timed_lake: Lake) -> None:
    make_table(timed_lake.registry)
    make_view_over_orders(timed_lake)
    add_empty_hours(timed_lake, 0, 1)
    (asked,) = admin.request_materialization(timed_lake.registry, str(DAILY), insert_begin=_hour(0), insert_end=_hour(1))
    (rebuilt,) = admin.request_regeneration(timed_lake.registry, str(DAILY))
    runner = runner_of(timed_lake, lead(timed_lake))

    assert runner.run_requested() == 2
    assert runner.run_requested() == 0

    found = {run.run_id: run for run in list_runs(timed_lake.registry)}
    assert [(found[one.run_id].state, found[one.run_id].result["empty"]) for one in (asked, rebuilt)] == [("done", 1), ("done", 2)]
    assert runner.tallies()[REQUESTED].runs == 2
    assert timed_lake.check().clean


def _hour(number: int) -> datetime:
    return datetime(2026, 1, 1, number, tzinfo=UTC)


def test_requested_work_of_a_dead_service_is_taken_up_again_and_given_up_after_three_deaths(timed_lake: Lake, clock: FixedClock) -> None:
    make_table(timed_lake.registry)
    make_view_over_orders(timed_lake)
    admin.request_materialization(timed_lake.registry, str(DAILY))
    for _ in range(3):
        lease = lead(timed_lake)
        runner_of(timed_lake, lease)._settle_in(lease)
        (work,) = list_requested(timed_lake.registry, JOBS)
        assert begin_requested(timed_lake.registry, lease, work)
        assert list_requested(timed_lake.registry, JOBS) == []
        release_lease(timed_lake.registry, lease)
        clock.advance(seconds=1)

    assert runner_of(timed_lake, lead(timed_lake)).run_requested() == 1

    (run,) = list_runs(timed_lake.registry, job="materialize_partitions")
    assert run.state == "failed"
    assert "3 times" in run.result["error"]


@pytest.mark.parametrize("order", [(ORDERS, DAILY), (DAILY, ORDERS)])
def test_retention_is_per_table_and_one_bad_table_leaves_the_others_alone(timed_lake: Lake, clock: FixedClock, order: Any) -> None:
    for name in (ORDERS, DAILY):
        make_table(timed_lake.registry, name)
    write_partition(timed_lake, 1)
    good, bad = order
    timed_lake.tables.configure(str(good), retire_after="30d")
    timed_lake.registry.transact(lambda tx: set_properties(tx, bad, {"retire_after": "soon"}), tables=[bad])
    clock.advance(seconds=365 * 24 * 3600)
    runner = runner_of(timed_lake, lead(timed_lake), crons={Task.RETIRE_EXPIRED: "0 * * * *"})
    runner.run_due()
    clock.advance(seconds=3600)
    runner.run_due()

    (run,) = runs_of(timed_lake, "task/retire_expired")
    assert (run.state, run.result["problems"]) == ("failed", 1)
    assert "soon" in run.result["error"]
    assert run.result["non_empty"] == (1 if good == ORDERS else 0)
    assert timed_lake.table(str(ORDERS)).row.file_count == (0 if good == ORDERS else 1)
    assert timed_lake.check().clean


def test_a_retention_that_makes_no_sense_is_refused_when_it_is_set(timed_lake: Lake) -> None:
    make_table(timed_lake.registry)
    wrong: tuple[Any, ...] = ("soon", "-1d", 0, True, 1.5)
    for given in wrong:
        with pytest.raises(InvalidValueError, match="retire_after"):
            timed_lake.tables.configure(str(ORDERS), retire_after=given)


def test_upkeep_end_to_end_in_the_order_of_dependence(timed_lake: Lake, clock: FixedClock) -> None:
    """Partitions go before their files, and file rows with their footers only when the storage has let go."""
    make_table(timed_lake.registry)
    write_partition(timed_lake, 1, files=3)
    timed_lake.tables.configure(str(ORDERS), retire_after="7d")
    clock.advance(seconds=100 * 24 * 3600)
    crons = {Task.RETIRE_EXPIRED: "0 1 * * *", Task.CLEAN: "40 * * * *", Task.CHECK: "0 2 * * *"}
    runner = runner_of(timed_lake, lead(timed_lake), crons=crons)
    states = []
    for _ in range(3):
        runner.run_due()
        states.append((timed_lake.table(str(ORDERS)).row.file_count, len(timed_lake.files.list(str(ORDERS))), _queued(timed_lake)))
        clock.advance(seconds=25 * 3600)
    runner.run_due()

    assert states[0][0] == 3
    assert (states[1][0], states[1][2]) == (0, 3)
    assert _queued(timed_lake) == 0
    assert timed_lake.registry.query("SELECT count(*) FROM partition_metadata")[0][0] == 0
    assert timed_lake.check().clean


def _queued(lake: Lake) -> int:
    return int(lake.registry.query("SELECT count(*) FROM temporary_files")[0][0])


def test_a_stopped_runner_leaves_no_thread(lake: Lake) -> None:
    before = set(threading.enumerate())
    runner = runner_of(lake, lead(lake), crons={Task.CHECK: "* * * * * *"}, look_s=0.01)
    runner.start()
    _wait_until(lambda: runner.tallies()[Task.CHECK].runs > 0)
    assert runner.stop(10)
    assert {thread.name for thread in threading.enumerate() if thread not in before} == set()


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_times_in_the_status_are_those_of_the_registry(timed_lake: Lake, clock: FixedClock) -> None:
    runner = runner_of(timed_lake, lead(timed_lake), crons={Task.CHECK: "0 * * * *"})
    runner.run_due()
    clock.advance(seconds=3600)
    runner.run_due()
    assert runner.run_due() == []
    assert from_micros(runner.tallies()[Task.CHECK].succeeded_at or 0) == from_micros(clock.micros)


def test_what_is_stored_of_a_task_keeps_its_shape(timed_lake: Lake, clock: FixedClock) -> None:
    """Processes of other versions read it: never rename."""
    runner = runner_of(timed_lake, lead(timed_lake), crons={Task.CLEAN: "0 * * * *"})
    runner.run_due()
    window = clock.micros  # on the hour, which the jitter puts off
    clock.advance(seconds=3600)
    runner.run_due()

    ((value,),) = timed_lake.registry.query("SELECT value FROM astha_state WHERE key = 'schedule/clean'")
    (run,) = runs_of(timed_lake, "task/clean")

    assert json.loads(value) == {"window": window, "outcome": "done", "tries": 1, "succeeded_at": clock.micros}
    assert (run.plan, run.result) == ({"window": window, "try": 1}, {"deleted": 0, "bytes_freed": 0, "failed": 0})


def test_a_stop_is_heard_in_the_middle_of_a_task_and_one_that_does_not_listen_is_left_behind(lake: Lake) -> None:
    begun, release = threading.Event(), threading.Event()

    def listening(place: Workplace) -> Report:
        begun.set()
        _wait_until(place.cancelled)
        return Report(result={"cut": True})

    def deaf(_: Workplace) -> Report:
        begun.set()
        release.wait(30)
        return Report()

    for work, ends in ((listening, True), (deaf, False)):
        begun.clear()
        tasks = {**TASKS, Task.CHECK: work}
        runner = runner_of(lake, lead(lake), crons={Task.CHECK: "* * * * * *"}, look_s=0.01, tasks=tasks)
        runner.start()
        assert begun.wait(30)
        assert runner.stop(0.5 if not ends else 20) is ends
        _forget_lease(lake)
    assert runs_of(lake, "task/check")[0].state == "running"  # the next holder of the lease closes and repeats it
    release.set()
    assert runner.stop(20)


def _forget_lease(lake: Lake) -> None:
    with lake.registry.write() as tx:
        tx.run("DELETE FROM leases")
