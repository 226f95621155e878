"""Earlier states of a table by the snapshots that Iceberg has, or had, of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builders import ORDERS, fake_file, make_table, publish, seal_pending, within
from lakebed.core.errors import SnapshotNotFoundError
from lakebed.registry.queries.plans import AtGroup
from lakebed.registry.queries.time_travel import go_back
from lakebed.registry.snapshots.history import NewSnapshot, add_snapshot, expire_snapshots

if TYPE_CHECKING:
    from lakebed.registry.queries.time_travel import Moment
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable

LEAST_ID = 1 << 40
MINUTE_MS = 60_000
NOON_MS = 1_772_366_400_000


def snapshot(number: int) -> NewSnapshot:
    """The `number`-th of its table, one per minute."""
    return NewSnapshot(
        snapshot_id=LEAST_ID + number,
        parent_id=None,
        sequence_number=number,
        group_no=number,
        timestamp_ms=NOON_MS + number * MINUTE_MS,
        manifest_list=f"/w/{number}.avro",
        metadata_location=f"/w/{number}.json",
        summary='{"lakebed.schema-version": "1"}',
        schema_id=0,
        operation="append",
        trigger="seal",
    )


@pytest.fixture
def table(registry: Registry) -> LakeTable:
    """With a file and a snapshot in each of three groups."""
    made = make_table(registry)
    for number in (1, 2, 3):
        publish(registry, made, fake_file(number))
        assert seal_pending(registry) == number
        within(registry, lambda tx, number=number: add_snapshot(tx, ORDERS, snapshot(number)))  # type: ignore[misc]
    return made


def at(registry: Registry, table: LakeTable, number: int) -> Moment:
    with registry.read() as reader:
        return go_back(reader, table, LEAST_ID + number)


def test_a_kept_snapshot_is_the_files_of_its_group(registry: Registry, table: LakeTable) -> None:
    assert [at(registry, table, number).at for number in (1, 2, 3)] == [AtGroup(1), AtGroup(2), AtGroup(3)]


@pytest.mark.parametrize(("expired", "nearest", "minute"), [([1], 2, "12:02"), ([1, 2], 3, "12:03"), ([3], 2, "12:02")])
def test_an_expired_snapshot_is_refused_with_the_nearest_in_time(
    registry: Registry, table: LakeTable, expired: list[int], nearest: int, minute: str
) -> None:
    within(registry, lambda tx: expire_snapshots(tx, ORDERS, [LEAST_ID + number for number in expired]))

    with pytest.raises(SnapshotNotFoundError, match=f"the nearest that is kept is {LEAST_ID + nearest} of 2026-03-01.{minute}") as caught:
        at(registry, table, expired[0])

    assert caught.value.nearest == LEAST_ID + nearest


def test_a_snapshot_that_never_was_is_refused_with_the_newest(registry: Registry, table: LakeTable) -> None:
    with pytest.raises(SnapshotNotFoundError) as caught:
        at(registry, table, 0)

    assert caught.value.nearest == LEAST_ID + 3


def test_without_any_snapshot_none_is_named(registry: Registry) -> None:
    with pytest.raises(SnapshotNotFoundError, match="it has none yet"):
        at(registry, make_table(registry), 1)
