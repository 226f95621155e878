"""The orchestrator: the answer that a `sync` insert waits for."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from deliveries import Delivery

from builders import ORDERS, fake_file, make_table, publish, seal_pending, within
from lakebed.components.metadata_orchestrator import MetadataOrchestrator
from lakebed.core.errors import CommitTimeoutError
from lakebed.core.events import COMPONENT_SUBSCRIPTIONS, ChangeKind, Component, RegistryTable
from lakebed.core.rows import TableFiles, Tables
from lakebed.registry.journal.changes import last_journal_number, read_changes
from lakebed.registry.journal.leases import acquire_lease
from lakebed.registry.snapshots.waiting import Commits, wait_for_group
from lakebed.registry.tables.groups import set_committed_group
from serving import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable


@pytest.fixture
def table(registry: Registry) -> LakeTable:
    made = make_table(registry)
    publish(registry, made, fake_file(1))
    seal_pending(registry)
    return made


def start(registry: Registry, table: LakeTable) -> tuple[MetadataOrchestrator, Delivery]:
    orchestrator = MetadataOrchestrator(registry)
    return orchestrator, Delivery(registry, orchestrator, Component.METADATA_ORCHESTRATOR, table.table_id)


def groups_of(registry: Registry) -> list[int | None]:
    return [row[0] for row in registry.query("SELECT added_group FROM table_files ORDER BY id")]


def commit(registry: Registry, group: int, snapshot_id: int) -> None:
    within(registry, lambda tx: set_committed_group(tx, ORDERS, group, snapshot_id=snapshot_id))


def test_it_hears_of_exactly_its_two_tables(registry: Registry) -> None:
    assert MetadataOrchestrator(registry).get_subscribed_tables() == COMPONENT_SUBSCRIPTIONS[Component.METADATA_ORCHESTRATOR]


def test_waiting_for_what_is_committed_returns_its_snapshot_at_once(registry: Registry, table: LakeTable) -> None:
    commit(registry, 1, 77)
    orchestrator, _ = start(registry, table)
    assert orchestrator.wait_for_group(table.table_id, 1, timeout_s=0) == 77


def test_an_event_ends_the_wait_of_another_thread(registry: Registry, table: LakeTable) -> None:
    orchestrator, lane = start(registry, table)
    found: list[int | None] = []
    waiter = threading.Thread(target=lambda: found.append(orchestrator.wait_for_group(table.table_id, 1, timeout_s=30)))
    waiter.start()
    wait_until(lambda: orchestrator.waiting == 1)
    commit(registry, 1, 78)
    lane.deliver()
    waiter.join(30)
    assert (found, orchestrator.waiting) == ([78], 0)


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


def test_a_process_without_components_learns_that_no_process_publishes(registry: Registry, table: LakeTable) -> None:
    with pytest.raises(CommitTimeoutError, match="no process publishes"):
        wait_for_group(registry, table.table_id, 1, timeout_s=0.01)


def test_files_that_wait_while_a_commit_is_under_way_share_one_group(registry: Registry, table: LakeTable) -> None:
    """Group 1 waits for its commit; files that arrive meanwhile are sealed together when that commit has ended, by the first process that checks."""
    commits = Commits(registry, timeout_s=0)
    later = [publish(registry, table, fake_file(number)).file_ids for number in (2, 3, 4)]

    for file_ids in later:
        with pytest.raises(CommitTimeoutError, match="is at group 0, not 1"):
            commits.wait(table.table_id, file_ids)
    assert groups_of(registry) == [1, None, None, None]

    commit(registry, 1, 80)
    with pytest.raises(CommitTimeoutError, match="is at group 1, not 2"):
        commits.wait(table.table_id, later[2])
    assert groups_of(registry) == [1, 2, 2, 2]

    commit(registry, 2, 81)
    assert {done and (done.group, done.snapshot_id) for done in (commits.wait(table.table_id, file_ids) for file_ids in later)} == {(2, 81)}


def test_a_file_that_comes_while_nothing_is_under_way_is_sealed_at_once(registry: Registry, table: LakeTable) -> None:
    commit(registry, 1, 80)
    done = publish(registry, table, fake_file(2))

    with pytest.raises(CommitTimeoutError):
        Commits(registry, timeout_s=0).wait(table.table_id, done.file_ids)

    assert groups_of(registry) == [1, 2]


def test_what_a_wait_writes_to_the_registry_is_an_event_for_those_who_carry_it_out(registry: Registry, table: LakeTable) -> None:
    commit(registry, 1, 80)
    done = publish(registry, table, fake_file(2))
    with registry.read() as reader:
        before = last_journal_number(reader, table.table_id)

    with pytest.raises(CommitTimeoutError):
        Commits(registry, timeout_s=0).wait(table.table_id, done.file_ids)

    events = read_changes(registry, table.table_id, after=before)
    sealed = [event.data.added_group for event in events if isinstance(event.data, TableFiles) and event.operation is ChangeKind.UPDATE]
    counted = [event.data.last_group for event in events if isinstance(event.data, Tables)]
    assert (sealed, counted[-1]) == ([2], 2)
    assert RegistryTable.TABLE_FILES in COMPONENT_SUBSCRIPTIONS[Component.ICEBERG_UPDATER]
    assert RegistryTable.TABLES in COMPONENT_SUBSCRIPTIONS[Component.METADATA_ORCHESTRATOR]
