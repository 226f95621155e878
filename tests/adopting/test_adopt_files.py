"""Which files of a directory can be taken, and how: footers, types, ids and names as others write them."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from directories import hows, put, read_all, rows

from builders import logical_dump
from lakebed.core.errors import AdoptionRefusedError, LakebedError, PathRefusedError
from lakebed.testing import temporary_lake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.lake import Lake


@pytest.fixture
def lake() -> Iterator[Lake]:
    """On one database: what differs between the two is not asked for here."""
    with temporary_lake() as opened:
        yield opened


@pytest.fixture
def source(tmp_path: Path) -> Path:
    place = tmp_path / "source"
    place.mkdir()
    return place


def test_copies_are_made_where_links_are_not_wanted(lake: Lake, source: Path) -> None:
    path = put(source / "a.parquet", rows(0))

    assert hows(lake.tables.adopt("shop.events", str(source), copy=True)) == {"copy": 1}

    assert path.stat().st_nlink == 1
    assert lake.check(deep=True).clean


def test_an_empty_directory_adopts_nothing(lake: Lake, source: Path) -> None:
    done = lake.tables.adopt("shop.events", str(source))

    assert (done.taken, done.creates_table, done.columns) == (0, False, ())
    assert lake.tables.list() == []


def test_entries_that_are_not_data_are_skipped_and_counted(lake: Lake, source: Path) -> None:
    put(source / "a.parquet", rows(0))
    put(source / "none.parquet", rows(0, count=0))
    put(source / "000000_0", rows(10))  # Hive gives no suffix
    put(source / "_temporary/c.parquet", rows(20))
    for name in ("_SUCCESS", ".a.parquet.crc", "notes.txt"):
        (source / name).touch()
    (source / "again.parquet").symlink_to(source / "a.parquet")

    done = lake.tables.adopt("shop.events", str(source))

    assert hows(done) == {"link": 2, "empty": 1}
    assert done.skipped == {"hidden": 3, "link": 1, "not Parquet": 1}
    assert lake.check().clean


def test_links_that_leave_and_special_files_are_refused(lake: Lake, source: Path, tmp_path: Path) -> None:
    put(source / "a.parquet", rows(0))
    (source / "away.parquet").symlink_to(put(tmp_path / "elsewhere.parquet", rows(10)))
    (source / "beyond").symlink_to(tmp_path)
    os.mkfifo(source / "pipe.parquet")

    with pytest.raises(AdoptionRefusedError) as refusal:
        lake.tables.adopt("shop.events", str(source))
    done = lake.tables.adopt("shop.events", str(source), skip_refused=True)

    assert [Path(path).name for path, _ in refusal.value.files] == ["away.parquet", "beyond", "pipe.parquet"]
    assert hows(done) == {"link": 1, "refused": 3}
    assert lake.check().clean


def test_torn_files_are_named_and_nothing_is_done(lake: Lake, source: Path) -> None:
    put(source / "a.parquet", rows(0))
    (source / "torn.parquet").write_bytes(put(source / "b.parquet", rows(10)).read_bytes()[:-20])
    (source / "text.parquet").write_text("no Parquet at all, but long enough")

    with pytest.raises(AdoptionRefusedError, match="2 files cannot be adopted"):
        lake.tables.adopt("shop.events", str(source))

    assert lake.tables.list() == []
    assert hows(lake.tables.adopt("shop.events", str(source), skip_refused=True)) == {"link": 2, "refused": 2}
    assert lake.check().clean


def test_differences_between_files_are_reported(lake: Lake, source: Path) -> None:
    put(source / "a.parquet", rows(0, n=pa.array(range(10), pa.int64())))
    put(source / "b.parquet", rows(10, n=pa.array(range(10), pa.int32())))
    put(source / "c.parquet", rows(20))
    put(source / "d.parquet", rows(30, n=["text"] * 10))

    plan = lake.tables.adopt("shop.events", str(source), dry_run=True)

    assert "n long" in plan.columns or "n string" in plan.columns
    assert any("is missing and reads as NULL" in text for text in plan.differences)
    assert hows(plan)["refused"] >= 1
    assert hows(lake.tables.adopt("shop.events", str(source), skip_refused=True))["link"] == hows(plan)["link"]
    assert lake.check().clean


def test_int96_and_nanoseconds_are_refused_or_rewritten(lake: Lake, source: Path) -> None:
    put(source / "a.parquet", rows(0), use_deprecated_int96_timestamps=True)
    put(source / "b.parquet", rows(10).set_column(1, "ts", rows(10)["ts"].cast(pa.timestamp("ns", tz="UTC"))), version="2.6")

    with pytest.raises(AdoptionRefusedError, match="INT96"):
        lake.tables.adopt("shop.events", str(source), event_time="ts")
    done = lake.tables.adopt("shop.events", str(source), event_time="ts", rewrite=True)

    assert hows(done) == {"rewrite": 2}
    assert [row["ts"] for row in read_all(lake, "shop.events")] == rows(0, count=20)["ts"].to_pylist()
    assert lake.check(deep=True).clean


@pytest.mark.parametrize(("version", "is_old"), [("2.4.8", True), ("3.0.3", True), ("3.1.0", False)])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_int96_of_the_old_calendar_is_rewritten_only_where_both_calendars_agree(
    lake: Lake, source: Path, version: str, depth: int, *, is_old: bool
) -> None:
    def times(year: int) -> pa.Table:
        moment: Any = datetime(year, 1, 1, tzinfo=UTC)
        nested = (moment, {"at": moment}, [{"at": moment}])[depth]
        return pa.table({"id": [year], "x": [nested]}).replace_schema_metadata({"org.apache.spark.version": version})

    put(source / "new.parquet", times(1900), use_deprecated_int96_timestamps=True)
    put(source / "old.parquet", times(1899), use_deprecated_int96_timestamps=True)

    done = lake.tables.adopt("shop.events", str(source), rewrite=True, skip_refused=True)

    assert hows(done) == ({"rewrite": 1, "refused": 1} if is_old else {"rewrite": 2})
    assert [Path(file.path).name for file in done.files if "old calendar" in file.reason] == ["old.parquet"] * is_old
    assert [row["id"] for row in read_all(lake, "shop.events")] == ([1900] if is_old else [1899, 1900])
    assert lake.check(deep=True).clean


def test_field_ids_of_another_table_do_not_swap_columns(lake: Lake, source: Path) -> None:
    plain = pa.table({"a": pa.array([1, 2], pa.int64()), "b": pa.array([3, 4], pa.int64()), "id": pa.array([1, 2], pa.int64())})
    lake.create_table("shop.pairs", plain.schema)
    swapped = pa.schema(
        [plain.schema.field(n).with_metadata({b"PARQUET:field_id": i}) for n, i in (("a", b"2"), ("b", b"1"), ("id", b"3"))]
    )
    put(source / "a.parquet", plain.cast(swapped))

    with pytest.raises(AdoptionRefusedError, match="field id"):
        lake.tables.adopt("shop.pairs", str(source))
    lake.tables.adopt("shop.pairs", str(source), rewrite=True)

    assert [(row["a"], row["b"]) for row in read_all(lake, "shop.pairs")] == [(1, 3), (2, 4)]
    assert lake.check().clean


def test_a_new_table_takes_over_complete_field_ids(lake: Lake, source: Path) -> None:
    numbered = pa.schema([pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"7"})])
    put(source / "a.parquet", pa.table({"id": pa.array([1], pa.int64())}).cast(numbered))

    lake.tables.adopt("shop.numbered", str(source))

    assert [f.field_id for f in lake.table("shop.numbered").schema.fields] == [7]
    assert lake.check().clean


def test_nested_columns_are_found(lake: Lake, source: Path) -> None:
    nested = pa.table(
        {
            "id": pa.array([1], pa.int64()),
            "tags": pa.array([["a", "b"]], pa.list_(pa.string())),
            "place": pa.array([{"x": 1.0, "y": 2.0}], pa.struct([("x", pa.float64()), ("y", pa.float64())])),
            "counts": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        }
    )
    put(source / "a.parquet", nested)
    put(source / "day=1/b.parquet", nested)

    done = lake.tables.adopt("shop.nested", str(source))

    assert hows(done) == {"link": 1, "rewrite": 1}
    assert done.columns == ("id long", "tags list", "place struct", "counts map", "day int")
    assert lake.check().clean


def test_bad_requests_change_nothing(lake: Lake, source: Path) -> None:
    put(source / "a.parquet", rows(0))
    before = logical_dump(lake.registry)

    put(source / "day=1/b.parquet", rows(1))
    bad: list[tuple[str, str, dict[str, Any]]] = [
        (str(source / "nowhere"), "shop.events", {}),
        (str(source), "no table name", {}),
        (str(source), "shop.events", {"event_time": "nope"}),
        (str(source), "shop.events", {"partition_by": ["day(nope)"]}),
        (str(source), "shop.events", {"partition_by": ["day(name)"]}),
        (str(source), "shop.events", {"event_time": "name"}),
        (str(source), "shop.events", {"path_types": {"day": "no type"}, "dry_run": True}),
        ("s3://bucket/elsewhere", "shop.events", {}),
    ]
    for directory, table, options in bad:
        with pytest.raises(LakebedError):
            lake.tables.adopt(table, directory, **options)
    assert logical_dump(lake.registry) == before
    with pytest.raises(PathRefusedError, match="no such directory"):
        lake.tables.adopt("shop.events", str(source / "nowhere"))


def test_rows_that_do_not_fit_undo_their_batch(lake: Lake, source: Path) -> None:
    lake.create_table("shop.events", rows(0).schema.append(pa.field("n", pa.int64())))
    put(source / "a.parquet", rows(0, n=pa.array([2**63 + 1] * 10, pa.uint64())))
    put(source / "b.parquet", rows(10, n=pa.array([7] * 10, pa.uint64())))

    with pytest.raises(AdoptionRefusedError, match="cannot be rewritten"):
        lake.tables.adopt("shop.events", str(source), rewrite=True)
    assert not lake.files.list("shop.events")
    done = lake.tables.adopt("shop.events", str(source), rewrite=True, skip_refused=True)

    assert hows(done) == {"refused": 1, "rewrite": 1}
    assert {row["n"] for row in read_all(lake, "shop.events")} == {7}
    assert lake.check().clean
