"""Every row inserted is read back exactly, for schemas of all types that Spark, Parquet and Iceberg share."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import fresh_name
from lakebed.core.schema.schema import Schema, walk
from lakebed.core.schema.types import Field, List, Map, Primitive, Struct, Type
from lakebed.parquet.schema.arrow import to_arrow_nullable
from lakebed.pipeline.rows.types import to_spark_nullable
from lakebed.pipeline.write.insert import insert, schema_like
from strategies import schemas, unicode_text, values_of

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy
    from pyspark.sql import SparkSession

    from lakebed.lake import Lake

_ROWS = 4


def _values(kind: Type) -> SearchStrategy[Any]:
    match kind:
        case Primitive(name="string"):
            return unicode_text.map(lambda text: text.replace("\x00", ""))
        case Primitive():
            return values_of(kind)
        case Struct(fields=fields):
            return st.fixed_dictionaries({f.name: _field(f) for f in fields})
        case List(element=element):
            return st.lists(_field(element), max_size=3)
        case Map(key=key, value=value):
            return st.dictionaries(_values(key.type), _field(value), max_size=3).map(lambda found: list(found.items()))


def _field(field: Field) -> SearchStrategy[Any]:
    return _values(field.type) if field.required else st.none() | _values(field.type)


@st.composite
def filled(draw: DrawFn) -> tuple[Schema, list[dict[str, Any]]]:
    """A schema and rows for it; a fixed binary of no length has no place in Parquet."""
    schema = draw(schemas(depth=2).map(_with_one_name).filter(_is_writable))
    rows = draw(st.lists(st.fixed_dictionaries({f.name: _field(f) for f in schema.fields}), min_size=1, max_size=_ROWS))
    return schema, rows


def _with_one_name(schema: Schema) -> Schema:
    return Schema.from_json(re.sub(rb',"physical-name":"\w+"', b"", schema.to_json()))


def _is_writable(schema: Schema) -> bool:
    return not any(f.type == Primitive(name="fixed", length=0) for f in walk(schema.fields))


def _plain(value: Any) -> Any:
    """Comparable: instants in UTC, NaN equal to itself."""
    match value:
        case datetime():
            return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        case dict():
            return {name: _plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case float():
            return "nan" if math.isnan(value) else value
        case _:
            return value


def _sorted(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(_plain(row)) for row in rows)


@settings(max_examples=12)
@given(filled())
def test_rows_come_back_exactly(spark_lake: Lake, spark: SparkSession, sample: tuple[Schema, list[dict[str, Any]]]) -> None:
    schema, rows = sample
    name = str(fresh_name())
    spark_lake.create_table(name, schema)
    arrow = pa.Table.from_pylist(rows, schema=to_arrow_nullable(schema))

    result = insert(spark_lake._context, name, spark.createDataFrame(arrow, schema=to_spark_nullable(schema)))

    paths = [file.file_path for file in spark_lake.files.list(name)]
    found = [row for path in paths for row in pq.read_table(path).to_pylist()]
    assert result.rows == len(rows)
    assert _sorted(found) == _sorted(arrow.to_pylist())
    assert spark_lake.check().clean


def test_lists_without_any_element_come_back(spark_lake: Lake, spark: SparkSession) -> None:
    """Spark sends them without offsets, which once ended the task's Python worker."""
    df = spark.range(2).selectExpr(
        "CAST(NULL AS ARRAY<ARRAY<BINARY>>) AS a",
        "CAST(array() AS ARRAY<MAP<STRING, ARRAY<STRING>>>) AS b",
        "map(id, CAST(NULL AS STRUCT<x: ARRAY<INT>>)) AS m",
    )
    spark_lake.create_table("shop.hollow", schema_like(df))

    insert(spark_lake._context, "shop.hollow", df.coalesce(1))

    (file,) = spark_lake.files.list("shop.hollow")
    assert pq.read_table(file.file_path).to_pylist() == [{"a": None, "b": [], "m": [(number, None)]} for number in (0, 1)]
    assert spark_lake.check().clean


def test_awkward_values_come_back_exactly(spark_lake: Lake, spark: SparkSession) -> None:
    kinds = {
        "b": "boolean", "i": "int", "l": "long", "f": "float", "d": "double", "dt": "date", "ts": "timestamptz", "n": "timestamp",
        "s": "string", "x": "binary", "e": "decimal(38,18)", "small": "decimal(9,0)",
    }  # fmt: skip
    schema = Schema(
        fields=tuple(Field(field_id=n, name=name, type=Primitive.parse(kind)) for n, (name, kind) in enumerate(kinds.items(), 1))
    )
    rows: list[dict[str, Any]] = [
        dict.fromkeys(kinds),
        {
            "b": False, "i": -(2**31), "l": -(2**63), "f": -0.0, "d": float("nan"), "dt": date(1, 1, 1), "ts": datetime(1, 1, 1, tzinfo=UTC),
            "n": datetime(1, 1, 1), "s": "", "x": b"", "e": Decimal("-99999999999999999999.999999999999999999"), "small": Decimal(0),  # noqa: DTZ001
        },
        {
            "b": True, "i": 2**31 - 1, "l": 2**63 - 1, "f": float("inf"), "d": 5e-324, "dt": date(9999, 12, 31),
            "ts": datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), "n": datetime(1582, 10, 10, 3, 4, 5, 6),  # noqa: DTZ001
            "s": "\U0001f600 \u65e5\u672c '\"\\%\n", "x": bytes(range(256)), "e": Decimal("0.000000000000000001"), "small": Decimal(999999999),
        },
    ]  # fmt: skip
    spark_lake.create_table("shop.awkward", schema)
    arrow = pa.Table.from_pylist(rows, schema=to_arrow_nullable(schema))

    insert(spark_lake._context, "shop.awkward", spark.createDataFrame(arrow, schema=to_spark_nullable(schema)).coalesce(1))

    (file,) = spark_lake.files.list("shop.awkward")
    assert _sorted(pq.read_table(file.file_path).to_pylist()) == _sorted(arrow.to_pylist())
    assert spark_lake.check().clean
