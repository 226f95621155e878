"""Spark as the second engine of compaction: for files that are too large for one process, not Parquet, or must be combined."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from view_lakes import DAY, add_orders, at_hour, make_orders, read_rows

from lakebed.compaction import CompactionOptions, Engines, LocalEngine, compact, plan_compaction
from lakebed.pipeline.views.build import materialize
from lakebed.pipeline.views.define import create_view_set
from lakebed.pipeline.views.merge import engines_of
from lakebed.pipeline.write.json import insert_json
from lakebed.testing import FixedClock

if TYPE_CHECKING:
    from lakebed.lake import Lake

COLUMNS = "ts timestamp, product string, id bigint, amount double"


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(DAY)


@pytest.fixture
def shop(timed_spark_lake: Lake) -> Lake:
    return timed_spark_lake


def fill(lake: Lake, clock: FixedClock, *hours: int) -> None:
    for hour in hours:
        at_hour(clock, hour)
        add_orders(lake, [(hour, "tea", hour, 1.0), (hour, "rice", hour, 2.0)])


def test_spark_does_what_is_too_much_for_one_process_and_both_engines_agree(shop: Lake, clock: FixedClock) -> None:
    make_orders(shop, sort_by=("id",))
    fill(shop, clock, 0, 1, 2)
    rows = read_rows(shop, "shop.orders")

    by_spark = compact(shop.registry, shop.storage, "shop.orders", engines=replace(engines_of(shop._context), local_bytes=0))

    assert [(run.engine, run.files_read, run.files_written) for run in by_spark.runs] == [("spark", 3, 1)]
    assert read_rows(shop, "shop.orders") == rows
    fill(shop, clock, 3, 4)
    rows = read_rows(shop, "shop.orders")
    here = compact(shop.registry, shop.storage, "shop.orders", engines=engines_of(shop._context))
    assert [run.engine for run in here.runs] == ["local"]
    assert read_rows(shop, "shop.orders") == rows
    assert shop.check().clean


def test_spark_goes_on_without_a_file_that_cannot_be_decoded(shop: Lake, clock: FixedClock) -> None:
    make_orders(shop)
    fill(shop, clock, 0, 1, 2, 3)
    bad = shop.files.list("shop.orders")[1].file_path
    content = Path(bad).read_bytes()
    place = pq.read_metadata(bad).row_group(0).column(0).data_page_offset
    Path(bad).write_bytes(content[:place] + b"\xff" * 12 + content[place + 12 :])

    done = compact(shop.registry, shop.storage, "shop.orders", engines=replace(engines_of(shop._context), local_bytes=0))

    assert [(run.engine, run.files_read) for run in done.runs] == [("spark", 3)]
    assert [(file.path, file.code, file.row_group, file.column) for file in done.damaged] == [(bad, "file_damaged", 0, "ts")]
    assert len(shop.files.list("shop.orders")) == 2
    Path(bad).write_bytes(content)
    assert len(read_rows(shop, "shop.orders")) == 8
    assert shop.check(deep=True).clean


def test_json_becomes_parquet_where_there_is_spark_and_waits_where_there_is_none(shop: Lake, clock: FixedClock) -> None:
    make_orders(shop)
    fill(shop, clock, 0, 1)
    odd = shop.spark.createDataFrame([(DAY, "salt", 5, float("nan")), (DAY, None, 6, None)], COLUMNS)
    insert_json(shop._context, "shop.orders", odd.coalesce(1))
    rows = read_rows(shop, "shop.orders", "id", "product")

    alone = compact(shop.registry, shop.storage, "shop.orders")
    both = compact(shop.registry, shop.storage, "shop.orders", engines=engines_of(shop._context))

    assert [(g.reason, g.files) for g in alone.groups] == [("small", 2), ("needs_spark", 1)]
    assert [(run.engine, run.files_read) for run in both.runs] == [("spark", 2)]
    assert {f.file_type for f in shop.files.list("shop.orders")} == {"parquet"}
    assert read_rows(shop, "shop.orders", "id", "product") == rows
    assert shop.check().clean


def test_partial_results_are_combined_by_spark_or_left_alone(shop: Lake, clock: FixedClock) -> None:
    make_orders(shop)
    fill(shop, clock, 0, 1, 2)
    create_view_set(
        shop._context, "shop.sums", sql="SELECT product, sum(amount) AS amount FROM shop.orders GROUP BY product", over="shop.orders",
        combine="SELECT product, sum(amount) AS amount FROM partials GROUP BY product",
    )  # fmt: skip
    materialize(shop._context, "shop.sums").raise_failed()

    without = plan_compaction(shop.registry, "shop.sums")
    done = compact(shop.registry, shop.storage, "shop.sums", engines=engines_of(shop._context))

    assert ([g.reason for g in without.groups], without.runs) == (["needs_spark"], ())
    assert [(run.rows_before, run.rows_after, run.engine) for run in done.runs] == [(6, 2, "spark")]
    assert read_rows(shop, "shop.sums", "product", "amount") == [("rice", 6.0), ("tea", 3.0)]
    assert [s.outcome for s in materialize(shop._context, "shop.sums").slices] == ["fresh"]
    assert shop.check().clean


def test_files_of_spark_are_rewritten_without_spark(shop: Lake, clock: FixedClock) -> None:
    """Types that Spark writes its own way: decimals as integers, times in two kinds, dates, arrays through Arrow."""
    columns = "id int, price decimal(9,2), big decimal(30,4), at timestamp_ntz, day date, raw binary, ok boolean, s struct<x:int,y:string>"
    frame = shop.spark.sql(
        f"SELECT * FROM VALUES (1, 1.25, 123456789012345.6789, timestamp_ntz'2026-01-01 12:00:00.123456', date'1969-12-31', x'00ff', true, "
        f"named_struct('x', 1, 'y', 'a')), (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) AS t({', '.join(c.split()[0] for c in columns.split(', '))})"
    ).to(shop.spark.createDataFrame([], columns).schema)
    shop.create_table("shop.kinds", like=frame)
    for hour in range(3):
        at_hour(clock, hour)
        shop.insert("shop.kinds", frame)
    rows = sorted(map(str, shop.read("shop.kinds").collect()))

    done = compact(
        shop.registry, shop.storage, "shop.kinds", CompactionOptions(), engines=Engines(local=LocalEngine(storage=shop.storage))
    )  # fmt: skip

    assert [(run.engine, run.files_written) for run in done.runs] == [("local", 1)]
    assert sorted(map(str, shop.read("shop.kinds").collect())) == rows
    assert shop.check(deep=True).clean
