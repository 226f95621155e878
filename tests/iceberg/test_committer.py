"""One snapshot per move, in step with the registry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.table import StaticTable

from builders import ORDERS, within
from ice import ROWS, IceLake
from lakebed.core.errors import FileMissingError, SnapshotNotFoundError
from lakebed.core.names import TableName
from lakebed.iceberg.locations import from_uri
from lakebed.iceberg.snapshots import create_iceberg_snapshot, update_iceberg_metadata
from lakebed.registry.snapshots.history import list_snapshots
from lakebed.registry.tables.lake_tables import drop_table, require_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.iceberg.commit.results import Advanced


def test_a_new_table_is_an_empty_iceberg_table(ice: IceLake) -> None:
    table = ice.create()

    assert ice.committer.advance(table.table_id) is None
    assert ice.static().scan().to_arrow().num_rows == 0
    assert ice.static().schema().column_names == ["id", "ts", "amount", "country"]


def test_inserted_rows_are_read_from_the_metadata_file_alone(ice: IceLake) -> None:
    ice.create()

    done = ice.insert(7)

    read = StaticTable.from_metadata(done.metadata_location).scan().to_arrow()
    assert sorted(read["id"].to_pylist()) == list(range(7000, 7000 + ROWS))
    assert ice.static().current_snapshot().snapshot_id == done.snapshot_id  # type: ignore[union-attr]
    ice.require_true()


def test_groups_that_waited_go_together_in_one_snapshot(ice: IceLake) -> None:
    ice.create()
    for number in range(5):
        ice.write(number)
        ice.seal()

    done = ice.advance()

    assert (done.group, done.added, done.operation) == (5, 5, "append")
    assert len(ice.base().metadata.snapshots) == 1
    assert require_table(ice.lake.registry, ORDERS).row.committed_group == 5
    ice.require_true()


def test_nothing_new_is_no_commit(ice: IceLake, another_ice: Callable[[], IceLake]) -> None:
    table = ice.create()
    ice.insert(1)
    before = ice.metadata_files()

    assert ice.committer.advance(table.table_id) is None
    assert another_ice().committer.advance(table.table_id) is None
    assert ice.metadata_files() == before


def test_pending_files_wait_for_their_group(ice: IceLake) -> None:
    table = ice.create()
    ice.write(1)

    assert ice.committer.advance(table.table_id) is None
    assert ice.base().metadata.current_snapshot_id is None


def test_a_retired_partition_leaves_the_current_snapshot_and_stays_in_the_older_one(ice: IceLake) -> None:
    ice.create()
    first = ice.write(1)
    ice.write(2)
    ice.seal()
    full = ice.advance()
    ice.retire(first.partition_id)

    done = ice.advance()

    assert (done.operation, done.removed) == ("delete", 1)
    assert sorted(ice.static().scan().to_arrow()["id"].to_pylist()) == list(range(2000, 2000 + ROWS))
    assert ice.static().scan(snapshot_id=full.snapshot_id).to_arrow().num_rows == 2 * ROWS
    ice.require_true()


def test_a_replaced_partition_is_an_overwrite(ice: IceLake) -> None:
    ice.create()
    old = ice.write(1)
    ice.seal()
    ice.advance()
    ice.write(2, replacing=frozenset({old.partition_id}))

    done = ice.advance()

    assert (done.operation, done.added, done.removed) == ("overwrite", 1, 1)
    assert set(ice.static().scan().to_arrow()["id"].to_pylist()) == set(range(2000, 2000 + ROWS))
    ice.require_true()


def test_a_file_that_came_and_went_between_two_commits_never_appears(ice: IceLake) -> None:
    ice.create()
    ice.insert(1)
    gone = ice.write(2)
    ice.seal()
    ice.retire(gone.partition_id)

    done = ice.advance()

    assert (done.group, done.added, done.removed) == (3, 0, 0)
    assert ice.static().scan().to_arrow().num_rows == ROWS
    ice.require_true()


def test_every_snapshot_is_written_down_with_paths_that_exist(ice: IceLake) -> None:
    table = ice.create()
    done = [ice.insert(number) for number in range(3)]

    rows = list_snapshots(ice.lake.registry, table.table_id)

    assert [row.snapshot_id for row in rows] == [d.snapshot_id for d in done]
    assert [row.parent_id for row in rows] == [None, *(d.snapshot_id for d in done[:-1])]
    assert [row.sequence_number for row in rows] == [1, 2, 3]
    assert [row.group_no for row in rows] == [1, 2, 3]
    assert all(Path(row.manifest_list).exists() and Path(row.metadata_location).exists() for row in rows)
    assert all(json.loads(row.summary)["lakebed.group"] == str(row.group_no) for row in rows)
    assert require_table(ice.lake.registry, ORDERS).row.current_snapshot_id == done[-1].snapshot_id


def test_metadata_versions_rise_by_one_and_the_log_names_the_one_before(ice: IceLake) -> None:
    ice.create()
    before = ice.insert(1)
    after = ice.insert(2)

    versions = [int(Path(from_uri(d.metadata_location)).name.split("-")[0]) for d in (before, after)]
    assert versions[1] == versions[0] + 1
    assert ice.base().metadata.metadata_log[-1].metadata_file == before.metadata_location
    assert ice.base().metadata.refs["main"].snapshot_id == after.snapshot_id


def test_each_earlier_snapshot_still_gives_its_rows(ice: IceLake) -> None:
    ice.create()
    done: list[Advanced] = [ice.insert(number) for number in range(4)]

    counts = [ice.static().scan(snapshot_id=d.snapshot_id).to_arrow().num_rows for d in done]

    assert counts == [ROWS, 2 * ROWS, 3 * ROWS, 4 * ROWS]
    second = next(s for s in ice.base().metadata.snapshots if s.snapshot_id == done[1].snapshot_id)
    assert len(ice.committer.store.list_held(second.manifest_list)) == 2


def test_a_dropped_table_is_left_alone_and_its_name_starts_anew(ice: IceLake) -> None:
    old = ice.create()
    ice.insert(1)
    within(ice.lake.registry, lambda tx: drop_table(tx, ORDERS))

    assert ice.committer.advance(old.table_id) is None
    new = ice.create()
    ice.insert(2)

    assert new.table_id != old.table_id
    assert set(ice.static().scan().to_arrow()["id"].to_pylist()) == set(range(2000, 2000 + ROWS))
    assert len(ice.base().metadata.snapshots) == 1
    ice.require_true()


def test_every_table_has_its_own_iceberg_table(ice: IceLake) -> None:
    other = TableName("shop", "returns")
    ice.create()
    ice.create(other, kind="view_set")
    ice.insert(1)
    ice.insert(2, other)

    assert ice.catalog.load_table("shop.orders").scan().to_arrow().num_rows == ROWS
    assert ice.catalog.load_table("shop.returns").scan().to_arrow()["id"].to_pylist()[0] == 2000
    assert ice.catalog.list_tables("shop") == [("shop", "orders"), ("shop", "returns")]
    ice.require_true(other)


def test_a_snapshot_can_be_asked_for_by_table_and_files(ice: IceLake) -> None:
    ice.create()
    ice.write(1)
    (pending,) = ice.lake.files.list(str(ORDERS))

    made = create_iceberg_snapshot(ice.committer, "shop", "orders", [pending.file_path])

    assert made is not None
    assert create_iceberg_snapshot(ice.committer, "shop", "orders", [pending.file_path]) == made
    version = update_iceberg_metadata(ice.committer, "shop", "orders", made)
    assert update_iceberg_metadata(ice.committer, "shop", "orders", made) == version
    assert len(ice.base().metadata.snapshots) == 1
    with pytest.raises(FileMissingError):
        create_iceberg_snapshot(ice.committer, "shop", "orders", [f"{ice.lake.storage.paths.root}/shop/nowhere.parquet"])
    with pytest.raises(SnapshotNotFoundError):
        update_iceberg_metadata(ice.committer, "shop", "orders", 1 << 60)
