"""Another program on a table's lineage: that table stops, the others and all inserts go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from builders import ORDERS
from ice import ROWS, SHOP, IceLake, shop_rows
from lakebed.core.errors import ForeignCommitError, InvalidValueError
from lakebed.core.names import TableName
from lakebed.registry.tables.lake_tables import require_table

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.table import Table

RETURNS = TableName("shop", "returns")


def _append(table: Table, number: int) -> None:
    table.append(shop_rows(SHOP, number))


def test_a_foreign_snapshot_stops_that_table_alone(ice: IceLake, stranger: SqlCatalog) -> None:
    table = ice.create()
    ice.create(RETURNS)
    ice.insert(1)
    _append(stranger.load_table("shop.orders"), 50)
    ice.write(2)
    ice.seal()

    with pytest.raises(ForeignCommitError) as caught:
        ice.committer.advance(table.table_id)

    assert caught.value.code == "foreign_commit"
    assert require_table(ice.lake.registry, ORDERS).row.state == "degraded"
    ice.write(3)
    ice.insert(4, RETURNS)
    assert require_table(ice.lake.registry, RETURNS).row.state == "ok"
    assert require_table(ice.lake.registry, ORDERS).row.row_count == 3 * ROWS
    ice.require_true(RETURNS)


def test_discarding_goes_back_to_our_last_snapshot_and_keeps_the_foreign_one_as_a_tag(ice: IceLake, stranger: SqlCatalog) -> None:
    table = ice.create()
    ice.insert(1)
    _append(stranger.load_table("shop.orders"), 50)
    foreign = stranger.load_table("shop.orders").current_snapshot()
    assert foreign is not None
    ice.write(2)
    ice.seal()

    ice.committer.discard_foreign(table.table_id)

    assert set(ice.static().scan().to_arrow()["id"].to_pylist()) == {*range(1000, 1000 + ROWS), *range(2000, 2000 + ROWS)}
    tagged = ice.base().metadata.refs[f"foreign-{foreign.snapshot_id}"].snapshot_id
    assert ice.static().scan(snapshot_id=tagged).to_arrow().num_rows == 2 * ROWS
    assert require_table(ice.lake.registry, ORDERS).row.state == "ok"
    ice.require_true()
    ice.insert(3)
    ice.require_true()


def test_adopting_registers_the_foreign_files_in_a_group_of_ours(ice: IceLake, stranger: SqlCatalog) -> None:
    table = ice.create()
    ice.insert(1)
    _append(stranger.load_table("shop.orders"), 50)

    ice.committer.adopt_foreign(table.table_id)
    ice.seal()
    ice.advance()

    assert set(ice.static().scan().to_arrow()["id"].to_pylist()) == {*range(1000, 1000 + ROWS), *range(50000, 50000 + ROWS)}
    assert require_table(ice.lake.registry, ORDERS).row.row_count == 2 * ROWS
    ice.require_true()


def test_a_foreign_snapshot_that_removed_files_is_not_adopted(ice: IceLake, stranger: SqlCatalog) -> None:
    table = ice.create()
    ice.insert(1)
    stranger.load_table("shop.orders").delete("id < 1005")

    with pytest.raises(InvalidValueError, match="discard it"):
        ice.committer.adopt_foreign(table.table_id)
    ice.committer.discard_foreign(table.table_id)

    assert ice.static().scan().to_arrow().num_rows == ROWS
    ice.require_true()


def test_a_foreign_rollback_is_seen_too(ice: IceLake, stranger: SqlCatalog) -> None:
    table = ice.create()
    first = ice.insert(1)
    ice.insert(2)
    assert first.snapshot_id is not None
    with stranger.load_table("shop.orders").manage_snapshots() as manage:
        manage.rollback_to_snapshot(first.snapshot_id)

    with pytest.raises(ForeignCommitError):
        ice.committer.advance(table.table_id)
    ice.committer.discard_foreign(table.table_id)

    assert ice.static().scan().to_arrow().num_rows == 2 * ROWS
    ice.require_true()


def test_a_table_that_is_not_lakebeds_is_never_replaced(ice: IceLake, stranger: SqlCatalog) -> None:
    stranger.create_namespace("shop")
    theirs = stranger.create_table("shop.orders", pa.schema([("x", pa.int64())]), location=f"file://{ice.lake.storage.paths.root}/theirs")
    table = ice.create()

    with pytest.raises(ForeignCommitError):
        ice.committer.advance(table.table_id)

    assert stranger.load_table("shop.orders").metadata.table_uuid == theirs.metadata.table_uuid


def test_our_own_catalog_refuses_to_commit_for_others(ice: IceLake) -> None:
    ice.create()
    ice.insert(1)

    with pytest.raises(Exception, match="follows Lakebed's registry"):
        _append(ice.catalog.load_table("shop.orders"), 9)

    ice.require_true()
