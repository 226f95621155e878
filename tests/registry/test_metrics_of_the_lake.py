"""Figures for those who watch: every one of them moves when its rows do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from builders import ORDERS, fake_file, make_table, op_id, publish, seal_pending, within
from lakebed.core.names import TableName
from lakebed.registry.files.deletion_queue import claim_expired, release_failed
from lakebed.registry.files.operations import Operation, open_operation
from lakebed.registry.maintenance.runs import add_run
from lakebed.registry.queries.metrics import LakeMetrics, TableMetrics, read_metrics
from retiring import retire_by_ids

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry
    from lakebed.testing import FixedClock

LARGE = 1 << 30
EMPTY = LakeMetrics(
    tables=(),
    queued_files=0,
    queued_bytes=0,
    queued_expired=0,
    queued_failed=0,
    open_operations=0,
    dead_operations=0,
    dead_letters={},
    requested_runs=0,
)
IDLE = TableMetrics(table=str(ORDERS), rows=0, files=0, size_bytes=0, small_files=0, groups_behind=0, waiting_s=0.0, degraded=False)


def test_an_empty_lake_is_all_zeros(registry: Registry) -> None:
    assert read_metrics(registry) == EMPTY


def test_each_table_shows_what_it_holds_and_how_long_its_oldest_file_waits(timed_registry: Registry, clock: FixedClock) -> None:
    table = make_table(timed_registry)
    make_table(timed_registry, TableName("shop", "returns"))
    publish(timed_registry, table, fake_file(1), fake_file(2, size_bytes=LARGE))
    clock.advance(seconds=30)
    publish(timed_registry, table, fake_file(3, rows=7))

    orders, returns = read_metrics(timed_registry).tables

    assert orders == replace(IDLE, rows=207, files=3, size_bytes=LARGE + 40_000, small_files=2, waiting_s=30.0)
    assert returns == replace(IDLE, table="shop.returns")


def test_a_sealed_group_waits_until_it_is_committed(timed_registry: Registry, clock: FixedClock) -> None:
    publish(timed_registry, make_table(timed_registry), fake_file(1))
    seal_pending(timed_registry)
    clock.advance(seconds=5)

    (behind,) = read_metrics(timed_registry).tables
    within(timed_registry, lambda tx: tx.run("UPDATE tables SET committed_group = last_group, state = 'degraded'"))
    (done,) = read_metrics(timed_registry).tables

    assert (behind.groups_behind, behind.waiting_s, behind.degraded) == (1, 5.0, False)
    assert (done.groups_behind, done.waiting_s, done.degraded) == (0, 0.0, True)


def test_the_queue_is_summed_with_what_is_due_and_what_storage_refused(timed_registry: Registry, clock: FixedClock) -> None:
    table = make_table(timed_registry)
    done = [publish(timed_registry, table, fake_file(number)) for number in range(3)]
    for one, grace_us in zip(done, (0, 0, 10_000_000), strict=True):
        within(timed_registry, lambda tx, one=one, grace_us=grace_us: retire_by_ids(tx, ORDERS, {one.partition_id}, grace_us=grace_us))  # type: ignore[misc]
    clock.advance(seconds=1)
    claim = claim_expired(timed_registry)
    release_failed(timed_registry, claim, [claim.files[0].path])

    assert read_metrics(timed_registry) == replace(
        EMPTY, tables=(IDLE,), queued_files=3, queued_bytes=60_000, queued_expired=2, queued_failed=1
    )


def test_open_and_dead_operations_and_requested_runs_are_counted(timed_registry: Registry, clock: FixedClock) -> None:
    make_table(timed_registry)
    for lease_us in (1_000_000, 9_000_000):
        open_operation(timed_registry, ORDERS, Operation(op_id=op_id(), has_intent=True, staging_path="/w/x"), lease_us=lease_us)
    within(timed_registry, lambda tx: [add_run(tx, "clean", actor="ann", plan={}, running=running) for running in (True, False)])
    clock.advance(seconds=2)

    assert read_metrics(timed_registry) == replace(EMPTY, tables=(IDLE,), open_operations=2, dead_operations=1, requested_runs=1)
