"""The key column that Spark computes gives each row the partition path that plain Python gives it, whatever the session's zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from lakebed.core.errors import CorruptionError
from lakebed.core.schema.murmur3 import C1, C2
from lakebed.core.schema.transforms import resolve_transforms
from lakebed.core.schema.types import Primitive
from lakebed.pipeline.rows.partition_key import KEY, KeyPlan
from lakebed.pipeline.rows.types import from_spark
from lakebed.storage.partition_paths import encode_partition_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "l long, i int, s string, t timestamp, n timestamp_ntz, d date, b binary, c decimal(38,4), o boolean"
EVERY = {
    "identity": ["l", "o", "s", "d", "b"],
    "identity of times": ["t", "n", "c"],
    "bucket": ["bucket(16, l)", "bucket(7, i)", "bucket(13, s)", "bucket(5, b)", "bucket(9, d)", "bucket(3, t)", "bucket(31, n)"],
    "decimal": ["bucket(11, c)"],
    "truncate": ["truncate(10, l)", "truncate(3, s)", "truncate(2, b)", "truncate(100, i)", "truncate(50, c)"],
    "calendar": [f"{unit}({column})" for column in "tn" for unit in ("year", "month", "day", "hour")],
    "dates": ["year(d)", "month(d)", "day(d)"],
}


def rows(count: int = 120) -> list[tuple[Any, ...]]:
    """Around the epoch, far from it, empty, long, and of every length modulo four."""
    random = Random(7)
    made = []
    for number in range(count):
        spread = 10**13 if number % 2 else 2 * 10**17
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=random.randrange(-min(spread, 6 * 10**16), spread))
        text = "".join(random.choice("aZ\u00e9\u65e5\U0001f600'\\/=%") for _ in range(number % 9))
        values = (
            random.randrange(-(2**62), 2**62), random.randrange(-(2**31), 2**31), text, moment, moment.replace(tzinfo=None), moment.date(),
            bytes(random.randrange(256) for _ in range(number % 7)), Decimal(random.randrange(-(10**20), 10**20)) / 10**4, number % 2 == 0,
        )  # fmt: skip
        made.append(tuple(None if random.random() < 0.1 else value for value in values))
    return made


@pytest.fixture(params=["UTC", "America/St_Johns"])
def zoned(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield spark
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def paths_by_python(df: DataFrame, partition_by: tuple[str, ...]) -> list[tuple[str, str]]:
    """What Spark's key says beside what the transform of each value says."""
    plan = KeyPlan(transforms=resolve_transforms(from_spark(df.schema), partition_by))
    keyed = plan.add_to(df).selectExpr("* EXCEPT (t)", "unix_micros(t) AS t")
    answers = []
    for row in keyed.toArrow().to_pylist():
        pairs = [(transform.name, transform.apply(row[field.name], _primitive(field.type))) for transform, field in plan.transforms]
        answers.append((plan.partition_path(f"{KEY}={row[KEY]}"), encode_partition_path(pairs)))
    return answers


def _primitive(kind: object) -> Primitive:
    assert isinstance(kind, Primitive)
    return kind


@pytest.mark.parametrize("kind", EVERY)
def test_sparks_key_and_plain_python_agree(zoned: SparkSession, kind: str) -> None:
    df = zoned.createDataFrame(rows(), COLUMNS)

    answers = paths_by_python(df, tuple(EVERY[kind]))

    assert [by_spark for by_spark, _ in answers] == [by_python for _, by_python in answers]
    assert len({path for path, _ in answers}) > 1


def test_null_and_empty_are_different_keys_and_no_value_is_in_them(spark: SparkSession) -> None:
    df = spark.createDataFrame([(None,), ("",), ("../../etc",)], "s string")
    plan = KeyPlan(transforms=resolve_transforms(from_spark(df.schema), ("s",)))

    keys = [row[KEY] for row in plan.add_to(df).collect()]

    assert keys == ["n", "v", ("v" + b"../../etc".hex().upper())[::-1]]
    assert [plan.partition_path(f"{KEY}={key}") for key in keys] == ["s=__HIVE_DEFAULT_PARTITION__", "s=", "s=..%2F..%2Fetc"]


def test_partition_values_too_long_for_a_directory_are_refused_with_the_way_out(spark: SparkSession) -> None:
    df = spark.createDataFrame([("x" * 120,)], "s string")

    with pytest.raises(PySparkException, match=r"longer than 120 bytes: partition by truncate or bucket instead"):
        KeyPlan(transforms=resolve_transforms(from_spark(df.schema), ("s",))).add_to(df).collect()


def test_a_directory_of_another_writer_is_not_a_key() -> None:
    from pyspark.sql import types as T  # noqa: N812, PLC0415 - the one place

    plan = KeyPlan(transforms=resolve_transforms(from_spark(T.StructType([T.StructField("s", T.StringType())])), ("s",)))
    with pytest.raises(CorruptionError, match="is not a partition key of this table"):
        plan.partition_path("s=abc")


def test_the_number_that_hashes_to_zero_lets_spark_hash_as_iceberg_does(spark: SparkSession) -> None:
    from lakebed.pipeline.rows.partition_key import _TO_ZERO  # noqa: PLC0415

    row = spark.range(1).selectExpr(f"hash({_TO_ZERO}) AS zero", f"hash({_TO_ZERO}, 34L) AS published").first()

    assert row is not None
    assert (row.zero, row.published) == (0, 2017239379)
    assert (C1 * pow(C1, -1, 1 << 32)) % (1 << 32) == (C2 * pow(C2, -1, 1 << 32)) % (1 << 32) == 1
