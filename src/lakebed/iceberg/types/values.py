"""Values as Iceberg writes them into manifests: its single-value serialization, long texts cut to 16 characters."""

from __future__ import annotations

import struct
from datetime import date, datetime
from decimal import Context, Decimal
from typing import TYPE_CHECKING

from lakebed.core.errors import InvalidValueError
from lakebed.core.schema.bounds import next_bytes, next_text
from lakebed.core.times import days_of, micros_of

if TYPE_CHECKING:
    from lakebed.core.schema.bounds import Value
    from lakebed.core.schema.types import Primitive

MAX_LENGTH = 16
_WIDE = Context(prec=80)
_PACKED = {"int": "<i", "date": "<i", "long": "<q", "timestamp": "<q", "timestamptz": "<q", "float": "<f", "double": "<d"}


def encode(kind: Primitive, value: Value) -> bytes:
    """One value, whole."""
    match kind.name, value:
        case "boolean", bool():
            return b"\x01" if value else b"\x00"
        case name, int() | float() if name in _PACKED and not isinstance(value, bool):
            return _pack(kind, value)
        case "decimal", Decimal():
            return _decimal(kind, value)
        case "string", str():
            return value.encode()
        case (("uuid" | "fixed" | "binary"), bytes()):
            return value
        case _:
            message = f"{value!r} is no value of type {kind}"
            raise InvalidValueError(message)


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
            message = f"{value!r} is no partition value"
            raise InvalidValueError(message)


def _pack(kind: Primitive, value: float) -> bytes:
    try:
        return struct.pack(_PACKED[kind.name], value)
    except (struct.error, OverflowError) as exc:
        message = f"{value!r} is no value of type {kind}"
        raise InvalidValueError(message) from exc


def _decimal(kind: Primitive, value: Decimal) -> bytes:
    unscaled = int(value.scaleb(kind.scale, _WIDE).to_integral_value(context=_WIDE))
    size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return unscaled.to_bytes(size, "big", signed=True)
