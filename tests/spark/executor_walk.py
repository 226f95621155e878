"""Everything that sends Python to Spark's executors, in a process of its own; prints what came of it as JSON.

`python executor_walk.py <registry> <warehouse> <options of the session as JSON>`
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from insert_lakes import ORDERS, make_orders, orders, rows_of
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812

from lakebed.compaction import compact
from lakebed.core.errors import SessionRefusedError
from lakebed.core.schema.transforms import parse_transform
from lakebed.core.schema.types import Primitive
from lakebed.lake import Lake, connect
from lakebed.pipeline.views.merge import engines_of
from lakebed.storage.partition_paths import encode_partition_path

if TYPE_CHECKING:
    from collections.abc import Callable

PRICES = [Decimal("-12.50"), Decimal("0.00"), Decimal("7.25"), Decimal("99999.99"), None]
PRICE = Primitive(name="decimal", precision=9, scale=2)
BY_PRICE = ("bucket(16, price)", "truncate(50, price)")


def imports_lakebed(lake: Lake) -> bool:
    def look(_: int) -> bool:
        try:
            import lakebed  # noqa: F401, PLC0415
        except ModuleNotFoundError:
            return False
        return True

    return bool(lake.spark.range(1).select(F.udf(look, "boolean")("id")).collect()[0][0])


def keys_of_decimals(lake: Lake) -> bool:
    """Whether the partition paths are those that plain Python gives."""
    frame = lake.spark.createDataFrame([(price,) for price in PRICES], "price decimal(9,2)")
    lake.create_table("shop.prices", like=frame, partition_by=BY_PRICE)
    lake.insert("shop.prices", frame)
    transforms = [parse_transform(text) for text in BY_PRICE]
    expected = {encode_partition_path([(t.name, t.apply(price, PRICE)) for t in transforms]) for price in PRICES}
    return {file.partition_path for file in lake.files.list("shop.prices")} == expected


def lists(lake: Lake) -> list[Any]:
    """Lists are written by pyarrow inside the tasks, also when Spark compacts them."""
    for first in (0, 10):
        frame = orders(lake.spark, first, 10).withColumn("tags", F.array("id", F.lit(None)))
        if first == 0:
            lake.create_table("shop.lists", like=frame)
        lake.insert("shop.lists", frame)
    return [compact_with_spark(lake, "shop.lists"), lake.read("shop.lists").where("tags[0] = id").count()]


def json_lines(lake: Lake) -> list[Any]:
    """Rows of JSON files are summed up by the tasks before they become Parquet."""
    make_orders(lake, "shop.lines")
    lake.insert("shop.lines", orders(lake.spark, 0, 10))
    lake.insert("shop.lines", orders(lake.spark, 10, 10), format="json")
    return [compact_with_spark(lake, "shop.lines"), lake.read("shop.lines").count()]


def compact_with_spark(lake: Lake, name: str) -> str:
    done = compact(lake.registry, lake.storage, name, engines=replace(engines_of(lake._context), local_bytes=0))
    return " ".join(run.engine for run in done.runs)


def stream(lake: Lake) -> list[Any]:
    """Two batches, then the query starts again and repeats nothing; with a new checkpoint it is refused."""
    make_orders(lake)
    place = Path(lake.storage.paths.root).parent
    orders(lake.spark, 0, 20).repartition(2).write.parquet(str(place / "source"))
    for _ in range(2):
        run_query(lake, place, "checkpoint")
    query_id = json.loads((place / "checkpoint" / "metadata").read_text())["id"]
    ids = lake.registry.query("SELECT DISTINCT query_id FROM operations WHERE app_id = 'walk'")
    try:
        run_query(lake, place, "another")
    except StreamingQueryException as exc:
        refused = "AnotherCheckpointError" in str(exc)
    return [rows_of(lake) == rows_of(orders(lake.spark, 0, 20)), len(lake.list_partitions(ORDERS)), ids == [(query_id,)], refused]


def run_query(lake: Lake, place: Path, checkpoint: str) -> None:
    rows = lake.spark.readStream.schema("id long, ts timestamp, amount double").option("maxFilesPerTrigger", 1)
    write = lake.foreach_batch(ORDERS, "walk", checkpoint=str(place / checkpoint))
    writer = rows.parquet(str(place / "source")).writeStream.foreachBatch(write).option("checkpointLocation", str(place / checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def functions(lake: Lake) -> str:
    """Why the workers cannot answer for the lake: they lack Lakebed, or nothing names it to them."""
    try:
        lake.register_functions()
    except SessionRefusedError as exc:
        return str(exc)
    return ""


STEPS: tuple[Callable[[Lake], Any], ...] = (imports_lakebed, keys_of_decimals, lists, json_lines, stream, functions)


def attempt(step: Callable[[Lake], Any], lake: Lake) -> Any:
    try:
        return step(lake)
    except Exception as exc:  # noqa: BLE001 - all that failed is named, not the first alone
        return f"{type(exc).__name__}: {str(exc)[-1500:]}"


def main(url: str, warehouse: str, options: str) -> None:
    with connect(url, warehouse=warehouse, spark_options=json.loads(options), service="off") as lake:
        answers = {step.__name__: attempt(step, lake) for step in STEPS}
        answers["clean"] = lake.check(deep=True).clean
        print(json.dumps(answers))  # noqa: T201 - read by the test
        lake.spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
