"""Names of tables in Spark's hands: case does not matter, and a misspelled one gets a suggestion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType

from builders import SCHEMA
from lakebed.core.errors import DefinitionRefusedError, LakebedError, TableNotFoundError
from lakebed.core.names import TableName
from lakebed.core.schema.ddl import parse_columns
from lakebed.pipeline.rows.types import from_spark
from lakebed.registry.tables.lake_tables import TableSpec, add_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from lakebed.lake import Lake

NAME, OTHER, MISSPELLED = "shop.orders", "SHOP.Orders", "shop.ordes"


@pytest.fixture
def shop(spark_lake: Lake) -> Lake:
    frame = spark_lake.spark.sql("SELECT CAST(id AS long) AS id, TIMESTAMP '2026-03-01 12:00:00Z' AS ts FROM range(4)")
    spark_lake.create_table(NAME, like=frame, event_time="ts")
    spark_lake.insert(OTHER, frame)
    return spark_lake


def ids(frame: DataFrame) -> list[Any]:
    return sorted(row["id"] for row in frame.collect())


def test_reading_and_writing_ignore_case(shop: Lake) -> None:
    assert ids(shop.read(OTHER, where="ID >= 2")) == [2, 3]
    assert str(shop.delete(OTHER, "id = 3").table) == NAME
    with shop.writer("shop.ORDERS") as writer:
        writer.write(shop.read("Shop.orders", where="id = 0"))
    assert ids(shop.sql("SELECT Shop.Orders.id FROM shop.ORDERS WHERE SHOP.orders.id < 2")) == [0, 0, 1]
    assert shop.explain(f"SELECT id FROM {OTHER} WHERE id = 1").scans[0].table == NAME
    assert shop.check().clean


def test_a_view_set_may_spell_its_source_otherwise(shop: Lake) -> None:
    made = shop.create_view_set("Shop.Copies", sql="WITH Few AS (SELECT * FROM SHOP.orders) SELECT id, ts FROM few", over="Shop.ORDERS")
    assert (str(made.name), str(made.definition.over), made.definition.reads) == ("Shop.Copies", NAME, ())

    again = shop.create_view_set("shop.copies", sql="SELECT id + 1 AS id, ts FROM Shop.Orders", over=OTHER)
    shop.materialize("SHOP.copies", upstream=True).raise_failed()

    assert str(again.name) == "Shop.Copies"
    assert ids(shop.read("shop.copies")) == [1, 2, 3, 4]
    with pytest.raises(LakebedError, match=r"is read by Shop\.Copies"):
        shop.tables.drop(OTHER)
    with pytest.raises(DefinitionRefusedError, match="refers to itself"):
        shop.create_view_set("shop.Copies", sql="SELECT id FROM SHOP.copies", over="shop.copies")
    with pytest.raises(DefinitionRefusedError, match="needs all rows"):
        shop.create_view_set("shop.counts", sql="SELECT count(*) AS n FROM Shop.Orders", over=NAME)
    assert shop.check().clean


def test_a_view_set_over_one_of_a_pair_reads_that_one(shop: Lake) -> None:
    with shop.registry.write() as tx:
        add_table(tx, TableSpec(name=TableName("Shop", "Orders"), schema=SCHEMA))
    shop.create_view_set("shop.copies", sql="SELECT id, ts FROM shop.orders", over=NAME)
    shop.materialize("shop.copies").raise_failed()
    assert ids(shop.read("shop.copies")) == ids(shop.read(NAME)) == [0, 1, 2, 3]
    assert ids(shop.read("Shop.Orders")) == ids(shop.sql("SELECT * FROM Shop.Orders")) == []


MISSING: dict[str, Callable[[Lake], object]] = {
    "read": lambda lake: lake.read(MISSPELLED),
    "insert": lambda lake: lake.insert(MISSPELLED, lake.spark.range(1)),
    "delete": lambda lake: lake.delete(MISSPELLED, "id = 1"),
    "writer": lambda lake: lake.writer(MISSPELLED),
    "insert_json": lambda lake: lake.insert(MISSPELLED, lake.spark.range(1), format="json"),
    "foreach_batch": lambda lake: lake.foreach_batch(MISSPELLED, "app"),
    "sql": lambda lake: lake.sql(f"SELECT * FROM {MISSPELLED}"),
    "explain": lambda lake: lake.explain(f"SELECT * FROM {MISSPELLED}"),
    "over": lambda lake: lake.create_view_set("shop.v", sql=f"SELECT * FROM {MISSPELLED}", over=MISSPELLED),
    "lookup": lambda lake: lake.create_view_set("shop.v", sql=f"SELECT o.id FROM {NAME} o JOIN {MISSPELLED} p USING (id)", over=NAME),
    "materialize": lambda lake: lake.materialize(MISSPELLED),
    "materialize_upstream": lambda lake: lake.materialize(MISSPELLED, upstream=True),
    "merge": lambda lake: lake.partitions.merge(MISSPELLED),
    "promote": lambda lake: lake.views.promote(MISSPELLED),
    "fresh": lambda lake: lake.read(MISSPELLED, fresh=True),
    "as_of_snapshot": lambda lake: lake.read(MISSPELLED, as_of="snapshot"),
}


def test_a_misspelled_table_gets_a_suggestion(shop: Lake) -> None:
    for what, call in MISSING.items():
        with pytest.raises(TableNotFoundError) as refused:
            call(shop)
        assert (what, refused.value.near) == (what, (NAME,))


MISSPELLED_COLUMNS: dict[str, Callable[[Lake], object]] = {
    "columns": lambda lake: lake.read(NAME, columns=["ids"]),
    "where": lambda lake: lake.read(NAME, where="ids = 1"),
    "sql": lambda lake: lake.sql(f"SELECT ids FROM {NAME}"),
    "delete": lambda lake: lake.delete(NAME, "ids = 1"),
    "view query": lambda lake: lake.create_view_set("shop.v", sql=f"SELECT ids FROM {NAME}", over=NAME),
    "event_time": lambda lake: lake.create_view_set("shop.v", sql=f"SELECT id FROM {NAME}", over=NAME, event_time="ids"),
    "partition_by": lambda lake: lake.create_view_set("shop.v", sql=f"SELECT id FROM {NAME}", over=NAME, partition_by=["ids"]),
    "sort_by": lambda lake: lake.create_view_set("shop.v", sql=f"SELECT id FROM {NAME}", over=NAME, sort_by=["ids"]),
    "combine": lambda lake: lake.create_view_set(
        "shop.v",
        sql=f"SELECT id, count(*) AS n FROM {NAME} GROUP BY id",
        over=NAME,
        combine="SELECT ids, sum(n) AS n FROM partials GROUP BY 1",
    ),
}


def test_a_misspelled_column_gets_a_suggestion(shop: Lake) -> None:
    for what, call in MISSPELLED_COLUMNS.items():
        with pytest.raises(LakebedError) as refused:
            call(shop)
        assert "id" in str(refused.value).lower().partition("did you mean")[2], (what, str(refused.value))


def test_columns_of_a_read_ignore_case(shop: Lake) -> None:
    assert sorted(row[0] for row in shop.read(NAME, columns=["ID"]).collect()) == [0, 1, 2, 3]


def test_an_insert_with_a_misspelled_column_names_the_one_that_is_there(shop: Lake) -> None:
    frame = shop.spark.sql("SELECT 1L AS ids, TIMESTAMP '2026-03-01 12:00:00Z' AS ts")
    with pytest.raises(LakebedError) as refused:
        shop.insert(NAME, frame)
    assert "did you mean id" in str(refused.value), str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "id BIGINT NOT NULL, x STRING COMMENT 'a, b', `c d` DECIMAL(9, 2), e DEC, f NUMERIC(3)",
        "a ARRAY<MAP<STRING, STRUCT<x: INT NOT NULL, y DOUBLE>>>, b BOOLEAN, c TINYINT, d SMALLINT, e FLOAT, g DATE, h BINARY",
        "t TIMESTAMP, u TIMESTAMP_NTZ, v TIMESTAMP_LTZ, w REAL, comment STRING",
    ],
)
@pytest.mark.usefixtures("spark")
def test_ddl_text_means_what_it_means_to_spark(text: str) -> None:
    by_spark = StructType.fromDDL(text)
    assert isinstance(by_spark, StructType)
    assert parse_columns(text, table=NAME) == from_spark(by_spark)
