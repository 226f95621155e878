"""An older lake comes over whole: slices, instances, event ranges, footers of both formats, and a line for everything that is wrong."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from builders import logical_dump
from lakebed.core.errors import InvalidValueError, LakebedError, RegistryRefusedError, RegistryUnavailableError, TableExistsError
from legacy_lakes import DAY, NEW, OLD, LegacyLake

if TYPE_CHECKING:
    from lakebed.lake import Lake
    from lakebed.legacy import LegacyImport


def run(lake: Lake, old: LegacyLake, **options: Any) -> LegacyImport:
    return lake.tables.import_legacy(old.url, root=str(old.root), dry_run=False, **options)


def kinds(done: LegacyImport) -> list[str]:
    return sorted(finding.kind for finding in done.findings)


@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_every_version_of_the_old_schema_comes_over(lake: Lake, legacy_url: str, tmp_path: Path, version: int) -> None:
    old = LegacyLake(legacy_url, tmp_path / "old", version).create()
    for hour in range(3):
        old.add(hour, footer="v1" if hour == 0 else "right")
    old.add_empty(3)
    old.add(0, instance="tenant-7", rows=2)

    done = run(lake, old)

    assert (done.version, kinds(done), done.partitions) == (version, [], 5)
    parts = lake.list_partitions("legacy.spans")
    assert [(p.view_instance_id, p.num_rows) for p in parts] == [
        ("global", 5),
        ("tenant-7", 2),
        ("global", 5),
        ("global", 5),
        ("global", 0),
    ]
    assert {p.begin_insert_time for p in parts} == {DAY + timedelta(hours=h) for h in range(4)}
    assert parts[0].min_event_time == DAY
    assert parts[0].max_event_time == DAY + timedelta(seconds=4)
    assert parts[0].source_data_hash == (7).to_bytes(8, "little").hex()
    path = lake.files.list("legacy.spans")[0].file_path
    assert lake.files.footer(path).num_rows == pq.ParquetFile(path).metadata.num_rows
    assert lake.check(deep=True).clean


def test_a_dry_run_is_the_default_and_changes_nothing(lake: Lake, old: LegacyLake) -> None:
    old.add(0)
    old.add_empty(1)
    old.queue("views/gone.parquet", days=900)
    before = logical_dump(lake.registry)

    plan = lake.tables.import_legacy(old.url, root=str(old.root))

    assert (plan.dry_run, plan.run_id, plan.partitions) == (True, None, 2)
    assert plan.view_sets[0].table == "legacy.spans"
    assert logical_dump(lake.registry) == before
    real = run(lake, old)
    assert [(v.partitions, v.empty_partitions, v.rows) for v in real.view_sets] == [(1, 1, 5)]
    assert lake.check().clean


def test_files_in_the_warehouse_are_used_where_they_lie(lake: Lake, legacy_url: str) -> None:
    old = LegacyLake(legacy_url, Path(lake.storage.paths.root), 5).create()
    path = old.add(0)

    done = lake.tables.import_legacy(old.url, dry_run=False)

    assert done.in_place
    assert [f.file_path for f in lake.files.list("legacy.spans")] == [f"{lake.storage.paths.root}/{path}"]
    assert lake.check(deep=True).clean


def test_files_elsewhere_are_linked(lake: Lake, old: LegacyLake) -> None:
    path = old.add(0)

    run(lake, old)

    assert (old.root / path).stat().st_nlink == 2
    assert lake.check().clean


def test_a_second_run_takes_only_what_is_new_and_nothing_twice(lake: Lake, old: LegacyLake) -> None:
    old.add(0)
    run(lake, old)
    first = lake.list_partitions("legacy.spans")[0]
    lake.retire_partition_by_metadata("legacy.spans", "global", insert_begin=first.begin_insert_time, insert_end=first.end_insert_time)
    old.add(1)

    again = run(lake, old)

    assert [(v.partitions, v.known_partitions) for v in again.view_sets] == [(1, 1)]
    assert [p.begin_insert_time for p in lake.list_partitions("legacy.spans")] == [DAY + timedelta(hours=1)]
    assert lake.check().clean


def test_other_schemas_are_kept_as_incompatible(lake: Lake, old: LegacyLake) -> None:
    old.add(0, schema=OLD, updated=-1)
    old.add_empty(1, schema=b"\x05")
    old.add(0, schema=NEW)

    done = run(lake, old)

    assert [(v.partitions, v.incompatible_partitions) for v in done.view_sets] == [(1, 2)]
    assert [f"{f.name} {f.type}" for f in lake.table("legacy.spans").schema.fields] == ["id long", "time timestamptz"]
    assert lake.table("legacy.spans").row.row_count == 5
    assert [(p.reason, p.num_rows) for p in lake.list_incompatible_partitions("legacy.spans")] == [("schema", 5), ("schema", 0)]
    assert run(lake, old).partitions == 0
    assert lake.check().clean
    lake.retire_incompatible_partitions("legacy.spans", dry_run=False)
    assert lake.check().clean


def test_the_schema_that_serves_can_be_chosen(lake: Lake, old: LegacyLake) -> None:
    old.add(0, schema=OLD, updated=-1)
    old.add(1, schema=NEW)

    run(lake, old, serving={"spans": OLD.hex()})

    assert [str(f.type) for f in lake.table("legacy.spans").schema.fields] == ["int", "timestamptz"]
    assert run(lake, old).partitions == 0  # what an earlier run chose stays chosen
    assert lake.check().clean


def test_slices_that_overlap_are_reported_and_kept_invisible(lake: Lake, old: LegacyLake) -> None:
    old.add(0, hours=3, updated=0)
    old.add(1, updated=1)
    old.add(1, updated=2)

    done = run(lake, old)

    assert kinds(done) == ["overlap", "overlap"]
    assert all(finding.kept for finding in done.findings)
    assert [(v.partitions, v.incompatible_partitions) for v in done.view_sets] == [(1, 2)]
    assert len(lake.list_incompatible_partitions("legacy.spans")) == 2
    assert lake.check().clean


def test_everything_that_is_wrong_has_its_line(lake: Lake, old: LegacyLake) -> None:
    old.add(0)
    twice = old.add(1)
    old.row(_row_of(old, twice, hour=1), None, version=2)
    old.add(2, max_event_time=None)
    (old.root / old.add(3)).unlink()
    old.add(4, footer=b"no footer at all")
    old.add(5, footer=None)
    old.add(6, file_path="../outside.parquet")
    old.add(7, file_size=1)
    old.add(8, num_rows=99)
    old.add(9, end_insert_time=DAY)
    old.add(10, view_instance_id="no/instance")
    old.add_empty(11, min_event_time=DAY, max_event_time=DAY)
    (old.root / (torn := old.add(12))).write_bytes(b"x" * (old.root / torn).stat().st_size)

    done = run(lake, old)

    assert kinds(done) == sorted(
        ["duplicate", "one_event_bound", "missing_file", "bad_footer", "bad_footer", "outside_root", "changed_file", "rows_differ",
         "bad_row", "bad_row", "bad_row", "changed_file"]
    )  # fmt: skip
    assert sorted(p.begin_insert_time.hour for p in lake.list_partitions("legacy.spans")) == [0, 1, 4, 5]
    assert done.view_sets[0].left_out == 10
    assert lake.check(deep=True).clean


def _row_of(old: LegacyLake, path: str, *, hour: int) -> dict[str, Any]:
    begin = DAY + timedelta(hours=hour)
    return {
        "view_set_name": "spans", "view_instance_id": "global", "begin_insert_time": begin, "end_insert_time": begin + timedelta(hours=1),
        "min_event_time": begin, "max_event_time": begin, "updated": DAY, "file_path": path,
        "file_size": (old.root / path).stat().st_size, "file_schema_hash": NEW, "source_data_hash": b"", "num_rows": 5,
    }  # fmt: skip


def test_temporary_files_keep_the_later_expiry(lake: Lake, legacy_url: str) -> None:
    old = LegacyLake(legacy_url, Path(lake.storage.paths.root), 5).create()
    live = old.add(0)
    for days in (900, 1900, 100):
        old.queue("views/gone.parquet", days=days)
    old.queue(live, days=1)
    old.queue("../../etc/passwd", days=1)

    done = lake.tables.import_legacy(old.url, dry_run=False)

    rows = lake.registry.query("SELECT file_path, expiration FROM temporary_files")
    assert rows == [(f"{lake.storage.paths.root}/views/gone.parquet", int((DAY + timedelta(days=1900)).timestamp()) * 1_000_000)]
    assert (done.temporary_files, kinds(done)) == (1, ["outside_root", "temporary_file"])
    assert lake.check().clean


def test_an_event_time_prunes_and_names_are_chosen(lake: Lake, old: LegacyLake) -> None:
    old.add(0, view_set="a-b")
    old.add(0, view_set="a.b")
    old.add(0)

    done = run(lake, old, event_times={"spans": "time"}, names={"spans": "obs.traces"})

    assert [f.kind for f in done.findings] == ["bad_name", "bad_name"]
    assert [str(f.name) for f in lake.table("obs.traces").schema.fields] == ["id", "time"]
    assert lake.table("obs.traces").row.event_time_field == 2
    assert [t.name for t in lake.tables.list()] == ["traces"]
    assert lake.check().clean


def test_a_view_set_without_any_file_is_reported(lake: Lake, old: LegacyLake) -> None:
    old.add_empty(0)

    done = run(lake, old)

    assert kinds(done) == ["no_schema"]
    assert lake.tables.list() == []


def test_bad_sources_are_refused_and_change_nothing(lake: Lake, old: LegacyLake) -> None:
    old.add(0)
    before = logical_dump(lake.registry)

    bad: list[tuple[type[LakebedError], str, dict[str, Any]]] = [
        (InvalidValueError, "mysql://x/y", {}),
        (RegistryRefusedError, "postgresql://u:canary@db.example.com/x", {}),
        (RegistryUnavailableError, "postgresql://u:canary@localhost:1/x", {}),
        (InvalidValueError, old.url, {"view_sets": ["nope"]}),
        (LakebedError, old.url, {"root": "/no/such/place"}),
        (LakebedError, old.url, {"names": {"spans": "bad name"}}),
        (LakebedError, old.url, {"event_times": {"spans": "nope"}}),
    ]
    for refused, url, options in bad:
        chosen: dict[str, Any] = {"root": str(old.root), "dry_run": False, **options}
        with pytest.raises(refused) as caught:
            lake.tables.import_legacy(url, **chosen)
        assert "canary" not in str(caught.value)
    assert logical_dump(lake.registry, without=frozenset({"runs"})) == {k: v for k, v in before.items() if k != "runs"}
    old.execute("UPDATE lakehouse_migration SET version = 6")
    with pytest.raises(RegistryRefusedError, match="expected 2 to 5"):
        run(lake, old)
    lake.create_table("legacy.spans", pq.read_schema(old.root / old.paths[0]))
    old.execute("UPDATE lakehouse_migration SET version = 5")
    with pytest.raises(TableExistsError):
        run(lake, old)
