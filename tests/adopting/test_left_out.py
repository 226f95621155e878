"""What an import or an adoption leaves out in the warehouse is on record, and no clean-up takes it before a person gives it up."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from directories import put, rows

from builders import arrow_rows, make_table
from lakebed.core.errors import InvalidValueError
from legacy_lakes import LegacyLake

if TYPE_CHECKING:
    from lakebed.lake import Lake

AN_HOUR = timedelta(hours=1)


@pytest.fixture
def old(lake: Lake, legacy_url: str) -> LegacyLake:
    """An older lake whose files are in the warehouse already."""
    return LegacyLake(legacy_url, Path(lake.storage.paths.root), 5).create()


def age(lake: Lake) -> None:
    for path in Path(lake.storage.paths.root).rglob("*"):
        if path.is_file():
            os.utime(path, (1, 1))


def clean_out(lake: Lake) -> None:
    """Everything that queues files for deletion."""
    age(lake)
    lake.repair(dry_run=False, orphans_older_than=AN_HOUR)
    lake.files.sweep_orphans(older_than=AN_HOUR, dry_run=False)


def queued(lake: Lake) -> list[str]:
    return [row[0] for row in lake.registry.query("SELECT file_path FROM temporary_files ORDER BY file_path")]


def left_out(lake: Lake) -> dict[str, str]:
    return {row.file_path: row.reason for row in lake.files.list_left_out()}


def test_what_an_import_in_place_leaves_out_is_never_queued(lake: Lake, old: LegacyLake) -> None:
    old.add(0)
    damaged, other = old.add(1, num_rows=99), old.add(0, view_set="other")
    paths = {f"{lake.storage.paths.root}/{path}" for path in (damaged, other)}

    lake.tables.import_legacy(old.url, view_sets=["spans"], dry_run=False)
    clean_out(lake)

    assert queued(lake) == []
    assert set(left_out(lake)) == paths
    assert "rows" in left_out(lake)[f"{lake.storage.paths.root}/{damaged}"]
    assert "other" in left_out(lake)[f"{lake.storage.paths.root}/{other}"]
    report = lake.check(deep=True)
    assert report.clean
    reported = [finding for finding in report.findings if finding.rule == "left_out_file"]
    assert {finding.subject for finding in reported} == paths
    assert not any("clean orphans" in finding.message for finding in reported)


def test_an_import_that_stops_halfway_has_the_rest_on_record(lake: Lake, old: LegacyLake) -> None:
    paths = [old.add(hour) for hour in range(3)]

    def stop(done: int, _: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lake.tables.import_legacy(old.url, dry_run=False, batch_partitions=1, progress=stop)
    clean_out(lake)

    assert queued(lake) == []
    assert set(left_out(lake)) == {f"{lake.storage.paths.root}/{path}" for path in paths[1:]}
    lake.tables.import_legacy(old.url, dry_run=False)
    assert left_out(lake) == {}
    assert lake.check(deep=True).clean


def test_a_dry_run_records_nothing(lake: Lake, old: LegacyLake) -> None:
    old.add(0, num_rows=99)

    lake.tables.import_legacy(old.url)

    assert left_out(lake) == {}


def test_an_import_from_elsewhere_records_nothing(lake: Lake, legacy_url: str, tmp_path: Path) -> None:
    outside = LegacyLake(legacy_url, tmp_path / "old", 5).create()
    outside.add(0, num_rows=99)

    lake.tables.import_legacy(outside.url, root=str(outside.root), dry_run=False)

    assert left_out(lake) == {}


def test_a_file_that_an_earlier_sweep_queued_is_taken_back(lake: Lake, old: LegacyLake) -> None:
    path = f"{lake.storage.paths.root}/{old.add(0, num_rows=99)}"
    age(lake)
    lake.files.sweep_orphans(older_than=AN_HOUR, dry_run=False)
    assert queued(lake) == [path]

    lake.tables.import_legacy(old.url, dry_run=False)

    assert (queued(lake), set(left_out(lake))) == ([], {path})


def test_what_an_adoption_in_place_leaves_out_is_never_queued(lake: Lake) -> None:
    incoming = Path(lake.storage.paths.root) / "incoming"
    put(incoming / "a.parquet", rows(0))
    (incoming / "b.parquet").write_bytes(b"this is not Parquet")

    lake.tables.adopt("shop.events", str(incoming), skip_refused=True)
    clean_out(lake)

    assert queued(lake) == []
    assert set(left_out(lake)) == {str(incoming / "b.parquet")}
    assert [row.table for row in lake.files.list_left_out("shop.events")] == ["shop.events"]
    assert lake.check().clean


def test_an_adopted_file_that_was_rewritten_is_not_left_out(lake: Lake) -> None:
    incoming = Path(lake.storage.paths.root) / "incoming"
    put(incoming / "day=2026-03-01/a.parquet", rows(0))

    lake.tables.adopt("shop.events", str(incoming))

    assert left_out(lake) == {}


def test_a_file_that_is_registered_later_leaves_the_record(lake: Lake, old: LegacyLake) -> None:
    make_table(lake.registry)
    path = Path(lake.storage.paths.root) / old.add(0, num_rows=99)
    lake.tables.import_legacy(old.url, dry_run=False)
    assert set(left_out(lake)) == {str(path)}
    put(path, arrow_rows(1))

    lake.files.register("shop.orders", [str(path)], adopt=True)

    assert lake.registry.query("SELECT count(*) FROM left_out_files") == [(0,)]
    assert lake.check().clean


def test_a_file_that_is_given_up_may_be_swept(lake: Lake, old: LegacyLake) -> None:
    path = f"{lake.storage.paths.root}/{old.add(0, num_rows=99)}"
    lake.tables.import_legacy(old.url, dry_run=False)

    preview = lake.files.forget_left_out([path])
    assert (preview.dry_run, [row.file_path for row in preview.files]) == (True, [path])
    assert set(left_out(lake)) == {path}

    done = lake.files.forget_left_out([path], dry_run=False)
    assert (done.dry_run, left_out(lake)) == (False, {})
    age(lake)
    assert [orphan.path for orphan in lake.files.sweep_orphans(older_than=AN_HOUR).orphans] == [path]


def test_only_files_on_record_can_be_given_up(lake: Lake) -> None:
    with pytest.raises(InvalidValueError, match="files left-out"):
        lake.files.forget_left_out([f"{lake.storage.paths.root}/never.parquet"], dry_run=False)
