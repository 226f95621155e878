"""Streaming is exactly once: replays, restarts, and a query whose commit was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from insert_lakes import ORDERS, make_orders, orders, rows_of

from builders import count
from lakebed.core.errors import InvalidValueError, TableNotFoundError
from lakebed.pipeline.streaming import foreach_batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from lakebed.lake import Lake


def run_stream(spark: SparkSession, directory: Path, write: Callable[[DataFrame, int], None]) -> None:
    rows = (
        spark.readStream.schema("id long, ts timestamp, amount double").option("maxFilesPerTrigger", 1).parquet(str(directory / "source"))
    )
    query = (
        rows.writeStream.foreachBatch(write).option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
    )
    query.awaitTermination()


def test_a_replayed_batch_is_registered_once(spark_lake: Lake, spark: SparkSession) -> None:
    make_orders(spark_lake)
    write = foreach_batch(spark_lake.context, ORDERS, "app")

    for batch_id in (0, 0, 1, 0, 1):
        write(orders(spark, batch_id * 10, 10), batch_id)
    foreach_batch(spark_lake.context, ORDERS, "another")(orders(spark, 50, 1), 0)  # counts its batches for itself

    assert rows_of(spark_lake, ORDERS) == rows_of(orders(spark, 0, 20).unionAll(orders(spark, 50, 1)))
    assert spark_lake.check().clean


def test_a_query_that_lost_its_last_commit_repeats_it_without_effect(spark_lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    make_orders(spark_lake)
    orders(spark, 0, 20).repartition(2).write.parquet(str(tmp_path / "source"))
    write = foreach_batch(spark_lake.context, ORDERS, "app")
    run_stream(spark, tmp_path, write)
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()  # as if it had been killed behind the registry's commit

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


def test_a_stream_needs_a_name_and_a_table(spark_lake: Lake) -> None:
    with pytest.raises(TableNotFoundError):
        foreach_batch(spark_lake.context, ORDERS, "app")
    make_orders(spark_lake)
    with pytest.raises(InvalidValueError, match="the app_id is empty"):
        foreach_batch(spark_lake.context, ORDERS, "")
