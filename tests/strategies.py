"""What property tests draw from: names, times, schemas, values, paths."""

from __future__ import annotations

import string
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from lakebed.core.names import TableName
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, List, Map, Primitive, Struct, Type
from lakebed.core.times import MAX_MICROS, MIN_MICROS, TimeRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypothesis.strategies import DrawFn, SearchStrategy

    from lakebed.core.schema.bounds import Value

_WORD = string.ascii_letters + string.digits + "_"

words: SearchStrategy[str] = st.text(_WORD, min_size=1, max_size=63)
table_names: SearchStrategy[TableName] = st.builds(TableName, words, words)
op_ids: SearchStrategy[str] = st.text("0123456789abcdef", min_size=32, max_size=32)
unicode_text: SearchStrategy[str] = st.text(st.characters(exclude_categories=["Cs"]))
# Written by a hostile hand: separators, dots, controls, look-alikes, escapes.
hostile_text: SearchStrategy[str] = st.one_of(
    st.text(),
    st.text(st.sampled_from("./\\%\x00\n\r\t:@?#&= \u2025\u2024\uff0f\uff0e\u043e\u2028'\"~-eE2f5cC"), max_size=40),
    st.lists(st.sampled_from(["..", ".", "", "a", "%2e%2e", "..%2f", "file:", "s3:", "~", "\u043erders", "a" * 300])).map("/".join),
)

micros: SearchStrategy[int] = st.integers(MIN_MICROS, MAX_MICROS)
aware_datetimes: SearchStrategy[datetime] = st.datetimes(timezones=st.just(UTC))


@st.composite
def time_ranges(draw: DrawFn) -> TimeRange:
    begin = draw(st.integers(MIN_MICROS, MAX_MICROS - 1))
    return TimeRange(begin=begin, end=draw(st.integers(begin + 1, MAX_MICROS)))


@st.composite
def _decimals(draw: DrawFn) -> Primitive:
    precision = draw(st.integers(1, 38))
    return Primitive(name="decimal", precision=precision, scale=draw(st.integers(0, precision)))


simple_types: SearchStrategy[Primitive] = st.sampled_from(
    ["boolean", "int", "long", "float", "double", "date", "timestamp", "timestamptz", "string", "uuid", "binary"]
).map(Primitive.parse)
primitives: SearchStrategy[Primitive] = st.one_of(
    simple_types, _decimals(), st.integers(0, 64).map(lambda length: Primitive(name="fixed", length=length))
)


_VALUES: dict[str, SearchStrategy[Value]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "date": st.dates(),
    "timestamp": st.datetimes(),
    "timestamptz": aware_datetimes,
    "string": unicode_text,
    "uuid": st.binary(min_size=16, max_size=16),
    "binary": st.binary(max_size=200),
}


def values_of(kind: Primitive) -> SearchStrategy[Value]:
    """Values that a column of that type may hold, the awkward ones among them."""
    if kind.name == "fixed":
        return st.binary(min_size=kind.length, max_size=kind.length)
    if kind.name == "decimal":
        biggest = 10**kind.precision - 1
        return st.integers(-biggest, biggest).map(lambda unscaled: Decimal(f"{unscaled}E-{kind.scale}"))
    return _VALUES[kind.name]


@st.composite
def _types(draw: DrawFn, ids: Iterator[int], *, depth: int) -> Type:
    shape = draw(st.sampled_from(["primitive", "primitive", "struct", "list", "map"])) if depth else "primitive"
    match shape:
        case "struct":
            return Struct(fields=draw(_columns(ids, depth=depth - 1)))
        case "list":
            return List(element=draw(_fields(ids, "element", depth=depth - 1)))
        case "map":
            key = Field(field_id=next(ids), name="key", type=draw(primitives), required=True)
            return Map(key=key, value=draw(_fields(ids, "value", depth=depth - 1)))
        case _:
            return draw(primitives)


@st.composite
def _fields(draw: DrawFn, ids: Iterator[int], name: str, *, depth: int) -> Field:
    field_id = next(ids)
    physical = draw(st.sampled_from([name, f"{name}_{field_id}"]))
    return Field(field_id=field_id, name=name, required=draw(st.booleans()), physical_name=physical, type=draw(_types(ids, depth=depth)))


@st.composite
def _columns(draw: DrawFn, ids: Iterator[int], *, depth: int) -> tuple[Field, ...]:
    names = draw(st.lists(st.from_regex(r"[a-z]{1,8}", fullmatch=True), min_size=1, max_size=4, unique=True))
    return tuple(draw(_fields(ids, name, depth=depth)) for name in names)


@st.composite
def schemas(draw: DrawFn, *, depth: int = 3) -> Schema:
    return Schema(fields=draw(_columns(count(1), depth=depth)))


# Segments that are legal in a path yet easily misread: escapes, blanks, schemes, non-ASCII.
path_segments: SearchStrategy[str] = st.one_of(
    words,
    st.text(st.sampled_from("ab .%25=+&@:~,;()\u00e9\u65e5"), min_size=1, max_size=12).filter(lambda text: text not in {".", ".."}),
)
relative_paths: SearchStrategy[str] = st.lists(path_segments, min_size=1, max_size=6).map("/".join)
