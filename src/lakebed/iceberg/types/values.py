"""Values as Iceberg writes them into manifests: its single-value serialization, long texts cut to 16 characters."""

from __future__ import annotations

import struct
from datetime import date, datetime
from decimal import Context, Decimal
from functools import lru_cache, partial
from typing import TYPE_CHECKING
from uuid import UUID

from pyiceberg.conversions import from_bytes, to_bytes

from lakebed.core.errors import InvalidValueError
from lakebed.core.schema.bounds import next_bytes, next_text
from lakebed.core.times import days_of, micros_of
from lakebed.iceberg.types.schemas import to_iceberg_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.core.schema.bounds import Value
    from lakebed.core.schema.types import Primitive

MAX_LENGTH = 16
_WIDE = Context(prec=80)
_OUTSIDE = (
    ArithmeticError,
    AttributeError,
    TypeError,
    ValueError,
    struct.error,
)  # what PyIceberg raises for a value that its type cannot hold


def encode(kind: Primitive, value: Value) -> bytes:
    """One value, whole; days and microseconds are numbers."""
    try:
        return _encoder_of(kind)(_fit_scale(kind, value) if isinstance(value, Decimal) else value)
    except _OUTSIDE as exc:
        message = f"expected a value of type {kind}, got {value!r}"
        raise InvalidValueError(message) from exc


def decode(kind: Primitive, value: bytes) -> Value:
    """What `encode` was given, with a decimal in the scale of its type."""
    try:
        found: object = from_bytes(to_iceberg_type(kind), value)
    except _OUTSIDE as exc:
        message = f"{value!r} does not hold a value of type {kind}"
        raise InvalidValueError(message) from exc
    plain = to_plain(found.bytes if isinstance(found, UUID) else found)
    assert plain is not None  # noqa: S101 - no type has a value for null
    return plain


def lower_bound(kind: Primitive, value: Value) -> bytes:
    """At most the value: a prefix sorts before everything that it starts."""
    if isinstance(value, str | bytes) and kind.name in {"string", "binary"}:
        return encode(kind, value[:MAX_LENGTH])
    return encode(kind, -0.0 if isinstance(value, float) and value == 0.0 else value)


def upper_bound(kind: Primitive, value: Value) -> bytes | None:
    """At least the value; None when nothing greater of that length exists."""
    if kind.name == "string" and isinstance(value, str) and len(value) > MAX_LENGTH:
        return next_text(value[:MAX_LENGTH])
    if kind.name == "binary" and isinstance(value, bytes) and len(value) > MAX_LENGTH:
        return next_bytes(value[:MAX_LENGTH])
    return encode(kind, 0.0 if isinstance(value, float) and value == 0.0 else value)


def to_plain(value: object) -> Value | None:
    """A partition value as Avro's reader gives it, as the number that was written: days and microseconds, not dates."""
    match value:
        case datetime():
            return micros_of(value)
        case date():
            return days_of(value)
        case None | bool() | int() | float() | str() | bytes() | Decimal():
            return value
        case _:
            message = f"{value!r} is not a partition value"
            raise InvalidValueError(message)


@lru_cache(maxsize=256)
def _encoder_of(kind: Primitive) -> Callable[[Value], bytes]:
    """Found once per type: looking it up takes longer than encoding a number."""
    iceberg = to_iceberg_type(kind)
    return partial(to_bytes.dispatch(type(iceberg)), iceberg)


def _fit_scale(kind: Primitive, value: Decimal) -> Decimal:
    """PyIceberg takes the digits as they are written: 1.5 of a decimal(4,2) would become 0.15."""
    return value.quantize(Decimal((0, (1,), -kind.scale)), context=_WIDE)
