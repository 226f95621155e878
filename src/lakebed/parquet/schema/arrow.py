"""Between a table's schema and Arrow's: ids travel as `PARQUET:field_id`, columns under their physical names."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, assert_never

import pyarrow as pa

from lakebed.core.errors import SchemaRefusedError
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, List, Map, Primitive, Struct, Type

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
    "uuid": pa.binary(16),
}
_WIDENED = {pa.int8(): "int", pa.int16(): "int", pa.large_string(): "string", pa.large_binary(): "binary"}


def to_arrow(schema: Schema) -> pa.Schema:
    """What a writer must use so that every engine finds the field ids."""
    return pa.schema([_field_out(f) for f in schema.fields])


def to_arrow_nullable(schema: Schema) -> pa.Schema:
    """The same with every field optional but map keys, for writers whose rows were checked before."""
    return to_arrow(Schema(fields=tuple(map(_optional, schema.fields))))


def from_arrow(schema: pa.Schema) -> Schema:
    """A first version: ids are given in the order of the columns, parents before children."""
    ids = count(1)
    return Schema(fields=tuple(_field_in(f, ids) for f in schema))


def _optional(field: Field) -> Field:
    match field.type:
        case Struct(fields=fields):
            kind: Type = Struct(fields=tuple(map(_optional, fields)))
        case List(element=element):
            kind = List(element=_optional(element))
        case Map(key=key, value=value):
            kind = Map(key=replace(_optional(key), required=True), value=_optional(value))
        case Primitive():
            kind = field.type
    return replace(field, required=False, type=kind)


def _field_out(field: Field) -> pa.Field:
    return pa.field(
        field.physical_name,
        _type_out(field.type),
        nullable=not field.required,
        metadata={b"PARQUET:field_id": str(field.field_id).encode()},
    )


def _type_out(kind: Type) -> pa.DataType:
    match kind:
        case Primitive(name="decimal"):
            return pa.decimal128(kind.precision, kind.scale)
        case Primitive(name="fixed"):
            return pa.binary(kind.length)
        case Primitive():
            return _SIMPLE[kind.name]
        case Struct(fields=fields):
            return pa.struct([_field_out(f) for f in fields])
        case List(element=element):
            return pa.list_(_field_out(element))
        case Map(key=key, value=value):
            return pa.map_(_field_out(key), _field_out(value))
        case unreachable:
            assert_never(unreachable)


def _field_in(field: pa.Field, ids: Iterator[int]) -> Field:
    field_id = next(ids)
    return Field(field_id=field_id, name=field.name, required=not field.nullable, type=_type_in(field.type, field.name, ids))


def _type_in(kind: pa.DataType, name: str, ids: Iterator[int]) -> Type:
    if pa.types.is_struct(kind):
        return Struct(fields=tuple(_field_in(kind.field(i), ids) for i in range(kind.num_fields)))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return List(element=_field_in(kind.value_field, ids))
    if pa.types.is_map(kind):
        return Map(key=_field_in(kind.key_field, ids), value=_field_in(kind.item_field, ids))
    if pa.types.is_decimal(kind):
        return Primitive(name="decimal", precision=kind.precision, scale=kind.scale)
    if pa.types.is_fixed_size_binary(kind):
        return Primitive(name="fixed", length=kind.byte_width)
    if pa.types.is_timestamp(kind):
        return Primitive(name="timestamptz" if kind.tz else "timestamp")
    for known, arrow in _SIMPLE.items():
        if arrow == kind:
            return Primitive(name=known)
    if kind in _WIDENED:
        return Primitive(name=_WIDENED[kind])
    message = f"column {name} has the type {kind}, which no Iceberg table can hold: cast it first"
    raise SchemaRefusedError(message)
