"""Results are typed rows; the same rows are Arrow, pandas and HTML."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from lakebed.core.results import Rows, arrow_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    number: int
    name: str
    seen: datetime | None = None
    is_new: bool = False


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_rows_behave_like_the_list_they_used_to_be() -> None:
    things = Rows(Thing, [Thing(number=n, name=str(n)) for n in range(3)])

    assert len(things) == 3
    assert things[1].name == "1"
    assert [t.number for t in things] == [0, 1, 2]
    assert things == list(things) == Rows(Thing, things)
    assert things[1:] == [things[1], things[2]]
    assert Rows(Thing) == []


def test_rows_cannot_be_changed() -> None:
    things = Rows(Thing, [Thing(number=1, name="a")])

    with pytest.raises(TypeError):
        things[0] = Thing(number=2, name="b")  # type: ignore[index]
    assert hash(things) == hash(Rows(Thing, things))


def test_times_are_utc_timestamps_in_arrow() -> None:
    zoned = NOON.astimezone(tz=None)
    table = Rows(Thing, [Thing(number=1, name="a", seen=zoned), Thing(number=2, name="b")]).to_arrow()

    assert table.schema.field("seen") == pa.field("seen", pa.timestamp("us", tz="UTC"))
    assert table.column("seen").to_pylist() == [NOON, None]
    assert not table.schema.field("number").nullable


def test_the_schema_of_nothing_is_the_schema_of_something() -> None:
    some = Rows(Thing, [Thing(number=1, name="a", seen=NOON)])

    assert Rows(Thing).to_arrow().schema == some.to_arrow().schema == arrow_schema(Thing)
    assert list(Rows(Thing).to_pandas().columns) == ["number", "name", "seen", "is_new"]


def test_pandas_keeps_the_instant() -> None:
    frame = Rows(Thing, [Thing(number=1, name="a", seen=NOON + timedelta(microseconds=1))]).to_pandas()

    assert frame["seen"][0].to_pydatetime() == NOON + timedelta(microseconds=1)


def test_a_notebook_shows_names_as_text_and_not_as_markup() -> None:
    html = Rows(Thing, [Thing(number=n, name="<script>") for n in range(60)])._repr_html_()

    assert "<script>" not in html
    assert html.count("<tr>") == 51
    assert "60 rows, the first 50 shown" in html
    assert "10 more" in repr(Rows(Thing, [Thing(number=n, name="x") for n in range(60)]))
