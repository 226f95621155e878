"""Dropping a table and giving up snapshots: previewed, capped, written down, and nothing is left behind."""

from __future__ import annotations

import os
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.exceptions import NoSuchTableError

from builders import ORDERS, logical_dump, make_table, write_partition
from lakebed import admin
from lakebed.core.errors import InvalidValueError, SnapshotNotFoundError, TableNotFoundError, TooManyPartitionsError
from lakebed.iceberg.catalog import open_catalog
from lakebed.iceberg.upkeep.dropping import forget_dropped, forget_table
from lakebed.registry.maintenance.runs import list_runs

if TYPE_CHECKING:
    from lakebed.lake import Lake
    from lakebed.testing import FixedClock

NAME = str(ORDERS)
DAY = 24 * 3600


@pytest.fixture
def published(timed_lake: Lake, clock: FixedClock) -> Lake:
    """Three inserts, each an hour after the other, each a snapshot."""
    make_table(timed_lake.registry)
    for number in range(3):
        write_partition(timed_lake, number)
        with timed_lake.service():
            timed_lake.snapshot(NAME)
        clock.advance(seconds=3600)
    return timed_lake


def test_a_dropped_table_is_gone_everywhere_and_its_files_go_after_their_grace(published: Lake, clock: FixedClock) -> None:
    paths = [Path(row.file_path) for row in published.files.list(NAME)]
    planned = published.tables.drop(NAME)
    assert (planned.dry_run, planned.non_empty, planned.rows, planned.files) == (True, 3, 150, 3)

    done = published.tables.drop(NAME, dry_run=False)

    assert (done.partitions, done.files, done.bytes_scheduled) == (3, 3, planned.bytes_scheduled)
    assert published.tables.list() == []
    with pytest.raises(TableNotFoundError):
        published.table(NAME)
    with closing(open_catalog(published.registry, published.storage)) as catalog, pytest.raises(NoSuchTableError):
        catalog.load_table(NAME)
    assert published.delete_expired_temporary_files().deleted == 0
    assert all(path.exists() for path in paths)
    clock.advance(seconds=DAY + 1)
    assert published.delete_expired_temporary_files().deleted >= 3
    assert not any(path.exists() for path in paths)
    assert published.check().clean


def test_a_drop_is_written_down_with_who_asked(published: Lake) -> None:
    done = published.tables.drop(NAME, dry_run=False, actor="ann")

    (run,) = list_runs(published.registry, job="drop_table")

    assert (run.run_id, run.actor, run.state, run.result["files"]) == (done.run_id, "ann", "done", 3)


def test_the_name_of_a_dropped_table_can_be_used_again(published: Lake) -> None:
    published.tables.drop(NAME, dry_run=False)
    make_table(published.registry)
    write_partition(published, 7)

    with published.service():
        snapshot_id = published.snapshot(NAME)

    assert [(row.snapshot_id, row.rows) for row in published.snapshots(NAME)] == [(snapshot_id, 50)]
    assert not forget_table(published.registry, published.storage, ORDERS, 1)  # the pointer is the new table's
    assert published.check().clean


def test_a_drop_that_was_killed_before_the_catalog_forgot_is_ended_later(published: Lake) -> None:
    admin.drop_table(published.registry, NAME, dry_run=False)

    assert forget_dropped(published.registry, published.storage) == 1

    with closing(open_catalog(published.registry, published.storage)) as catalog, pytest.raises(NoSuchTableError):
        catalog.load_table(NAME)
    assert forget_dropped(published.registry, published.storage) == 0


def test_metadata_of_a_dropped_table_goes_once_its_files_are_gone(published: Lake, clock: FixedClock) -> None:
    published.tables.drop(NAME, dry_run=False)
    metadata = list(Path(published.storage.paths.root).rglob("*metadata.json"))
    os.utime(metadata[0], (0, 0))
    assert not published.files.sweep_orphans().orphans  # whoever opened the table before may read on

    clock.advance(seconds=DAY + 1)
    published.delete_expired_temporary_files()

    assert [orphan.path for orphan in published.files.sweep_orphans().orphans] == [str(metadata[0])]
    assert published.check().clean


def test_a_preview_and_a_refused_drop_change_nothing(published: Lake) -> None:
    before = logical_dump(published.registry)

    published.tables.drop(NAME)
    with pytest.raises(TooManyPartitionsError):
        published.tables.drop(NAME, dry_run=False, max_partitions=2)
    with pytest.raises(InvalidValueError):
        published.tables.drop(NAME, dry_run=False, grace_s=float("nan"))
    with pytest.raises(TableNotFoundError):
        published.tables.drop("shop.nothing", dry_run=False)

    assert logical_dump(published.registry) == before


def test_snapshots_are_given_up_by_name_by_age_and_by_the_retention_of_the_table(published: Lake, clock: FixedClock) -> None:
    first, second, current = (row.snapshot_id for row in published.snapshots(NAME))
    assert [row.snapshot_id for row in published.snapshots.expire(NAME, older_than=timedelta(hours=2, minutes=30)).snapshots] == [first]
    published.tables.configure(NAME, retention={"all_s": 0, "hourly_s": 0, "daily_s": 0, "least_age_s": 0})
    assert [row.snapshot_id for row in published.snapshots.expire(NAME).snapshots] == [first, second]
    published.snapshots.tag(NAME, "audit", second)

    done = published.snapshots.expire(NAME, older_than=timedelta(0), dry_run=False, actor="ann")
    with published.service():
        assert published.drain()

    assert [row.snapshot_id for row in done.snapshots] == [first]
    assert [row.snapshot_id for row in published.snapshots(NAME)] == [second, current]
    assert [(run.actor, run.state) for run in list_runs(published.registry, job="expire_snapshots")] == [("ann", "done")]
    clock.advance(seconds=DAY)
    assert published.check().clean


def test_the_current_snapshot_a_tagged_one_and_an_unknown_one_are_refused(published: Lake) -> None:
    first, _, current = (row.snapshot_id for row in published.snapshots(NAME))
    published.snapshots.tag(NAME, "audit", first)
    before = logical_dump(published.registry)

    for wanted, reported in ((current, "is the current snapshot"), (first, "kept by the tag audit")):
        with pytest.raises(InvalidValueError, match=reported):
            published.snapshots.expire(NAME, snapshot_ids=[wanted], dry_run=False)
    with pytest.raises(SnapshotNotFoundError):
        published.snapshots.expire(NAME, snapshot_ids=[5], dry_run=False)
    with pytest.raises(InvalidValueError):
        published.snapshots.expire(NAME, older_than=timedelta(days=-1))

    assert logical_dump(published.registry) == before
