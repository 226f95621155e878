"""The schema of a new table, in any form that callers may pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeGuard

import pyarrow as pa

from lakebed.core.errors import InvalidValueError
from lakebed.core.schema.ddl import parse_columns
from lakebed.core.schema.schema import Schema
from lakebed.parquet.schema.arrow import from_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    AnySchema: TypeAlias = Schema | pa.Schema | StructType | str


def schema_of(name: str, schema: AnySchema | None, like: DataFrame | None) -> Schema:
    """DDL text, Arrow's or Spark's schema with ids in the order of the columns, or the schema of a DataFrame."""
    if (schema is None) == (like is None):
        message = f"{name}: give either a schema or `like`, a DataFrame"
        raise InvalidValueError(message)
    if like is not None:
        from lakebed.pipeline.write.insert import schema_like

        return schema_like(like)
    match schema:
        case Schema():
            return schema
        case str():
            return parse_columns(schema, table=name)
        case pa.Schema():
            return from_arrow(schema)
        case _ if _is_struct_type(schema):
            from lakebed.pipeline.rows.types import from_spark

            return from_spark(schema)
        case _:
            message = f"{name}: {type(schema).__name__} is not a schema: give DDL text such as 'id BIGINT, x STRING', a StructType, or an Arrow schema"
            raise InvalidValueError(message)


def _is_struct_type(schema: object) -> TypeGuard[StructType]:
    """Checked without importing Spark."""
    kind = type(schema)
    return kind.__module__.startswith("pyspark.") and kind.__name__ == "StructType"
