"""Partition transforms: Iceberg's, in UTC whatever the session's zone, with one text per value.

That text stands in the partition path. NULL is a value of its own (None), never an empty text.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING
from uuid import UUID

from lakebed.core.errors import InvalidValueError, SchemaRefusedError
from lakebed.core.schema.decimals import decimal_text, truncate_decimal
from lakebed.core.schema.murmur3 import bucket_of, decimal_bytes, long_bytes
from lakebed.core.schema.types import Primitive
from lakebed.core.times import DAY_US, EPOCH_DAY, HOUR_US, days_of, from_micros, micros_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.core.schema.bounds import Value
    from lakebed.core.schema.schema import Schema
    from lakebed.core.schema.types import Field

_CALL = re.compile(r"\s*([A-Za-z]+)\s*\(\s*(.*?)\s*\)\s*", re.DOTALL)
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_KINDS = {
    "day": "day",
    "hour": "hour",
    "month": "month",
    "year": "year",
    "bucket": "bucket",
    "truncate": "truncate",
    "identity": "identity",
}
_ALIASES = {**_KINDS, "days": "day", "hours": "hour", "months": "month", "years": "year", "date": "day"}
_SUFFIXES = {"day": "_day", "hour": "_hour", "month": "_month", "year": "_year", "bucket": "_bucket", "truncate": "_trunc", "identity": ""}
_NUMBERED = frozenset({"bucket", "truncate"})
_DATES = frozenset({"date", "timestamp", "timestamptz"})
_INTEGERS = frozenset({"int", "long"})
_SOURCES = {
    "identity": _INTEGERS | _DATES | {"boolean", "decimal", "string", "uuid", "fixed", "binary"},
    "bucket": _INTEGERS | _DATES | {"decimal", "string", "uuid", "fixed", "binary"},
    "truncate": _INTEGERS | {"decimal", "string", "binary"},
    "day": _DATES,
    "month": _DATES,
    "year": _DATES,
    "hour": _DATES - {"date"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """One partition field: `day(ts)` is kind `day` of column `ts`; `argument` is the width or the number of buckets."""

    kind: str
    column: str
    argument: int = 0

    @property
    def name(self) -> str:
        """The partition field's name, by Iceberg's convention."""
        return self.column + _SUFFIXES[self.kind]

    def __str__(self) -> str:
        if self.kind == "identity":
            return self.column
        return f"{self.kind}({f'{self.argument}, ' if self.argument else ''}{self.column})"

    def apply(self, value: Value | None, source: Primitive) -> str | None:
        """The text of `value`'s partition, as it stands in the partition path."""
        if value is None:
            return None
        if self.kind == "bucket":
            return str(bucket_of(_hashed_bytes(value, source), self.argument))
        if self.kind == "truncate":
            return text_of(_truncate(value, self.argument, source), source)
        if self.kind == "identity":
            return text_of(value, source)
        return calendar_text(self.kind, ordinal_of(self.kind, value, source))


def parse_transform(text: str) -> Transform:
    """`ts`, `day(ts)`, `bucket(16, id)` or `truncate(4, name)`; the number may stand on either side."""
    call = _CALL.fullmatch(text)
    if call is None:
        return Transform(kind="identity", column=_column(text, text))
    kind = _ALIASES.get(call[1].lower())
    parts = [part.strip() for part in call[2].rsplit(",", 1)] if kind in _NUMBERED else [call[2]]
    if kind is None or (kind in _NUMBERED) != (len(parts) > 1):
        raise _unknown(text)
    if kind not in _NUMBERED:
        return Transform(kind=kind, column=_column(parts[0], text))
    number, column = parts if _NUMBER.fullmatch(parts[0]) else (parts[1], parts[0])
    if not _NUMBER.fullmatch(number) or int(number) < 1:
        raise _unknown(text)
    return Transform(kind=kind, column=_column(column, text), argument=int(number))


def resolve_transforms(schema: Schema, texts: Sequence[str]) -> tuple[tuple[Transform, Field], ...]:
    """Each transform beside its source column, or a refusal.

    A transform names its column as it was first called, so that renaming never moves it to another one.
    """
    found = tuple((transform, _source(schema, transform)) for transform in map(parse_transform, texts))
    names = [transform.name.lower() for transform, _ in found]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        message = f"two partition transforms give the field {twice!a}: keep one of them"
        raise SchemaRefusedError(message)
    return found


def ordinal_of(kind: str, value: Value, source: Primitive) -> int:
    """Years, months, days or hours since 1970 in UTC."""
    micros = _micros(value, source)
    day = micros // DAY_US
    if kind == "hour":
        return micros // HOUR_US
    if kind == "day":
        return day
    moment = date.fromordinal(EPOCH_DAY.toordinal() + day)
    months = (moment.year - 1970) * 12 + moment.month - 1
    return months if kind == "month" else moment.year - 1970


def calendar_text(kind: str, ordinal: int) -> str:
    """2026, 2026-11, 2026-11-15 or 2026-11-15-23."""
    match kind:
        case "year":
            return f"{1970 + ordinal:04d}"
        case "month":
            return f"{1970 + ordinal // 12:04d}-{ordinal % 12 + 1:02d}"
        case "day":
            return date.fromordinal(EPOCH_DAY.toordinal() + ordinal).isoformat()
        case _:
            return f"{calendar_text('day', ordinal // 24)}-{ordinal % 24:02d}"


def text_of(value: Value, source: Primitive) -> str:
    """One value as canonical text: equal values have equal texts."""
    match source.name, value:
        case "boolean", bool():
            return "true" if value else "false"
        case (("int" | "long"), int()) if not isinstance(value, bool):
            return str(value)
        case "decimal", Decimal() | int() if not isinstance(value, bool):
            return decimal_text(Decimal(value), source.scale)
        case "date", _:
            return calendar_text("day", _micros(value, source) // DAY_US)
        case "timestamp" | "timestamptz", _:
            text = from_micros(_micros(value, source)).isoformat(timespec="microseconds")
            return text if source.name == "timestamptz" else text.removesuffix("+00:00")
        case "string", str():
            return value
        case "uuid", bytes():
            return str(UUID(bytes=value))
        case (("fixed" | "binary"), bytes()):
            return base64.b64encode(value).decode()
        case _:
            raise _mismatch(value, source)


def _source(schema: Schema, transform: Transform) -> Field:
    field = schema.require_original(transform.column)
    if not isinstance(field.type, Primitive) or field.type.name not in _SOURCES[transform.kind]:
        kind = str(field.type) if isinstance(field.type, Primitive) else type(field.type).__name__.lower()
        allowed = ", ".join(sorted(_SOURCES[transform.kind]))
        message = f"{transform} cannot partition: column {field.name!a} is {kind}, {transform.kind} takes {allowed}"
        raise SchemaRefusedError(message)
    return field


def _column(text: str, whole: str) -> str:
    name = text.strip()
    if name.startswith("`") and name.endswith("`") and len(name) > 1:
        name = name[1:-1].replace("``", "`")
    if not name:
        raise _unknown(whole)
    return name


def _unknown(text: str) -> SchemaRefusedError:
    shown = text if len(text) <= 80 else text[:80] + "..."  # noqa: PLR2004 - enough to recognise it
    return SchemaRefusedError(
        f"{shown!a} is not a partition transform: expected a column, year(c), month(c), day(c), hour(c), bucket(n, c) or truncate(n, c)"
    )


def _mismatch(value: Value, source: Primitive) -> InvalidValueError:
    return InvalidValueError(f"expected a value of type {source}, got {value!r}")


def _micros(value: Value, source: Primitive) -> int:
    match value:
        case datetime() if source.name != "date":
            return micros_of(value)
        case date() if source.name == "date" and not isinstance(value, datetime):
            return days_of(value) * DAY_US
        case int() if not isinstance(value, bool):
            return value * DAY_US if source.name == "date" else value
        case _:
            raise _mismatch(value, source)


def _hashed_bytes(value: Value, source: Primitive) -> bytes:
    match value:
        case str() if source.name == "string":
            return value.encode()
        case bytes() if source.name in {"uuid", "fixed", "binary"}:
            return value
        case Decimal() | int() if source.name == "decimal" and not isinstance(value, bool):
            return decimal_bytes(Decimal(value), source.scale)
        case int() if source.name in _INTEGERS and not isinstance(value, bool):
            return long_bytes(value)
        case _ if source.name in _DATES:
            micros = _micros(value, source)
            return long_bytes(micros // DAY_US if source.name == "date" else micros)
        case _:
            raise _mismatch(value, source)


def _truncate(value: Value, width: int, source: Primitive) -> Value:
    match value:
        case str() | bytes():
            return value[:width]
        case Decimal():
            return truncate_decimal(value, width, source.scale)
        case int() if source.name in _INTEGERS and not isinstance(value, bool):
            return value - value % width
        case _:
            raise _mismatch(value, source)
