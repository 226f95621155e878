"""Automatic maintenance of view sets: scheduled tasks build and merge them, on Spark and both registries."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from view_lakes import BY_PRODUCT, COMBINE, DAY, add_orders, ask_everything, at_hour, make_orders, read_rows

from builders import HOUR
from lakebed import admin
from lakebed.core.tasks import OFF, Task
from lakebed.lake import connect
from lakebed.maintenance.runner import Runner
from lakebed.maintenance.schedule import make_schedule
from lakebed.maintenance.workplace import Workplace
from lakebed.registry.journal.leases import acquire_lease
from lakebed.registry.maintenance.runs import list_runs
from lakebed.registry.processes import make_owner
from lakebed.testing import FixedClock
from serving import EVERY_SECOND, serving, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakebed.lake import Lake

EVERY_TEN_MINUTES, DAILY = "*/10 * * * *", "0 0 * * *"


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(DAY)


@pytest.fixture
def shop(timed_spark_lake: Lake) -> Lake:
    make_orders(timed_spark_lake)
    return timed_spark_lake


@pytest.fixture
def runner(shop: Lake) -> Runner:
    lease = acquire_lease(shop.registry, "astha", owner=make_owner("full"), ttl_us=365 * 24 * HOUR)
    schedule = make_schedule({**dict.fromkeys(Task, OFF), Task.MATERIALIZE: EVERY_TEN_MINUTES, Task.MERGE: DAILY}, lake_id="lake")
    place = Workplace(registry=shop.registry, storage=shop.storage, context=lambda: shop._context, actor="test")
    return Runner(place, schedule, lease=lambda: lease)


def run_next(runner: Runner, clock: FixedClock, *, hour: float) -> dict[str, object]:
    """Whatever is due at that hour; what building came to."""
    at_hour(clock, hour)
    assert Task.MATERIALIZE in runner.run_due()
    return {key: runner.tallies()[Task.MATERIALIZE].result[key] for key in ("views", "built", "fresh", "failed", "rows")}


def test_what_is_stale_is_built_and_days_that_are_over_are_merged(shop: Lake, runner: Runner, clock: FixedClock) -> None:
    shop.create_view_set("shop.by_product", sql=BY_PRODUCT, over="shop.orders", event_time="ts", combine=COMBINE)
    runner.run_due()  # a schedule counts from when it is first seen
    for hour in (0, 1):
        at_hour(clock, hour + 0.5)
        add_orders(shop, [(hour, "tea", hour, 2.0), (hour, "rice", 10 + hour, 1.0)])
    assert run_next(runner, clock, hour=2) == {"views": 1, "built": 2, "fresh": 0, "failed": 0, "rows": 4}
    assert run_next(runner, clock, hour=3) == {"views": 1, "built": 0, "fresh": 2, "failed": 0, "rows": 0}

    at_hour(clock, 4.5)
    add_orders(shop, [(0, "tea", 99, 5.0)])  # late: it belongs to a slice that was built
    assert run_next(runner, clock, hour=5)["built"] == 1
    assert read_rows(shop, "shop.by_product") == ask_everything(shop, BY_PRODUCT)
    before = len(shop.list_partitions("shop.by_product"))

    assert run_next(runner, clock, hour=30)["built"] == 0

    assert runner.tallies()[Task.MERGE].result["partitions"] == before > 1
    assert len(shop.list_partitions("shop.by_product")) == 1
    assert read_rows(shop, "shop.by_product") == ask_everything(shop, BY_PRODUCT)
    assert shop.check().clean


def test_views_over_views_are_built_in_order_and_one_that_fails_leaves_the_others_alone(
    shop: Lake, runner: Runner, clock: FixedClock
) -> None:
    shop.create_view_set("shop.z_first", sql="SELECT ts, id, 2 * amount AS amount FROM shop.orders", over="shop.orders", event_time="ts")
    shop.create_view_set("shop.b_second", sql="SELECT ts, id, amount + 1 AS amount FROM shop.z_first", over="shop.z_first", event_time="ts")
    shop.create_view_set("shop.a_broken", sql="SELECT ts, id, 1 / (id - 7) AS amount FROM shop.orders", over="shop.orders", event_time="ts")
    runner.run_due()
    at_hour(clock, 0.5)
    add_orders(shop, [(0, "tea", 7, 2.0)])

    told = run_next(runner, clock, hour=2)

    assert (told["views"], told["built"], told["failed"]) == (3, 2, 1)
    assert read_rows(shop, "shop.b_second", "id", "amount") == [(7, 5.0)]
    (run,) = [run for run in list_runs(shop.registry, job="task/materialize") if run.state == "failed"]
    assert "shop.a_broken" in run.result["error"]
    assert shop.check().clean


def test_what_was_asked_for_in_sql_is_built_with_its_rows(shop: Lake, runner: Runner, clock: FixedClock) -> None:
    shop.create_view_set("shop.by_product", sql=BY_PRODUCT, over="shop.orders", event_time="ts", combine=COMBINE)
    at_hour(clock, 0.5)
    add_orders(shop, [(0, "tea", 1, 2.0), (0, "rice", 2, 1.0)])
    at_hour(clock, 2)
    (asked,) = admin.request_materialization(shop.registry, "shop.by_product")
    (again,) = admin.request_regeneration(shop.registry, "shop.by_product")

    assert runner.run_requested() == 2

    found = {run.run_id: run for run in list_runs(shop.registry)}
    assert [(found[one.run_id].state, found[one.run_id].result["built"]) for one in (asked, again)] == [("done", 1), ("done", 1)]
    assert read_rows(shop, "shop.by_product", "product", "n") == [("rice", 1), ("tea", 1)]
    assert shop.check().clean


def test_a_service_builds_a_view_with_a_session_of_its_own(url: str, tmp_path: Path, spark: SparkSession) -> None:
    """From the outside: a view is defined, rows arrive, `lakebed serve` does the rest and stops in time, Java and all."""
    warehouse, log = tmp_path / "warehouse", tmp_path / "log"
    crons = {f"LAKEBED_SCHEDULE_{task.upper()}": EVERY_SECOND if task is Task.MATERIALIZE else OFF for task in Task}
    with connect(url, warehouse=str(warehouse), spark=spark, service="off") as lake:
        make_orders(lake)
        lake.create_view_set("shop.by_product", sql=BY_PRODUCT, over="shop.orders", event_time="ts", combine=COMBINE)
        add_orders(lake, [(0, "tea", 1, 2.0), (0, "rice", 2, 1.0)])
        with serving(url, warehouse, log, **crons) as served:
            wait_until(lambda: bool(lake.list_partitions("shop.by_product")), timeout_s=120)
            wait_until(lambda: served.status()["tasks"]["materialize"]["runs"] > 1, timeout_s=120)
            tasks = json.loads(served.ask("/status")[1])["tasks"]["materialize"]
            code = served.stop()

        assert (code, tasks["failures"]) == (0, 0), log.read_text()
        assert read_rows(lake, "shop.by_product", "product", "n") == [("rice", 1), ("tea", 1)]
        assert lake.check().clean
