"""What tests of writing do in processes of their own, with a JVM of their own: they are killed, or need another master.

python spark_worker.py FUNCTION JSON-ARGUMENTS
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from insert_lakes import ORDERS, files_in, make_orders, orders, rows_of, stepped
from pyspark import TaskContext
from pyspark.sql import functions as F  # noqa: N812

from lakebed.core.errors import LakebedError
from lakebed.lake import Lake, connect
from lakebed.pipeline.change.delete import delete
from lakebed.pipeline.write.insert import insert, schema_like
from lakebed.pipeline.write.streaming import foreach_batch
from lakebed.testing import Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

LONG_S = 600
OPTIONS = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}


@contextmanager
def working(function: str, *arguments: Any) -> Iterator[subprocess.Popen[str]]:
    """In a process group of its own, so that its JVM dies with it: at the end of the block, if not before."""
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{here.parent}"}
    worker = subprocess.Popen(
        [sys.executable, __file__, function, json.dumps(arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True, env=environment,
    )  # fmt: skip
    try:
        yield worker
    finally:
        kill(worker)


def told(worker: subprocess.Popen[str]) -> Any:
    """The next thing it says; None when it ended."""
    assert worker.stdout is not None
    line = worker.stdout.readline()
    return json.loads(line) if line else None


def kill(worker: subprocess.Popen[str]) -> None:
    """As a power cut would, the JVM too."""
    with suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    assert worker.stdout is not None
    worker.stdout.close()


def tell(what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def opened(url: str, warehouse: str, master: str = "local[2]", **options: str) -> Lake:
    return connect(url, warehouse=warehouse, spark_options={"spark.master": master, **OPTIONS, **options})


def hang_in_job(url: str, warehouse: str, flag: str) -> None:
    """One task writes its rows, the other hangs in the middle of its own."""
    with opened(url, warehouse) as lake:

        def hang(number: int) -> float:
            if number == 9:
                Path(flag).write_text("here")
                time.sleep(LONG_S)
            return number * 0.5

        rows = orders(lake.spark, 0, 10)
        insert(lake._context, ORDERS, rows.withColumn("amount", F.udf(hang, "double")("id")))


def interrupted_in_job(url: str, warehouse: str, flag: str) -> None:
    """Says what is left when the user presses Ctrl-C in the middle of a job."""
    with opened(url, warehouse) as lake:

        def hang(number: int) -> float:
            if number == 9:
                Path(flag).write_text("here")
                time.sleep(LONG_S)
            return number * 0.5

        rows = orders(lake.spark, 0, 10)
        try:
            insert(lake._context, ORDERS, rows.withColumn("amount", F.udf(hang, "double")("id")))
        except KeyboardInterrupt:
            tell({"files": files_in(lake), "clean": lake.check().clean, "rows": lake.table(ORDERS).row.row_count})


class Hanging(Steps):
    """Never begins another transaction once there are files that were not there before."""

    def __init__(self, lake: Lake, flag: str) -> None:
        super().__init__()
        self._lake, self._flag, self._before = lake, Path(flag), files_in(lake)

    def reach(self, what: str) -> None:
        if what in {"begin", "call"} and files_in(self._lake) != self._before:
            self._flag.write_text("here")
            time.sleep(LONG_S)


def hang_before_registration(url: str, warehouse: str, flag: str) -> None:
    """All files are written and synced; the publishing transaction never begins."""
    with opened(url, warehouse) as lake, stepped(lake, url, Hanging(lake, flag)) as context:
        insert(context, ORDERS, orders(lake.spark, 0, 10))


def hang_in_delete(url: str, warehouse: str, flag: str) -> None:
    """The rows that stay are written; the transaction that swaps the files never begins."""
    with opened(url, warehouse) as lake, stepped(lake, url, Hanging(lake, flag)) as context:
        delete(context, ORDERS, "id % 2 = 0")


def fail_once(url: str, warehouse: str, master: str, options: dict[str, str], *, slow: bool) -> None:
    """The first attempt of one task fails behind most of its rows, or is so slow that Spark starts another."""
    with opened(url, warehouse, master, **options) as lake:

        def disturb(number: int) -> float:
            task = TaskContext.get()
            if number == 9_999 and task is not None and task.attemptNumber() == 0:
                if slow:
                    time.sleep(40)
                else:
                    message = "the first attempt"
                    raise RuntimeError(message)
            return number * 0.5

        make_orders(lake)
        rows = orders(lake.spark, 0, 10_000).repartition(4)
        disturbed = F.udf(disturb, "double")
        insert(lake._context, ORDERS, rows.withColumn("amount", disturbed("id")))
        lists = rows.withColumn("amount", disturbed("id")).withColumn("tags", F.array("id"))
        lake.create_table("shop.lists", schema_like(lists))
        insert(lake._context, "shop.lists", lists)
        tell({"clean": lake.check(deep=True).clean, "rows": [len(rows_of(lake, name)) for name in (ORDERS, "shop.lists")]})


def lose_executors(url: str, warehouse: str, mark: str) -> None:
    """A task takes its executor down with it: once, which Spark makes good, then with every attempt, which fails the insert."""

    def kill_executor(number: int, *, always: bool) -> float:
        if number == 9_999 and (always or not Path(mark).exists()):
            Path(mark).touch()
            daemon = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
            os.kill(int(daemon[1]), signal.SIGKILL)  # the daemon of Python's workers is a child of the executor
            time.sleep(LONG_S)
        return number * 0.5

    options = {"spark.executor.memory": "600m", "spark.task.maxFailures": "2"}
    with opened(url, warehouse, "local-cluster[2,1,1024]", **options) as lake:
        make_orders(lake)
        rows = orders(lake.spark, 0, 10_000)
        insert(lake._context, ORDERS, rows.withColumn("amount", F.udf(partial(kill_executor, always=False), "double")("id")))
        files, told = files_in(lake), ""
        try:
            insert(lake._context, ORDERS, rows.withColumn("amount", F.udf(partial(kill_executor, always=True), "double")("id")))
        except LakebedError as exc:
            told = exc.code
        tell({"rows": len(rows_of(lake)), "clean": lake.check(deep=True).clean, "told": told, "same_files": files_in(lake) == files})


def stream(url: str, warehouse: str, source: str, checkpoint: str) -> None:
    """Until everything is through; says how far it is after each batch."""
    with opened(url, warehouse) as lake:
        write = foreach_batch(lake._context, ORDERS, "stream")

        def batch(df: DataFrame, batch_id: int) -> None:
            tell({"begun": batch_id})
            write(df, batch_id)
            tell({"done": batch_id})

        rows = lake.spark.readStream.schema("id long, ts timestamp, amount double").option("maxFilesPerTrigger", 1).parquet(source)
        query = rows.writeStream.foreachBatch(batch).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        tell({"finished": True})


def stop_session(url: str, warehouse: str) -> None:
    with opened(url, warehouse) as lake:
        make_orders(lake)
        rows = orders(lake.spark, 0, 3)
        lake.spark.stop()
        try:
            insert(lake._context, ORDERS, rows)
        except Exception as exc:  # noqa: BLE001 - its type is the answer
            tell({"raised": type(exc).__name__, "clean": lake.check().clean})


def insert_much(url: str, warehouse: str, rows: int, files: int) -> None:
    """With a JVM of 1 GB; the answer includes the peak memory of Python."""
    with opened(url, warehouse) as lake:
        make_orders(lake)
        done = insert(lake._context, ORDERS, orders(lake.spark, 0, rows).repartition(files))
        read, clean = lake.read(ORDERS).count(), lake.check().clean
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    tell({"rows": read, "files": done.files, "clean": clean, "driver_mb": peak})


_FUNCTIONS: dict[str, Callable[..., None]] = {
    f.__name__: f
    for f in (
        hang_in_job,
        interrupted_in_job,
        hang_before_registration,
        hang_in_delete,
        fail_once,
        stream,
        stop_session,
        insert_much,
        lose_executors,
    )
}

if __name__ == "__main__":
    chosen, given = sys.argv[1], json.loads(sys.argv[2])
    keywords = given.pop() if given and isinstance(given[-1], dict) and "slow" in given[-1] else {}
    _FUNCTIONS[chosen](*given, **keywords)
