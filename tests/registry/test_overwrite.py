"""Overwriting partition paths: what was seen goes, what came meanwhile stays, and the writer that lost gets an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builders import ORDERS, count, fake_file, insert_hours, logical_dump, make_table, make_view, publish, within
from lakebed.core.errors import VictimsChangedError
from lakebed.registry.journal.changes import last_journal_number
from lakebed.registry.partitions.replace import list_visible_partitions, retire_in_paths
from lakebed.registry.queries.listing import list_files, list_partitions
from retiring import retire_by_ids

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable

RED, BLUE = "colour=red", "colour=blue"


def overwrite(registry: Registry, table: LakeTable, number: int, *, since: int) -> None:
    """One new file takes the place of the red ones."""
    publish(registry, table, fake_file(number, partition_path=RED), retire_also=retire_in_paths([RED], since=since, instance="global"))


def live(registry: Registry, table: LakeTable) -> list[str]:
    return sorted(file.file_name for file in list_files(registry, table.table_id))


def names_of(*numbers: int) -> list[str]:
    return sorted(fake_file(number).path.rpartition("/")[2] for number in numbers)


def test_only_the_named_paths_go_and_other_files_keep_their_slice(registry: Registry) -> None:
    table = make_table(registry)
    old = publish(registry, table, fake_file(1, partition_path=RED), fake_file(2, partition_path=BLUE, rows=7), hours=(0, 1))

    overwrite(registry, table, 3, since=last_journal_number(registry, table.table_id))

    assert live(registry, table) == names_of(2, 3)
    kept = next(row for row in list_partitions(registry, table.table_id) if row.num_rows == 7)
    ((begin, end),) = registry.query("SELECT begin_insert_time, end_insert_time FROM partitions WHERE id = :id", {"id": kept.partition_id})
    assert (begin, end) == (insert_hours(0, 1).begin, insert_hours(0, 1).end)
    assert (kept.file_count, kept.partition_id != old.partition_id) == (1, True)
    assert count(registry, "temporary_files") == 1


def test_a_file_of_the_very_number_that_was_seen_goes_and_a_later_one_stays(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1, partition_path=RED))
    ((seen,),) = registry.query("SELECT added_seq FROM table_files")
    publish(registry, table, fake_file(2, partition_path=RED))

    overwrite(registry, table, 3, since=seen)

    assert live(registry, table) == names_of(2, 3)


def test_a_file_that_went_meanwhile_is_a_conflict_and_nothing_changes(registry: Registry) -> None:
    table = make_table(registry)
    published = publish(registry, table, fake_file(1, partition_path=RED))
    since = last_journal_number(registry, table.table_id)
    within(registry, lambda tx: retire_by_ids(tx, ORDERS, {published.partition_id}))
    before = logical_dump(registry)

    with pytest.raises(VictimsChangedError):
        overwrite(registry, table, 2, since=since)

    assert logical_dump(registry) == before


def test_a_file_that_went_before_is_not_missed(registry: Registry) -> None:
    table = make_table(registry)
    published = publish(registry, table, fake_file(1, partition_path=RED))
    within(registry, lambda tx: retire_by_ids(tx, ORDERS, {published.partition_id}))
    ((gone_at,),) = registry.query("SELECT retired_seq FROM table_files")

    overwrite(registry, table, 2, since=gone_at)

    assert live(registry, table) == names_of(2)


def test_other_instances_and_other_tables_are_left_alone(registry: Registry) -> None:
    table, view = make_table(registry), make_view(registry)
    publish(registry, table, fake_file(1, partition_path=RED))
    publish(registry, table, fake_file(4, partition_path=RED), hours=(0, 1), instance="tenant")
    publish(registry, view, fake_file(2, partition_path=RED), hours=(0, 1), instance="tenant")

    overwrite(registry, table, 3, since=last_journal_number(registry, table.table_id))

    assert live(registry, table) == names_of(3, 4)
    assert live(registry, view) == names_of(2)
    assert list_visible_partitions(registry, view.table_id, instance="global") == frozenset()
    assert len(list_visible_partitions(registry, view.table_id, instance="tenant")) == 1
