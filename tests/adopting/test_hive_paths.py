"""Columns that live only in the path: their values, their types, and the rewritten files that hold them."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from directories import hows, put, read_all, rows
from hypothesis import given
from hypothesis import strategies as st

from lakebed.adopt.hive_paths import infer_type, parse_value, read_path
from lakebed.core.errors import AdoptionRefusedError, InvalidValueError
from lakebed.core.schema.types import Primitive
from lakebed.storage.partition_paths import NULL_TEXT, encode_partition_path
from lakebed.testing import temporary_lake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.lake import Lake


@pytest.fixture
def lake() -> Iterator[Lake]:
    """On one database: what differs between the two is not asked for here."""
    with temporary_lake() as opened:
        yield opened


def test_directories_without_a_value_say_nothing() -> None:
    assert read_path("raw/day=2026-03-01/x/=3/part=0.parquet") == {"day": "2026-03-01"}
    assert read_path(f"country={NULL_TEXT}/a") == {"country": None}
    assert read_path("name=a%2Fb/a") == {"name": "a/b"}


def test_a_name_that_occurs_twice_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="twice"):
        read_path("day=1/day=2/a.parquet")


@given(
    values=st.dictionaries(st.text(min_size=1).filter(lambda t: t.isprintable()), st.text().filter(lambda t: t.isprintable()), max_size=4)
)
def test_what_hive_writes_is_read_back(values: dict[str, str]) -> None:
    path = encode_partition_path([*values.items()])

    assert read_path(f"{path}/a.parquet" if path else "a.parquet") == values


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "-2", "007"], "int"),
        (["1", "3000000000"], "long"),
        (["2026-03-01", None], "date"),
        (["2026-02-30"], "string"),
        (["1", "x"], "string"),
        (["1.5"], "string"),
        (["9" * 19], "string"),
        ([None], "string"),
        ([], "string"),
    ],
)
def test_the_narrowest_type_is_found(texts: list[str | None], kind: str) -> None:
    assert infer_type(texts) == Primitive(name=kind)


@given(text=st.text(), kind=st.sampled_from(["int", "long", "double", "date", "boolean", "timestamp", "timestamptz", "string", "uuid"]))
def test_a_value_is_parsed_or_refused_with_its_column(text: str, kind: str) -> None:
    try:
        parse_value(text, Primitive(name=kind), column="c")
    except InvalidValueError as exc:
        assert "c=" in str(exc)  # noqa: PT017


def test_files_are_rewritten_with_the_columns_of_their_path(lake: Lake, tmp_path: Path) -> None:
    source = tmp_path / "source"
    put(source / "day=2026-03-01/country=DE/a.parquet", rows(0))
    put(source / f"day=2026-03-02/country={NULL_TEXT}/b.parquet", rows(10))

    done = lake.tables.adopt("shop.events", str(source), event_time="ts")

    assert (hows(done), done.partition_by) == ({"rewrite": 2}, ("day", "country"))
    found = read_all(lake, "shop.events")
    assert {(row["day"], row["country"]) for row in found[:10]} == {(date(2026, 3, 1), "DE")}
    assert {(row["day"], row["country"]) for row in found[10:]} == {(date(2026, 3, 2), None)}
    paths = [file.partition_path for file in lake.files.list("shop.events")]
    assert paths == ["day=2026-03-01/country=DE", f"day=2026-03-02/country={NULL_TEXT}"]
    assert hows(lake.tables.adopt("shop.events", str(source))) == {"known": 2}
    assert lake.check(deep=True).clean


def test_a_column_that_is_in_the_file_too_needs_no_rewriting(lake: Lake, tmp_path: Path) -> None:
    put(tmp_path / "source/kind=x/a.parquet", rows(0, kind=["x"] * 10))

    done = lake.tables.adopt("shop.events", str(tmp_path / "source"))

    assert (hows(done), [f.partition_path for f in done.files]) == ({"link": 1}, ["kind=x"])
    assert lake.check().clean


def test_a_path_that_contradicts_its_rows_is_refused(lake: Lake, tmp_path: Path) -> None:
    put(tmp_path / "source/n=007/a.parquet", rows(0, n=pa.array([7] * 10, pa.int32())))
    put(tmp_path / "source/n=8/b.parquet", rows(10, n=pa.array([9] * 10, pa.int32())))

    with pytest.raises(AdoptionRefusedError, match="the path has n='8', the rows have '9'"):
        lake.tables.adopt("shop.events", str(tmp_path / "source"))

    assert hows(lake.tables.adopt("shop.events", str(tmp_path / "source"), path_types={"n": "ignore"})) == {"link": 2}
    assert lake.check().clean


def test_files_in_the_warehouse_without_the_column_are_rewritten_beside(lake: Lake) -> None:
    inside = Path(lake.storage.paths.root) / "incoming"
    put(inside / "day=7/a.parquet", rows(0))

    assert hows(lake.tables.adopt("shop.events", str(inside))) == {"rewrite": 1}

    assert {row["day"] for row in read_all(lake, "shop.events")} == {7}
    assert hows(lake.tables.adopt("shop.events", str(inside))) == {"known": 1}


def test_types_can_be_given_and_columns_ignored(lake: Lake, tmp_path: Path) -> None:
    put(tmp_path / "source/month=03/run=7/a.parquet", rows(0))

    done = lake.tables.adopt("shop.events", str(tmp_path / "source"), path_types={"month": "string", "run": "ignore"}, partition_by=())

    assert done.columns == ("id long", "ts timestamptz", "name string", "month string")
    assert {row["month"] for row in read_all(lake, "shop.events")} == {"03"}
    assert lake.check().clean


def test_the_tables_own_type_decides(lake: Lake, tmp_path: Path) -> None:
    lake.create_table("shop.events", pa.schema([*rows(0).schema, pa.field("n", pa.int64())]))
    put(tmp_path / "source/n=1/a.parquet", rows(0))
    put(tmp_path / "source/n=x/b.parquet", rows(10))
    put(tmp_path / "source/other=1/c.parquet", rows(20))

    with pytest.raises(AdoptionRefusedError) as refusal:
        lake.tables.adopt("shop.events", str(tmp_path / "source"))
    lake.tables.adopt("shop.events", str(tmp_path / "source"), skip_refused=True)

    assert [reason.split(":")[0] for _, reason in refusal.value.files] == [
        "the path has n='x', expected a long",
        "the path names the column 'other', which the table lacks",
    ]
    assert [row["n"] for row in read_all(lake, "shop.events")] == [1] * 10
    assert lake.check().clean


def test_sorted_tables_get_sorted_files(lake: Lake, tmp_path: Path) -> None:
    put(tmp_path / "source/day=1/a.parquet", rows(0).take(pa.array(range(9, -1, -1))))

    lake.tables.adopt("shop.events", str(tmp_path / "source"), sort_by=["id"])

    path = lake.files.list("shop.events")[0].file_path
    import pyarrow.parquet as pq  # noqa: PLC0415

    assert pq.ParquetFile(path).read()["id"].to_pylist() == list(range(10))
    assert lake.check().clean
