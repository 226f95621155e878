"""One instance is active, the others stand by: hand-over at a stop, at a death, at a lost lease."""

from __future__ import annotations

import os
import signal
from itertools import count
from typing import TYPE_CHECKING

import astha_process
import pytest
from recorders import PATIENCE_S, UPDATER, Gate, await_that, recorders, running

from builders import fake_file, make_table, publish, within
from lakebed.core.errors import LeaseLostError
from lakebed.core.events import COMPONENT_SUBSCRIPTIONS, Component
from lakebed.registry.journal.changes import last_journal_numbers, read_changes
from lakebed.registry.journal.cursors import Position, read_cursors, save_progress
from lakebed.registry.journal.leases import acquire_lease, require_epoch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable


@pytest.fixture
def table(registry: Registry) -> LakeTable:
    return make_table(registry)


def expected(registry: Registry, component: Component, *, after: int) -> set[int]:
    return {e.sequence for e in read_changes(registry, 1, after=after, limit=100_000) if e.table in COMPONENT_SUBSCRIPTIONS[component]}


def test_a_second_instance_stands_by_and_takes_over(registry: Registry, another: Callable[[], Registry], table: LakeTable) -> None:
    other = another()
    first, second = recorders(registry), recorders(other)
    with running(registry, first, owner="one") as one, running(other, second, owner="two") as two:
        assert (one.is_active, two.is_active) == (True, False)
        publish(registry, table, fake_file(1))
        assert one.drain(PATIENCE_S)
        assert two.drain(PATIENCE_S)  # told by the saved cursors
        assert all(recorder.calls == [] for recorder in second.values())
        mark = last_journal_numbers(registry)[1]

        one.stop()
        publish(registry, table, fake_file(2))
        await_that(lambda: two.is_active, "the take-over")

        assert two.drain(PATIENCE_S)
        for component, recorder in second.items():
            assert recorder.refreshes == []
            assert set(recorder.sequences()) == expected(registry, component, after=mark)
        assert two.lease is not None
        within(registry, lambda tx: require_epoch(tx, two.lease))  # type: ignore[arg-type]


def test_an_instance_that_lost_its_lease_stops_at_once_and_stands_by(registry: Registry, table: LakeTable) -> None:
    components = recorders(registry, UPDATER)
    with running(registry, components) as astha:
        assert astha.drain(PATIENCE_S)
        within(registry, lambda tx: tx.run("UPDATE leases SET owner = 'thief', epoch = epoch + 1 WHERE name = 'astha'"))
        publish(registry, table, fake_file(1))
        await_that(lambda: not astha.is_active, "the loss to be noticed")
        assert astha.lease is None
        calls = len(components[UPDATER].calls)

        publish(registry, table, fake_file(2))
        if (incarnation := astha._incarnation) is not None:
            incarnation.delivery.see(last_journal_numbers(registry))
        assert len(components[UPDATER].calls) == calls

        within(registry, lambda tx: tx.run("UPDATE leases SET expires_at = 0 WHERE name = 'astha'"))
        await_that(lambda: astha.is_active, "the lease to come back")
        assert astha.drain(PATIENCE_S)
        assert not astha.status().down


def test_after_a_newer_epoch_nothing_is_saved_under_the_old_one(registry: Registry, table: LakeTable) -> None:
    publish(registry, table, fake_file(1))
    old = acquire_lease(registry, "astha", owner="frozen", ttl_us=0)
    acquire_lease(registry, "astha", owner="new")
    position = Position(component=UPDATER, table_id=1, seq=3, epoch=0)

    with pytest.raises(LeaseLostError):
        save_progress(registry, old, positions=[position], ttl_us=10)

    assert read_cursors(registry) == {}


def test_a_call_under_way_when_the_lease_is_lost_saves_nothing(registry: Registry, table: LakeTable) -> None:
    components, gate = recorders(registry, UPDATER), Gate()
    with running(registry, components) as astha:
        assert astha.drain(PATIENCE_S)
        await_that(lambda: read_cursors(registry), "the first save")
        before = read_cursors(registry)
        components[UPDATER].before_event = gate
        publish(registry, table, fake_file(1))
        assert gate.entered.wait(PATIENCE_S)
        within(registry, lambda tx: tx.run("UPDATE leases SET owner = 'thief', epoch = epoch + 1 WHERE name = 'astha'"))
        gate.opened.set()
        await_that(lambda: not astha.is_active, "the loss to be noticed")

        assert read_cursors(registry) == before


def killed_after(registry: Registry, url: str, log: Path, table: LakeTable, lines: int) -> None:
    process = astha_process.start(url, log)
    numbers = count()

    def is_far_enough() -> bool:
        """Another change each time: those that its first refresh has already seen have no line."""
        publish(registry, table, fake_file(next(numbers)))
        return len(astha_process.read_log(log)) >= lines

    try:
        for _ in range(8):
            publish(registry, table, fake_file(next(numbers)))
        await_that(is_far_enough, f"{lines} lines")
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("lines", [2, 9, 25])
def test_a_killed_instance_is_replaced_at_once_and_no_change_is_skipped(
    registry: Registry, url: str, table: LakeTable, tmp_path: Path, lines: int
) -> None:
    log = tmp_path / "log"
    killed_after(registry, url, log, table, lines)

    components = recorders(registry)
    with running(registry, components, owner="the next") as astha:  # its owner is dead, so its lease does not have to run out
        assert astha.is_active
        assert astha.drain(PATIENCE_S)

    for component, recorder in components.items():
        mine = [number for name, _, number in astha_process.read_log(log) if name == component.value]
        mark = max([-n for n in mine if n < 0] + [m for _, m in recorder.refreshes], default=0)
        seen = {n for n in mine if n > 0} | set(recorder.sequences())
        assert seen | {n for n in expected(registry, component, after=0) if n <= mark} == expected(registry, component, after=0)
        assert recorder.sequences() == sorted(set(recorder.sequences()))
        assert [n for n in mine if n > 0] == sorted({n for n in mine if n > 0})


def test_a_process_stands_by_for_another_and_takes_over_when_it_ends(
    registry: Registry, url: str, table: LakeTable, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    process = astha_process.start(url, log)
    components = recorders(registry, UPDATER)
    with running(registry, components) as astha:
        assert not astha.is_active
        publish(registry, table, fake_file(1))
        await_that(lambda: astha_process.read_log(log), "the other's log")
        astha_process.end(process)
        await_that(lambda: astha.is_active, "the take-over")

        assert astha.drain(PATIENCE_S)
