"""What Astha writes down: cursors, dead letters and parked lanes in one transaction under its lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from recorders import COMPACTOR, ORCHESTRATOR, SNAPSHOTTER, UPDATER

from builders import ORDERS, count, fake_file, make_table, publish, within
from cursors import read_incarnation
from lakebed.core.errors import LeaseLostError
from lakebed.core.events import Component
from lakebed.registry.journal.changes import last_journal_numbers, purge_journal
from lakebed.registry.journal.cursors import (
    Position,
    Undelivered,
    list_dead_letters,
    list_parked,
    list_purgeable,
    read_cursors,
    read_lane_states,
    request_retry,
    save_progress,
    start_incarnation,
)
from lakebed.registry.journal.leases import Lease, acquire_lease
from lakebed.registry.tables.lake_tables import require_table

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry

TTL_US = 10_000_000


@pytest.fixture
def last(registry: Registry) -> int:
    publish(registry, make_table(registry), *[fake_file(n) for n in range(20)])
    return last_journal_numbers(registry)[1]


@pytest.fixture
def lease(registry: Registry) -> Lease:
    return acquire_lease(registry, "astha", owner="me")


def at(seq: int, component: Component = UPDATER, *, epoch: int = 0, needs_refresh: bool = False) -> Position:
    return Position(component=component, table_id=1, seq=seq, epoch=epoch, needs_refresh=needs_refresh)


def park(component: Component = UPDATER) -> Undelivered:
    return Undelivered(component=component, table_id=1, seq=5, attempts=30, error="SickError: no", parked=True)


@pytest.mark.usefixtures("last")
def test_all_lanes_are_saved_together(registry: Registry, lease: Lease) -> None:
    saved = save_progress(registry, lease, positions=[at(n + 1, c) for n, c in enumerate(Component)], ttl_us=TTL_US)

    assert saved.refused == {}
    assert sorted(c.seq for c in read_cursors(registry).values()) == [1, 2, 3, 4]


@pytest.mark.usefixtures("last")
def test_saving_renews_the_lease(registry: Registry, lease: Lease) -> None:
    saved = save_progress(registry, lease, positions=[], ttl_us=TTL_US * 100)

    ((stored,),) = registry.query("SELECT expires_at FROM leases WHERE name = 'astha'")
    assert stored == saved.lease.expires_at > lease.expires_at
    assert saved.lease.epoch == lease.epoch


def test_refused_positions_are_reported_and_the_others_are_saved(registry: Registry, lease: Lease, last: int) -> None:
    save_progress(registry, lease, positions=[at(9, epoch=3), at(9, COMPACTOR), at(9, SNAPSHOTTER)], ttl_us=TTL_US)

    saved = save_progress(
        registry, lease, positions=[at(10, epoch=2), at(8, COMPACTOR), at(10, SNAPSHOTTER), at(last + 1, ORCHESTRATOR)], ttl_us=TTL_US
    )

    assert set(saved.refused) == {(UPDATER, 1), (COMPACTOR, 1), (ORCHESTRATOR, 1)}
    assert {c: cursor.seq for (c, _), cursor in read_cursors(registry).items()} == {UPDATER: 9, COMPACTOR: 9, SNAPSHOTTER: 10}


@pytest.mark.usefixtures("last")
def test_a_dead_letter_is_written_with_the_cursor_that_passes_it_or_not_at_all(registry: Registry, lease: Lease) -> None:
    drop = Undelivered(component=UPDATER, table_id=1, seq=4, attempts=30, error="SickError: no")
    acquire_lease(registry, "other", owner="me")
    within(registry, lambda tx: tx.run("UPDATE leases SET epoch = epoch + 1 WHERE name = 'astha'"))
    with pytest.raises(LeaseLostError):
        save_progress(registry, lease, positions=[at(4)], drops=[drop], ttl_us=TTL_US)
    assert (read_cursors(registry), list_dead_letters(registry)) == ({}, [])

    within(registry, lambda tx: tx.run("UPDATE leases SET epoch = epoch - 1 WHERE name = 'astha'"))
    save_progress(registry, lease, positions=[at(4)], drops=[drop], ttl_us=TTL_US)

    assert read_cursors(registry)[UPDATER, 1].seq == 4
    assert [(letter.seq, letter.error) for letter in list_dead_letters(registry, table_id=1)] == [(4, "SickError: no")]
    assert list_dead_letters(registry, table_id=2) == []


@pytest.mark.usefixtures("last")
def test_parking_degrades_the_table_and_healing_the_last_lane_makes_it_well(registry: Registry, lease: Lease) -> None:
    save_progress(registry, lease, positions=[], drops=[park(UPDATER), park(COMPACTOR)], ttl_us=TTL_US)
    assert require_table(registry, ORDERS).row.state == "degraded"

    save_progress(registry, lease, positions=[], healed=[(UPDATER, 1)], ttl_us=TTL_US)
    assert require_table(registry, ORDERS).row.state == "degraded"
    save_progress(registry, lease, positions=[], healed=[(COMPACTOR, 1)], ttl_us=TTL_US)

    assert require_table(registry, ORDERS).row.state == "ok"
    assert list_parked(registry) == {}
    assert all(letter.resolved_at for letter in list_dead_letters(registry))


@pytest.mark.usefixtures("last")
def test_healing_a_lane_that_was_never_parked_leaves_the_table_as_it_is(registry: Registry, lease: Lease) -> None:
    within(registry, lambda tx: tx.run("UPDATE tables SET state = 'degraded'"))  # somebody else's finding

    save_progress(registry, lease, positions=[], healed=[(UPDATER, 1)], ttl_us=TTL_US)

    assert require_table(registry, ORDERS).row.state == "degraded"


@pytest.mark.usefixtures("last")
def test_a_retry_is_asked_for_only_where_a_lane_is_parked(registry: Registry, lease: Lease) -> None:
    assert not request_retry(registry, UPDATER, 1)
    save_progress(registry, lease, positions=[], drops=[park()], ttl_us=TTL_US)
    assert not list_parked(registry)[UPDATER, 1].retry

    assert request_retry(registry, UPDATER, 1)

    assert read_lane_states(registry).parked[UPDATER, 1].retry


def test_incarnations_are_counted_for_ever_and_only_under_the_lease(registry: Registry, lease: Lease) -> None:
    assert read_incarnation(registry) == 0
    assert [start_incarnation(registry, lease) for _ in range(3)] == [1, 2, 3]

    newer = Lease(name=lease.name, owner="x", epoch=lease.epoch + 1, expires_at=0)
    with pytest.raises(LeaseLostError):
        start_incarnation(registry, newer)

    assert read_incarnation(registry) == 3


def test_only_journals_with_something_to_purge_are_purged(registry: Registry, lease: Lease, last: int) -> None:
    assert list_purgeable(registry, cap=1000) == []  # nobody has read anything yet
    assert list_purgeable(registry, cap=10) == [1]  # but they may not hold it for ever

    save_progress(registry, lease, positions=[at(last, c) for c in Component], ttl_us=TTL_US)
    assert list_purgeable(registry, cap=1000) == [1]
    purge_journal(registry, 1)

    assert list_purgeable(registry, cap=1000) == []
    assert count(registry, "change_log") == 0
