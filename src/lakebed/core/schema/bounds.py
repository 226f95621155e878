"""Lower and upper bounds as bytes whose order is the order of the values.

The database compares them with its plain byte comparison, so pruning needs no decoding and no
knowledge of types. Integers share one width and floats another, so that an int column that was
promoted to long (or float to double) still compares rightly with its old files.
"""

from __future__ import annotations

import math
import struct
from datetime import date, datetime
from decimal import Context, Decimal
from typing import TYPE_CHECKING, TypeVar

from lakebed.core.errors import InvalidValueError
from lakebed.core.times import days_of, micros_of

if TYPE_CHECKING:
    from lakebed.core.schema.types import Primitive

MAX_BOUND_BYTES = 64
_SIGN_64 = 1 << 63
_SIGN_128 = 1 << 127
_ALL_64 = (1 << 64) - 1
_LAST_CODE_POINT = 0x10FFFF
_FIRST_SURROGATE, _LAST_SURROGATE = 0xD800, 0xDFFF
# Range-index coordinates of times count seconds from here: 32-bit floats stay exact to the second for months around it.
_INDEX_EPOCH_S = 1_767_225_600  # 2026-01-01T00:00:00Z; stored: never change

_WIDE = Context(prec=80)  # the default context would round a 38-digit decimal
_Exact = TypeVar("_Exact", str, bytes, bool)

Value = bool | int | float | str | bytes | date | datetime | Decimal


def encode(kind: Primitive, value: Value) -> bytes | None:
    """Sortable bytes of one value; None when the type has no order we can use (NaN)."""
    match kind.name:
        case "boolean":
            return b"\x01" if _require(value, bool) else b"\x00"
        case "int" | "long" | "date" | "timestamp" | "timestamptz":
            return _encode_int(_as_int(kind, value))
        case "float" | "double":
            return _encode_float(value)
        case "decimal":
            return _encode_decimal(kind, value)
        case "string":
            return _require(value, str).encode()
        case _:
            return bytes(_require(value, bytes))


def lower_bound(kind: Primitive, value: Value) -> bytes | None:
    """Encoded and, for long strings and binaries, cut: a prefix sorts before everything it starts."""
    encoded = encode(kind, -0.0 if value == 0.0 and isinstance(value, float) else value)
    if encoded is None or len(encoded) <= MAX_BOUND_BYTES:
        return encoded
    cut = encoded[:MAX_BOUND_BYTES]
    return cut.decode(errors="ignore").encode() if kind.name == "string" else cut


def upper_bound(kind: Primitive, value: Value) -> bytes | None:
    """Encoded and cut upwards; None when nothing greater of that length exists."""
    encoded = encode(kind, 0.0 if value == 0.0 and isinstance(value, float) else value)
    if encoded is None or len(encoded) <= MAX_BOUND_BYTES:
        return encoded
    cut = encoded[:MAX_BOUND_BYTES]
    return next_text(cut.decode(errors="ignore")) if kind.name == "string" else next_bytes(cut)


def coordinate(kind: Primitive, value: Value) -> float | None:
    """The position of a value on the range index, or None when its type is not a number or a time."""
    match kind.name:
        case "timestamp" | "timestamptz":
            return _as_int(kind, value) / 1e6 - _INDEX_EPOCH_S
        case "int" | "long" | "date":
            return float(_as_int(kind, value))
        case "float" | "double" if not math.isnan(float(_number(value))):
            return float(_number(value))
        case _:
            return None


def _as_int(kind: Primitive, value: Value) -> int:
    match kind.name, value:
        case _, int() if not isinstance(value, bool):
            return value
        case "timestamp" | "timestamptz", datetime():
            return micros_of(value)
        case "date", date() if not isinstance(value, datetime):
            return days_of(value)
        case _:
            message = f"expected a value of type {kind}, got {value!r}"
            raise InvalidValueError(message)


def _number(value: Value) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        message = f"expected a number, got {value!r}"
        raise InvalidValueError(message)
    try:
        return float(value)
    except OverflowError as exc:
        message = f"{value!r} does not fit 64 bits"
        raise InvalidValueError(message) from exc


def _require(value: Value, wanted: type[_Exact]) -> _Exact:
    if not isinstance(value, wanted):
        message = f"expected a {wanted.__name__}, got {value!r}"
        raise InvalidValueError(message)
    return value


def _encode_int(value: int) -> bytes:
    if not -_SIGN_64 <= value < _SIGN_64:
        message = f"{value} does not fit 64 bits"
        raise InvalidValueError(message)
    return (value + _SIGN_64).to_bytes(8, "big")


def _encode_float(value: Value) -> bytes | None:
    number = _number(value)
    if math.isnan(number):
        return None
    bits = int.from_bytes(struct.pack(">d", number), "big")
    return (bits ^ _ALL_64 if bits & _SIGN_64 else bits | _SIGN_64).to_bytes(8, "big")


def _encode_decimal(kind: Primitive, value: Value) -> bytes:
    # A whole number must not pass through a float, which keeps 17 digits only.
    number = Decimal(value) if isinstance(value, Decimal | int) and not isinstance(value, bool) else Decimal(str(_number(value)))
    if not number.is_finite():
        message = f"expected a value of type {kind}, got {number}"
        raise InvalidValueError(message)
    unscaled = int(number.scaleb(kind.scale, _WIDE).to_integral_value(context=_WIDE))
    if not -_SIGN_128 <= unscaled < _SIGN_128:
        message = f"{number} does not fit {kind}"
        raise InvalidValueError(message)
    return (unscaled + _SIGN_128).to_bytes(16, "big")


def next_text(text: str) -> bytes | None:
    """The shortest text that sorts after everything starting with `text`."""
    for end in range(len(text), 0, -1):
        code = ord(text[end - 1]) + 1
        if _FIRST_SURROGATE <= code <= _LAST_SURROGATE:
            code = _LAST_SURROGATE + 1
        if code <= _LAST_CODE_POINT:
            return (text[: end - 1] + chr(code)).encode()
    return None


def next_bytes(cut: bytes) -> bytes | None:
    stripped = cut.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None
