"""The orchestrator: the answer that a `sync` insert waits for."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from deliveries import Delivery

from builders import ORDERS, fake_file, make_table, publish, seal_pending, within
from lakebed.components.metadata_orchestrator import MetadataOrchestrator
from lakebed.core.errors import CommitTimeoutError
from lakebed.core.events import SUBSCRIPTIONS, Component
from lakebed.registry.groups import set_committed_group
from lakebed.registry.leases import acquire_lease
from lakebed.registry.waiting import wait_for_group

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.registry.engine import Registry
    from lakebed.registry.lake_tables import LakeTable


@pytest.fixture
def table(registry: Registry) -> LakeTable:
    made = make_table(registry)
    publish(registry, made, fake_file(1))
    seal_pending(registry)
    return made


def start(registry: Registry, table: LakeTable) -> tuple[MetadataOrchestrator, Delivery]:
    orchestrator = MetadataOrchestrator(registry)
    return orchestrator, Delivery(registry, orchestrator, Component.METADATA_ORCHESTRATOR, table.table_id)


def commit(registry: Registry, group: int, snapshot_id: int) -> None:
    within(registry, lambda tx: set_committed_group(tx, ORDERS, group, snapshot_id=snapshot_id))


def test_it_hears_of_exactly_its_two_tables(registry: Registry) -> None:
    assert MetadataOrchestrator(registry).get_subscribed_tables() == SUBSCRIPTIONS[Component.METADATA_ORCHESTRATOR]


def test_waiting_for_what_is_committed_returns_its_snapshot_at_once(registry: Registry, table: LakeTable) -> None:
    commit(registry, 1, 77)
    orchestrator, _ = start(registry, table)
    assert orchestrator.wait_for_group(table.table_id, 1, timeout_s=0) == 77


def test_an_event_ends_the_wait_of_another_thread(registry: Registry, table: LakeTable) -> None:
    orchestrator, lane = start(registry, table)
    found: list[int | None] = []
    waiter = threading.Thread(target=lambda: found.append(orchestrator.wait_for_group(table.table_id, 1, timeout_s=30)))
    waiter.start()
    commit(registry, 1, 78)
    lane.deliver()
    waiter.join(30)
    assert found == [78]


def test_a_wait_that_is_too_long_names_who_publishes(registry: Registry, table: LakeTable) -> None:
    acquire_lease(registry, "astha", owner="elsewhere/1/service")
    orchestrator, _ = start(registry, table)
    with pytest.raises(CommitTimeoutError, match="elsewhere/1/service") as caught:
        orchestrator.wait_for_group(table.table_id, 1, timeout_s=0.01)
    assert (caught.value.group, caught.value.committed) == (1, 0)


def test_a_process_without_components_waits_for_another_that_commits(
    registry: Registry, table: LakeTable, another: Callable[[], Registry]
) -> None:
    second = another()
    found: list[int | None] = []
    waiter = threading.Thread(target=lambda: found.append(wait_for_group(registry, table.table_id, 1, timeout_s=30)))
    waiter.start()
    commit(second, 1, 79)
    waiter.join(30)
    assert found == [79]


def test_a_process_without_components_is_told_that_nobody_publishes(registry: Registry, table: LakeTable) -> None:
    with pytest.raises(CommitTimeoutError, match="no process publishes"):
        wait_for_group(registry, table.table_id, 1, timeout_s=0.01)
