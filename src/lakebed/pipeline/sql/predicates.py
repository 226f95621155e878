"""Conditions on one column, and how a literal of a query bounds the values that Spark compares with it.

A bound is used only if it includes every row that Spark would return.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from enum import Enum
from typing import TYPE_CHECKING

from lakebed.core.times import MICROSECOND, days_of, micros_of
from lakebed.pipeline.spark.zone import Zone

if TYPE_CHECKING:
    from lakebed.core.schema.bounds import Value
    from lakebed.core.schema.types import Field, Primitive

_WIDE = Context(prec=80)
_MAX_DIGITS = 38
EXACT_IN_DOUBLE = 2**53
_DIGITS_OF = {"int": 10, "long": 20}
_FLOAT_DOUBT = 1e-6  # outside ANSI mode Spark rounds a literal to the 24 bits of a float column
# Spark and Python may have different versions of a zone's rules: times given in local time are widened by this
_ZONE_DOUBT = timedelta(hours=3) // MICROSECOND
_FIRST_YEAR, _LAST_YEAR = 1971, 2036  # outside, versions differ by more
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_MOMENT = re.compile(r"(\d{4}-\d{2}-\d{2})[ T](\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?) ?(Z|UTC|[+-]\d{2}:\d{2})?", re.ASCII)
DISCRETE = frozenset({"int", "long", "date", "timestamp", "timestamptz"})


class Kind(Enum):
    """Spark's type of a literal; numbers are distinguished by their Python types."""

    PLAIN = "plain"
    DATE = "date"
    TIMESTAMP = "timestamp"  # with the session's zone where the text has none
    TIMESTAMP_NTZ = "timestamp_ntz"


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal of the query: a number, text or boolean, or the text of a date or timestamp."""

    value: bool | int | float | Decimal | str
    kind: Kind = Kind.PLAIN


@dataclass(frozen=True, slots=True)
class Span:
    """The closed range of column values that compare as equal to a literal; `exact`: it is one value."""

    low: Value
    high: Value
    exact: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Conditions that every wanted row satisfies in one column: closed bounds, exact values `among`, null or not."""

    field: Field
    lower: Value | None = None
    upper: Value | None = None
    among: tuple[Value, ...] | None = None
    is_null: bool = False


def span_of(kind: Primitive, literal: Literal, zone: Zone) -> Span | None:
    """The range in which values of type `kind` can equal the literal; None if that cannot be proven."""
    try:
        return _span_of(kind, literal, zone)
    except (ArithmeticError, InvalidOperation, OverflowError, ValueError):
        return None


def _span_of(kind: Primitive, literal: Literal, zone: Zone) -> Span | None:
    match kind.name, literal.value:
        case "boolean", bool():
            return Span(literal.value, literal.value)
        case "boolean", _:
            return None
        case _, bool():
            return None
        case "string", str() if literal.kind is Kind.PLAIN:
            return Span(literal.value, literal.value)
        case "date" | "timestamp" | "timestamptz", str():
            return _time_span(kind.name, literal, zone)
        case (("int" | "long" | "float" | "double" | "decimal"), int() | float() | Decimal()):
            return _number_span(kind, literal.value)
        case _:
            return None


def _number_span(kind: Primitive, value: float | Decimal) -> Span | None:
    if not math.isfinite(value):
        return None
    match kind.name:
        case "int" | "long":
            return _whole_span(kind, value)
        case "double":
            number = float(value)
            return (
                Span(number, number)
                if isinstance(value, float)
                else Span(math.nextafter(number, -math.inf), math.nextafter(number, math.inf), exact=False)
            )
        case "float":
            doubt = abs(float(value)) * _FLOAT_DOUBT
            return Span(float(value) - doubt, float(value) + doubt, exact=False)
        case _:
            return None if isinstance(value, float) else _decimal_span(kind, Decimal(value))


def _whole_span(kind: Primitive, value: float | Decimal) -> Span | None:
    if isinstance(value, float) and abs(value) >= EXACT_IN_DOUBLE:
        return None  # Spark compares doubles, and several integers map to the same double
    if isinstance(value, Decimal) and not _fits(_DIGITS_OF[kind.name], 0, value):
        return None
    low, high = math.floor(value), math.ceil(value)
    return Span(low, high, exact=low == high) if low >= -(2**63) and high < 2**63 else None


def _decimal_span(kind: Primitive, value: Decimal) -> Span | None:
    if not _fits(kind.precision, kind.scale, value):
        return None
    step = Decimal(1).scaleb(-kind.scale)
    low = value.quantize(step, rounding=ROUND_FLOOR, context=_WIDE)
    high = value.quantize(step, rounding=ROUND_CEILING, context=_WIDE)
    return Span(low, high, exact=low == high)


def _fits(precision: int, scale: int, value: Decimal) -> bool:
    """Whether Spark has a common decimal type for column and literal without rounding either."""
    digits, exponent = len(value.as_tuple().digits), value.as_tuple().exponent
    fraction = max(0, -int(exponent))
    whole = max(1, digits - fraction + max(0, int(exponent)))
    return max(precision - scale, whole) + max(scale, fraction) <= _MAX_DIGITS


def _time_span(name: str, literal: Literal, zone: Zone) -> Span | None:
    text = str(literal.value).strip(" ") if literal.kind is not Kind.PLAIN else str(literal.value)
    if name == "date":
        return _day_span(text, literal.kind)
    if _DAY.fullmatch(text):  # a date, or the text of a timestamp: midnight in both cases
        return _local_span(name, datetime.fromisoformat(f"{text}T00:00:00"), zone, literal.kind)
    found = _MOMENT.fullmatch(text)
    if found is None or literal.kind is Kind.DATE:
        return None
    local = datetime.fromisoformat(f"{found[1]}T{_padded(found[2])}")
    if found[3] is None:
        return _local_span(name, local, zone, literal.kind)
    return _instant_span(name, local, found[3], zone, literal.kind)


def _day_span(text: str, kind: Kind) -> Span | None:
    if kind not in {Kind.DATE, Kind.PLAIN} or not _DAY.fullmatch(text):
        return None
    day = days_of(date.fromisoformat(text))
    return Span(day, day)


def _local_span(name: str, local: datetime, zone: Zone, kind: Kind) -> Span | None:
    """A time without a zone."""
    if name == "timestamp":
        # A timestamp in the session's zone is compared as local time: the same text, except around clock changes
        return _point(local.replace(tzinfo=UTC)) if kind is not Kind.TIMESTAMP or zone.is_fixed else None
    if zone.rules is None:
        return None
    if zone.is_fixed:
        return _point(local.replace(tzinfo=zone.rules))
    if not _FIRST_YEAR <= local.year <= _LAST_YEAR:
        return None
    micros = micros_of(local.replace(tzinfo=zone.rules))
    return Span(micros - _ZONE_DOUBT, micros + _ZONE_DOUBT, exact=False)


def _instant_span(name: str, local: datetime, offset: str, zone: Zone, kind: Kind) -> Span | None:
    given = Zone.parse(offset)
    if given.rules is None or kind is Kind.TIMESTAMP_NTZ:
        return None
    moment = local.replace(tzinfo=given.rules)
    if name == "timestamptz":
        return _point(moment)
    if kind is not Kind.TIMESTAMP or not zone.is_fixed:
        return None
    return _point(moment.astimezone(zone.rules).replace(tzinfo=UTC))


def _point(moment: datetime) -> Span:
    micros = micros_of(moment)
    return Span(micros, micros)


def _padded(clock: str) -> str:
    whole, _, fraction = clock.partition(".")
    return f"{whole}.{fraction:0<6}" if fraction else whole
