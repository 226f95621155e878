"""A registry restored from an older backup, and two registries in one warehouse: nothing that is newer or another's is ever deleted."""

from __future__ import annotations

import os
import secrets
import shutil
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from builders import ORDERS, make_table, write_partition
from lakebed.core.errors import RegistryBehindError, RegistryMissingError, RegistryRefusedError
from lakebed.lake import Lake, connect

if TYPE_CHECKING:
    from conftest import Databases

OLD = timedelta(hours=2)


def back_up(databases: Databases, url: str) -> str:
    """A copy of the registry and of its catalog, like a backup; no process may have it open."""
    if url.startswith("sqlite"):
        source = Path(url.removeprefix("sqlite:///"))
        target = source.with_name(f"backup_{secrets.token_hex(4)}.db")
        for suffix in (".db", ".iceberg.db"):
            if source.with_suffix(suffix).exists():
                shutil.copy(source.with_suffix(suffix), target.with_suffix(suffix))
        return f"sqlite:///{target}"
    name, source_name = f"backup_{secrets.token_hex(4)}", url.split("?", maxsplit=1)[0].rpartition("/")[2]
    with psycopg.connect(databases.postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {source_name}".encode())
    return databases.postgres_url.replace("/postgres?", f"/{name}?")


def age(lake: Lake) -> None:
    for path in Path(lake.storage.paths.root).rglob("*"):
        if path.is_file():
            os.utime(path, (1, 1))


def data_files(lake: Lake) -> set[Path]:
    return set(Path(lake.storage.paths.root).rglob("*.parquet"))


def expire_queue(lake: Lake) -> None:
    lake.registry.transact(lambda tx: tx.run("UPDATE temporary_files SET expiration = 1"), tables=[])


def lose_a_day(databases: Databases, url: str, warehouse: str) -> Lake:
    """Two partitions and a backup, then two more and a retirement of an old one; the lake as the backup has it."""
    with connect(url, warehouse=warehouse) as lake:
        make_table(lake.registry)
        write_partition(lake, 1, hours=(1, 2))
        write_partition(lake, 2, hours=(2, 3))
    backup = back_up(databases, url)
    with connect(url, warehouse=warehouse) as lake:
        write_partition(lake, 3, hours=(3, 4))
        write_partition(lake, 4, hours=(4, 5))
    return connect(backup, warehouse=warehouse)


def test_a_registry_restored_from_an_older_backup_sweeps_nothing_until_a_person_decides(
    databases: Databases, url: str, tmp_path: Path
) -> None:
    with lose_a_day(databases, url, str(tmp_path / "warehouse")) as lake:
        before = data_files(lake)
        age(lake)

        preview = lake.files.sweep_orphans(older_than=OLD)
        with pytest.raises(RegistryBehindError, match="lakebed repair --give-up-newer") as reported:
            lake.files.sweep_orphans(older_than=OLD, dry_run=False)
        expire_queue(lake)
        cleaned = lake.delete_expired_temporary_files()

        assert (len(preview.orphans), preview.newer, reported.value.operations) == (2, 2, 2)
        assert (cleaned.deleted, data_files(lake)) == (0, before)
        assert {finding.rule for finding in lake.check().findings} == {"newer_file"}


def test_the_clean_up_of_a_restored_registry_deletes_only_what_was_doomed_before(databases: Databases, url: str, tmp_path: Path) -> None:
    with lose_a_day(databases, url, str(tmp_path / "warehouse")) as lake:
        (old, _) = lake.list_partitions(str(ORDERS))
        newer = data_files(lake) - {Path(f.file_path) for f in lake.files.list(str(ORDERS))}
        lake.retire_partition_by_metadata(str(ORDERS), insert_begin=old.begin_insert_time, insert_end=old.end_insert_time)
        expire_queue(lake)

        cleaned = lake.delete_expired_temporary_files()

        assert (cleaned.deleted, len(newer)) == (1, 2)
        assert newer <= data_files(lake)


def test_newer_files_that_are_given_up_are_swept_like_any_orphan(databases: Databases, url: str, tmp_path: Path) -> None:
    with lose_a_day(databases, url, str(tmp_path / "warehouse")) as lake:
        age(lake)

        done = lake.repair(give_up_newer=True, dry_run=False, orphans_older_than=OLD, actor="ann")
        expire_queue(lake)

        assert [(step.remedy, step.outcome) for step in done.steps] == [("give_up_newer", "done"), ("sweep", "done")]
        assert lake.delete_expired_temporary_files().deleted == 2
        assert len(data_files(lake)) == 2
        assert lake.check().clean


def test_newer_files_of_a_table_that_the_backup_does_not_know_can_be_given_up_too(databases: Databases, url: str, tmp_path: Path) -> None:
    warehouse = str(tmp_path / "warehouse")
    with connect(url, warehouse=warehouse) as lake:
        assert lake.check().clean
    backup = back_up(databases, url)
    with connect(url, warehouse=warehouse) as lake:
        make_table(lake.registry)
        write_partition(lake, 1)
    with connect(backup, warehouse=warehouse) as lake:
        age(lake)
        lake.repair(give_up_newer=True, dry_run=False, orphans_older_than=OLD)
        expire_queue(lake)

        assert lake.delete_expired_temporary_files().deleted == 1
        assert lake.check().clean


def test_newer_files_that_are_wanted_can_be_registered_where_they_lie(databases: Databases, url: str, tmp_path: Path) -> None:
    with lose_a_day(databases, url, str(tmp_path / "warehouse")) as lake:
        known = {f.file_path for f in lake.files.list(str(ORDERS))}
        lake.files.register(str(ORDERS), sorted(str(path) for path in data_files(lake) if str(path) not in known))
        age(lake)

        assert lake.files.sweep_orphans(older_than=OLD, dry_run=False).orphans == []
        assert lake.table(str(ORDERS)).row.row_count == 200
        assert lake.check().clean


def test_a_second_registry_in_the_same_warehouse_is_refused_and_can_still_have_its_own(
    databases: Databases, kind: str, tmp_path: Path
) -> None:
    first, second = databases.new_empty(kind), databases.new_empty(kind)
    with connect(first, warehouse=str(tmp_path / "shared")) as lake:
        make_table(lake.registry)
        write_partition(lake, 1)
        age(lake)

    with pytest.raises(RegistryMissingError, match="files of another registry"):
        connect(second, warehouse=str(tmp_path / "shared"))

    with connect(second, warehouse=str(tmp_path / "own")) as other:
        assert other.check().clean
    with pytest.raises(RegistryRefusedError, match="files of another registry"):
        connect(second, warehouse=str(tmp_path / "shared"))
    with connect(first, warehouse=str(tmp_path / "shared")) as lake:
        assert lake.files.sweep_orphans(older_than=OLD, dry_run=False).orphans == []
        assert lake.check().clean
    for url in (first, second):
        databases.drop(url)
