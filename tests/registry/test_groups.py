"""Groups: the numbered steps that make Iceberg a pure function of the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import (
    DAILY,
    ORDERS,
    fake_file,
    fresh_name,
    logical_dump,
    make_table,
    make_view,
    promote,
    publish,
    seal_pending,
    stage,
    within,
)
from lakebed.core.errors import InvalidValueError
from lakebed.registry.queries.listing import list_files, list_partitions
from lakebed.registry.tables.groups import allocate_group, list_files_at_group, plan_step, seal, set_committed_group
from lakebed.registry.tables.lake_tables import require_table
from retiring import retire_by_ids

if TYPE_CHECKING:
    from lakebed.core.names import TableName
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Transaction


def ids_at(registry: Registry, table_id: int, group: int) -> set[int]:
    return {f.id for f in list_files_at_group(registry, table_id, group)}


def last_group(registry: Registry, table_id: int) -> int:
    return int(registry.query("SELECT last_group FROM tables WHERE id = :id", {"id": table_id})[0][0])


def test_a_published_file_is_pending_until_it_is_sealed(registry: Registry) -> None:
    table = make_table(registry)
    done = [publish(registry, table, fake_file(n)).first_file_id for n in range(2)]
    assert ids_at(registry, table.table_id, 10) == set()

    assert seal_pending(registry) == 1

    assert ids_at(registry, table.table_id, 1) == set(done)
    assert ids_at(registry, table.table_id, 0) == set()


def test_sealing_without_pending_files_changes_nothing(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1))
    seal_pending(registry)
    before = logical_dump(registry)

    assert seal_pending(registry) is None

    assert logical_dump(registry) == before


def test_every_sealing_takes_the_next_group(registry: Registry) -> None:
    table = make_table(registry)
    groups = []
    for number in range(3):
        publish(registry, table, fake_file(number))
        groups.append(seal_pending(registry))

    assert groups == [1, 2, 3]
    assert [f.added_group for f in list_files(registry, table.table_id)] == groups


def test_files_of_a_staged_version_are_not_sealed(registry: Registry) -> None:
    view = make_view(registry)
    staged = stage(registry)
    publish(registry, view, fake_file(1), hours=(0, 1), schema_hash=staged)

    assert seal_pending(registry, DAILY) is None


def test_promotion_swaps_all_files_in_one_group(registry: Registry) -> None:
    view = make_view(registry)
    old = publish(registry, view, fake_file(1), hours=(0, 1)).first_file_id
    seal_pending(registry, DAILY)
    staged = stage(registry)
    new = publish(registry, view, fake_file(2), hours=(0, 1), schema_hash=staged).first_file_id

    group = promote(registry, staged)

    assert (ids_at(registry, view.table_id, group - 1), ids_at(registry, view.table_id, group)) == ({old}, {new})
    step = plan_step(registry, view.table_id, since=group - 1, until=group)
    assert (list(step.added), list(step.removed)) == ([new], [old])


def test_a_file_retired_after_promotion_left_iceberg_only_once(registry: Registry) -> None:
    view = make_view(registry)
    old = publish(registry, view, fake_file(1), hours=(0, 1))
    seal_pending(registry, DAILY)
    staged = stage(registry)
    group = promote(registry, staged)

    retired = within(registry, lambda tx: retire_by_ids(tx, DAILY, {old.partition_id}), DAILY)

    (row,) = list_files(registry, view.table_id, retired=True)
    assert (row.removed_group, retired.group) == (group, None)


def test_a_file_that_came_and_went_between_two_groups_is_in_neither_list(registry: Registry) -> None:
    table = make_table(registry)
    done = publish(registry, table, fake_file(1))
    seal_pending(registry)
    within(registry, lambda tx: retire_by_ids(tx, ORDERS, {done.partition_id}))

    step = plan_step(registry, table.table_id, since=0, until=2)

    assert (list(step.added), list(step.removed)) == ([], [])
    assert list(plan_step(registry, table.table_id, since=1, until=2).removed) == [done.first_file_id]


def test_a_step_is_a_rewrite_if_every_group_in_it_is_one(registry: Registry) -> None:
    table, other = make_table(registry), make_table(registry, fresh_name())
    for made in (table, other, other):
        publish(registry, made, fake_file(1))
        seal_pending(registry, made.name)

    compacted = within(registry, lambda tx: allocate_group(tx, tx.require(ORDERS), "compact"))
    within(registry, lambda tx: tx.run("UPDATE table_files SET removed_group = :g WHERE table_id = 1", {"g": compacted}))

    with registry.read() as reader:
        assert plan_step(reader, table.table_id, since=1, until=compacted).is_rewrite
        assert not plan_step(reader, table.table_id, since=0, until=compacted).is_rewrite
        assert not plan_step(reader, other.table_id, since=1, until=2).is_rewrite


def test_a_step_backwards_is_refused(registry: Registry) -> None:
    with pytest.raises(InvalidValueError, match="group 3 is after 1"):
        plan_step(registry, 1, since=3, until=1)


def test_the_committed_group_never_goes_back_nor_beyond_what_was_drawn(registry: Registry) -> None:
    table = make_table(registry)
    for number in range(2):
        publish(registry, table, fake_file(number))
        seal_pending(registry)
    within(registry, lambda tx: set_committed_group(tx, ORDERS, 2, snapshot_id=22))
    before = logical_dump(registry)

    within(registry, lambda tx: set_committed_group(tx, ORDERS, 1, snapshot_id=11))
    with pytest.raises(InvalidValueError, match=r"shop\.orders: group 3 was never allocated, the last one is 2"):
        within(registry, lambda tx: set_committed_group(tx, ORDERS, 3, snapshot_id=33))

    assert logical_dump(registry) == before


def test_a_seal_in_the_same_transaction_can_be_committed(registry: Registry) -> None:
    publish(registry, make_table(registry), fake_file(1))

    def both(tx: Transaction) -> None:
        set_committed_group(tx, ORDERS, seal(tx, ORDERS) or 0, snapshot_id=5)

    within(registry, both)

    assert registry.query("SELECT last_group, committed_group FROM tables") == [(1, 1)]


MOVES = st.lists(st.sampled_from(["publish", "seal", "retire", "swap", "keep"]), min_size=1, max_size=14)


def act(registry: Registry, name: TableName, move: str, number: int) -> None:
    """One move on a table; one that is not possible now is left out."""
    table = require_table(registry, name)
    live = list_partitions(registry, table.table_id)
    if move == "publish":
        publish(registry, table, fake_file(number), hours=(number, number + 1))
    elif move == "seal":
        seal_pending(registry, name)
    elif live and move == "retire":
        within(registry, lambda tx: retire_by_ids(tx, name, {live[0].partition_id}), name)
    elif live:
        first = live[0]
        files = [f.id for f in list_files(registry, table.table_id) if f.partition_id == first.partition_id]
        kept = frozenset(files[:1] if move == "keep" else [])
        publish(registry, table, fake_file(number), hours=(number, number + 1), replacing=frozenset({first.partition_id}), keeping=kept)


@settings(max_examples=20)
@given(moves=MOVES, cuts=st.lists(st.integers(0, 20), max_size=4))
def test_folding_steps_over_any_split_gives_what_iceberg_holds(registry: Registry, moves: list[str], cuts: list[int]) -> None:
    table = make_table(registry, fresh_name())
    for number, move in enumerate(moves):
        act(registry, table.name, move, number)
    last = last_group(registry, table.table_id)
    held: set[int] = set()
    at = 0

    for until in sorted({min(cut, last) for cut in cuts} | {last}):
        step = plan_step(registry, table.table_id, since=at, until=until)
        assert held >= set(step.removed)
        assert held.isdisjoint(step.added)
        held = (held - set(step.removed)) | set(step.added)
        at = until
        assert held == ids_at(registry, table.table_id, at)
