"""Streaming is exactly once: replays, restarts, and a query whose commit was lost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from insert_lakes import ORDERS, make_orders, orders, rows_of
from pyspark.errors import StreamingQueryException

from builders import count
from lakebed.core.errors import InvalidValueError, SparkRefusedError, TableNotFoundError
from lakebed.pipeline.write.streaming import find_query_id, foreach_batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from lakebed.lake import Lake


def run_stream(spark: SparkSession, directory: Path, write: Callable[[DataFrame, int], None], *, checkpoint: str = "checkpoint") -> None:
    rows = (
        spark.readStream.schema("id long, ts timestamp, amount double").option("maxFilesPerTrigger", 1).parquet(str(directory / "source"))
    )
    query = (
        rows.writeStream.foreachBatch(write).option("checkpointLocation", str(directory / checkpoint)).trigger(availableNow=True).start()
    )
    query.awaitTermination()


def test_a_replayed_batch_is_registered_once(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)
    write = foreach_batch(spark_lake._context, ORDERS, "app")

    for batch_id in (0, 0, 1, 1):
        write(orders(spark, batch_id * 10, 10), batch_id)
    foreach_batch(spark_lake._context, ORDERS, "another")(orders(spark, 50, 1), 0)  # counts its batches for itself

    assert rows_of(spark_lake, ORDERS) == rows_of(orders(spark, 0, 20).unionAll(orders(spark, 50, 1)))
    assert spark_lake.check().clean


def test_a_query_that_lost_its_last_commit_repeats_it_without_effect(spark_lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    make_orders(spark_lake)
    orders(spark, 0, 20).repartition(2).write.parquet(str(tmp_path / "source"))
    write = foreach_batch(spark_lake._context, ORDERS, "app")
    run_stream(spark, tmp_path, write)
    lose_the_last_commit(tmp_path)

    repeated: list[int] = []

    def again(df: DataFrame, batch_id: int) -> None:
        repeated.append(batch_id)
        write(df, batch_id)

    orders(spark, 20, 5).coalesce(1).write.mode("append").parquet(str(tmp_path / "source"))
    run_stream(spark, tmp_path, again)

    assert repeated == [1, 2]
    assert count(spark_lake.registry, "partitions") == 3
    assert rows_of(spark_lake, ORDERS) == rows_of(orders(spark, 0, 25))
    assert spark_lake.check().clean


def test_a_new_checkpoint_under_a_used_name_is_refused_and_loses_nothing(spark_lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    make_orders(spark_lake)
    orders(spark, 0, 20).repartition(2).write.parquet(str(tmp_path / "source"))
    run_stream(spark, tmp_path, spark_lake.foreach_batch(ORDERS, "app"))
    orders(spark, 20, 60).repartition(4).write.mode("append").parquet(str(tmp_path / "source"))

    with pytest.raises(StreamingQueryException, match=r"AnotherCheckpointError: shop.orders: batch 0 of stream 'app'.*new app_id"):
        run_stream(spark, tmp_path, spark_lake.foreach_batch(ORDERS, "app"), checkpoint="another")
    assert count(spark_lake.registry, "partitions") == 2

    run_stream(spark, tmp_path, spark_lake.foreach_batch(ORDERS, "app"))
    assert rows_of(spark_lake, ORDERS) == rows_of(orders(spark, 0, 80))
    assert spark_lake.check().clean


def test_the_first_batch_of_a_new_checkpoint_is_not_a_replay_of_the_first_one(
    spark_lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    """Both have number 0: only the query's id distinguishes them."""
    make_orders(spark_lake)
    orders(spark, 0, 10).coalesce(1).write.parquet(str(tmp_path / "source"))
    run_stream(spark, tmp_path, spark_lake.foreach_batch(ORDERS, "app"))

    with pytest.raises(StreamingQueryException, match="registered for another query id"):
        run_stream(spark, tmp_path, spark_lake.foreach_batch(ORDERS, "app"), checkpoint="another")

    run_stream(spark, tmp_path, spark_lake.foreach_batch(ORDERS, "app-2"), checkpoint="third")
    assert count(spark_lake.registry, "partitions") == 2


def test_the_id_of_the_query_is_that_of_its_checkpoint(spark_lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    make_orders(spark_lake)
    orders(spark, 0, 20).repartition(2).write.parquet(str(tmp_path / "source"))

    run_stream(spark, tmp_path, spark_lake.foreach_batch(ORDERS, "app"))

    query_id = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    assert spark_lake.registry.query("SELECT batch_id, query_id FROM operations ORDER BY batch_id") == [(0, query_id), (1, query_id)]
    assert find_query_id(spark, str(tmp_path / "checkpoint")) == query_id
    assert find_query_id(spark, None) is None


def test_a_stream_from_before_ids_were_stored_goes_on(spark_lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    """The batch that it repeats first gets its id."""
    make_orders(spark_lake)
    orders(spark, 0, 20).repartition(2).write.parquet(str(tmp_path / "source"))
    run_stream(spark, tmp_path, spark_lake.foreach_batch(ORDERS, "app"))
    spark_lake.registry.transact(lambda tx: tx.run("UPDATE operations SET query_id = NULL"), tables=[])
    lose_the_last_commit(tmp_path)

    orders(spark, 20, 5).coalesce(1).write.mode("append").parquet(str(tmp_path / "source"))
    run_stream(spark, tmp_path, spark_lake.foreach_batch(ORDERS, "app"))

    rows = spark_lake.registry.query("SELECT batch_id, query_id IS NULL FROM operations ORDER BY batch_id")
    assert [(number, bool(unknown)) for number, unknown in rows] == [(0, True), (1, False), (2, False)]
    assert rows_of(spark_lake, ORDERS) == rows_of(orders(spark, 0, 25))


def lose_the_last_commit(directory: Path) -> None:
    """As if the query had been killed behind the registry's commit of batch 1."""
    for name in ("1", ".1.crc"):
        (directory / "checkpoint" / "commits" / name).unlink()


def test_a_checkpoint_without_an_id_is_refused(spark_lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    make_orders(spark_lake)
    (tmp_path / "metadata").write_text("{}")

    with pytest.raises(InvalidValueError, match="holds no query id"):
        spark_lake.foreach_batch(ORDERS, "app", checkpoint=str(tmp_path))(orders(spark, 0, 1), 0)
    with pytest.raises(SparkRefusedError, match="reading the id of the query"):
        spark_lake.foreach_batch(ORDERS, "app", checkpoint=str(tmp_path / "nowhere"))(orders(spark, 0, 1), 0)

    assert count(spark_lake.registry, "operations") == 0


def test_a_stream_needs_a_name_and_a_table(spark_lake: Lake) -> None:
    with pytest.raises(TableNotFoundError):
        foreach_batch(spark_lake._context, ORDERS, "app")
    make_orders(spark_lake)
    with pytest.raises(InvalidValueError, match="the app_id is empty"):
        foreach_batch(spark_lake._context, ORDERS, "")
