"""Spark reads by physical name whatever its setting for field ids says when a frame is collected: others may flip it at any time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.compaction import compact
from lakebed.pipeline.rows.scan import frame_with_files, stored_frame, stored_rows
from lakebed.pipeline.spark.session import SparkSource
from lakebed.pipeline.views.merge import engines_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from lakebed.lake import Lake

READS_BY_ID = "spark.sql.parquet.fieldId.read.enabled"
IGNORES_MISSING = "spark.sql.parquet.fieldId.read.ignoreMissing"
NAME = "shop.pairs"
COUNT = 100
pytestmark = pytest.mark.parametrize("kind", ["sqlite"])  # the registry has no part in it


@pytest.fixture(params=[(READS_BY_ID,), (READS_BY_ID, IGNORES_MISSING)], ids=["by id", "by id, ignoring what is missing"])
def flip(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[Callable[[], None]]:
    """Turns reading by id on, as other libraries in the session do."""

    def turn(value: str) -> None:
        for key in request.param:
            spark.conf.set(key, value)

    turn("false")
    yield lambda: turn("true")
    turn("false")


@pytest.fixture
def pairs(spark_lake: Lake, spark: SparkSession) -> Lake:
    """Rows that Lakebed wrote, with ids, and as many of a file that was adopted without. `a` and `b` have changed their names with each other."""
    first = spark.range(COUNT).selectExpr("id", "id * 10 AS a", "id * 1000 AS b", "named_struct('x', id, 'y', -id) AS s")
    spark_lake.create_table(NAME, like=first)
    spark_lake.insert(NAME, first.coalesce(1))
    path = Path(spark_lake.storage.paths.root) / "adopted.parquet"
    numbers = range(COUNT, 2 * COUNT)
    nested = [{"x": n, "y": -n} for n in numbers]
    pq.write_table(pa.table({"id": numbers, "a": [n * 10 for n in numbers], "b": [n * 1000 for n in numbers], "s": nested}), path)
    spark_lake.files.register(NAME, [str(path)], adopt=True)
    for old, new in (("a", "c"), ("b", "a"), ("c", "b"), ("s.x", "z"), ("s.y", "x"), ("s.z", "y")):
        spark_lake.columns.rename(NAME, old, new)
    return spark_lake


def expected(*, beyond: int = 0) -> list[tuple[Any, ...]]:
    return [(n, n * 10, n * 1000, (n, -n)) for n in range(beyond, 2 * COUNT)]


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Under physical names."""
    return sorted((row["id"], row["a"], row["b"], tuple(row["s"])) for row in frame.collect())


@pytest.mark.parametrize("frame_of", [stored_frame, stored_rows], ids=["Parquet alone", "every kind of file"])
def test_stored_rows_are_the_same_before_and_after_the_flip(
    pairs: Lake, flip: Callable[[], None], frame_of: Callable[..., DataFrame]
) -> None:
    stored = frame_of(pairs._context, pairs.table(NAME).schema, pairs.files.plan(NAME).paths)
    none, beyond, nested = stored.where("a = 7"), stored.where(f"b >= {COUNT * 1000}"), stored.where("s.x = 150")

    flip()

    assert rows(stored) == expected()
    assert (none.count(), rows(beyond), nested.count()) == (0, expected(beyond=COUNT), 1)


def test_what_a_caller_reads_is_the_same_before_and_after_the_flip(pairs: Lake, flip: Callable[[], None]) -> None:
    pairs.columns.drop(NAME, "b")
    pairs.columns.add(NAME, "b", "long")
    whole, nested = pairs.read(NAME), pairs.read(NAME, where="s.y = 150")
    beyond = pairs.sql(f"SELECT count(*), sum(b) FROM {NAME} WHERE a >= {COUNT * 1000} AND b IS NULL")
    files = frame_with_files(pairs._context, pairs.table(NAME).schema, pairs.files.plan(NAME).paths)

    flip()

    assert sorted(tuple(row) for row in whole.selectExpr("id", "a", "b", "s.x", "s.y").collect()) == [
        (n, n * 1000, None, -n, n) for n in range(2 * COUNT)
    ]
    assert [tuple(row) for row in beyond.collect()] == [(COUNT, None)]
    assert (nested.count(), files.where("a = 7").count(), files.count()) == (1, 0, 2 * COUNT)


def test_deleting_and_compacting_after_the_flip_keep_every_row_and_write_ids(pairs: Lake, flip: Callable[[], None]) -> None:
    flip()

    deleted = pairs.delete(NAME, "a = 150000")
    done = compact(pairs.registry, pairs.storage, NAME, engines=replace(engines_of(pairs._context), local_bytes=0))

    assert deleted.rows == 1
    assert [(run.engine, run.rows_after) for run in done.runs] == [("spark", 2 * COUNT - 1)]
    (path,) = pairs.files.plan(NAME).paths
    assert list_ids(pq.read_schema(path)) == {"id": 1, "a": 2, "b": 3, "s": 4, "s.x": 5, "s.y": 6}
    assert sorted(row["a"] for row in pairs.read(NAME).collect()) == [n * 1000 for n in range(2 * COUNT) if n != 150]
    assert pairs.check(deep=True).clean


def list_ids(schema: pa.Schema) -> dict[str, int]:
    nested = schema.field("s").type
    named = [(f.name, f) for f in schema] + [(f"s.{nested.field(n).name}", nested.field(n)) for n in range(nested.num_fields)]
    return {name: int(field.metadata[b"PARQUET:field_id"]) for name, field in named}


@pytest.mark.usefixtures("kind")
def test_a_session_that_reads_by_id_is_taken(spark: SparkSession) -> None:
    own = spark.newSession()
    own.conf.set(READS_BY_ID, "true")

    assert SparkSource(own).spark is own
