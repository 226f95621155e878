"""The lake's schema in Iceberg's words: ids for life, today's names, and a mapping for files that hold no ids."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from lakebed.core.schema.schema import Schema, walk
from lakebed.core.schema.types import Field, List, Map, Primitive, Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

INSTANCE_COLUMN = "_lakebed_instance"  # stored: never rename
INSTANCE_FIELD_ID = 1_000_000_000  # stored: never change. Above every id of a lake's column, below those that Iceberg reserves
INSTANCE_KIND = Primitive(name="string")
_SIMPLE: dict[str, Callable[[], PrimitiveType]] = {
    "boolean": BooleanType,
    "int": IntegerType,
    "long": LongType,
    "float": FloatType,
    "double": DoubleType,
    "date": DateType,
    "timestamp": TimestampType,
    "timestamptz": TimestamptzType,
    "string": StringType,
    "uuid": UUIDType,
    "binary": BinaryType,
}


@lru_cache(maxsize=256)
def parse_schema(stored: bytes) -> Schema:
    """One object per stored text, because layouts of files are remembered by it."""
    return Schema.from_json(stored)


def to_iceberg(schema: Schema, *, schema_id: int, with_instance: bool) -> IcebergSchema:
    """`with_instance` adds the column that no file holds: readers take its value from the partition."""
    fields = [_field(field) for field in schema.fields]
    if with_instance:
        fields.append(NestedField(INSTANCE_FIELD_ID, INSTANCE_COLUMN, StringType(), required=False))
    return IcebergSchema(*fields, schema_id=schema_id)


def to_iceberg_type(kind: Primitive) -> PrimitiveType:
    match kind.name:
        case "decimal":
            return DecimalType(kind.precision, kind.scale)
        case "fixed":
            return FixedType(kind.length)
        case name:
            return _SIMPLE[name]()


def find_last_column_id(versions: Iterable[Schema], *, with_instance: bool) -> int:
    """The highest id that any version ever had: none is given twice."""
    highest = max(field.field_id for version in versions for field in walk(version.fields))
    return max(highest, INSTANCE_FIELD_ID) if with_instance else highest


def name_mapping(schema: Schema) -> str:
    """For files without ids: the names under which columns are written, which renaming never changes."""
    return json.dumps([_mapped(field, field.physical_name) for field in schema.fields], separators=(",", ":"))


def _mapped(field: Field, name: str) -> dict[str, Any]:
    mapped: dict[str, Any] = {"field-id": field.field_id, "names": [name]}
    match field.type:
        case Struct(fields=fields):
            mapped["fields"] = [_mapped(child, child.physical_name) for child in fields]
        case List(element=element):
            mapped["fields"] = [_mapped(element, "element")]
        case Map(key=key, value=value):
            mapped["fields"] = [_mapped(key, "key"), _mapped(value, "value")]
        case Primitive():
            pass
    return mapped


def _field(field: Field) -> NestedField:
    return NestedField(field.field_id, field.name, _type(field), required=field.required)


def _type(field: Field) -> IcebergType:
    match field.type:
        case Primitive():
            return to_iceberg_type(field.type)
        case Struct(fields=fields):
            return StructType(*map(_field, fields))
        case List(element=element):
            return ListType(element.field_id, _type(element), element_required=element.required)
        case Map(key=key, value=value):
            return MapType(key.field_id, _type(key), value.field_id, _type(value), value_required=value.required)
