"""Spark's types and a table's, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from pyspark.sql import types as T  # noqa: N812

from lakebed.core.errors import SchemaRefusedError
from lakebed.core.schema.schema import Schema, walk
from lakebed.core.schema.types import Primitive
from lakebed.pipeline.rows.types import from_spark, to_spark
from strategies import schemas

PAIRS = [
    (T.BooleanType(), "boolean"),
    (T.ByteType(), "int"),
    (T.ShortType(), "int"),
    (T.IntegerType(), "int"),
    (T.LongType(), "long"),
    (T.FloatType(), "float"),
    (T.DoubleType(), "double"),
    (T.DateType(), "date"),
    (T.TimestampType(), "timestamptz"),
    (T.TimestampNTZType(), "timestamp"),
    (T.StringType(), "string"),
    (T.CharType(4), "string"),
    (T.VarcharType(4), "string"),
    (T.BinaryType(), "binary"),
    (T.DecimalType(38, 10), "decimal(38,10)"),
]
REFUSED = [
    T.DayTimeIntervalType(),
    T.YearMonthIntervalType(),
    T.CalendarIntervalType(),
    T.VariantType(),
    T.TimeType(),
    T.NullType(),
    T.StringType("UTF8_LCASE"),
    T.StructType([]),
]


@pytest.mark.parametrize(("spark_type", "expected"), PAIRS)
def test_a_spark_type_becomes_the_type_every_engine_knows(spark_type: T.DataType, expected: str) -> None:
    schema = from_spark(T.StructType([T.StructField("c", spark_type, nullable=False)]))

    assert schema.fields[0].type == Primitive.parse(expected)
    assert schema.fields[0].required


@pytest.mark.parametrize("spark_type", REFUSED, ids=lambda kind: kind.simpleString())
def test_a_type_that_parquet_and_iceberg_do_not_share_is_refused_with_its_path(spark_type: T.DataType) -> None:
    inner = T.StructType([T.StructField("bad", spark_type)])
    struct = T.StructType([T.StructField("outer", T.ArrayType(inner))])

    with pytest.raises(SchemaRefusedError, match=r"column 'outer.element.bad' has type .*: cast it before writing"):
        from_spark(struct)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "A"], "column 'A' occurs twice"),
        (["a", "a"], "'a' occurs twice"),
        (["a\nb"], "illegal name"),
        ([""], "illegal name"),
        (["x" * 256], "illegal name"),
        (["lakebed__key"], "kept for Lakebed"),
    ],
)
@pytest.mark.parametrize("is_nested", [False, True])
def test_names_that_could_be_mistaken_are_refused(names: list[str], message: str, *, is_nested: bool) -> None:
    struct = T.StructType([T.StructField(name, T.LongType()) for name in names])
    outer = T.StructType([T.StructField("s", struct)]) if is_nested else struct

    with pytest.raises(SchemaRefusedError, match=message.replace("'A'", "'(s.)?A'").replace("'a'", "'(s.)?a'")):
        from_spark(outer)


def test_a_dotted_name_that_looks_like_a_nested_one_is_refused() -> None:
    inner = T.StructType([T.StructField("b", T.LongType())])

    with pytest.raises(SchemaRefusedError, match=r"column 'a.b' occurs twice"):
        from_spark(T.StructType([T.StructField("a", inner), T.StructField("a.b", T.LongType())]))


def test_ids_are_given_to_parents_before_children() -> None:
    inner = T.StructType([T.StructField("x", T.LongType()), T.StructField("y", T.MapType(T.StringType(), T.LongType()))])
    schema = from_spark(T.StructType([T.StructField("a", T.ArrayType(inner)), T.StructField("b", T.LongType())]))

    assert [(f.name, f.field_id) for f in walk(schema.fields)] == [
        ("a", 1), ("element", 2), ("x", 3), ("y", 4), ("key", 5), ("value", 6), ("b", 7),
    ]  # fmt: skip


@settings(max_examples=50)
@given(schemas())
def test_a_schema_survives_the_way_through_spark(schema: Schema) -> None:
    again = from_spark(to_spark(schema))

    assert [(f.name, f.required, _shape(f.type)) for f in walk(again.fields)] == [
        (f.name, f.required, _shape(f.type)) for f in walk(schema.fields)
    ]


def _shape(kind: object) -> object:
    if isinstance(kind, Primitive):
        return Primitive(name="binary") if kind.name in {"uuid", "fixed"} else kind
    return type(kind)


def test_physical_names_and_ids_stand_at_every_depth() -> None:
    schema = from_spark(T.StructType([T.StructField("s", T.StructType([T.StructField("x", T.LongType())]))]))
    renamed = Schema.from_json(schema.to_json().replace(b'"name":"x"', b'"name":"now","physical-name":"x"'))

    written = to_spark(renamed, physical=True, with_ids=True)

    assert written["s"].metadata == {"parquet.field.id": 1}
    assert isinstance(written["s"].dataType, T.StructType)
    assert (written["s"].dataType["x"].name, written["s"].dataType["x"].metadata) == ("x", {"parquet.field.id": 2})
    assert to_spark(renamed)["s"].dataType.fieldNames() == ["now"]  # type: ignore[attr-defined]
