"""Literals as bounds: exact where Spark compares exactly, wider or nothing where it may not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.core.schema.types import Primitive
from lakebed.pipeline.spark.zone import Zone
from lakebed.pipeline.sql.predicates import Kind, Literal, Span, span_of

UTC_ZONE, BERLIN, INDIA = Zone.parse("UTC"), Zone.parse("Europe/Berlin"), Zone.parse("+05:30")
HOUR = 3600 * 1_000_000


def micros(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> int:
    return int(datetime(year, month, day, hour, minute, tzinfo=UTC).timestamp()) * 1_000_000


def span(kind: str, value: Any, of: Kind = Kind.PLAIN, zone: Zone = UTC_ZONE) -> Span | None:
    return span_of(Primitive.parse(kind), Literal(value, of), zone)


CASES: list[tuple[str, Any, Kind, Zone, Span | None]] = [
    ("long", 5, Kind.PLAIN, UTC_ZONE, Span(5, 5)),
    ("long", Decimal("10.5"), Kind.PLAIN, UTC_ZONE, Span(10, 11, exact=False)),
    ("long", 1e3, Kind.PLAIN, UTC_ZONE, Span(1000, 1000)),
    ("long", 2.0**53, Kind.PLAIN, UTC_ZONE, None),
    ("long", 2**63, Kind.PLAIN, UTC_ZONE, None),
    ("long", "5", Kind.PLAIN, UTC_ZONE, None),
    ("long", True, Kind.PLAIN, UTC_ZONE, None),
    ("long", float("nan"), Kind.PLAIN, UTC_ZONE, None),
    ("double", 0.5, Kind.PLAIN, UTC_ZONE, Span(0.5, 0.5)),
    ("double", 10**400, Kind.PLAIN, UTC_ZONE, None),
    ("decimal(9,2)", 5, Kind.PLAIN, UTC_ZONE, Span(Decimal("5.00"), Decimal("5.00"))),
    ("decimal(9,2)", Decimal("1.005"), Kind.PLAIN, UTC_ZONE, Span(Decimal("1.00"), Decimal("1.01"), exact=False)),
    ("decimal(9,2)", 1.5, Kind.PLAIN, UTC_ZONE, None),
    ("decimal(38,30)", 10**9, Kind.PLAIN, UTC_ZONE, None),
    ("string", "x", Kind.PLAIN, UTC_ZONE, Span("x", "x")),
    ("string", 5, Kind.PLAIN, UTC_ZONE, None),
    ("string", "2026-01-01", Kind.DATE, UTC_ZONE, None),
    ("boolean", True, Kind.PLAIN, UTC_ZONE, Span(low=True, high=True)),
    ("boolean", 1, Kind.PLAIN, UTC_ZONE, None),
    ("date", "1970-01-02", Kind.PLAIN, UTC_ZONE, Span(1, 1)),
    ("date", "1970-01-02", Kind.DATE, BERLIN, Span(1, 1)),
    ("date", "1970-01-02 00:00:00", Kind.TIMESTAMP, UTC_ZONE, None),
    ("date", "1970-13-02", Kind.DATE, UTC_ZONE, None),
    ("timestamptz", "2026-01-01", Kind.DATE, INDIA, Span(micros(2025, 12, 31, 18, 30), micros(2025, 12, 31, 18, 30))),
    ("timestamptz", "2026-01-01 00:00:00", Kind.TIMESTAMP, UTC_ZONE, Span(micros(2026, 1, 1), micros(2026, 1, 1))),
    ("timestamptz", "2026-01-01T02:00:00+02:00", Kind.TIMESTAMP, BERLIN, Span(micros(2026, 1, 1), micros(2026, 1, 1))),
    ("timestamptz", "2026-01-01 00:00:00", Kind.TIMESTAMP, BERLIN, Span(micros(2025, 12, 31, 20), micros(2026, 1, 1, 2), exact=False)),
    ("timestamptz", "1900-01-01 00:00:00", Kind.TIMESTAMP, BERLIN, None),
    ("timestamptz", "2026-01-01 00:00:00", Kind.TIMESTAMP, Zone.parse("no/where"), None),
    ("timestamptz", "today", Kind.PLAIN, UTC_ZONE, None),
    ("timestamp", "2026-01-01 00:00:00", Kind.TIMESTAMP_NTZ, BERLIN, Span(micros(2026, 1, 1), micros(2026, 1, 1))),
    ("timestamp", "2026-01-01 00:00:00", Kind.TIMESTAMP, BERLIN, None),
    ("timestamp", "2026-01-01 00:00:00Z", Kind.TIMESTAMP, INDIA, Span(micros(2026, 1, 1, 5, 30), micros(2026, 1, 1, 5, 30))),
    ("binary", "x", Kind.PLAIN, UTC_ZONE, None),
]


@pytest.mark.parametrize(("kind", "value", "of", "zone", "expected"), CASES)
def test_a_literal_bounds_what_can_equal_it(kind: str, value: Any, of: Kind, zone: Zone, expected: Span | None) -> None:
    assert span(kind, value, of, zone) == expected


@given(value=st.integers() | st.floats() | st.decimals() | st.text() | st.booleans(), kind=st.sampled_from(["int", "long", "float", "double", "decimal(38,4)", "date", "timestamp", "timestamptz", "string", "boolean"]), of=st.sampled_from(Kind))  # fmt: skip
def test_any_literal_gives_a_span_or_none(value: Any, kind: str, of: Kind) -> None:
    found = span(kind, value, of, BERLIN)

    assert found is None or not found.low > found.high  # type: ignore[operator]


@given(value=st.integers(-(2**70), 2**70))
def test_a_number_is_in_its_own_span(value: int) -> None:
    for kind in ("double", "float", "decimal(38,4)"):
        found = span(kind, value)
        assert found is None or found.low <= value <= found.high  # type: ignore[operator]


@pytest.mark.parametrize(("text", "offset"), [("UTC", 0), ("+02:00", 2), ("GMT-03:00", -3), ("Etc/UTC", 0)])
def test_zones_with_a_fixed_offset_are_known_exactly(text: str, offset: int) -> None:
    zone = Zone.parse(text)

    assert zone.is_fixed
    assert zone.rules is not None
    assert zone.rules.utcoffset(None) == timedelta(hours=offset)


@pytest.mark.parametrize("text", ["", "Nowhere/Land", "../../etc/passwd", "+99:00", "\x00"])
def test_a_zone_that_python_does_not_know_is_refused(text: str) -> None:
    assert Zone.parse(text) == Zone(None, is_fixed=False)
