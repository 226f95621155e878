"""Maps rows of an earlier version to the current columns: a condition uses the current columns, a file has those of its version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import List, Map, Struct
from lakebed.pipeline.rows.types import has_other_names, quote, to_spark_nullable

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    from lakebed.core.schema.types import Field


def current_columns(stored: Schema, current: Schema) -> list[Column]:
    """The columns of `current` over a frame that was read under the physical names of `stored`; columns added later are NULL."""
    known = {field.field_id: field for field in stored.fields}
    return [_column(_of(known.get(field.field_id), None), known.get(field.field_id), field) for field in current.fields]


def _column(value: Column | None, stored: Field | None, current: Field) -> Column:
    if value is None or stored is None:
        return F.lit(None).cast(_spark_type(current)).alias(current.name)
    return _convert(value, stored, current).alias(current.name)


def _of(stored: Field | None, parent: Column | None) -> Column | None:
    if stored is None:
        return None
    return F.col(quote(stored.physical_name)) if parent is None else parent.getField(stored.physical_name)


def _convert(value: Column, stored: Field, current: Field) -> Column:
    """By field id at every depth: a cast of a struct would be positional."""
    if stored.type == current.type and not has_other_names(Schema(fields=(current.renamed(current.physical_name),))):
        return value
    match stored.type, current.type:
        case Struct(fields=old), Struct(fields=new):
            known = {field.field_id: field for field in old}
            children = [_column(_of(known.get(f.field_id), value), known.get(f.field_id), f) for f in new]
            return F.when(value.isNotNull(), F.struct(*children))
        case List(element=old_element), List(element=new_element):
            return F.transform(value, lambda item: _convert(item, old_element, new_element))
        case Map(key=old_key, value=old_value), Map(key=new_key, value=new_value):
            named = F.transform_keys(value, lambda key, _: _convert(key, old_key, new_key))
            return F.transform_values(named, lambda _, item: _convert(item, old_value, new_value))
        case _:
            return value.cast(_spark_type(current))


def _spark_type(field: Field) -> DataType:
    return to_spark_nullable(Schema(fields=(field,))).fields[0].dataType
