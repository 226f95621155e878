"""Files that another engine committed: needed, whatever spelling of a location its metadata uses, and missed when they are gone."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile

from builders import ORDERS
from ice import ROWS, SHOP, IceLake, shop_rows
from lakebed.core.names import TableName
from lakebed.iceberg.catalog import CATALOG_NAME
from lakebed.iceberg.locations import from_uri
from lakebed.storage.paths import parse_location

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyiceberg.table import Table

    from lakebed.check import CheckReport
    from lakebed.lake import Lake

OLD = timedelta(days=3)
RETURNS = TableName("shop", "returns")
SPELLINGS: dict[str, Callable[[str], str]] = {
    "as Lakebed": lambda path: f"file://{path}",
    "as Hadoop": lambda path: f"file:{path}",
    "plain": lambda path: path,
}


@pytest.fixture
def stranger(ice: IceLake) -> Iterator[SqlCatalog]:
    """PyIceberg's own catalog on the same rows: another program that writes."""
    catalog = SqlCatalog(CATALOG_NAME, uri=ice.lake.registry.backend.catalog_url, warehouse=ice.lake.storage.paths.root)
    yield catalog
    catalog.engine.dispose()


def age(lake: Lake) -> None:
    for path in Path(lake.storage.paths.root).rglob("*"):
        if path.is_file():
            os.utime(path, (1, 1))


def append(table: Table, number: int, **options: str) -> None:
    table.append(shop_rows(SHOP, number, **options))  # type: ignore[arg-type]


def spelled(stranger: SqlCatalog, ice: IceLake, spelling: str) -> Table:
    """The table as the stranger writes it: new files get locations in this spelling."""
    table = stranger.load_table("shop.orders")
    directory = ice.lake.storage.paths.table_directory(ice.table_id(), ORDERS)
    spell = SPELLINGS[spelling]
    with table.transaction() as transaction:
        transaction.set_properties({"write.data.path": spell(f"{directory}/data"), "write.metadata.path": spell(f"{directory}/metadata")})
    return stranger.load_table("shop.orders")


def foreign_data(table: Table) -> list[str]:
    """Paths of the files that the newest snapshot added."""
    current = table.current_snapshot()
    assert current is not None
    files = [
        entry.data_file.file_path
        for manifest in current.manifests(table.io)
        if manifest.added_snapshot_id == current.snapshot_id
        for entry in manifest.fetch_manifest_entry(table.io)
    ]
    return [parse_location(file) for file in files]


def listed(lake: Lake) -> set[str]:
    return {facts.path for facts in lake.storage.list_files(lake.storage.paths.root)}


def clean_out(lake: Lake) -> None:
    """All that `check` and `repair` advise: sweep, and delete what was queued."""
    age(lake)
    lake.files.sweep_orphans(older_than=OLD, dry_run=False)
    lake.repair(dry_run=False, orphans_older_than=timedelta(hours=2))
    lake.registry.transact(lambda tx: tx.run("UPDATE temporary_files SET expiration = 1"), tables=[])
    lake.delete_expired_temporary_files()


def rules(report: CheckReport) -> set[str]:
    return {finding.rule for finding in report.findings}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_nothing_that_a_foreign_commit_reaches_is_swept(ice: IceLake, stranger: SqlCatalog, spelling: str) -> None:
    ice.create()
    ice.insert(1)
    append(spelled(stranger, ice, spelling), 50)
    age(ice.lake)
    before = listed(ice.lake)

    assert "unregistered_file" not in rules(ice.lake.check())
    clean_out(ice.lake)

    assert listed(ice.lake) >= {path for path in before if "/data/" in path}
    assert stranger.load_table("shop.orders").scan().to_arrow().num_rows == 2 * ROWS


def test_the_committers_own_sweep_leaves_a_foreign_commit_alone(ice: IceLake, stranger: SqlCatalog) -> None:
    table = ice.create()
    ice.insert(1)
    append(spelled(stranger, ice, "as Hadoop"), 50)
    age(ice.lake)

    assert ice.committer.sweep(table.table_id, older_than_us=0) == []

    assert stranger.load_table("shop.orders").scan().to_arrow().num_rows == 2 * ROWS


def test_a_foreign_snapshot_that_was_set_aside_keeps_its_files(ice: IceLake, stranger: SqlCatalog) -> None:
    table = ice.create()
    ice.insert(1)
    append(spelled(stranger, ice, "as Hadoop"), 50)
    foreign = stranger.load_table("shop.orders").current_snapshot()
    assert foreign is not None
    ice.committer.discard_foreign(table.table_id)
    age(ice.lake)

    found = ice.lake.files.sweep_orphans(older_than=OLD)
    ice.committer.sweep(table.table_id, older_than_us=0)

    assert (list(found.orphans), found.skipped) == ([], ())
    assert ice.static().scan(snapshot_id=foreign.snapshot_id).to_arrow().num_rows == 2 * ROWS


def test_the_sweep_skips_a_table_with_a_foreign_commit_and_says_so(ice: IceLake, stranger: SqlCatalog) -> None:
    ice.create()
    ice.create(RETURNS)
    ice.insert(1)
    ice.insert(2, RETURNS)
    append(stranger.load_table("shop.orders"), 50)
    paths = ice.lake.storage.paths
    litter = [
        Path(paths.table_directory(ice.table_id(name), name)) / folder / "left-behind"
        for name in (ORDERS, RETURNS)
        for folder in ("data", "metadata")
    ]
    for path in litter:
        path.write_bytes(b"litter")
    age(ice.lake)

    found = ice.lake.files.sweep_orphans(older_than=OLD)

    assert {orphan.path for orphan in found.orphans} == {str(path) for path in litter[2:]}
    assert [skipped.table for skipped in found.skipped] == ["shop.orders"]
    assert "repair shop.orders" in found.skipped[0].reason
    advice = [finding.message for finding in ice.lake.check().findings if finding.subject in {str(path) for path in litter[:2]}]
    assert not any("clean orphans" in message for message in advice)


@pytest.mark.parametrize("catalog_name", [CATALOG_NAME, "another"])
def test_a_table_that_only_the_catalog_knows_keeps_all_its_files(ice: IceLake, catalog_name: str) -> None:
    root = ice.lake.storage.paths.root
    theirs = SqlCatalog(catalog_name, uri=ice.lake.registry.backend.catalog_url, warehouse=root)
    theirs.create_namespace("other")
    table = theirs.create_table("other.things", pa.schema([("x", pa.int64())]), location=f"file:{root}/other/things")
    table.append(pa.table({"x": [1, 2, 3]}))

    assert "unregistered_file" not in rules(ice.lake.check())
    clean_out(ice.lake)

    assert theirs.load_table("other.things").scan().to_arrow().num_rows == 3
    theirs.engine.dispose()


def test_names_with_percent_signs_are_taken_as_they_are(ice: IceLake, stranger: SqlCatalog, another_ice: Callable[[], IceLake]) -> None:
    ice.create(partition_by=("country",))
    ice.insert(1)
    append(spelled(stranger, ice, "as Hadoop"), 50, country="Å/b c%20d")
    (path,) = foreign_data(stranger.load_table("shop.orders"))
    assert "%" in path

    clean_out(ice.lake)

    assert Path(path).exists()
    later = another_ice()  # the repair has raised the fence
    later.committer.adopt_foreign(ice.table_id())
    later.seal()
    later.advance()
    assert path in {row.file_path for row in ice.lake.files.list("shop.orders")}
    ice.require_true()


def test_a_statistics_file_is_needed(ice: IceLake, stranger: SqlCatalog) -> None:
    ice.create()
    ice.insert(1)
    table = stranger.load_table("shop.orders")
    current = table.current_snapshot()
    assert current is not None
    path = f"{ice.lake.storage.paths.metadata_directory(ice.table_id(), ORDERS)}/{current.snapshot_id}.stats"
    Path(path).write_bytes(b"PFA1" + bytes(28))
    blob = BlobMetadata.model_validate(
        {"type": "deletion-vector-v1", "snapshot-id": current.snapshot_id, "sequence-number": 1, "fields": [1]}
    )
    named = StatisticsFile.model_validate(
        {
            "snapshot-id": current.snapshot_id, "statistics-path": f"file:{path}", "file-size-in-bytes": 32,
            "file-footer-size-in-bytes": 28, "blob-metadata": [blob.model_dump(by_alias=True)],
        }
    )  # fmt: skip
    with table.update_statistics() as update:
        update.set_statistics(named)

    clean_out(ice.lake)
    assert Path(path).exists()
    Path(path).unlink()

    assert [f.subject for f in ice.lake.check().findings if f.rule == "iceberg_missing"] == [path]


def test_a_missing_foreign_data_file_is_found(ice: IceLake, stranger: SqlCatalog) -> None:
    ice.create()
    ice.insert(1)
    append(spelled(stranger, ice, "as Hadoop"), 50)
    (path,) = foreign_data(stranger.load_table("shop.orders"))
    assert "iceberg_missing" not in rules(ice.lake.check())

    Path(path).unlink()

    (finding,) = [f for f in ice.lake.check().findings if f.rule == "iceberg_missing"]
    assert (finding.table, finding.subject) == ("shop.orders", path)
    assert finding.severity.value == "damage"


def test_a_missing_foreign_pointer_is_found_although_the_table_has_stopped(ice: IceLake, stranger: SqlCatalog) -> None:
    ice.create()
    ice.insert(1)
    append(spelled(stranger, ice, "as Hadoop"), 50)
    ice.lake.registry.transact(lambda tx: tx.run("UPDATE tables SET state = 'degraded'"), tables=[])
    location = from_uri(stranger.load_table("shop.orders").metadata_location)

    Path(location).unlink()

    (finding,) = [f for f in ice.lake.check().findings if f.rule == "iceberg_missing"]
    assert (finding.table, finding.subject) == ("shop.orders", location)


def test_an_orphan_that_a_foreign_commit_took_while_it_waited_is_not_deleted(ice: IceLake, stranger: SqlCatalog) -> None:
    ice.create()
    ice.insert(1)
    append(spelled(stranger, ice, "as Hadoop"), 50)
    needed = foreign_data(stranger.load_table("shop.orders"))
    queue = (
        "INSERT INTO temporary_files (file_path, file_size, table_id, retired_at, expiration, reason) VALUES (:path, 1, 1, 1, 1, 'orphan')"
    )
    ice.lake.registry.transact(lambda tx: [tx.run(queue, {"path": path}) for path in needed], tables=[])

    done = ice.lake.delete_expired_temporary_files()

    assert done.deleted == 0
    assert ice.lake.registry.query("SELECT count(*) FROM temporary_files") == [(0,)]
    assert stranger.load_table("shop.orders").scan().to_arrow().num_rows == 2 * ROWS
