"""Partition transforms give Iceberg's values, in UTC, as one text each."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.core.errors import InvalidValueError, SchemaRefusedError
from lakebed.core.schema.murmur3 import decimal_bytes, long_bytes, murmur3
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.transforms import Transform, parse_transform, resolve_transforms
from lakebed.core.schema.types import Field, Primitive
from strategies import aware_datetimes

if TYPE_CHECKING:
    from lakebed.core.schema.bounds import Value

MOMENT = datetime(2017, 11, 16, 22, 31, 8, tzinfo=UTC)
MICROS = 1_510_871_468_000_000
# Appendix B of Iceberg's specification
PUBLISHED = [
    (long_bytes(34), 2017239379),
    (decimal_bytes(Decimal("14.20"), 2), -500754589),
    (long_bytes((date(2017, 11, 16) - date(1970, 1, 1)).days), -653330422),
    (long_bytes(MICROS), -2047944441),
    (b"iceberg", 1210000089),
    (uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes, 1488055340),
    (bytes([0, 1, 2, 3]), -188683207),
]


def kind(text: str) -> Primitive:
    return Primitive.parse(text)


@pytest.mark.parametrize(("content", "expected"), PUBLISHED)
def test_the_hash_gives_the_published_values(content: bytes, expected: int) -> None:
    assert murmur3(content) == expected % 2**32


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ts", Transform(kind="identity", column="ts")),
        ("day(ts)", Transform(kind="day", column="ts")),
        (" Hours( ts ) ", Transform(kind="hour", column="ts")),
        ("months(`my col`)", Transform(kind="month", column="my col")),
        ("bucket(16, id)", Transform(kind="bucket", column="id", argument=16)),
        ("truncate(name, 4)", Transform(kind="truncate", column="name", argument=4)),
        ("identity(a)", Transform(kind="identity", column="a")),
    ],
)
def test_a_transform_is_read_from_its_text(text: str, expected: Transform) -> None:
    assert parse_transform(text) == expected
    assert parse_transform(str(expected)) == expected


@pytest.mark.parametrize("text", ["", "week(ts)", "bucket(id)", "bucket(0, id)", "bucket(-1, id)", "day()", "bucket(a, b)", "truncate(4,)"])
def test_an_invalid_transform_is_refused_with_the_way_to_write_one(text: str) -> None:
    with pytest.raises(SchemaRefusedError, match="is not a partition transform: expected a column, year"):
        parse_transform(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [("day(ts)", "ts_day"), ("bucket(4,id)", "id_bucket"), ("truncate(3,s)", "s_trunc"), ("s", "s"), ("year(d)", "d_year")],
)
def test_a_partition_field_is_named_as_iceberg_names_it(text: str, name: str) -> None:
    assert parse_transform(text).name == name


@pytest.mark.parametrize(
    ("text", "value", "source", "expected"),
    [
        ("day(c)", MOMENT, "timestamptz", "2017-11-16"),
        ("day(c)", datetime(2017, 11, 17, 0, 31, tzinfo=timezone(timedelta(hours=2))), "timestamptz", "2017-11-16"),
        ("hour(c)", MICROS, "timestamptz", "2017-11-16-22"),
        ("hour(c)", -1, "timestamptz", "1969-12-31-23"),
        ("month(c)", date(1969, 12, 1), "date", "1969-12"),
        ("year(c)", datetime(2017, 1, 1), "timestamp", "2017"),  # noqa: DTZ001 - a timestamp without a zone
        ("year(c)", date(1, 1, 1), "date", "0001"),
        ("truncate(10, c)", -1, "int", "-10"),
        ("truncate(50, c)", Decimal("10.65"), "decimal(9,2)", "10.50"),
        ("truncate(3, c)", "\U0001f600bcd", "string", "\U0001f600bc"),
        ("truncate(2, c)", b"abc", "binary", "YWI="),
        ("bucket(16, c)", "iceberg", "string", str(1210000089 % 16)),
        ("bucket(100, c)", b"\x00\x01\x02\x03", "binary", str((-188683207 & 0x7FFFFFFF) % 100)),
        ("c", Decimal("1E-8"), "decimal(20,10)", "0.0000000100"),
        ("c", True, "boolean", "true"),
        ("c", MOMENT, "timestamptz", "2017-11-16T22:31:08.000000+00:00"),
        ("c", MICROS, "timestamp", "2017-11-16T22:31:08.000000"),
        ("c", uuid.UUID(int=7).bytes, "uuid", str(uuid.UUID(int=7))),
        ("c", "", "string", ""),
        ("c", None, "string", None),
    ],
)
def test_a_value_has_one_text(text: str, value: Value | None, source: str, expected: str | None) -> None:
    assert parse_transform(text).apply(value, kind(source)) == expected


@given(st.integers(-(2**31), 2**31 - 1), st.integers(1, 1000))
def test_promoting_an_int_column_moves_no_row_to_another_bucket(value: int, buckets: int) -> None:
    transform = Transform(kind="bucket", column="c", argument=buckets)

    assert transform.apply(value, kind("int")) == transform.apply(value, kind("long"))


@given(aware_datetimes)
def test_a_shorter_calendar_text_begins_a_longer_one(moment: datetime) -> None:
    texts = [parse_transform(f"{unit}(c)").apply(moment, kind("timestamptz")) or "" for unit in ("year", "month", "day", "hour")]

    assert all(longer.startswith(shorter) for shorter, longer in pairwise(texts))


def table(**columns: str) -> Schema:
    return Schema(fields=tuple(Field(field_id=n, name=name, type=kind(text)) for n, (name, text) in enumerate(columns.items(), 1)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("day(name)", "column 'name' is string, day takes date, timestamp"),
        ("amount", "column 'amount' is double, identity takes"),
        ("truncate(2, ok)", "column 'ok' is boolean"),
        ("nowhere", "there is no column 'nowhere'"),
    ],
)
def test_a_transform_that_its_column_cannot_take_is_refused(text: str, message: str) -> None:
    with pytest.raises(SchemaRefusedError, match=message):
        resolve_transforms(table(name="string", amount="double", ok="boolean"), [text])


def test_two_transforms_with_one_name_are_refused() -> None:
    with pytest.raises(SchemaRefusedError, match="two partition transforms give the field 'id_bucket'"):
        resolve_transforms(table(id="long"), ["bucket(4, id)", "bucket(8, id)"])


def test_a_transform_stays_with_its_column_when_names_are_swapped() -> None:
    swapped = Schema(
        fields=(
            Field(field_id=1, name="b", physical_name="a", type=kind("date")),
            Field(field_id=2, name="a", physical_name="b", type=kind("string")),
        )
    )

    ((_, field),) = resolve_transforms(swapped, ["day(a)"])

    assert field.field_id == 1


def test_a_value_of_another_type_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="expected a value of type long, got 'x'"):
        parse_transform("bucket(4, c)").apply("x", kind("long"))
