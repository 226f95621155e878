"""The one select between a DataFrame and a table's files: columns by name, cast, checked, under physical names with field ids.

Building a column takes several round trips to the JVM, which is significant for a small insert, so the columns that were
built for one shape of rows are kept for the next DataFrame of that shape.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql import types as T  # noqa: N812

from lakebed.core.schema.evolution import require_fit
from lakebed.core.schema.types import Primitive
from lakebed.pipeline.rows.constraints import checked
from lakebed.pipeline.rows.types import find_column, from_spark, quote, to_spark_nullable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from lakebed.core.schema.schema import Schema
    from lakebed.core.schema.types import Field

_MOST_KEPT = 256


@dataclass(frozen=True, slots=True)
class _Projection:
    """`reshapes`: nested columns must first be put into the table's order."""

    reshapes: bool
    columns: tuple[Column, ...]


_kept: WeakKeyDictionary[SparkSession, OrderedDict[tuple[Schema, str, bool], _Projection]] = WeakKeyDictionary()


def select_physical(df: DataFrame, schema: Schema, *, name: str = "the table", has_statistics: bool = True) -> DataFrame:
    """The columns under physical names, in the table's order and types, with field ids at every depth Spark can give them.

    Rows of another shape are refused; a missing optional column becomes NULL; a row that breaks a rule of the table ends the
    job, unless the statistics of its file show it.
    """
    promised = df.schema
    kept = _kept.setdefault(df.sparkSession, OrderedDict())
    key = (schema, promised.json(), has_statistics)
    projection = kept.get(key)
    if projection is None:
        require_fit(name, schema, from_spark(promised))
        projection = kept[key] = _plan(schema, promised, has_statistics=has_statistics)
        while len(kept) > _MOST_KEPT:
            kept.popitem(last=False)
    ordered = df.to(to_spark_nullable(schema)) if projection.reshapes else df
    return ordered.select(*projection.columns)


def is_in_shape(df: DataFrame, schema: Schema) -> bool:
    """Whether the rows can be written unchanged: flat, with the table's names, order and types, and without foreign field ids."""
    wanted = _list_flat(schema)
    found = [(field.name, field.dataType) for field in df.schema.fields if not field.metadata]
    return wanted is not None and len(df.schema.fields) == len(wanted) and found == wanted


@lru_cache(maxsize=256)
def _list_flat(schema: Schema) -> list[tuple[str, T.DataType]] | None:
    if any(not isinstance(f.type, Primitive) or f.physical_name != f.name for f in schema.fields):
        return None
    return [(field.name, field.dataType) for field in to_spark_nullable(schema).fields]


def _plan(schema: Schema, promised: T.StructType, *, has_statistics: bool) -> _Projection:
    targets = to_spark_nullable(schema, physical=True, with_ids=True).fields
    sources = [find_column(promised, field.name) for field in schema.fields]
    current = to_spark_nullable(schema).fields
    reshapes = any(
        source is not None and not _is_alike(source.dataType, now.dataType) for source, now in zip(sources, current, strict=True)
    )
    columns = tuple(
        _column(field, source, target, reshaped=reshapes, has_statistics=has_statistics)
        for field, source, target in zip(schema.fields, sources, targets, strict=True)
    )
    return _Projection(reshapes, columns)


def _column(field: Field, source: T.StructField | None, target: T.StructField, *, reshaped: bool, has_statistics: bool) -> Column:
    if source is None and not reshaped:
        value = F.lit(None).cast(target.dataType)
    else:
        sql = quote(field.name if reshaped or source is None else source.name)
        value = F.expr(checked(field, source, sql, has_statistics=has_statistics))
        # a cast of a struct is positional: it promotes types and sets physical names and ids of nested fields
        if not isinstance(field.type, Primitive) or source is None or source.dataType != target.dataType:
            value = value.cast(target.dataType)
    return value.alias(target.name, metadata=target.metadata)


def _is_alike(source: T.DataType, target: T.DataType) -> bool:
    """Whether nested fields have the same names in the same order."""
    match source, target:
        case T.StructType(), T.StructType():
            return [f.name.lower() for f in source.fields] == [f.name.lower() for f in target.fields] and all(
                _is_alike(one.dataType, other.dataType) for one, other in zip(source.fields, target.fields, strict=True)
            )
        case T.ArrayType(), T.ArrayType():
            return _is_alike(source.elementType, target.elementType)
        case T.MapType(), T.MapType():
            return _is_alike(source.keyType, target.keyType) and _is_alike(source.valueType, target.valueType)
        case _:
            return True
