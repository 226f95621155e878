"""Rows that record what was done: maintenance runs and Iceberg snapshots."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from builders import ORDERS, logical_dump, make_table, within
from lakebed.core.errors import RunNotFoundError
from lakebed.registry.maintenance.runs import add_run, finish_run, list_runs
from lakebed.registry.snapshots.history import NewSnapshot, add_snapshot, expire_snapshots, list_snapshots

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry
    from lakebed.testing import FixedClock


def start(registry: Registry, job: str = "clean", *, running: bool = True) -> int:
    with registry.write() as tx:
        return add_run(tx, job, actor="ann", plan={"files": 3}, running=running)


def finish(registry: Registry, run_id: int, state: str = "done") -> None:
    with registry.write() as tx:
        finish_run(tx, run_id, state=state, result={"deleted": 2})


def test_a_run_is_written_down_before_and_after(timed_registry: Registry, clock: FixedClock) -> None:
    run_id = start(timed_registry)
    clock.advance(seconds=5)
    finish(timed_registry, run_id)

    (run,) = list_runs(timed_registry)
    assert (run.run_id, run.job, run.actor, run.state, run.plan, run.result) == (
        run_id,
        "clean",
        "ann",
        "done",
        {"files": 3},
        {"deleted": 2},
    )
    assert run.started_at == run.requested_at == datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert run.finished_at == datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC)


def test_a_requested_run_has_not_started(registry: Registry) -> None:
    start(registry, running=False)

    (run,) = list_runs(registry)
    assert (run.state, run.started_at, run.finished_at) == ("requested", None, None)


def test_a_run_ends_once(registry: Registry) -> None:
    run_id = start(registry)
    finish(registry, run_id, "failed")
    before = logical_dump(registry)

    with pytest.raises(RunNotFoundError, match=f"there is no open run {run_id}: list the runs"):
        finish(registry, run_id)

    assert logical_dump(registry) == before


def test_runs_are_listed_newest_first_and_by_job(registry: Registry) -> None:
    ids = [start(registry, job) for job in ("clean", "compact", "clean")]

    assert [r.run_id for r in list_runs(registry)] == ids[::-1]
    assert [r.run_id for r in list_runs(registry, job="clean")] == [ids[2], ids[0]]
    assert [r.run_id for r in list_runs(registry, limit=1)] == [ids[2]]


def a_snapshot(number: int) -> NewSnapshot:
    return NewSnapshot(
        snapshot_id=number, parent_id=number - 1 or None, sequence_number=number, group_no=number, timestamp_ms=1000 + number,
        manifest_list=f"list-{number}", metadata_location=f"v{number}.json", summary='{"added": "1"}', schema_id=0, operation="append",
        trigger="insert",
    )  # fmt: skip


def test_a_snapshot_is_recorded_once_with_all_its_facts(registry: Registry) -> None:
    table = make_table(registry)

    first = within(registry, lambda tx: add_snapshot(tx, ORDERS, a_snapshot(2**62)))
    again = within(registry, lambda tx: add_snapshot(tx, ORDERS, a_snapshot(2**62)))

    (row,) = list_snapshots(registry, table.table_id)
    assert (first, again) == (True, False)
    assert (row.snapshot_id, row.parent_id, row.manifest_list, row.summary) == (2**62, 2**62 - 1, f"list-{2**62}", '{"added": "1"}')


def test_an_expired_snapshot_is_listed_only_when_asked_for(registry: Registry) -> None:
    table = make_table(registry)
    for number in (1, 2, 3):
        within(registry, lambda tx, n=number: add_snapshot(tx, ORDERS, a_snapshot(n)))  # type: ignore[misc]

    assert within(registry, lambda tx: expire_snapshots(tx, ORDERS, [1, 2])) == 2
    assert within(registry, lambda tx: expire_snapshots(tx, ORDERS, [2, 99])) == 0

    assert [s.snapshot_id for s in list_snapshots(registry, table.table_id)] == [3]
    assert [s.snapshot_id for s in list_snapshots(registry, table.table_id, expired=True)] == [1, 2, 3]
