"""A place full of files becomes a warehouse only after they were compared with the registry that names them."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from lakebed.cli.app import app
from lakebed.core.errors import LakebedError, PathRefusedError, RegistryRefusedError
from lakebed.lake import connect
from lakebed.opening import adopt_migrated, adopt_warehouse
from lakebed.registry.migrate import _engine, list_pending, migrate_registry, upgrade
from lakebed.registry.open import has_registry
from legacy_lakes import LegacyLake, bare_footer

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

    from conftest import Databases

FILES = 3
_SCHEMA = json.dumps({"fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]})
_TABLE = """INSERT INTO tables (id, database, name, kind, row_count, file_count, total_size, last_modified, created_at)
VALUES (1, 'shop', 'orders', 'table', 0, 0, 0, 5, 5)"""
_METADATA = """INSERT INTO table_metadata (table_id, schema_version, schema, schema_hash, format, compression, partition_by, sort_by, properties,
last_modified, created_at, updated_at) VALUES (1, 1, :schema, :hash, 'parquet', 'zstd', '[]', '[]', '{}', 5, 5, 5)"""
_PARTITION = """INSERT INTO partitions (table_id, view_instance_id, begin_insert_time, end_insert_time, schema_hash, num_rows, file_path, file_size,
updated{column}) VALUES (1, 'global', :begin, :end, :hash, 4, :path, :size, 7{value})"""
_FOOTER = "INSERT INTO partition_metadata (file_path, metadata, insert_time) VALUES (:path, :footer, 7)"


def write_old_lake(url: str, warehouse: Path, revision: str) -> list[Path]:
    """Files in a warehouse without a marker, and a registry of an early revision that names them."""
    warehouse.mkdir()
    paths = [warehouse / f"shop/orders/{number}.parquet" for number in range(FILES)]
    paths[0].parent.mkdir(parents=True)
    upgrade(url, revision)
    engine = _engine(url)
    schema_hash = hashlib.sha256(_SCHEMA.encode()).hexdigest()
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        connection.execute(text(_TABLE))
        connection.execute(text(_METADATA), {"schema": _SCHEMA.encode(), "hash": schema_hash})
        for number, path in enumerate(paths):
            field = pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"1"})
            pq.write_table(pa.table([pa.array(range(4), pa.int64())], schema=pa.schema([field])), path)
            inline = revision == "0001"
            sql = _PARTITION.format(column=", file_metadata" if inline else "", value=", :footer" if inline else "")
            values = {"begin": number * 10, "end": number * 10 + 10, "hash": schema_hash, "path": str(path), "size": path.stat().st_size}
            footer = {"footer": bare_footer(path)}
            connection.execute(text(sql), values | footer if inline else values)
            if not inline:
                connection.execute(text(_FOOTER), {"path": str(path), **footer})
        connection.exec_driver_sql("COMMIT")
    engine.dispose()
    return paths


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"NO_COLOR": "1", "COLUMNS": "200"})


def place(url: str, warehouse: Path) -> list[str]:
    return ["--registry", url, "--warehouse", str(warehouse)]


@pytest.mark.parametrize("revision", ["0001", "0002", "0003"])
def test_a_migrated_registry_can_be_used_with_its_files(empty_url: str, tmp_path: Path, revision: str) -> None:
    paths = write_old_lake(empty_url, tmp_path / "warehouse", revision)

    done = run("migrate", *place(empty_url, tmp_path / "warehouse"), "--json")

    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["warehouse"] == str(tmp_path / "warehouse")
    with connect(empty_url, warehouse=str(tmp_path / "warehouse"), create=False) as lake:
        assert [row.file_path for row in lake.files.list("shop.orders")] == [str(path) for path in paths]
        assert {finding.rule for finding in lake.check().findings} & {"file_missing", "unregistered_file", "file_size"} == set()
    assert json.loads(run("migrate", *place(empty_url, tmp_path / "warehouse"), "--json").stdout)["warehouse"] is None


def test_connect_marks_the_warehouse_of_a_registry_that_it_migrates(databases: Databases, tmp_path: Path) -> None:
    url = databases.new_empty("sqlite")
    write_old_lake(url, tmp_path / "warehouse", "0003")

    with connect(url, warehouse=str(tmp_path / "warehouse")) as lake:
        assert len(lake.files.list("shop.orders")) == FILES


def test_reading_does_not_mark_a_place(empty_url: str, tmp_path: Path) -> None:
    write_old_lake(empty_url, tmp_path / "warehouse", "0003")
    migrate_registry(empty_url)

    with pytest.raises(PathRefusedError, match="--adopt-warehouse"):
        connect(empty_url, warehouse=str(tmp_path / "warehouse"), create=False)

    assert not (tmp_path / "warehouse/.lakebed-warehouse").exists()


def test_a_misspelled_warehouse_does_not_migrate_the_registry(empty_url: str, tmp_path: Path) -> None:
    write_old_lake(empty_url, tmp_path / "warehouse", "0003")

    with pytest.raises(PathRefusedError, match="there is no warehouse here"):
        connect(empty_url, warehouse=str(tmp_path / "wraehouse"), create=False)

    assert list_pending(empty_url) == ["0004", "0005", "0006"]


def test_init_adopts_by_hand(empty_url: str, tmp_path: Path) -> None:
    write_old_lake(empty_url, tmp_path / "warehouse", "0003")
    migrate_registry(empty_url)

    done = run("init", "--adopt-warehouse", *place(empty_url, tmp_path / "warehouse"))

    assert done.exit_code == 0, done.output
    assert run("files", "list", *place(empty_url, tmp_path / "warehouse")).exit_code == 0
    assert adopt_warehouse(empty_url, str(tmp_path / "warehouse")) == 0


@pytest.mark.parametrize("harm", ["other sizes", "missing", "elsewhere"])
def test_files_that_are_not_the_registrys_are_refused(empty_url: str, tmp_path: Path, harm: str) -> None:
    paths = write_old_lake(empty_url, tmp_path / "warehouse", "0003")
    migrate_registry(empty_url)
    wanted = tmp_path / "warehouse"
    if harm == "elsewhere":
        wanted = tmp_path / "other"
        (wanted / "data").mkdir(parents=True)
    for path in paths:
        if harm == "other sizes":
            path.write_bytes(b"something else")
        elif harm == "missing":
            path.unlink()

    for call in (adopt_warehouse, adopt_migrated):
        with pytest.raises(RegistryRefusedError, match="nothing was changed"):
            call(empty_url, str(wanted))
    assert run("migrate", *place(empty_url, wanted)).exit_code == 1
    assert not (wanted / ".lakebed-warehouse").exists()


def test_a_place_with_another_lakes_marker_is_refused(empty_url: str, databases: Databases, tmp_path: Path) -> None:
    write_old_lake(empty_url, tmp_path / "warehouse", "0003")
    migrate_registry(empty_url)
    (tmp_path / "aside").mkdir()
    connect(databases.new("sqlite"), warehouse=str(tmp_path / "aside/warehouse")).close()
    (tmp_path / "aside/warehouse/.lakebed-warehouse").rename(tmp_path / "warehouse/.lakebed-warehouse")

    with pytest.raises(RegistryRefusedError, match="another registry"):
        adopt_warehouse(empty_url, str(tmp_path / "warehouse"))


def test_a_lost_marker_comes_back_with_the_same_identity(url: str, tmp_path: Path) -> None:
    with connect(url, warehouse=str(tmp_path / "warehouse")) as lake:
        path = tmp_path / "warehouse/a.parquet"
        lake.create_table("shop.orders", pa.schema([("id", pa.int64())]))
        pq.write_table(pa.table({"id": [1]}), path)
        lake.files.register("shop.orders", [str(path)], adopt=True)
    marker = tmp_path / "warehouse/.lakebed-warehouse"
    before = json.loads(marker.read_text())
    marker.unlink()
    with pytest.raises(LakebedError):
        connect(url, warehouse=str(tmp_path / "warehouse"))

    adopt_warehouse(url, str(tmp_path / "warehouse"))

    assert json.loads(marker.read_text()) == before
    connect(url, warehouse=str(tmp_path / "warehouse"), create=False).close()


def test_an_import_in_place_needs_a_lake_that_was_made_for_the_old_root(empty_url: str, legacy_url: str, tmp_path: Path) -> None:
    old = LegacyLake(legacy_url, tmp_path / "old", 5).create()
    old.add(0)

    refused = run("import-legacy", legacy_url, *place(empty_url, old.root), "--execute")
    assert (refused.exit_code, has_registry(empty_url)) == (1, False)
    assert run("init", "--adopt-warehouse", "--legacy", legacy_url, *place(empty_url, old.root)).exit_code == 0
    done = run("import-legacy", legacy_url, *place(empty_url, old.root), "--execute")

    assert done.exit_code == 0, done.output
    with connect(empty_url, warehouse=str(old.root), create=False) as lake:
        assert lake.table("legacy.spans").row.row_count == 5
        assert lake.check(deep=True).clean


def test_the_root_of_an_older_lake_is_adopted_by_hand_before_a_dry_run(empty_url: str, legacy_url: str, tmp_path: Path) -> None:
    old = LegacyLake(legacy_url, tmp_path / "old", 5).create()
    old.add(0)

    assert run("init", "--adopt-warehouse", "--legacy", legacy_url, *place(empty_url, old.root)).exit_code == 0

    assert run("import-legacy", legacy_url, *place(empty_url, old.root)).exit_code == 0


def test_a_place_without_the_older_lakes_files_is_refused_and_no_registry_is_made(empty_url: str, legacy_url: str, tmp_path: Path) -> None:
    old = LegacyLake(legacy_url, tmp_path / "old", 5).create()
    (old.root / old.add(0)).unlink()

    done = run("init", "--adopt-warehouse", "--legacy", legacy_url, *place(empty_url, old.root))

    assert done.exit_code == 1
    assert not has_registry(empty_url)
