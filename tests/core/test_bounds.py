from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakebed.core.errors import InvalidValueError
from lakebed.core.schema.bounds import MAX_BOUND_BYTES, coordinate, encode, lower_bound, upper_bound
from lakebed.core.schema.types import Primitive
from strategies import primitives, unicode_text, values_of

STRING, BINARY, DOUBLE = (Primitive.parse(name) for name in ("string", "binary", "double"))
pairs = primitives.flatmap(lambda kind: st.tuples(st.just(kind), values_of(kind), values_of(kind)))
columns = primitives.flatmap(lambda kind: st.tuples(st.just(kind), st.lists(values_of(kind), min_size=1, max_size=8)))
long_text = st.text(st.sampled_from("a\x7f\u07ff\ud7ff\uffff\U0010ffff\u00e9"), min_size=10, max_size=80)
long_bytes = st.binary(min_size=60, max_size=70).map(lambda tail: b"\xff" * 20 + tail)


def encoded(kind: Primitive, value: Any) -> bytes:
    found = encode(kind, value)
    assert found is not None
    return found


@given(pairs)
@example((DOUBLE, -0.0, 5e-324))
@example((DOUBLE, float("-inf"), float("inf")))
def test_the_order_of_bytes_is_the_order_of_values(case: tuple[Primitive, Any, Any]) -> None:
    kind, left, right = case

    if left < right:
        assert encoded(kind, left) < encoded(kind, right)
    elif left > right:
        assert encoded(kind, left) > encoded(kind, right)
    else:
        assert encoded(kind, left) == encoded(kind, right) or left == 0.0


@given(columns)
def test_bounds_enclose_every_value(case: tuple[Primitive, list[Any]]) -> None:
    kind, values = case
    lower, upper = lower_bound(kind, min(values)), upper_bound(kind, max(values))

    assert lower is not None
    assert all(lower <= encoded(kind, value) for value in values)
    assert upper is None or all(encoded(kind, value) <= upper for value in values)


@given(st.one_of(long_text, unicode_text), st.one_of(long_text, unicode_text))
@example("\U0010ffff" * 16, "x")
@example("\U0010ffff" * 17, "x")
def test_a_cut_text_still_encloses_and_stays_text(text: str, tail: str) -> None:
    lower, upper = lower_bound(STRING, text + tail), upper_bound(STRING, text + tail)

    assert lower is not None
    assert lower <= (text + tail).encode()
    assert len(lower) <= MAX_BOUND_BYTES
    assert lower.decode() == (text + tail)[: len(lower.decode())]
    assert upper is None or upper.decode() >= text + tail


@given(long_bytes)
@example(b"\xff" * 65)
def test_cut_bytes_still_enclose(value: bytes) -> None:
    lower, upper = lower_bound(BINARY, value), upper_bound(BINARY, value)

    assert lower == value[:MAX_BOUND_BYTES]
    assert upper is None or (upper >= value and len(upper) <= MAX_BOUND_BYTES)


def test_nothing_is_greater_than_the_greatest_cut_value() -> None:
    assert upper_bound(BINARY, b"\xff" * 65) is None
    assert upper_bound(STRING, "\U0010ffff" * 17) is None
    assert upper_bound(STRING, "a" + "\U0010ffff" * 17) == b"b"


def test_both_zeros_are_between_the_bounds_of_either() -> None:
    for bound in (0.0, -0.0):
        for value in (0.0, -0.0):
            assert (lower_bound(DOUBLE, bound) or b"") <= encoded(DOUBLE, value) <= (upper_bound(DOUBLE, bound) or b"")


def test_nan_has_no_bound() -> None:
    assert encode(DOUBLE, float("nan")) is None
    assert lower_bound(DOUBLE, float("nan")) is upper_bound(DOUBLE, float("nan")) is None
    assert coordinate(DOUBLE, float("nan")) is None


@given(st.integers(-(2**31), 2**31 - 1), st.floats(width=32, allow_nan=False))
def test_old_bounds_still_compare_after_a_promotion(whole: int, real: float) -> None:
    assert encode(Primitive.parse("int"), whole) == encode(Primitive.parse("long"), whole)
    assert encode(Primitive.parse("float"), real) == encode(DOUBLE, real)
    assert encode(Primitive.parse("decimal(9,2)"), Decimal("1.25")) == encode(Primitive.parse("decimal(38,2)"), Decimal("1.25"))


@given(st.integers(-(10**38) + 1, 10**38 - 1))
def test_a_whole_number_is_an_exact_decimal(number: int) -> None:
    kind = Primitive.parse("decimal(38,0)")

    assert encode(kind, number) == encode(kind, Decimal(number))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", 1.5), ("int", True), ("int", "1"), ("long", 2**63), ("int", datetime(2026, 1, 1, tzinfo=UTC)), ("long", date(2026, 1, 1)),
        ("date", datetime(2026, 1, 1, tzinfo=UTC)), ("timestamptz", date(2026, 1, 1)), ("timestamp", "2026-01-01"),
        ("double", "1"), ("double", True), ("double", 10**400), ("decimal(9,2)", "1"), ("decimal(38,0)", Decimal(10) ** 39), ("decimal(9,2)", Decimal("NaN")),
        ("decimal(9,2)", Decimal("Infinity")), ("decimal(9,2)", float("nan")), ("string", b"a"), ("binary", "a"), ("boolean", "false"), ("boolean", 1),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused(kind: str, value: Any) -> None:
    with pytest.raises(InvalidValueError):
        encode(Primitive.parse(kind), value)


@given(pairs)
def test_coordinates_keep_the_order_where_there_are_any(case: tuple[Primitive, Any, Any]) -> None:
    kind, left, right = case
    first, second = coordinate(kind, left), coordinate(kind, right)

    assert (first is None) == (second is None) == (kind.name not in {"int", "long", "float", "double", "date", "timestamp", "timestamptz"})
    if first is not None and second is not None and left <= right:
        assert first <= second
