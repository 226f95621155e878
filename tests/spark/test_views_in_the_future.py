"""View sets over rows that were inserted while the clock was ahead, and inserts of a host whose clock is wrong."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from insert_lakes import files_in
from view_lakes import DAY, ORDERS, add_orders, ask_everything, at_hour, make_orders, read_rows

from builders import count
from lakebed.core.errors import ClockRegressedError, ClockSkewedError
from lakebed.pipeline.context import Context
from lakebed.pipeline.spark.session import SparkSource
from lakebed.pipeline.views.build import materialize
from lakebed.pipeline.views.define import create_view_set
from lakebed.pipeline.write.insert import insert
from lakebed.registry.open import open_registry
from lakebed.testing import FixedClock

if TYPE_CHECKING:
    from lakebed.lake import Lake

SQL = "SELECT ts, id, amount FROM shop.orders"
VIEW = "shop.copies"


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(DAY)


def test_after_the_repair_a_view_holds_the_rows_of_the_future_once_and_now(timed_spark_lake: Lake, clock: FixedClock) -> None:
    lake = timed_spark_lake
    make_orders(lake)
    create_view_set(lake._context, VIEW, sql=SQL, over="shop.orders", event_time="ts")
    create_view_set(lake._context, "shop.again", sql=f"SELECT * FROM {VIEW}", over=VIEW, event_time="ts")
    add_orders(lake, [(0, "tea", 1, 1.0)])
    at_hour(clock, 5)
    add_orders(lake, [(0, "tea", 2, 2.0)])
    for name in (VIEW, "shop.again"):
        materialize(lake._context, name).raise_failed()
    at_hour(clock, 0.5)
    with pytest.raises(ClockRegressedError):
        add_orders(lake, [(0, "tea", 3, 3.0)])

    found = {(finding.table, finding.rule) for finding in lake.check().findings}
    done = lake.repair(dry_run=False)
    add_orders(lake, [(0, "tea", 3, 3.0)])
    built = [materialize(lake._context, name).raise_failed() for name in (VIEW, "shop.again")]

    assert {("shop.orders", "slot_in_future"), (VIEW, "slice_in_future")} <= found
    assert {step.remedy for step in done.steps} == {"new_slots", "retire_future"}
    assert done.clean
    assert [(each.built, each.fresh, each.empty) for each in built] == [(1, 0, 0)] * 2
    assert read_rows(lake, VIEW) == read_rows(lake, "shop.again") == ask_everything(lake, SQL)
    assert lake.check().clean


def test_a_view_is_stale_although_its_rows_stay_in_one_of_its_slices(timed_spark_lake: Lake, clock: FixedClock) -> None:
    lake = timed_spark_lake
    make_orders(lake)
    create_view_set(lake._context, VIEW, sql=SQL, over="shop.orders", event_time="ts", slice="1d")
    at_hour(clock, 5)
    add_orders(lake, [(0, "tea", 2, 2.0)])
    materialize(lake._context, VIEW).raise_failed()
    at_hour(clock, 1)

    lake.repair(dry_run=False)

    assert materialize(lake._context, VIEW).raise_failed().built == 1
    assert lake.check().clean


def test_an_insert_of_a_host_out_of_step_writes_no_file(kind: str, url: str, spark_lake: Lake) -> None:
    if kind == "sqlite":
        pytest.skip("the host's clock is the only one")
    make_orders(spark_lake)
    rows = spark_lake.spark.createDataFrame(
        [], ",".join(f"{f.name} {t}" for f, t in zip(ORDERS.fields, ["timestamp", "string", "long", "double"], strict=True))
    )
    with closing(open_registry(url, host_clock=FixedClock(DAY))) as registry:
        before = files_in(spark_lake)

        with pytest.raises(ClockSkewedError):
            insert(Context(registry, spark_lake.storage, SparkSource(spark_lake.spark)), "shop.orders", rows)

        assert files_in(spark_lake) == before
        assert count(registry, "operations") == 0
