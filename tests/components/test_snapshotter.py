"""The snapshotter: when pending files get their group, and which snapshots it wants gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from deliveries import Delivery
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import ORDERS, fake_file, fresh_name, make_table, publish, seal_pending, within
from lakebed.components.snapshotter import Snapshotter
from lakebed.core.events import COMPONENT_SUBSCRIPTIONS, Component
from lakebed.core.tables.snapshots import SnapshotRequests, parse_requests
from lakebed.registry.snapshots.history import NewSnapshot, add_snapshot, expire_snapshots
from lakebed.registry.snapshots.requests import change_requests, read_properties
from lakebed.registry.tables.groups import list_files_at_group, read_pending, require_group, seal_table
from lakebed.registry.tables.lake_tables import require_table
from lakebed.registry.tables.versions import set_properties
from retiring import retire_by_ids

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.testing import FixedClock


def start(registry: Registry, table: LakeTable, *, expires: bool = True) -> tuple[Snapshotter, Delivery]:
    snapshotter = Snapshotter(registry, expires=expires, pace_s=0, monotonic=lambda: registry.now() / 1e6)
    return snapshotter, Delivery(registry, snapshotter, Component.SNAPSHOTTER, table.table_id)


def configure(registry: Registry, **changes: Any) -> None:
    within(registry, lambda tx: set_properties(tx, ORDERS, changes))


def groups(registry: Registry, table: LakeTable) -> int:
    return require_table(registry, table.name).row.last_group


def requested(registry: Registry, table: LakeTable) -> SnapshotRequests:
    return parse_requests(read_properties(registry, table.table_id))


def take_snapshot(registry: Registry, table: LakeTable, number: int, *, at_us: int) -> None:
    snapshot = NewSnapshot(
        snapshot_id=number, parent_id=None, sequence_number=number, group_no=0, timestamp_ms=at_us // 1000, manifest_list="m",
        metadata_location="l", summary="{}", schema_id=0, operation="append", trigger="every_insert",
    )  # fmt: skip
    within(registry, lambda tx: add_snapshot(tx, table.name, snapshot), table.name)


def test_it_hears_of_exactly_its_three_tables(registry: Registry) -> None:
    assert Snapshotter(registry).get_subscribed_tables() == COMPONENT_SUBSCRIPTIONS[Component.SNAPSHOTTER]


def test_every_insert_is_sealed_and_a_burst_in_one_group(registry: Registry) -> None:
    table = make_table(registry)
    _, lane = start(registry, table)
    publish(registry, table, fake_file(1))
    lane.deliver()
    assert groups(registry, table) == 1

    for number in range(2, 7):
        publish(registry, table, fake_file(number))
    lane.deliver()

    assert groups(registry, table) == 2
    assert len(list_files_at_group(registry, table.table_id, 2)) == 6


def test_inserts_faster_than_the_pace_share_a_group(timed_registry: Registry, clock: FixedClock) -> None:
    table = make_table(timed_registry)
    snapshotter = Snapshotter(timed_registry, pace_s=0.2, monotonic=lambda: clock() / 1e6)
    lane = Delivery(timed_registry, snapshotter, Component.SNAPSHOTTER, table.table_id)
    for number in range(5):
        publish(timed_registry, table, fake_file(number))
        lane.deliver()
        snapshotter.tick()
    assert groups(timed_registry, table) == 1

    clock.advance(seconds=0.2)
    snapshotter.tick()

    assert groups(timed_registry, table) == 2
    assert read_pending(timed_registry, table.table_id).files == 0


def test_a_flush_does_not_wait_for_the_pace(timed_registry: Registry, clock: FixedClock) -> None:
    table = make_table(timed_registry)
    snapshotter = Snapshotter(timed_registry, monotonic=lambda: clock() / 1e6)
    lane = Delivery(timed_registry, snapshotter, Component.SNAPSHOTTER, table.table_id)
    for number in range(2):
        publish(timed_registry, table, fake_file(number))
        lane.deliver()

    assert snapshotter.flush()
    assert not snapshotter.flush()
    assert groups(timed_registry, table) == 2


def test_what_was_pending_before_it_started_is_sealed_at_the_start(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1))
    start(registry, table)
    assert groups(registry, table) == 1


@pytest.mark.parametrize(
    ("policy", "files"),
    [({"trigger": "files", "files": 3}, 3), ({"trigger": "rows", "rows": 250}, 3), ({"trigger": "bytes", "bytes": 60_000}, 3)],
)
def test_a_size_trigger_fires_at_the_first_file_that_crosses_it(registry: Registry, policy: dict[str, Any], files: int) -> None:
    table = make_table(registry)
    configure(registry, snapshot=policy)
    _, lane = start(registry, table)
    for number in range(1, files):
        publish(registry, table, fake_file(number))
        lane.deliver()
    assert groups(registry, table) == 0

    publish(registry, table, fake_file(files))
    lane.deliver()

    assert groups(registry, table) == 1
    assert read_pending(registry, table.table_id).files == 0


def test_time_fires_once_per_interval_and_only_with_pending_files(timed_registry: Registry, clock: FixedClock) -> None:
    table = make_table(timed_registry)
    configure(timed_registry, snapshot={"trigger": "time", "interval_s": 30})
    snapshotter, lane = start(timed_registry, table)
    publish(timed_registry, table, fake_file(1))
    lane.deliver()
    clock.advance(seconds=29)
    snapshotter.tick()
    assert groups(timed_registry, table) == 0

    clock.advance(seconds=1)
    snapshotter.tick()
    snapshotter.tick()
    assert groups(timed_registry, table) == 1

    clock.advance(seconds=300)
    lane.deliver()
    snapshotter.tick()
    assert groups(timed_registry, table) == 1


@pytest.mark.parametrize("trigger", ["manual", "query"])
def test_manual_and_query_tables_are_sealed_only_on_request(registry: Registry, trigger: str) -> None:
    table = make_table(registry)
    configure(registry, snapshot={"trigger": trigger})
    snapshotter, lane = start(registry, table)
    done = publish(registry, table, fake_file(1))
    lane.deliver()
    snapshotter.tick()
    assert groups(registry, table) == 0

    assert require_group(registry, table.table_id, done.file_ids) == 1
    assert seal_table(registry, table.table_id).group is None


def test_a_changed_policy_takes_effect_without_a_restart(registry: Registry) -> None:
    table = make_table(registry)
    configure(registry, snapshot={"trigger": "manual"})
    _, lane = start(registry, table)
    publish(registry, table, fake_file(1))
    lane.deliver()
    assert groups(registry, table) == 0

    configure(registry, snapshot={"trigger": "every_insert"})
    lane.deliver()

    assert groups(registry, table) == 1


def test_two_tables_follow_their_own_policies(registry: Registry) -> None:
    table, other = make_table(registry), make_table(registry, fresh_name())
    configure(registry, snapshot={"trigger": "manual"})
    snapshotter, lane = start(registry, table)
    second = Delivery(registry, snapshotter, Component.SNAPSHOTTER, other.table_id)
    publish(registry, table, fake_file(1))
    publish(registry, other, fake_file(2))
    lane.deliver()
    second.deliver()
    assert (groups(registry, table), groups(registry, other)) == (0, 1)


def test_a_file_retired_while_pending_no_longer_counts(registry: Registry) -> None:
    table = make_table(registry)
    configure(registry, snapshot={"trigger": "files", "files": 2})
    _, lane = start(registry, table)
    gone = publish(registry, table, fake_file(1))
    lane.deliver()
    within(registry, lambda tx: retire_by_ids(tx, ORDERS, {gone.partition_id}, reason="test"))
    publish(registry, table, fake_file(2))
    before = groups(registry, table)
    lane.deliver()
    assert groups(registry, table) == before


def test_files_that_another_process_sealed_are_subtracted(registry: Registry) -> None:
    table = make_table(registry)
    configure(registry, snapshot={"trigger": "files", "files": 2})
    _, lane = start(registry, table)
    publish(registry, table, fake_file(1))
    lane.deliver()
    seal_pending(registry)
    publish(registry, table, fake_file(2))
    lane.deliver()
    assert groups(registry, table) == 1


def test_redelivery_of_every_event_changes_nothing(registry: Registry) -> None:
    table = make_table(registry)
    _, lane = start(registry, table)
    for number in range(3):
        publish(registry, table, fake_file(number))
    lane.deliver()
    before = groups(registry, table)

    lane.position = 0
    lane.deliver()

    assert groups(registry, table) == before


def test_old_snapshots_are_requested_to_expire_and_tagged_ones_are_not(timed_registry: Registry, clock: FixedClock) -> None:
    table = make_table(timed_registry)
    snapshotter, lane = start(timed_registry, table)
    day = 86_400 * 1_000_000
    for number, days in enumerate([50, 45, 40], start=1):
        take_snapshot(timed_registry, table, number, at_us=clock() - days * day)
    change_requests(timed_registry, table.table_id, lambda _: SnapshotRequests(tags={"audit": 2}))
    take_snapshot(timed_registry, table, 4, at_us=clock())
    lane.deliver()

    clock.advance(seconds=120)
    snapshotter.tick()

    assert requested(timed_registry, table) == SnapshotRequests(expire=(1, 3), tags={"audit": 2})


def test_a_snapshot_that_a_person_expired_goes_with_those_of_the_retention(timed_registry: Registry, clock: FixedClock) -> None:
    table = make_table(timed_registry)
    snapshotter, lane = start(timed_registry, table)
    take_snapshot(timed_registry, table, 1, at_us=clock() - 60 * 86_400 * 1_000_000)
    take_snapshot(timed_registry, table, 2, at_us=clock() - 3_600_000_000)
    take_snapshot(timed_registry, table, 3, at_us=clock())
    lane.deliver()
    change_requests(timed_registry, table.table_id, lambda _: SnapshotRequests(expire=(2, 77)))  # 77 is gone already

    clock.advance(seconds=120)
    snapshotter.tick()

    assert requested(timed_registry, table).expire == (1, 2)


def test_what_was_expired_is_requested_no_more(timed_registry: Registry, clock: FixedClock) -> None:
    table = make_table(timed_registry)
    snapshotter, lane = start(timed_registry, table)
    take_snapshot(timed_registry, table, 1, at_us=clock() - 60 * 86_400 * 1_000_000)
    take_snapshot(timed_registry, table, 2, at_us=clock())
    lane.deliver()
    clock.advance(seconds=120)
    snapshotter.tick()
    assert requested(timed_registry, table).expire == (1,)
    before = require_table(timed_registry, table.name).metadata

    within(timed_registry, lambda tx: expire_snapshots(tx, table.name, [1]), table.name)
    lane.deliver()
    clock.advance(seconds=120)
    snapshotter.tick()

    assert require_table(timed_registry, table.name).metadata == before  # the wish stands, and asks for nothing more


def test_a_process_that_only_publishes_expires_nothing(timed_registry: Registry, clock: FixedClock) -> None:
    table = make_table(timed_registry)
    snapshotter, lane = start(timed_registry, table, expires=False)
    take_snapshot(timed_registry, table, 1, at_us=clock() - 400 * 86_400 * 1_000_000)
    take_snapshot(timed_registry, table, 2, at_us=clock())
    clock.advance(seconds=120)
    lane.deliver()
    snapshotter.tick()
    assert requested(timed_registry, table) == SnapshotRequests()


@settings(max_examples=25)
@given(steps=st.lists(st.sampled_from(["insert", "deliver", "seal", "restart", "redeliver"]), max_size=15))
def test_whatever_the_order_a_delivered_insert_has_its_group(registry: Registry, steps: list[str]) -> None:
    table = make_table(registry, fresh_name())
    _, lane = start(registry, table)
    for number, step in enumerate(steps):
        match step:
            case "insert":
                publish(registry, table, fake_file(number))
            case "deliver":
                lane.deliver()
            case "seal":
                seal_pending(registry, table.name)
            case "restart":
                _, lane = start(registry, table)
            case _:
                lane.position = 0
    lane.deliver()
    assert read_pending(registry, table.table_id).files == 0
