"""Rows put right one kind at a time; each says how many it changed, and changes nothing that was right."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builders import ORDERS, count, fake_file, logical_dump, make_table, publish, seal_pending, within
from lakebed.registry.files.footers import load_footer
from lakebed.registry.repair.captures import find_registered, replace_capture
from lakebed.registry.repair.journal import lower_horizon
from lakebed.registry.repair.rows import clear_empty, regroup
from retiring import retire_by_ids

if TYPE_CHECKING:
    from lakebed.core.files import NewFile
    from lakebed.registry.registry import Registry


def groups(registry: Registry) -> list[tuple[int | None, int | None]]:
    return [(row[0], row[1]) for row in registry.query("SELECT added_group, removed_group FROM table_files ORDER BY id")]


def last_groups(registry: Registry) -> list[int]:
    return [row[0] for row in registry.query("SELECT last_group FROM tables ORDER BY id")]


def regrouped(registry: Registry, *paths: str) -> int:
    return within(registry, lambda tx: regroup(tx, tx.require(ORDERS), paths))


def test_partitions_without_rows_are_cleared_and_counted(registry: Registry) -> None:
    table = make_table(registry)
    empty, full = publish(registry, table), publish(registry, table, fake_file(1))

    cleared = within(registry, lambda tx: clear_empty(tx, [empty.partition_id, full.partition_id]))

    assert cleared == 1
    assert count(registry, "partitions", "min_event_time IS NULL") == 1


def test_a_group_that_was_never_drawn_is_taken_from_its_file_and_no_other_table_notices(registry: Registry) -> None:
    table, other = make_table(registry), make_table(registry, type(ORDERS)("shop", "returns"))
    file = fake_file(1)
    publish(registry, table, file)
    publish(registry, other, fake_file(2))
    seal_pending(registry, other.name)
    within(registry, lambda tx: tx.run("UPDATE table_files SET added_group = 9 WHERE file_path = :path", {"path": file.path}))

    assert regrouped(registry, file.path) == 1

    assert groups(registry) == [(None, None), (1, None)]
    assert last_groups(registry) == [0, 1]
    assert regrouped(registry, file.path) == 0


def test_a_retired_file_that_iceberg_would_keep_leaves_with_a_new_group(registry: Registry) -> None:
    table, file = make_table(registry), fake_file(1)
    done = publish(registry, table, file)
    seal_pending(registry)
    within(registry, lambda tx: retire_by_ids(tx, ORDERS, {done.partition_id}))
    within(registry, lambda tx: tx.run("UPDATE table_files SET removed_group = NULL"))

    assert regrouped(registry, file.path) == 1

    (last,) = last_groups(registry)
    assert groups(registry) == [(1, last)]
    assert last > 1


@pytest.mark.parametrize(("beyond", "changed"), [(0, 0), (-1, 0), (5, 1)])
def test_only_a_horizon_beyond_the_journal_is_lowered(registry: Registry, beyond: int, changed: int) -> None:
    publish(registry, make_table(registry), fake_file(1))
    within(registry, lambda tx: tx.run("UPDATE table_seq SET horizon_seq = last_seq + :n", {"n": beyond}))

    assert lower_horizon(registry, 1) == changed

    assert registry.query("SELECT horizon_seq - last_seq FROM table_seq") == [(min(beyond, 0),)]


def test_a_horizon_below_zero_is_raised_to_the_beginning(registry: Registry) -> None:
    make_table(registry)
    within(registry, lambda tx: tx.run("UPDATE table_seq SET horizon_seq = -3"))

    assert lower_horizon(registry, 1) == 1

    assert registry.query("SELECT horizon_seq FROM table_seq") == [(0,)]


def captured_again(registry: Registry, file: NewFile) -> None:
    (registered,) = find_registered(registry, [file.path])
    within(registry, lambda tx: replace_capture(tx, registered, file))


def test_what_a_file_says_again_takes_the_place_of_what_was_lost(registry: Registry) -> None:
    file = fake_file(1)
    publish(registry, make_table(registry), file)
    before = logical_dump(registry, without=frozenset({"partition_metadata"}))
    within(
        registry,
        lambda tx: (tx.run("DELETE FROM partition_metadata"), tx.run("DELETE FROM file_columns"), tx.run("DELETE FROM file_ranges")),
    )

    captured_again(registry, file)

    assert file.footer is not None
    assert load_footer(registry, file.path) == file.footer.tail
    assert logical_dump(registry, without=frozenset({"partition_metadata"})) == before
