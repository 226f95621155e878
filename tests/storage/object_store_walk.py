"""A lake whose warehouse is an object store, walked with Spark in a process of its own: its jars are given to Java when it starts.

python object_store_walk.py JSON    {"url", "warehouse", "endpoint", "committer"}; prints one JSON line per comparison
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import boto3
from pyiceberg.table import StaticTable
from pyspark.sql import functions as F  # noqa: N812

from lakebed.core.errors import LakebedError
from lakebed.lake import connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakebed.lake import Lake

_SDK = "2.29.52"
_PARTS = ("s3", "s3-transfer-manager", "sts", "apache-client")
# Hadoop asks for all of Amazon's libraries in one jar of 600 MB; these are the parts that reading and writing need
PACKAGES = ",".join(["org.apache.hadoop:hadoop-aws:3.4.2", *(f"software.amazon.awssdk:{part}:{_SDK}" for part in _PARTS)])
CLOUD = "org.apache.spark:spark-hadoop-cloud_2.13:4.1.1"
EXCLUDED = "software.amazon.awssdk:bundle,org.apache.hadoop:hadoop-client-runtime,org.apache.hadoop:hadoop-client-api"
MAGIC = {
    "spark.hadoop.fs.s3a.committer.name": "magic",
    "spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3a": "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory",
    "spark.sql.sources.commitProtocolClass": "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol",
    "spark.sql.parquet.output.committer.class": "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter",
}
ORDERS, EVENTS, VIEW = "shop.orders", "shop.events", "shop.daily"
ALWAYS = {"begin": datetime(2000, 1, 1, tzinfo=UTC), "end": datetime(2100, 1, 1, tzinfo=UTC)}


def main() -> None:
    place = json.loads(sys.argv[1])
    options = {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "2g",
        "spark.jars.packages": PACKAGES + (f",{CLOUD}" if place["committer"] == "magic" else ""),
        "spark.jars.excludes": EXCLUDED,
        "spark.hadoop.fs.s3a.endpoint": place["endpoint"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        **(MAGIC if place["committer"] == "magic" else {}),
    }
    with connect(place["url"], warehouse=place["warehouse"], spark_options=options) as lake:
        walk(lake, place["endpoint"])
    with connect(place["url"], warehouse=place["warehouse"]) as lake:
        clean_up(lake)


def walk(lake: Lake, endpoint: str) -> None:
    """Every way of writing, and every way of losing rows, each followed by a comparison."""
    spark = lake.spark
    expected = rows(spark, 0, 40)
    lake.create_table(ORDERS, like=expected, event_time="ts", partition_by=["day(ts)"])
    lake.insert(ORDERS, expected, metadata_mode="sync")
    compare("append", lake, expected, endpoint)
    refuse_a_bad_row(lake)
    lake.columns.add(ORDERS, "note", "string")
    wider = rows(spark, 40, 60).withColumn("note", F.lit("new"))
    first = lake.insert(ORDERS, wider, metadata_mode="sync")
    expected = expected.withColumn("note", F.lit(None).cast("string")).unionByName(wider)
    compare("add column", lake, expected, endpoint)
    lake.create_table(EVENTS, like=nested(spark, 0, 1), event_time="ts")
    lake.insert(EVENTS, nested(spark, 0, 10))
    lake.insert(EVENTS, nested(spark, 10, 20), format="json")
    say("lists and JSON", collected(nested(spark, 0, 20)), collected(lake.read(EVENTS)))
    lake.delete(ORDERS, where="id % 5 = 0")
    expected = expected.where("id % 5 <> 0")
    say("delete", collected(expected), collected(lake.read(ORDERS)))
    build_views(lake, expected)
    for start in range(70, 90, 5):
        lake.insert(ORDERS, rows(spark, start, start + 5).withColumn("note", F.lit("small")))
        expected = expected.unionByName(rows(spark, start, start + 5).withColumn("note", F.lit("small")))
    before = len(lake.files.list(ORDERS))
    lake.compact(ORDERS, hot_s=0.0)
    say("compact: fewer files", [True], [len(lake.files.list(ORDERS)) < before])
    lake.drain(60)
    compare("compact", lake, expected, endpoint)
    say("time travel", collected(lake.read(ORDERS, as_of=first.snapshot_id)), collected(lake.read(ORDERS, as_of=first.journal_number)))
    lose_a_file(lake, endpoint, expected)
    lake.retire_partitions(ORDERS, insert_begin=ALWAYS["begin"], insert_end=ALWAYS["end"], dry_run=False, grace_s=0)


def clean_up(lake: Lake) -> None:
    """Without Spark, and without the lease that a reading process holds."""
    lake.drain(60)
    lake.snapshots.expire(ORDERS, older_than=timedelta(0), dry_run=False)
    lake.drain(60)
    live = len(lake.files.list(ORDERS))
    say("cleaned", [0, True], [live, lake.delete_expired_temporary_files().deleted > 0])
    waiting = sorted(
        file.file_path for file in lake.files.list(ORDERS, retired=True)
    )  # of the delete and the compaction, within their grace
    say("what is left waits for its grace", waiting, [path for path in objects(lake) if "/orders-" in path])
    check("at the end", lake, known="file_missing")


def rows(spark: SparkSession, begin: int, end: int) -> DataFrame:
    """Ten hours apart, so that several days are partitions."""
    moment = F.timestamp_micros(F.lit(1_767_225_600_000_000) + F.col("id") * 36_000_000_000).alias("ts")
    return spark.range(begin, end, 1, 1).select("id", moment, (F.col("id") * 2.5).alias("amount"))


def nested(spark: SparkSession, begin: int, end: int) -> DataFrame:
    """A list goes through the writer of the executors."""
    return rows(spark, begin, end).withColumn("many", F.array("id", F.lit(7)))


def refuse_a_bad_row(lake: Lake) -> None:
    """A task that fails leaves no object behind."""
    before = objects(lake)
    bad = rows(lake.spark, 0, 20).withColumn("amount", F.expr("IF(id = 17, CAST(raise_error('row 17') AS DOUBLE), amount)"))
    try:
        lake.insert(ORDERS, bad)
    except LakebedError as error:
        say("refused", ["row 17"], ["row 17" if "row 17" in str(error) else str(error)])
    say("nothing left of a refused insert", before, objects(lake))


def objects(lake: Lake) -> list[str]:
    return sorted(facts.path for facts in lake.storage.list_files(f"{lake.storage.paths.root}/shop") if "/data/" in facts.path)


def build_views(lake: Lake, orders: DataFrame) -> None:
    lake.create_view_set(VIEW, sql=f"SELECT id, ts, 2 * amount AS amount FROM {ORDERS}", over=ORDERS, event_time="ts", slice="1d")
    lake.materialize(VIEW).raise_failed()
    wanted = orders.select("id", "ts", (2 * F.col("amount")).alias("amount"))
    say("view", collected(wanted), collected(lake.read(VIEW)))
    lake.partitions.merge(VIEW)
    say("merged view", collected(wanted), collected(lake.read(VIEW)))


def lose_a_file(lake: Lake, endpoint: str, orders: DataFrame) -> None:
    """Another program deletes an object: the check names it, the repair gives up its partition, and the view is built again."""
    victim = lake.files.list(VIEW)[0].file_path
    bucket, _, key = victim.removeprefix("s3://").partition("/")
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").delete_object(Bucket=bucket, Key=key)
    say("lost", [victim], sorted({f.subject for f in lake.check().findings if f.rule == "file_missing"}))
    done = lake.repair(retire_damaged=True, dry_run=False)
    say("given up", ["done"], [step.outcome for step in done.steps if step.remedy == "retire_damaged"])
    lake.materialize(VIEW).raise_failed()
    lake.drain(60)
    say("built again", collected(orders.select("id", "ts", (2 * F.col("amount")).alias("amount"))), collected(lake.read(VIEW)))
    check("after the repair", lake, known="file_missing")  # its row goes after the grace


def compare(step: str, lake: Lake, expected: DataFrame, endpoint: str) -> None:
    """All rows and filtered ones, by Spark; all of them by an engine that knows the metadata file alone."""
    say(step, collected(expected), collected(lake.read(ORDERS)))
    begin = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=5)
    wanted = expected.where(f"ts >= TIMESTAMP '{begin:%Y-%m-%d %H:%M:%S}+00:00' AND id % 2 = 0")
    say(f"{step}, filtered", collected(wanted), collected(lake.read(ORDERS, begin=begin, where="id % 2 = 0")))
    newest = "SELECT metadata_location FROM table_snapshots WHERE table_id = :table_id ORDER BY id DESC LIMIT 1"
    location = lake.registry.query(newest, {"table_id": lake.table(ORDERS).table_id})[0][0]
    found = StaticTable.from_metadata(location, properties={"s3.endpoint": endpoint, "s3.region": "us-east-1"}).scan().to_arrow()
    say(f"{step}, by PyIceberg", sorted(row.id for row in expected.collect()), sorted(found["id"].to_pylist()))
    check(step, lake)


def check(step: str, lake: Lake, *, known: str | None = None) -> None:
    found = [finding for finding in lake.check(deep=True).findings if finding.severity.value != "info"]
    say(f"{step}: check", [], [str(finding) for finding in found if finding.rule != known])


def collected(frame: DataFrame) -> list[str]:
    return sorted(repr(tuple(row)) for row in frame.select(*sorted(frame.columns)).collect())


def say(what: str, expected: list[Any], found: list[Any]) -> None:
    differ = [] if expected == found else sorted({*map(str, expected)} ^ {*map(str, found)})[:4]
    sys.stdout.write(json.dumps({"what": what, "size": len(expected), "equal": expected == found, "differ": differ}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
