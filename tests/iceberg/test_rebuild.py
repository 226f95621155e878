"""A lost catalog, a broken pointer, an older backup: Iceberg is a function of the registry and comes back from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from builders import ORDERS, seal_pending, within
from ice import ROWS, IceLake
from lakebed.core.errors import IcebergDriftError
from lakebed.core.names import TableName
from lakebed.iceberg.locations import from_uri
from lakebed.registry.snapshots.history import list_snapshots
from lakebed.registry.tables.lake_tables import require_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.registry.transaction import Transaction


def _run(ice: IceLake, sql: str, **values: Any) -> None:
    with ice.catalog._writing() as connection:
        connection.execute(text(sql), values)


def _fill(ice: IceLake) -> list[int | None]:
    """Three inserts and a retirement: what is current is not what was added last."""
    ice.create()
    gone = ice.write(1)
    ice.seal()
    ids = [ice.advance().snapshot_id]
    ids += [ice.insert(number).snapshot_id for number in (2, 3)]
    ice.retire(gone.partition_id)
    return [*ids, ice.advance().snapshot_id]


def test_a_lost_catalog_comes_back_with_its_history(ice: IceLake, another_ice: Callable[[], IceLake]) -> None:
    ids = _fill(ice)
    _run(ice, "DELETE FROM iceberg_tables")

    other = another_ice()
    other.committer.refresh(ice.table_id())

    assert [s.snapshot_id for s in ice.base().metadata.snapshots] == ids
    assert ice.static().scan().to_arrow().num_rows == 2 * ROWS
    ice.require_true()
    other.insert(4)
    ice.require_true()


def test_a_lost_catalog_and_lost_metadata_come_back_from_the_registry_alone(ice: IceLake, another_ice: Callable[[], IceLake]) -> None:
    _fill(ice)
    incremental = {entry["data_file"]["file_path"]: entry["data_file"] for entry in ice.entries()}
    _run(ice, "DELETE FROM iceberg_tables")
    for path in ice.metadata_files():
        Path(path).unlink()

    another_ice().committer.refresh(ice.table_id())

    rebuilt = {entry["data_file"]["file_path"]: entry["data_file"] for entry in ice.entries()}
    assert rebuilt == incremental
    rows = list_snapshots(ice.lake.registry, ice.table_id())
    assert [row.snapshot_id for row in rows] == [ice.base().metadata.current_snapshot_id]
    assert rows[0].sequence_number == 5
    ice.require_true()


@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "nonsense"])
def test_a_pointer_to_broken_metadata_goes_back_to_the_version_before_and_catches_up(
    ice: IceLake, another_ice: Callable[[], IceLake], damage: str
) -> None:
    _fill(ice)
    path = Path(from_uri(ice.base().location))
    content = {"gone": None, "empty": b"", "cut": path.read_bytes()[:-20], "nonsense": b"{}"}[damage]
    path.unlink() if content is None else path.write_bytes(content)

    another_ice().committer.refresh(ice.table_id())

    assert ice.static().scan().to_arrow().num_rows == 2 * ROWS
    ice.require_true()


def test_an_older_catalog_backup_catches_up_though_rows_of_removed_files_are_gone(ice: IceLake, another_ice: Callable[[], IceLake]) -> None:
    ice.create()
    gone = ice.write(1)
    ice.seal()
    old = ice.advance()
    ice.insert(2)
    ice.retire(gone.partition_id)
    ice.advance()
    _forget_retired_files(ice)
    _run(ice, "UPDATE iceberg_tables SET metadata_location = :old", old=old.metadata_location)

    another_ice().committer.refresh(ice.table_id())

    assert set(ice.static().scan().to_arrow()["id"].to_pylist()) == set(range(2000, 2000 + ROWS))
    verified = ice.committer.verify(ice.table_id())
    assert verified is not None
    assert verified.clean


def test_a_registry_older_than_iceberg_is_told_and_nothing_is_changed(ice: IceLake, another_ice: Callable[[], IceLake]) -> None:
    _fill(ice)
    before = ice.base().location
    sql = "UPDATE tables SET last_group = 1, committed_group = 1 WHERE id = :id"
    within(ice.lake.registry, lambda tx: tx.run(sql, {"id": ice.table_id()}))

    with pytest.raises(IcebergDriftError, match="group 4"):
        another_ice().committer.advance(ice.table_id())

    assert ice.base().location == before


def test_manifests_that_differ_from_the_registry_are_made_equal_by_a_refresh(ice: IceLake, another_ice: Callable[[], IceLake]) -> None:
    _fill(ice)
    path = ice.lake.files.list(str(ORDERS))[0].file_path

    def unseal(tx: Transaction) -> None:
        tx.run("UPDATE table_files SET added_group = NULL WHERE file_path = :path", {"path": path})

    within(ice.lake.registry, unseal)
    verified = ice.committer.verify(ice.table_id())
    assert verified is not None
    assert [from_uri(extra) for extra in verified.extra] == [path]

    other = another_ice()
    other.committer.refresh(ice.table_id())
    assert ice.static().scan().to_arrow().num_rows == ROWS
    seal_pending(ice.lake.registry)
    other.advance()
    ice.require_true()


def test_a_refresh_of_a_true_table_changes_nothing(ice: IceLake, another_ice: Callable[[], IceLake]) -> None:
    _fill(ice)
    before = (ice.base().location, ice.metadata_files())

    assert another_ice().committer.refresh(ice.table_id()) is None
    assert (ice.base().location, ice.metadata_files()) == before


def test_incremental_and_rebuilt_tables_hold_the_same(ice: IceLake) -> None:
    ice.create(partition_by=("day(ts)", "country"))
    first = ice.write(1, country="DE")
    ice.write(2, country=None, day=3)
    ice.seal()
    ice.advance()
    ice.insert(3, country="a/b=c ü", day=1)
    ice.retire(first.partition_id)
    ice.advance()
    incremental = sorted((entry["data_file"] for entry in ice.entries()), key=lambda f: f["file_path"])

    ice.committer.rebuild(ice.table_id())

    assert sorted((entry["data_file"] for entry in ice.entries()), key=lambda f: f["file_path"]) == incremental
    assert require_table(ice.lake.registry, ORDERS).row.committed_group == 3
    ice.require_true()


def test_an_unknown_table_is_nobodys(ice: IceLake) -> None:
    assert ice.committer.advance(999) is None
    assert ice.committer.refresh(999) is None
    assert ice.committer.verify(999) is None
    assert ice.catalog.find_pointer(TableName("shop", "nothing")) is None


def _forget_retired_files(ice: IceLake) -> None:
    """As the clean-up does when it has deleted them."""

    def body(tx: Transaction) -> None:
        for path in [row[0] for row in tx.query("SELECT file_path FROM table_files WHERE retired_seq IS NOT NULL")]:
            tx.run("DELETE FROM partition_metadata WHERE file_path = :p", {"p": path})
            tx.run("DELETE FROM table_files WHERE file_path = :p", {"p": path})

    within(ice.lake.registry, body)
