"""Writers that are killed, streams that are restarted, tasks that are tried again: nothing is lost, doubled or left behind."""

from __future__ import annotations

import os
import signal
import time
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from insert_lakes import ORDERS, files_in, make_orders, orders, rows_of
from spark_worker import told, working

from builders import logical_dump
from lakebed.lake import connect
from lakebed.pipeline.write.insert import insert
from lakebed.testing import FixedClock

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakebed.lake import Lake


OUTSIDE = frozenset({"operations", "leases", "lease_numbers"})  # of a reader that is dead: they run out


def new_flag(directory: Path) -> Path:
    """A pipe: its reader waits until the worker has reached this point."""
    flag = directory / "flag"
    os.mkfifo(flag)
    return flag


@pytest.mark.parametrize("where", ["hang_in_job", "hang_before_registration", "hang_in_delete"])
def test_a_writer_killed_in_the_middle_is_undone_by_recovery(
    spark_lake: Lake, spark: SparkSession, url: str, tmp_path: Path, where: str
) -> None:
    make_orders(spark_lake)
    insert(spark_lake._context, ORDERS, orders(spark, 100, 5))
    before, files = logical_dump(spark_lake.registry, without=OUTSIDE), files_in(spark_lake)
    flag = new_flag(tmp_path)

    with working(where, url, spark_lake.storage.paths.root, str(flag)):
        assert flag.read_text() == "here"
        assert spark_lake.files.recover() == []  # it is alive as far as anybody can tell

    later = FixedClock(datetime.now(UTC) + timedelta(hours=1))
    with connect(url, warehouse=spark_lake.storage.paths.root, clock=later) as recovering:
        assert len(recovering.files.recover()) == 1
    assert logical_dump(spark_lake.registry, without=OUTSIDE) == before
    assert files_in(spark_lake) == files
    assert spark_lake.check(deep=True).clean


def test_an_interrupt_in_the_middle_of_a_job_leaves_nothing(lake: Lake, url: str, tmp_path: Path, kind: str) -> None:
    if kind != "sqlite":
        pytest.skip("one JVM is enough: the failures at each statement run on both databases")
    make_orders(lake)
    flag = new_flag(tmp_path)

    with working("interrupted_in_job", url, lake.storage.paths.root, str(flag)) as worker:
        assert flag.read_text() == "here"
        os.kill(worker.pid, signal.SIGINT)

        assert told(worker) == {"files": [], "clean": True, "rows": 0}


def stream_through(url: str, lake: Lake, directory: Path, *, kills: int, seed: int) -> int:
    """Run the query, killing it at random places, until it ends by itself; how often it was killed."""
    random = Random(seed)
    places = [str(directory / "source"), str(directory / "checkpoint")]
    for number in range(kills + 1):
        with working("stream", url, lake.storage.paths.root, *places) as worker:
            said = listen(worker, for_lines=random.randrange(1, 6) if number < kills else None)
            time.sleep(random.random() * 0.3)  # anywhere in the batch, its commit too
        if said is not None and "finished" in said:
            return number
    pytest.fail("the query never finished")


def listen(worker: subprocess.Popen[str], *, for_lines: int | None) -> Any:
    """What it said last: that it finished, or whatever its so manieth line was."""
    said, heard = told(worker), 1
    while said is not None and "finished" not in said and heard != for_lines:
        said, heard = told(worker), heard + 1
    return said


def make_source(spark: SparkSession, directory: Path, files: int) -> None:
    for number in range(files):
        orders(spark, number * 10, 10).coalesce(1).write.mode("append").parquet(str(directory / "source"))


def test_a_killed_and_restarted_stream_neither_loses_nor_doubles_a_row(
    spark_lake: Lake, spark: SparkSession, url: str, tmp_path: Path, kind: str
) -> None:
    if kind != "sqlite":
        pytest.skip("three JVMs are enough here; the long run has both databases")
    make_orders(spark_lake)
    make_source(spark, tmp_path, files=8)

    stream_through(url, spark_lake, tmp_path, kills=3, seed=3)

    assert rows_of(spark_lake, ORDERS) == rows_of(orders(spark, 0, 80))
    assert spark_lake.check(deep=True).clean


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_stream_killed_twenty_times_neither_loses_nor_doubles_a_row(
    spark_lake: Lake, spark: SparkSession, url: str, tmp_path: Path
) -> None:
    make_orders(spark_lake)
    make_source(spark, tmp_path, files=60)

    stream_through(url, spark_lake, tmp_path, kills=20, seed=20)

    assert rows_of(spark_lake, ORDERS) == rows_of(orders(spark, 0, 600))
    assert spark_lake.check(deep=True).clean


def test_a_task_that_fails_and_is_tried_again_registers_exactly_the_committed_files(url: str, tmp_path: Path, kind: str) -> None:
    if kind != "sqlite":
        pytest.skip("which files are committed is no question to the database")
    with working("fail_once", url, str(tmp_path / "warehouse"), "local[2, 3]", {}, {"slow": False}) as worker:
        assert told(worker) == {"clean": True, "rows": [10_000, 10_000]}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_speculative_attempts_register_exactly_the_committed_files(url: str, tmp_path: Path) -> None:
    options = {
        "spark.speculation": "true", "spark.speculation.interval": "200ms", "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5", "spark.speculation.minTaskRuntime": "1s", "spark.executor.memory": "600m",
    }  # fmt: skip
    with working("fail_once", url, str(tmp_path / "warehouse"), "local-cluster[2,2,1024]", options, {"slow": True}) as worker:
        assert told(worker) == {"clean": True, "rows": [10_000, 10_000]}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_lost_executor_is_made_good_and_too_many_change_nothing(url: str, tmp_path: Path) -> None:
    with working("lose_executors", url, str(tmp_path / "warehouse"), str(tmp_path / "mark")) as worker:
        assert told(worker) == {"rows": 10_000, "clean": True, "told": "spark_unavailable", "same_files": True}


def test_a_stopped_session_is_reported_and_nothing_changes(url: str, tmp_path: Path, kind: str) -> None:
    if kind != "sqlite":
        pytest.skip("one JVM is enough: the database is not asked")
    with working("stop_session", url, str(tmp_path / "warehouse")) as worker:
        assert told(worker) == {"raised": "SparkUnavailableError", "clean": True}
