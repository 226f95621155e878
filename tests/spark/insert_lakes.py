"""Orders for the tests of writing: a table, DataFrames for it, what is in it, and things that happen in the middle of an insert."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from builders import SCHEMA
from lakebed.core.names import TableName
from lakebed.pipeline.context import Context
from lakebed.pipeline.spark.session import SparkSource
from lakebed.registry.connect import open_backend
from lakebed.registry.registry import Registry
from lakebed.testing import SteppedBackend, Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from lakebed.lake import Lake
    from lakebed.registry.tables.lake_tables import LakeTable

ORDERS = "shop.orders"
AUDIT = frozenset({"operations"})  # that a write was tried and failed may be told


def make_orders(lake: Lake, name: str = ORDERS, *, partition_by: Sequence[str] = (), sort_by: Sequence[str] = ()) -> LakeTable:
    return lake.create_table(name, SCHEMA, event_time="ts", partition_by=partition_by, sort_by=sort_by)


def orders(spark: SparkSession, first: int, count: int) -> DataFrame:
    """One order an hour from 2026 on, so that 24 make a day."""
    moment = "timestamp_seconds(1767225600 + id * 3600) AS ts"
    return spark.range(first, first + count, numPartitions=2).selectExpr("id", moment, "id * 0.5D AS amount")


def rows_of(source: Lake | DataFrame, name: str = ORDERS) -> list[tuple[Any, ...]]:
    """Sorted rows of a DataFrame, or of exactly the live files of a table."""
    if isinstance(source, DataFrame):
        return sorted(tuple(row) for row in source.collect())
    paths = [file.file_path for file in source.files.list(name)]
    if not paths:
        return []
    return sorted(tuple(row) for row in source.spark.read.parquet(*paths).select("id", "ts", "amount").collect())


def files_in(lake: Lake) -> list[str]:
    """Everything in the warehouse, including hidden files and directories without files, except its marker."""
    root = Path(lake.storage.paths.root)
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and path.name != ".lakebed-warehouse")


class AfterIntent(Steps):
    """Acts once, when the intent has been committed: the first transaction that writes several rows together."""

    def reach(self, what: str) -> None:
        self.done.append(what)
        if what == "committed" and "batch" in self.done and "acted" not in self.done:
            self.done.append("acted")
            self.act(what)


class Failing(Steps):
    """Raises at its step and at all that follow, as a database that went away."""

    def reach(self, what: str) -> None:
        self.done.append(what)
        if self.at and len(self.done) >= self.at:
            self.act(what)


@contextmanager
def stepped(lake: Lake, url: str, steps: Steps) -> Iterator[Context]:
    """The same lake through a registry whose every statement is a step."""
    registry = Registry(SteppedBackend(open_backend(url), steps))
    try:
        yield Context(registry, lake.storage, SparkSource(lake.spark))
    finally:
        registry.close()


@contextmanager
def meanwhile(lake: Lake, url: str, act: Callable[[], object]) -> Iterator[Context]:
    """A context in which `act` happens in the middle of the first write: behind its intent, before its files."""

    def once(_: str) -> None:
        act()

    with stepped(lake, url, AfterIntent(act=once)) as context:
        yield context


def table_name(name: str = ORDERS) -> TableName:
    return TableName.parse(name)
