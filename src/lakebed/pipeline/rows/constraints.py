"""Checks of rows as SQL that fails the job at the first bad row: NULL in a required field, a time outside the calendar.

The checks are part of the job that writes; there is none if Spark's type excludes the fault, or if the file's statistics
show it.
"""

from __future__ import annotations

from datetime import date
from functools import lru_cache
from typing import TYPE_CHECKING

from pyspark.sql import types as T  # noqa: N812 - everybody's name for it

from lakebed.core.errors import SchemaRefusedError
from lakebed.core.schema.bounds import lower_bound, upper_bound
from lakebed.core.schema.types import Field, List, Map, Primitive, Struct
from lakebed.core.times import MAX_MICROS, MIN_MICROS, days_of
from lakebed.pipeline.rows.partition_key import literal
from lakebed.pipeline.rows.types import find_column, quote
from lakebed.pipeline.spark.errors import refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lakebed.core.files import ColumnStatistics
    from lakebed.core.schema.schema import Schema

_RANGES = {
    "date": ("DATE'0001-01-01'", "DATE'9999-12-31'"),
    "timestamptz": ("TIMESTAMP'0001-01-01 00:00:00Z'", "TIMESTAMP'9999-12-31 23:59:59.999999Z'"),
    "timestamp": ("TIMESTAMP_NTZ'0001-01-01 00:00:00'", "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'"),
}
_SIZED = frozenset({"uuid", "fixed"})
_OUTSIDE = "holds a time outside the years 1 to 9999: correct it before writing"
MIN_DAY, MAX_DAY = days_of(date.min), days_of(date.max)
Fault = tuple[str, str]  # a condition, and the message if it holds


def checked(field: Field, source: T.StructField | None, sql: str, *, has_statistics: bool = True) -> str:
    """`sql`, a value of the table's column `field`, with its checks: a bad value ends the job with a typed refusal.

    `source` is the type in the DataFrame, which may for instance never be NULL. If there will be statistics, the column itself
    is checked by those of the finished file, at no cost.
    """
    nullable = source is None or source.nullable
    kind = None if source is None else source.dataType
    if has_statistics and isinstance(field.type, Primitive) and field.type.name not in _SIZED:
        return sql
    faults = list(_faults(field, kind, sql, (field.name,), nullable=nullable))
    if not faults:
        return sql
    branches = " ".join(f"WHEN {condition} THEN raise_error({literal(refusal(message))})" for condition, message in faults)
    return f"CASE {branches} ELSE {sql} END"


def require_times(table: str, schema: Schema, columns: Iterable[ColumnStatistics]) -> None:
    """The same checks of the columns themselves, from a file's statistics."""
    bounds = _bounds(schema)
    for column in columns:
        low, high, name = bounds.get(column.field_id, (b"", b"", ""))
        if name and ((column.lower is not None and column.lower < low) or (column.upper is not None and column.upper > high)):
            message = f"{table}: column {name!a} {_OUTSIDE}"
            raise SchemaRefusedError(message)


@lru_cache(maxsize=256)
def _bounds(schema: Schema) -> dict[int, tuple[bytes, bytes, str]]:
    found = {}
    for field in schema.fields:
        if isinstance(field.type, Primitive) and field.type.name in _RANGES:
            low, high = (MIN_DAY, MAX_DAY) if field.type.name == "date" else (MIN_MICROS, MAX_MICROS)
            found[field.field_id] = (lower_bound(field.type, low) or b"", upper_bound(field.type, high) or b"", field.name)
    return found


def _faults(field: Field, source: T.DataType | None, sql: str, path: tuple[str, ...], *, nullable: bool) -> Iterator[Fault]:
    shown = ascii(".".join(path))
    if field.required and nullable:
        yield f"{sql} IS NULL", f"column {shown} is required and a row holds NULL: fill it, or make the column optional"
    match field.type:
        case Primitive():
            yield from _value_faults(field.type, sql, shown)
        case Struct(fields=fields):
            for child in fields:
                found = find_column(source, child.name) if isinstance(source, T.StructType) else None
                yield from _inside(child, found, sql, path)
        case List(element=element):
            inner, holds_null = (source.elementType, source.containsNull) if isinstance(source, T.ArrayType) else (None, True)
            yield from _among(element, inner, sql, path, nullable=holds_null)
        case Map(key=key, value=value):
            key_type, value_type, holds_null = _entry(source)
            yield from _among(key, key_type, f"map_keys({sql})", path, nullable=False)
            yield from _among(value, value_type, f"map_values({sql})", path, nullable=holds_null)


def _entry(source: T.DataType | None) -> tuple[T.DataType | None, T.DataType | None, bool]:
    if isinstance(source, T.MapType):
        return source.keyType, source.valueType, source.valueContainsNull
    return None, None, True


def _inside(child: Field, found: T.StructField | None, struct: str, path: tuple[str, ...]) -> Iterator[Fault]:
    """A field of a struct that is NULL itself does not count as NULL."""
    nullable = found is None or found.nullable
    kind = None if found is None else found.dataType
    for condition, message in _faults(child, kind, f"{struct}.{quote(child.name)}", (*path, child.name), nullable=nullable):
        yield f"({struct} IS NOT NULL AND ({condition}))", message


def _among(field: Field, kind: T.DataType | None, items: str, path: tuple[str, ...], *, nullable: bool) -> Iterator[Fault]:
    name = f"x{len(path)}"
    for condition, message in _faults(field, kind, name, (*path, field.name), nullable=nullable):
        yield f"exists({items}, {name} -> coalesce({condition}, false))", message


def _value_faults(kind: Primitive, sql: str, shown: str) -> Iterator[Fault]:
    if kind.name in _RANGES:
        low, high = _RANGES[kind.name]
        yield f"({sql} < {low} OR {sql} > {high})", f"column {shown} {_OUTSIDE}"
    length = 16 if kind.name == "uuid" else kind.length if kind.name == "fixed" else None
    if length is not None:
        yield f"octet_length({sql}) <> {length}", f"column {shown} holds a value that is not {length} bytes long, as {kind} must be"
