"""Compared with Spark: a row that Spark selects satisfies every condition that was found in the text."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from lakebed.core.schema import bounds
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, Primitive
from lakebed.pipeline.rows.types import to_spark
from lakebed.pipeline.spark.zone import Zone
from lakebed.pipeline.sql.filters import parse_where

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from lakebed.pipeline.sql.predicates import Condition

MIDNIGHT = datetime(2026, 3, 29, tzinfo=UTC)  # the clocks of Europe change on this day
MOMENTS = [MIDNIGHT + timedelta(minutes=30 * i) for i in range(-60, 60)] + [MIDNIGHT + timedelta(microseconds=1)]
VALUES: dict[str, list[Any]] = {
    "int": [None, -(2**31), -10, -1, 0, 1, 5, 10, 11, 16_777_216, 16_777_217, 2**31 - 1],
    "long": [None, -(2**63), -10, 0, 5, 10, 11, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1],
    "float": [None, float("-inf"), -10.0, -0.0, 0.0, 5.0, 0.1, 10.5, 16_777_216.0, float("inf"), float("nan")],
    "double": [None, float("-inf"), -10.0, -0.0, 0.0, 5.0, 0.1, 10.5, 2.0**53, 1e300, float("inf"), float("nan")],
    "decimal(9,2)": [None, *map(Decimal, ("-10.00", "0.00", "0.10", "5.00", "10.49", "10.50", "10.51"))],
    "decimal(38,18)": [None, *map(Decimal, ("-10", "0", "0.1", "5", "10.5", "10.500000000000000001"))],
    "string": [None, "", "5", "10", "abc", "abd", "é", "x" * 70, "x" * 70 + "y"],
    "boolean": [None, True, False],
    "date": [None, *(date(2026, 3, 27) + timedelta(days=i) for i in range(5))],
    "timestamptz": [None, *MOMENTS],
    "timestamp": [None, *(moment.replace(tzinfo=None) for moment in MOMENTS)],
}
LITERALS = [
    "5", "-10", "10.5", "10.50", "10.495", "0.1", "0", "-0.0", "5L", "10.5D", "0.1F", "0.1BD", "1e1", "1.05e1", "16777217", "9007199254740992",
    "9007199254740993", "9.007199254740992e15", "9223372036854775807", "1e300", "true", "false", "'5'", "'abc'", "'abd '", f"'{'x' * 70}'",
    "DATE '2026-03-29'", "'2026-03-29'", "'2026-03-29 00:30:00'", "TIMESTAMP '2026-03-29 00:30:00'", "TIMESTAMP '2026-03-29 02:30:00'",
    "TIMESTAMP '2026-03-29 00:30:00Z'", "TIMESTAMP '2026-03-29T00:30:00+02:00'", "TIMESTAMP_NTZ '2026-03-29 00:30:00'",
    "TIMESTAMP '2026-03-29 00:00:00.000001'", "CAST('2026-03-29 00:30:00' AS TIMESTAMP)", "CAST('2026-03-29' AS DATE)", "TIMESTAMP '2026-03-29'",
    "TIMESTAMP_LTZ '2026-03-29 00:30:00'", "CAST(5 AS BIGINT)", "CAST('5' AS INT)", "(5)",
]  # fmt: skip
OPERATORS = ["c = {}", "c < {}", "c <= {}", "c > {}", "c >= {}", "{} < c", "{} >= c", "c <=> {}"]
# compiling hundreds of expressions takes minutes
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
LISTS = ["c IN ({}, {}, NULL)", "c BETWEEN {} AND {}", "c > {} AND c <= {}"]
DAYS = ["CAST(c AS DATE)", "date(c)", "to_date(c)"]
OTHERS = [
    "c IS NULL",
    "c IS NOT NULL",
    "NOT c IS NULL",
    "NOT (c IS NOT NULL)",
    "c IS NULL OR c = 5",
    "(c IS NOT NULL)",
    "CAST(c AS BIGINT) = 5",
]


def key(kind: Primitive, value: Any) -> bytes:
    encoded = bounds.encode(kind, value)
    assert encoded is not None
    return encoded


def is_inside(condition: Condition, kind: Primitive, value: Any) -> bool:
    """As planning judges, with NaN above every number."""
    if (value is None) != condition.is_null:
        return False
    if value is None:
        return True
    if isinstance(value, float) and value != value:  # noqa: PLR0124 - NaN
        return condition.upper is None
    low = None if condition.lower is None else bounds.lower_bound(kind, condition.lower)
    high = None if condition.upper is None else bounds.upper_bound(kind, condition.upper)
    mine_low, mine_high = bounds.lower_bound(kind, value), bounds.upper_bound(kind, value)
    assert mine_low is not None
    if (low is not None and mine_high is not None and mine_high < low) or (high is not None and mine_low > high):
        return False
    return condition.among is None or any(key(kind, value) == key(kind, one) for one in condition.among)


def texts() -> Iterator[str]:
    yield from OTHERS
    yield from (f"{day} {operator} DATE '2026-03-29'" for day in DAYS for operator in ("=", "<", "<=", ">", ">="))
    yield f"{DAYS[0]} BETWEEN DATE '2026-03-28' AND DATE '2026-03-29'"
    yield from (operator.format(literal) for operator in OPERATORS for literal in LITERALS)
    pairs = [*itertools.pairwise(LITERALS), ("5", "1e1"), ("9007199254740992", "1e1"), ("'abc'", "'abd'")]
    yield from (shape.format(*pair) for shape in LISTS for pair in pairs)


def judge(spark: SparkSession, kind: str, found: list[str]) -> list[list[Any]]:
    """What Spark makes of every text for every value, in one job."""
    schema = Schema(fields=(Field(field_id=1, name="c", type=Primitive.parse(kind)),))
    frame = spark.createDataFrame([(value,) for value in VALUES[kind]], to_spark(schema))
    return [list(row) for row in frame.selectExpr(*found).collect()]


@pytest.mark.parametrize(("zone", "ansi"), [("UTC", "true"), ("UTC", "false"), ("Europe/Berlin", "true"), ("+05:30", "false")])
def test_no_row_that_spark_selects_is_outside_of_a_condition(spark: SparkSession, zone: str, ansi: str) -> None:
    kinds = [k for k in VALUES if k in {"date", "timestamp", "timestamptz"}] if zone != "UTC" else list(VALUES)
    settings = {"spark.sql.session.timeZone": zone, "spark.sql.ansi.enabled": ansi, **INTERPRETED}
    before = {name: spark.conf.get(name) or "" for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        used = sum(check_kind(spark, kind, Zone.parse(zone)) for kind in kinds)
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    assert used > 20 * len(kinds)


def check_kind(spark: SparkSession, kind: str, zone: Zone) -> int:
    primitive = Primitive.parse(kind)
    schema = Schema(fields=(Field(field_id=1, name="c", type=primitive),))
    found_in = {text: parse_where(text).find_filter(schema, zone) for text in texts()}
    filters = {text: found for text, found in found_in.items() if len(found.conditions) == 1 + (" AND c <= " in text)}
    for value, selected in zip(VALUES[kind], judge(spark, kind, list(filters)), strict=True):
        for (text, found), is_selected in zip(filters.items(), selected, strict=True):
            if is_selected:
                assert all(is_inside(c, primitive, value) for c in found.conditions), (kind, text, value, found)
    return len(filters)
