"""Reads a lake with Iceberg's reference implementation, in a separate process: Java gets its jars when it starts.

python reference_reader.py JSON-LIST-OF-LAKES    prints one JSON line per comparison
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from lakebed.core.names import TableName
from lakebed.core.schema.schema import Schema
from lakebed.lake import connect
from lakebed.registry.tables.versions import evolve_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakebed.lake import Lake

PACKAGES = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0,org.xerial:sqlite-jdbc:3.53.2.1,org.postgresql:postgresql:42.7.7"
OPTIONS = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "2g", "spark.jars.packages": PACKAGES}
NAME = "shop.orders"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A lake, and how Java reaches its catalog."""

    url: str
    warehouse: str
    jdbc: str


def main() -> None:
    spark: SparkSession | None = None
    for given in json.loads(sys.argv[1]):
        place = Place(**given)
        with connect(place.url, warehouse=place.warehouse, spark=spark, spark_options=OPTIONS, service="auto") as lake:
            spark = lake.spark
            walk(lake, reader_of(spark, place))


def reader_of(spark: SparkSession, place: Place) -> SparkSession:
    """The catalog's rows are kept under the name `lakebed`, which is therefore the catalog's name in every session."""
    session = spark.newSession()
    prefix = "spark.sql.catalog.lakebed"
    settings = {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        f"{prefix}.uri": place.jdbc,
        f"{prefix}.warehouse": place.warehouse,
        f"{prefix}.jdbc.schema-version": "V1",
        f"{prefix}.cache-enabled": "false",
    }
    for key, value in settings.items():
        session.conf.set(key, value)
    return session


def walk(lake: Lake, session: SparkSession) -> None:
    """Every operation that changes what readers see, each followed by a comparison."""
    lake.create_table(NAME, like=rows(lake.spark, 0, 1), event_time="ts", partition_by=["day(ts)"])
    lake.insert(NAME, rows(lake.spark, 0, 60), metadata_mode="sync")
    compare("append", lake, session)
    second = lake.insert(NAME, rows(lake.spark, 60, 100), metadata_mode="sync")
    rename(lake, "amount", "price")
    lake.drain(60)
    compare("rename", lake, session)
    lake.insert(NAME, rows(lake.spark, 100, 120, name="price").withColumn("note", F.lit("new")), evolve=True, metadata_mode="sync")
    compare("add column", lake, session)
    partition = next(p for p in lake.list_partitions(NAME) if p.partition_id == second.partition_id)
    lake.retire_partition_by_metadata(NAME, insert_begin=partition.begin_insert_time, insert_end=partition.end_insert_time)
    lake.drain(60)
    compare("retire", lake, session)
    lake.partitions.merge(NAME)
    lake.drain(60)
    compare("merge", lake, session)
    few = [lake.insert(NAME, rows(lake.spark, n, n + 1, name="price"), metadata_mode="sync") for n in range(300, 312)]
    compare("manifests merged in a tier", lake, session)
    partition = next(p for p in lake.list_partitions(NAME) if p.partition_id == few[2].partition_id)
    lake.retire_partition_by_metadata(NAME, insert_begin=partition.begin_insert_time, insert_end=partition.end_insert_time)
    lake.drain(60)
    compare("removal from it", lake, session)
    lake.insert(NAME, rows(lake.spark, 500, 510, name="price"), mode="overwrite", metadata_mode="sync")
    compare("overwrite", lake, session)
    say("check", [str(f) for f in lake.check().findings if f.severity.value != "info"], [])


def rows(spark: SparkSession, begin: int, end: int, *, name: str = "amount") -> DataFrame:
    """Ten hours apart, so that several days are partitions; a list column goes through the other writer."""
    ids = spark.range(begin, end, 1, 1)
    return ids.select(
        "id",
        F.timestamp_micros(F.col("id") * 36_000_000_000).alias("ts"),
        (F.col("id") * 2.5).alias(name),
        F.array("id", F.lit(7)).alias("many"),
    )


def rename(lake: Lake, old: str, new: str) -> None:
    schema = lake.table(NAME).schema
    fields = tuple(replace(f, name=new, physical_name=f.physical_name) if f.name == old else f for f in schema.fields)
    table = TableName.parse(NAME)
    lake.registry.transact(lambda tx: evolve_schema(tx, table, Schema(fields=fields)), tables=[table])


def compare(step: str, lake: Lake, session: SparkSession) -> None:
    """All rows, then those behind a filter that Iceberg prunes by: through the catalog and from the metadata file alone."""
    location = lake.registry.query("SELECT metadata_location FROM table_snapshots ORDER BY id DESC LIMIT 1")[0][0]
    readers = {
        "catalog": session.table(f"lakebed.{NAME}"),
        "metadata": session.read.format("iceberg").load(location.removeprefix("file://")),
    }
    begin = datetime(1970, 1, 3, tzinfo=UTC)
    for how, frame in readers.items():
        if step == "rename" and how == "metadata":
            continue  # a rename is no snapshot: only the pointer leads to its metadata
        say(f"{step}: {how}", collected(lake.read(NAME)), collected(frame))
        wanted, found = (
            lake.read(NAME, begin=begin, where="id % 2 = 0"),
            frame.where("ts >= TIMESTAMP '1970-01-03 00:00:00+00:00' AND id % 2 = 0"),
        )
        say(f"{step}: {how}, filtered", collected(wanted), collected(found))


def collected(frame: DataFrame) -> list[str]:
    ordered = frame.select(*sorted(frame.columns))
    return sorted(repr(tuple(row)) for row in ordered.collect())


def say(what: str, expected: list[Any], found: list[Any]) -> None:
    sys.stdout.write(
        json.dumps({"what": what, "rows": len(expected), "equal": expected == found, "differ": sorted(set(expected) ^ set(found))[:4]})
        + "\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
