"""Bounds as Iceberg serializes them: PyIceberg reads each one back, and none leaves out a value."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes

from lakebed.core.errors import InvalidValueError
from lakebed.core.schema.types import Primitive
from lakebed.core.times import EPOCH, MICROSECOND
from lakebed.iceberg.types.schemas import to_iceberg_type
from lakebed.iceberg.types.values import MAX_LENGTH, encode, lower_bound, upper_bound
from strategies import primitives, values_of

if TYPE_CHECKING:
    from lakebed.core.schema.bounds import Value


def plain(value: object) -> Any:
    """Days and microseconds, as footers hold them."""
    if isinstance(value, datetime):
        return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - EPOCH) // MICROSECOND
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else value


def decode(kind: Primitive, content: bytes) -> Any:
    found: Any = from_bytes(to_iceberg_type(kind), content)
    return found.bytes if isinstance(found, UUID) else plain(found)


@given(st.data())
def test_pyiceberg_reads_back_every_value(data: st.DataObject) -> None:
    kind = data.draw(primitives)
    value = plain(data.draw(values_of(kind)))

    assert decode(kind, encode(kind, value)) == value


@given(st.data())
def test_bounds_enclose_the_value_and_are_cut(data: st.DataObject) -> None:
    kind = data.draw(primitives)
    value = plain(data.draw(values_of(kind)))
    lower, upper = lower_bound(kind, value), upper_bound(kind, value)

    assert decode(kind, lower) <= value
    assert upper is None or decode(kind, upper) >= value
    if kind.name == "string":
        assert all(len(bound.decode()) <= MAX_LENGTH for bound in (lower, upper) if bound is not None)
    if kind.name == "binary":
        assert all(len(bound) <= MAX_LENGTH for bound in (lower, upper) if bound is not None)


@pytest.mark.parametrize("name", ["float", "double"])
def test_zero_is_bounded_by_both_of_its_signs(name: str) -> None:
    kind = Primitive(name=name)
    ends = [(lower_bound(kind, zero), upper_bound(kind, zero)) for zero in (0.0, -0.0)]

    assert ends[0] == ends[1]
    assert [math.copysign(1, decode(kind, end or b"")) for end in ends[0]] == [-1, 1]


@pytest.mark.parametrize(
    ("kind", "value"),
    [("int", 1 << 31), ("long", 1 << 63), ("timestamptz", -(1 << 63) - 1), ("float", 1e300), ("decimal(4,2)", Decimal(100))],
)
def test_a_value_outside_of_its_type_is_refused(kind: str, value: Value) -> None:
    with pytest.raises(InvalidValueError, match="expected a value of type"):
        encode(Primitive.parse(kind), value)


@pytest.mark.parametrize("text", ["1.5", "1.50", "1.500"])
def test_a_decimal_is_encoded_by_the_scale_of_its_type(text: str) -> None:
    assert encode(Primitive.parse("decimal(4,2)"), Decimal(text)) == (150).to_bytes(2, "big")
