"""What inserts cost beside plain Spark, in short, so that a regression is found before the benchmark is run; and much at once."""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING

import pytest
from insert_lakes import ORDERS, make_orders, orders
from spark_worker import told, working

from lakebed.pipeline.insert import insert

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from lakebed.lake import Lake

WARM, PAIRS = 10, 15
MOST = 1.5  # the benchmark's bound is 1.05; here Java is half compiled and other tests run beside
ROWS, FILES, DRIVER_MB = 10_000_000, 1_000, 600


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def write_plain(df: DataFrame, directory: Path) -> None:
    df.write.option("compression", "zstd").parquet(str(directory))
    for path in [*directory.rglob("*"), directory]:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def test_a_small_insert_costs_little_more_than_plain_spark(spark_lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    make_orders(spark_lake)
    df = orders(spark, 0, 1_000)

    def measure(number: int) -> float:
        """In pairs: a slow second of the machine hits both."""
        ours = seconds(lambda: insert(spark_lake.context, ORDERS, df))
        return ours / seconds(lambda: write_plain(df, tmp_path / f"plain{number}"))

    ratios = [measure(number) for number in range(WARM + PAIRS)][WARM:]

    assert statistics.median(ratios) < MOST, ratios


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_ten_million_rows_in_a_thousand_files_fit_into_a_small_driver(url: str, tmp_path: Path) -> None:
    with working("insert_much", url, str(tmp_path / "warehouse"), ROWS, FILES) as worker:
        answer = told(worker)

    assert answer["driver_mb"] < DRIVER_MB
    assert {name: answer[name] for name in ("rows", "files", "clean")} == {"rows": ROWS, "files": FILES, "clean": True}
