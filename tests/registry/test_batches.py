"""Batches of a stream: in order, from one checkpoint; others are registered once in any order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from builders import ORDERS, count, fake_file, logical_dump, make_table, new_partition, op_id
from lakebed.core.errors import AnotherCheckpointError
from lakebed.registry.files.batches import Batch, find_registered
from lakebed.registry.files.operations import Operation, open_operation
from lakebed.registry.partitions.publish import Published, publish_partition

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable


@pytest.fixture
def table(registry: Registry) -> LakeTable:
    return make_table(registry)


def streamed(batch_id: int, query_id: str | None = "first") -> Batch:
    return Batch(app_id="app", batch_id=batch_id, is_streamed=True, query_id=query_id)


def register(registry: Registry, table: LakeTable, batch: Batch, *, has_intent: bool = False) -> Published:
    operation = Operation(op_id=op_id(), has_intent=has_intent).with_batch(batch)
    if has_intent:
        open_operation(registry, ORDERS, operation)
    return publish_partition(registry, new_partition(table, fake_file(batch.batch_id)), operation)


@pytest.mark.parametrize("has_intent", [False, True])
@pytest.mark.parametrize("query_id", ["first", "second", None])
def test_a_batch_older_than_the_newest_is_refused(registry: Registry, table: LakeTable, query_id: str | None, *, has_intent: bool) -> None:
    """Spark repeats no batch but its newest: an older one was counted by another checkpoint."""
    for number in (0, 1):
        register(registry, table, streamed(number), has_intent=has_intent)

    with pytest.raises(AnotherCheckpointError, match=r"start over under a new app_id: lake.foreach_batch\(.shop.orders., .app-2.\)"):
        register(registry, table, streamed(0, query_id))

    assert count(registry, "partitions") == 2


@pytest.mark.parametrize(("was", "now"), [("first", "first"), ("first", None), (None, "first"), (None, None)])
def test_the_newest_batch_again_gets_the_first_answer(registry: Registry, table: LakeTable, was: str | None, now: str | None) -> None:
    register(registry, table, streamed(3, was))
    first = register(registry, table, streamed(4, was))

    assert register(registry, table, streamed(4, now)) == first

    assert count(registry, "partitions") == 2


def test_the_newest_batch_of_another_query_is_refused(registry: Registry, table: LakeTable) -> None:
    register(registry, table, streamed(0))
    before = logical_dump(registry)

    with pytest.raises(AnotherCheckpointError, match="registered for another query id") as caught:
        register(registry, table, streamed(0, "second"))

    assert (caught.value.app_id, caught.value.batch_id, caught.value.newest) == ("app", 0, 0)
    assert logical_dump(registry) == before


def test_a_batch_from_before_ids_were_stored_gets_the_id_of_its_replay(registry: Registry, table: LakeTable) -> None:
    register(registry, table, streamed(0, None))
    first = register(registry, table, streamed(0))

    with pytest.raises(AnotherCheckpointError):
        register(registry, table, streamed(0, "second"))
    assert register(registry, table, streamed(0)) == first


def test_newer_batches_are_new_and_may_leave_gaps(registry: Registry, table: LakeTable) -> None:
    for number in (0, 1, 7):
        register(registry, table, streamed(number))

    assert count(registry, "partitions") == 3


def test_batches_without_a_stream_come_in_any_order_and_once(registry: Registry, table: LakeTable) -> None:
    plain = [Batch(app_id="app", batch_id=number) for number in (5, 2, 9)]
    first = [register(registry, table, batch) for batch in plain]

    assert [register(registry, table, batch) for batch in plain] == first

    assert count(registry, "partitions") == 3


def test_other_tables_and_other_applications_count_for_themselves(registry: Registry, table: LakeTable) -> None:
    register(registry, table, streamed(5))
    other = Batch(app_id="app-2", batch_id=0, is_streamed=True, query_id="second")

    register(registry, table, other)

    assert find_registered(registry, ORDERS, table.table_id, other) is not None
    assert find_registered(registry, ORDERS, table.table_id + 1, streamed(0)) is None


def test_of_batches_that_meet_no_older_one_follows_a_newer(registry: Registry, table: LakeTable) -> None:
    """The comparison is made under the table's lock."""

    def attempt(number: int) -> tuple[int, int] | None:
        try:
            done = register(registry, table, streamed(number, f"query {number}"), has_intent=True)
        except AnotherCheckpointError:
            return None
        return done.journal_number, number

    with ThreadPoolExecutor(6) as pool:
        done = sorted(filter(None, pool.map(attempt, range(12))))

    assert [number for _, number in done] == sorted(number for _, number in done)
    assert done[-1][1] == 11
    assert count(registry, "partitions") == len(done)
