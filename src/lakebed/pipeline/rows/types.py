"""Spark's types and a table's schema, both ways, and the selects between current and physical names."""

from __future__ import annotations

from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql import types as T  # noqa: N812

from lakebed.core.errors import SchemaRefusedError
from lakebed.core.schema.schema import Schema, require_clear_names, walk
from lakebed.core.schema.types import Field, List, Map, Primitive, Struct, Type

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column, DataFrame

FIELD_ID = "parquet.field.id"  # the key that Spark's writer reads
_SIMPLE: dict[type[T.DataType], str] = {
    T.BooleanType: "boolean",
    T.ByteType: "int",
    T.ShortType: "int",
    T.IntegerType: "int",
    T.LongType: "long",
    T.FloatType: "float",
    T.DoubleType: "double",
    T.DateType: "date",
    T.TimestampType: "timestamptz",
    T.TimestampNTZType: "timestamp",
    T.CharType: "string",
    T.VarcharType: "string",
    T.BinaryType: "binary",
}
_SPARK: dict[str, T.DataType] = {
    "boolean": T.BooleanType(),
    "int": T.IntegerType(),
    "long": T.LongType(),
    "float": T.FloatType(),
    "double": T.DoubleType(),
    "date": T.DateType(),
    "timestamptz": T.TimestampType(),
    "timestamp": T.TimestampNTZType(),
    "string": T.StringType(),
    "binary": T.BinaryType(),
    "uuid": T.BinaryType(),
    "fixed": T.BinaryType(),
}


def from_spark(struct: T.StructType) -> Schema:
    """A first version: ids are assigned in the order of the columns, parents before children.

    Spark's column names are case-insensitive, so names that differ only in case are refused as duplicates.
    """
    ids = count(1)
    schema = Schema(fields=_fields_in(struct, (), ids))
    require_clear_names(schema)
    return schema


def to_spark(schema: Schema, *, physical: bool = False, with_ids: bool = False) -> T.StructType:
    """The columns as Spark types, under their current names unless `physical`; `with_ids` adds the ids for its Parquet writer."""
    return _struct_out(schema.fields, physical=physical, with_ids=with_ids, loose=False)


def to_spark_nullable(schema: Schema, *, physical: bool = False, with_ids: bool = False) -> T.StructType:
    """The same with every field optional, which a cast accepts for nullable data."""
    return _struct_out(schema.fields, physical=physical, with_ids=with_ids, loose=True)


def select_current(df: DataFrame, schema: Schema, *, beside: Sequence[str] = ()) -> DataFrame:
    """Rename and cast from physical names and stored types to the current ones; `df` was read with `to_spark(schema, physical=True)`.

    Columns named `beside` are unchanged.
    """
    current = to_spark_nullable(schema)
    if not has_other_names(schema) and not beside:
        return df.to(current)
    return df.select(
        *(
            F.col(quote(field.physical_name)).cast(target.dataType).alias(target.name)
            for field, target in zip(schema.fields, current.fields, strict=True)
        ),
        *(F.col(quote(name)) for name in beside),
    )


def select_stored(df: DataFrame, schema: Schema) -> DataFrame:
    """Rows under physical names with field ids for Spark's Parquet writer; only a cast sets ids of nested fields."""
    return df.select(*(_with_ids(field) for field in to_spark_nullable(schema, physical=True, with_ids=True).fields))


def _with_ids(field: T.StructField) -> Column:
    value = F.col(quote(field.name))
    is_nested = isinstance(field.dataType, T.StructType | T.ArrayType | T.MapType)
    return (value.cast(field.dataType) if is_nested else value).alias(field.name, metadata=field.metadata)


def find_column(struct: T.StructType, name: str) -> T.StructField | None:
    """Resolves names as Spark does: case-insensitively."""
    return next((field for field in struct.fields if field.name.lower() == name.lower()), None)


def has_other_names(schema: Schema) -> bool:
    """Whether any field, at any depth, has a stored name that differs from its current one."""
    return any(field.name != field.physical_name for field in walk(schema.fields))


@lru_cache(maxsize=256)
def needs_own_writer(schema: Schema) -> bool:
    """Whether Spark's writer is unsuitable: it sets no ids inside lists and maps, and has no fixed-length binaries."""
    return any(
        isinstance(f.type, List | Map) or (isinstance(f.type, Primitive) and f.type.name in {"uuid", "fixed"}) for f in walk(schema.fields)
    )


def quote(name: str) -> str:
    """A column's name as SQL text."""
    return "`" + name.replace("`", "``") + "`"


def _fields_in(struct: T.StructType, above: tuple[str, ...], ids: Iterator[int]) -> tuple[Field, ...]:
    return tuple(_field_in(f.name, f.dataType, above, ids, nullable=f.nullable) for f in struct.fields)


def _field_in(name: str, kind: T.DataType, above: tuple[str, ...], ids: Iterator[int], *, nullable: bool) -> Field:
    field_id, path = next(ids), (*above, name)
    return Field(field_id=field_id, name=name, required=not nullable, type=_type_in(kind, path, ids))


def _type_in(kind: T.DataType, path: tuple[str, ...], ids: Iterator[int]) -> Type:
    match kind:
        case T.StructType() if kind.fields:
            return Struct(fields=_fields_in(kind, path, ids))
        case T.ArrayType():
            return List(element=_field_in("element", kind.elementType, path, ids, nullable=kind.containsNull))
        case T.MapType():
            key = _field_in("key", kind.keyType, path, ids, nullable=False)
            return Map(key=key, value=_field_in("value", kind.valueType, path, ids, nullable=kind.valueContainsNull))
        case _:
            return primitive_of(kind, path)


def primitive_of(kind: T.DataType, path: tuple[str, ...]) -> Primitive:
    """The table's type for a Spark type without children; otherwise a refusal that names the column."""
    if isinstance(kind, T.DecimalType) and 0 <= kind.scale <= kind.precision:
        return Primitive(name="decimal", precision=kind.precision, scale=kind.scale)
    if isinstance(kind, T.StringType) and kind.isUTF8BinaryCollation():
        return Primitive(name="string")
    if (name := _SIMPLE.get(type(kind))) is not None:
        return Primitive(name=name)
    message = (
        f"column {'.'.join(path)!a} has type {kind.simpleString()}, which Parquet and Iceberg do not both support: cast it before writing"
    )
    raise SchemaRefusedError(message)


def _struct_out(fields: Sequence[Field], *, physical: bool, with_ids: bool, loose: bool) -> T.StructType:
    return T.StructType(
        [
            T.StructField(
                field.physical_name if physical else field.name,
                _type_out(field.type, physical=physical, with_ids=with_ids, loose=loose),
                nullable=loose or not field.required,
                metadata={FIELD_ID: field.field_id} if with_ids else None,
            )
            for field in fields
        ]
    )


def _type_out(kind: Type, *, physical: bool, with_ids: bool, loose: bool) -> T.DataType:
    def inner(field: Field) -> T.DataType:
        return _type_out(field.type, physical=physical, with_ids=with_ids, loose=loose)

    match kind:
        case Primitive(name="decimal"):
            return T.DecimalType(kind.precision, kind.scale)
        case Primitive():
            return _SPARK[kind.name]
        case Struct(fields=fields):
            return _struct_out(fields, physical=physical, with_ids=with_ids, loose=loose)
        case List(element=element):
            return T.ArrayType(inner(element), containsNull=loose or not element.required)
        case Map(key=key, value=value):
            return T.MapType(inner(key), inner(value), valueContainsNull=loose or not value.required)
