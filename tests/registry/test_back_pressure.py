"""Back pressure is asked of the registry: a long queue holds a writer back exactly while a live process works on it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from builders import ORDERS, fake_file, make_table, publish, seal_pending, within
from lakebed.core.errors import BackPressureError, ForeignCommitError
from lakebed.core.events import Component
from lakebed.core.names import TableName
from lakebed.core.tables.snapshots import BackPressure
from lakebed.registry.journal.cursors import Undelivered, save_progress
from lakebed.registry.journal.leases import acquire_lease, release_lease
from lakebed.registry.snapshots.foreign import clear_stop, record_stop
from lakebed.registry.snapshots.pressure import wait_for_room
from lakebed.registry.tables.groups import set_committed_group

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.registry.journal.leases import Lease
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable

AT_ONCE = BackPressure(backlog=2, timeout_s=0)
PATIENT = BackPressure(backlog=2, timeout_s=60)


@pytest.fixture
def table(registry: Registry) -> LakeTable:
    """Three groups wait, one more than writers may leave behind them."""
    made = make_table(registry)
    for number in range(3):
        publish(registry, made, fake_file(number))
        seal_pending(registry)
    registry.back_pressure = AT_ONCE
    return made


@pytest.fixture
def lease(registry: Registry) -> Lease:
    """A process of another host publishes."""
    return acquire_lease(registry, "astha", owner="elsewhere/1/service")


def commit(registry: Registry, group: int) -> None:
    within(registry, lambda tx: set_committed_group(tx, ORDERS, group, snapshot_id=group))


@pytest.mark.usefixtures("lease")
def test_a_long_queue_refuses_a_writer_until_a_commit_shortens_it(registry: Registry, table: LakeTable) -> None:
    with pytest.raises(BackPressureError, match=r"shop\.orders: 3 groups .* nothing was written; try later") as caught:
        wait_for_room(registry, table.table_id)
    assert (caught.value.table, caught.value.backlog, caught.value.limit) == ("shop.orders", 3, 2)

    commit(registry, 1)
    wait_for_room(registry, table.table_id)


@pytest.mark.usefixtures("lease")
def test_a_long_queue_of_one_table_holds_no_other_back(registry: Registry, table: LakeTable) -> None:
    other = make_table(registry, TableName("shop", "returns"))

    wait_for_room(registry, other.table_id)

    with pytest.raises(BackPressureError):
        wait_for_room(registry, table.table_id)


def test_no_writer_is_held_back_without_a_publisher(registry: Registry, table: LakeTable) -> None:
    """The queue would only be shortened by a process that the writer cannot start."""
    wait_for_room(registry, table.table_id)

    release_lease(registry, acquire_lease(registry, "astha", owner="elsewhere/1/service"))
    wait_for_room(registry, table.table_id)


def test_a_stopped_table_holds_no_writer_back(registry: Registry, table: LakeTable, lease: Lease) -> None:
    stop = ForeignCommitError(str(ORDERS), snapshot_id=7, location="v1.json")
    within(registry, lambda tx: record_stop(tx, ORDERS, stop))
    wait_for_room(registry, table.table_id)

    within(registry, lambda tx: clear_stop(tx, ORDERS))
    with pytest.raises(BackPressureError):
        wait_for_room(registry, table.table_id)
    release_lease(registry, lease)


def test_a_parked_table_holds_no_writer_back(registry: Registry, table: LakeTable, lease: Lease) -> None:
    drop = Undelivered(component=Component.ICEBERG_UPDATER, table_id=table.table_id, seq=1, attempts=30, error="broken", parked=True)
    save_progress(registry, lease, positions=(), drops=[drop], ttl_us=10_000_000)
    wait_for_room(registry, table.table_id)

    save_progress(registry, lease, positions=(), healed=[(Component.ICEBERG_UPDATER, table.table_id)], ttl_us=10_000_000)
    with pytest.raises(BackPressureError):
        wait_for_room(registry, table.table_id)


def hold_back(registry: Registry, table: LakeTable) -> threading.Thread:
    registry.back_pressure = PATIENT
    writer = threading.Thread(target=wait_for_room, args=(registry, table.table_id))
    writer.start()
    return writer


@pytest.mark.usefixtures("lease")
def test_a_commit_of_another_process_lets_a_waiting_writer_go_on(
    registry: Registry, table: LakeTable, another: Callable[[], Registry]
) -> None:
    writer = hold_back(registry, table)

    commit(another(), 1)

    writer.join(30)
    assert not writer.is_alive()


def test_a_publisher_that_ends_lets_a_waiting_writer_go_on(
    registry: Registry, table: LakeTable, lease: Lease, another: Callable[[], Registry]
) -> None:
    writer = hold_back(registry, table)

    release_lease(another(), lease)

    writer.join(30)
    assert not writer.is_alive()
