"""The content of files: ids at every depth, statistics, types that every engine reads, and no further files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from insert_lakes import ORDERS, files_in, make_orders, orders

from builders import count
from lakebed.core.schema.bounds import lower_bound, upper_bound
from lakebed.core.schema.schema import Schema, walk
from lakebed.core.schema.types import Field, List, Map, Primitive, Struct
from lakebed.parquet.footer.framing import find_meta
from lakebed.parquet.schema.match import list_element, map_entry
from lakebed.parquet.schema.tree import decode_schema
from lakebed.pipeline.write.insert import insert, schema_like

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from lakebed.lake import Lake
    from lakebed.parquet.schema.tree import Node

PLAIN = [
    "id",
    "struct(id AS a, struct(string(id) AS c, ts AS t) AS b) AS s",
    "CAST(amount AS FLOAT) AS f",
    "amount AS d",
    "CAST(id AS DECIMAL(20,3)) AS e",
]
FLAT = [
    "id",
    "ts",
    "date(ts) AS day",
    "string(id) AS s",
    "amount AS d",
    "CAST(amount AS FLOAT) AS f",
    "CAST(id AS DECIMAL(20,3)) AS e",
    "id > 3 AS b",
]
NESTED = [*PLAIN, "array(struct(id AS x)) AS l", "map(string(id), array(ts)) AS m"]


def ids_in(path: str) -> set[int | None]:
    """The id of every column of the file, without the levels that only spell out a list or map."""
    return {node.field_id for node in _columns(decode_schema(find_meta(Path(path).read_bytes())).children)}


def _columns(nodes: tuple[Node, ...]) -> Iterator[Node]:
    for node in nodes:
        yield node
        element = list_element(node)
        yield from _columns((element,) if element is not None else map_entry(node) or node.children)


@pytest.mark.parametrize(("columns", "partition_by"), [(c, by) for c in (FLAT, PLAIN, NESTED) for by in ([], ["bucket(2, id)"])])
def test_every_field_of_a_file_has_its_id(spark_lake: Lake, spark: SparkSession, columns: list[str], partition_by: list[str]) -> None:
    df = orders(spark, 0, 20).selectExpr(*columns)
    table = spark_lake.create_table("shop.deep", schema_like(df), partition_by=partition_by)

    insert(spark_lake._context, "shop.deep", df)

    expected = {field.field_id for field in walk(table.schema.fields)}
    assert all(ids_in(file.file_path) == expected for file in spark_lake.files.list("shop.deep"))
    assert spark_lake.check().clean


def test_ids_that_rows_bring_along_are_not_those_of_the_table(spark_lake: Lake, spark: SparkSession) -> None:
    table = make_orders(spark_lake)
    foreign = orders(spark, 0, 5).withMetadata("id", {"parquet.field.id": 77}).withMetadata("amount", {"parquet.field.id": 1})

    insert(spark_lake._context, ORDERS, foreign)

    expected = {field.field_id for field in walk(table.schema.fields)}
    assert [ids_in(file.file_path) for file in spark_lake.files.list(ORDERS)] == [expected] * 2
    assert spark_lake.check().clean


def test_statistics_bound_every_column_floats_too(spark_lake: Lake, spark: SparkSession) -> None:
    df = orders(spark, 0, 20).coalesce(1).selectExpr(*PLAIN)
    spark_lake.create_table("shop.deep", schema_like(df))

    insert(spark_lake._context, "shop.deep", df)

    found = {
        row[0]: (bytes(row[1]), bytes(row[2]), row[3])
        for row in spark_lake.registry.query("SELECT field_id, lower, upper, null_count FROM file_columns")
    }
    double, single, long = Primitive(name="double"), Primitive(name="float"), Primitive(name="long")
    by_name = {f.name: f.field_id for f in walk(spark_lake.table("shop.deep").schema.fields)}
    assert found[by_name["d"]] == (lower_bound(double, 0.0), upper_bound(double, 9.5), 0)
    assert found[by_name["f"]] == (lower_bound(single, 0.0), upper_bound(single, 9.5), 0)
    assert found[by_name["a"]] == (lower_bound(long, 0), upper_bound(long, 19), 0)
    assert len(found) == 7  # nested ones too, all leaves


def test_a_nan_hides_the_greatest_value(spark_lake: Lake, spark: SparkSession) -> None:
    df = spark.createDataFrame([(1.0,), (float("nan"),)], "d double").coalesce(1)
    spark_lake.create_table("shop.nan", schema_like(df))

    insert(spark_lake._context, "shop.nan", df)

    assert count(spark_lake.registry, "file_columns", "upper IS NULL") == 1


def test_only_registered_files_are_in_the_warehouse(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)
    make_orders(spark_lake, "shop.parted", partition_by=["day(ts)"])

    insert(spark_lake._context, ORDERS, orders(spark, 0, 50))
    insert(spark_lake._context, "shop.parted", orders(spark, 0, 50))

    root = spark_lake.storage.paths.root
    registered = [f.file_path[len(root) + 1 :] for name in (ORDERS, "shop.parted") for f in spark_lake.files.list(name)]
    assert files_in(spark_lake) == sorted(registered)


def test_renamed_fields_are_written_under_their_physical_names(spark_lake: Lake, spark: SparkSession) -> None:
    inner = Struct(fields=(Field(field_id=3, name="now", physical_name="was", type=Primitive(name="long")),))
    schema = Schema(
        fields=(
            Field(field_id=1, name="a", physical_name="b", type=Primitive(name="long")),
            Field(field_id=2, name="b", physical_name="a", type=inner),
        )
    )
    spark_lake.create_table("shop.swapped", schema)

    insert(spark_lake._context, "shop.swapped", orders(spark, 5, 1).selectExpr("struct(id AS now) AS b", "id AS a"))

    (file,) = spark_lake.files.list("shop.swapped")
    assert pq.read_table(file.file_path).to_pylist() == [{"b": 5, "a": {"was": 5}}]
    assert ids_in(file.file_path) == {1, 2, 3}


def test_required_nested_fields_fixed_binaries_and_uuids_are_written_and_guarded(spark_lake: Lake, spark: SparkSession) -> None:
    long = Primitive(name="long")
    schema = Schema(
        fields=(
            Field(field_id=1, name="u", type=Primitive(name="uuid")),
            Field(field_id=2, name="x", type=Primitive(name="fixed", length=3)),
            Field(field_id=3, name="l", type=List(element=Field(field_id=4, name="element", type=long, required=True))),
            Field(
                field_id=5,
                name="m",
                type=Map(
                    key=Field(field_id=6, name="key", type=long, required=True),
                    value=Field(field_id=7, name="value", type=Struct(fields=(Field(field_id=8, name="r", type=long, required=True),))),
                ),
            ),
        )
    )
    spark_lake.create_table("shop.strict", schema)
    good = [
        "CAST(repeat('u', 16) AS BINARY) AS u",
        "CAST('abc' AS BINARY) AS x",
        "array(1L, 2L) AS l",
        "map(1L, named_struct('r', IF(id < 9, 5L, NULL))) AS m",
    ]
    insert(spark_lake._context, "shop.strict", orders(spark, 0, 1).selectExpr(*good))

    for bad, message in {
        "CAST('abcd' AS BINARY) AS x": "column 'x' holds a value that is not 3 bytes long",
        "array(1L, NULL) AS l": "column 'l.element' is required and a row holds NULL",
        "map(1L, named_struct('r', IF(id > 9, 5L, NULL))) AS m": "column 'm.value.r' is required and a row holds NULL",
    }.items():
        name = bad.rsplit(" ", 1)[1]
        with pytest.raises(Exception, match=message):
            insert(
                spark_lake._context,
                "shop.strict",
                orders(spark, 0, 1).selectExpr(*[bad if column.endswith(f" {name}") else column for column in good]),
            )

    (file,) = spark_lake.files.list("shop.strict")
    assert pq.read_table(file.file_path).to_pylist() == [{"u": b"u" * 16, "x": b"abc", "l": [1, 2], "m": [(1, {"r": 5})]}]
    assert spark_lake.check().clean
