"""A directory of Parquet becomes a table: nothing is copied that need not be, and a second run adds what is new."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from directories import hows, put, read_all, rows

from builders import logical_dump
from lakebed.core.errors import AdoptionRefusedError, FileConflictError, InvalidValueError
from lakebed.lake import connect
from lakebed.registry.maintenance.runs import list_runs

if TYPE_CHECKING:
    from lakebed.lake import Lake


@pytest.fixture
def source(tmp_path: Path) -> Path:
    place = tmp_path / "source"
    place.mkdir()
    return place


def test_files_outside_are_linked_and_their_schema_is_found(lake: Lake, source: Path) -> None:
    first = put(source / "a.parquet", rows(0))
    put(source / "deep/b.parquet", rows(10))

    done = lake.tables.adopt("shop.events", str(source), event_time="ts")

    assert (done.creates_table, done.rows, hows(done)) == (True, 20, {"link": 2})
    assert done.columns == ("id long", "ts timestamptz", "name string")
    assert first.stat().st_nlink == 2
    assert [row["id"] for row in read_all(lake, "shop.events")] == list(range(20))
    assert lake.table("shop.events").row.row_count == 20
    assert lake.check(deep=True).clean


def test_a_dry_run_says_everything_and_changes_nothing(lake: Lake, source: Path) -> None:
    put(source / "a.parquet", rows(0))
    put(source / "day=2026-03-01/b.parquet", rows(10))
    before, files = logical_dump(lake.registry), sorted(Path(lake.storage.paths.root).rglob("*"))

    plan = lake.tables.adopt("shop.events", str(source), dry_run=True)

    assert hows(plan) == {"link": 1, "rewrite": 1}
    assert plan.columns[-1] == "day date"
    assert plan.partition_by == ("day",)
    assert logical_dump(lake.registry) == before
    assert sorted(Path(lake.storage.paths.root).rglob("*")) == files


def test_files_in_the_warehouse_stay_where_they_lie(lake: Lake) -> None:
    inside = Path(lake.storage.paths.root) / "incoming"
    path = put(inside / "a.parquet", rows(0))

    done = lake.tables.adopt("shop.events", str(inside))

    assert hows(done) == {"in place": 1}
    assert [file.file_path for file in lake.files.list("shop.events")] == [str(path)]
    assert hows(lake.tables.adopt("shop.events", str(inside))) == {"known": 1}
    assert lake.check().clean


def test_a_second_run_adds_only_what_is_new(lake: Lake, source: Path) -> None:
    put(source / "a.parquet", rows(0))
    lake.tables.adopt("shop.events", str(source))
    put(source / "b.parquet", rows(10))

    again = lake.tables.adopt("shop.events", str(source))
    third = lake.tables.adopt("shop.events", str(source.parent / "source"))

    assert (hows(again), hows(third)) == ({"known": 1, "link": 1}, {"known": 2})
    assert lake.table("shop.events").row.row_count == 20
    assert third.run_id is None
    assert lake.check().clean


def test_what_was_adopted_and_retired_does_not_come_back(lake: Lake, source: Path) -> None:
    put(source / "a.parquet", rows(0))
    lake.tables.adopt("shop.events", str(source))
    partition = lake.list_partitions("shop.events")[0]
    lake.retire_partition_by_metadata(
        "shop.events", "global", insert_begin=partition.begin_insert_time, insert_end=partition.end_insert_time
    )

    assert hows(lake.tables.adopt("shop.events", str(source))) == {"known": 1}
    assert lake.table("shop.events").row.row_count == 0


def test_a_source_that_changed_is_refused(lake: Lake, source: Path) -> None:
    put(source / "a.parquet", rows(0))
    lake.tables.adopt("shop.events", str(source), copy=True)
    put(source / "a.parquet", rows(5, count=3))

    with pytest.raises(AdoptionRefusedError, match="changed since it was adopted"):
        lake.tables.adopt("shop.events", str(source))
    assert lake.check().clean


def test_files_are_added_to_a_table_that_exists(lake: Lake, source: Path) -> None:
    lake.create_table("shop.events", rows(0).schema, event_time="ts", partition_by=["day(ts)"])
    put(source / "a.parquet", rows(0))

    done = lake.tables.adopt("shop.events", str(source))

    assert (done.creates_table, [f.partition_path for f in done.files]) == (False, ["ts_day=2026-03-01"])
    with pytest.raises(InvalidValueError, match="cannot change"):
        lake.tables.adopt("shop.events", str(source), partition_by=["hour(ts)"])
    assert lake.check().clean


def test_new_columns_need_leave_to_grow(lake: Lake, source: Path) -> None:
    lake.create_table("shop.events", rows(0).schema)
    put(source / "a.parquet", rows(0, note=["x"] * 10))

    with pytest.raises(AdoptionRefusedError, match="evolve"):
        lake.tables.adopt("shop.events", str(source))
    lake.tables.adopt("shop.events", str(source), evolve=True)

    assert [f.name for f in lake.table("shop.events").schema.fields] == ["id", "ts", "name", "note"]
    assert {row["note"] for row in read_all(lake, "shop.events")} == {"x"}
    assert lake.check().clean


def test_of_two_runs_at_once_each_file_is_taken_once(lake: Lake, source: Path, url: str) -> None:
    lake.create_table("shop.events", rows(0).schema)
    for number in range(3):
        put(source / f"{number}.parquet", rows(number * 10))

    def meanwhile(done: int, _: int) -> None:
        """After the first file another process takes the others."""
        if done == 1:
            with connect(url, warehouse=lake.storage.paths.root) as other:
                assert hows(other.tables.adopt("shop.events", str(source))) == {"known": 1, "link": 2}

    with pytest.raises(FileConflictError, match="another run adopted it"):
        lake.tables.adopt("shop.events", str(source), batch_files=1, progress=meanwhile)

    assert [row["id"] for row in read_all(lake, "shop.events")] == list(range(30))
    assert [run.state for run in list_runs(lake.registry, job="adopt")] == ["done", "failed"]
    assert lake.check().clean
