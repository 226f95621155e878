"""Orphans: found, spared if they are needed, queued and deleted like retired files."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from builders import ORDERS, arrow_rows, make_table, write_partition, writing_path
from lakebed.core.errors import FileConflictError, InvalidValueError
from lakebed.iceberg.catalog import open_catalog
from lakebed.iceberg.commit.committer import Committer
from lakebed.registry.tables.groups import seal_table

if TYPE_CHECKING:
    from lakebed.lake import Lake

OLD = timedelta(days=3)


def age(lake: Lake, *paths: Path) -> None:
    """As if they were years old; without names, everything in the warehouse."""
    for path in paths or [p for p in Path(lake.storage.paths.root).rglob("*") if p.is_file()]:
        os.utime(path, (1, 1))


def commit(lake: Lake) -> None:
    table_id = lake.registry.require_table_id(ORDERS)
    seal_table(lake.registry, table_id)
    catalog = open_catalog(lake.registry, lake.storage)
    Committer(lake.registry, lake.storage, catalog).advance(table_id)
    catalog.close()


def litter(lake: Lake, name: str = "shop/orders-1/data/left.parquet") -> Path:
    path = Path(lake.storage.paths.root) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"nobody's")
    return path


def test_a_healthy_lake_has_no_orphan_however_old_its_files(lake: Lake) -> None:
    make_table(lake.registry)
    write_partition(lake, 1)
    commit(lake)
    write_partition(lake, 2)
    commit(lake)
    age(lake)
    assert lake.files.sweep_orphans(older_than=OLD).orphans == []


def test_old_litter_is_found_queued_and_deleted_and_young_litter_is_not(lake: Lake) -> None:
    make_table(lake.registry)
    write_partition(lake, 1)
    commit(lake)
    old, young = litter(lake), litter(lake, "shop/orders-1/metadata/young-m0.avro")
    torn = litter(lake, "shop/orders-1/metadata/old-m0.avro")
    age(lake, old, torn)

    preview = lake.files.sweep_orphans(older_than=OLD)
    assert {orphan.path for orphan in preview.orphans} == {str(old), str(torn)}
    assert preview.size_bytes == 16
    assert not lake.check().clean

    lake.files.sweep_orphans(older_than=OLD, dry_run=False)
    assert lake.files.sweep_orphans(older_than=OLD).orphans == []
    assert lake.delete_expired_temporary_files().deleted == 0  # the grace
    lake.registry.transact(lambda tx: tx.run("UPDATE temporary_files SET expiration = 1"), tables=[])
    assert lake.delete_expired_temporary_files().deleted == 2

    assert (old.exists(), torn.exists(), young.exists()) == (False, False, True)
    assert lake.check().clean


def test_files_of_an_open_operation_are_not_orphans(lake: Lake) -> None:
    make_table(lake.registry)
    with lake.writing(str(ORDERS)) as writing:
        path = writing_path(writing.new_path())
        pq.write_table(arrow_rows(1), path)
        age(lake, Path(path))
        assert lake.files.sweep_orphans(older_than=OLD).orphans == []
        writing.publish()
    age(lake)
    assert lake.files.sweep_orphans(older_than=OLD).orphans == []


def test_files_queued_for_deletion_are_not_orphans(lake: Lake) -> None:
    make_table(lake.registry)
    write_partition(lake, 1)
    (partition,) = lake.list_partitions(str(ORDERS))
    lake.retire_partition_by_metadata(str(ORDERS), insert_begin=partition.begin_insert_time, insert_end=partition.end_insert_time)
    age(lake)
    assert lake.files.sweep_orphans(older_than=OLD).orphans == []


def test_metadata_of_a_table_whose_pointer_is_lost_is_never_given_up(lake: Lake) -> None:
    make_table(lake.registry)
    write_partition(lake, 1)
    commit(lake)
    catalog = open_catalog(lake.registry, lake.storage)
    pointer = catalog.find_pointer(ORDERS)
    assert pointer is not None
    assert pointer.location is not None
    Path(pointer.location.removeprefix("file://")).write_bytes(b"torn")
    catalog.close()
    age(lake)
    assert lake.files.sweep_orphans(older_than=OLD).orphans == []


def test_a_file_that_is_queued_cannot_be_registered_any_more(lake: Lake) -> None:
    make_table(lake.registry)
    path = Path(lake.storage.paths.root) / "incoming.parquet"
    pq.write_table(arrow_rows(1), path)
    age(lake, path)
    lake.files.sweep_orphans(older_than=OLD, dry_run=False)
    with pytest.raises(FileConflictError, match="sweep"):
        lake.files.register(str(ORDERS), [str(path)])


def test_a_file_registered_before_its_deletion_is_kept(lake: Lake) -> None:
    make_table(lake.registry)
    path = Path(lake.storage.paths.root) / "incoming.parquet"
    pq.write_table(arrow_rows(1), path)
    age(lake, path)
    found = lake.files.sweep_orphans(older_than=OLD).orphans
    lake.files.register(str(ORDERS), [str(path)])
    assert [orphan.path for orphan in found] == [str(path)]
    assert lake.files.sweep_orphans(older_than=OLD, dry_run=False).orphans == []
    assert lake.check().clean


def test_commits_under_way_are_out_of_reach_of_any_call(lake: Lake) -> None:
    with pytest.raises(InvalidValueError, match="at least an hour"):
        lake.files.sweep_orphans(older_than=timedelta(minutes=59))
