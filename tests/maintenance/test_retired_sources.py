"""Retention of a source must not eat the views that were made of it, and retention of a view must not bring it back."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import DAILY, HOUR, ORDERS, SCHEMA, START, fake_file, make_table, micros_of, new_partition, operation
from lakebed.core import fingerprints
from lakebed.core.names import TableName
from lakebed.core.tables.view_sets import Definition
from lakebed.core.tables.windows import join_ranges
from lakebed.core.times import TimeRange
from lakebed.maintenance.retention import order_readers_first
from lakebed.pipeline.views.plan import plan_materialize
from lakebed.registry.partitions.publish import publish_partition
from lakebed.registry.tables.expired import read_expired
from lakebed.registry.tables.lake_tables import TableSpec, create_table
from view_states import count_states

if TYPE_CHECKING:
    from lakebed.lake import Lake
    from lakebed.testing import FixedClock

BASE = micros_of(START)
DAY = 24 * HOUR


def add_orders(lake: Lake, *hours: int) -> str:
    """One partition per hour, its events in that hour; the sum of their fingerprints."""
    made = []
    for hour in hours:
        plain = new_partition(lake.table(str(ORDERS)), fake_file(hour + 1), hours=(hour, hour + 1))
        made.append(replace(plain, event_range=(BASE + hour * HOUR, BASE + hour * HOUR + 1)))
        publish_partition(lake.registry, made[-1], operation())
    return fingerprints.add(partition.fingerprint for partition in made)


def make_view(lake: Lake, *, slice_us: int = DAY) -> None:
    definition = Definition(sql="SELECT * FROM shop.orders", over=ORDERS, slice_us=slice_us, event_time="ts").to_json()
    create_table(lake.registry, TableSpec(name=DAILY, schema=SCHEMA, kind="view_set", event_time="ts", definition=definition))


def build_day(lake: Lake, day: int, source_sum: str) -> None:
    """As materializing would have: the view's partition of that day, made of all that the source held."""
    plain = new_partition(lake.table(str(DAILY)), fake_file(100 + day), hours=(24 * day, 24 * day + 24))
    made = replace(plain, event_range=(BASE + day * DAY, BASE + day * DAY + 1), source_data_hash=source_sum)
    publish_partition(lake.registry, made, operation())


def outcomes(lake: Lake, *, regenerate: bool = False) -> tuple[list[str], list[str]]:
    """What is left alone and what would be built, in the order of time."""
    plan = plan_materialize(lake._context, str(DAILY), regenerate=regenerate)
    return [one.outcome for one in plan.fresh], [str(one.state) for one in plan.stale]


def expire(lake: Lake, clock: FixedClock, table: TableName, *, before_hour: int) -> int:
    retention = timedelta(microseconds=clock.micros - BASE - before_hour * HOUR)
    return lake.partitions.retire_expired(str(table), retention=retention, dry_run=False).partitions


@pytest.fixture
def shop(timed_lake: Lake) -> Lake:
    make_table(timed_lake.registry)
    make_view(timed_lake)
    return timed_lake


def test_a_slice_whose_source_is_partly_retired_is_not_rebuilt_smaller(shop: Lake, clock: FixedClock) -> None:
    build_day(shop, 0, add_orders(shop, 0, 1, 2, 3))
    assert outcomes(shop) == (["fresh"], [])

    assert expire(shop, clock, ORDERS, before_hour=2) == 2

    assert outcomes(shop) == (["kept"], [])
    assert outcomes(shop, regenerate=True) == (["kept"], [])
    assert count_states(shop.registry, str(DAILY)) == (1, 0)


def test_a_slice_whose_source_is_wholly_retired_keeps_its_rows(shop: Lake, clock: FixedClock) -> None:
    build_day(shop, 0, add_orders(shop, 0, 1))
    build_day(shop, 1, add_orders(shop, 24))
    expire(shop, clock, ORDERS, before_hour=5)
    assert outcomes(shop) == (["kept", "fresh"], [])
    expire(shop, clock, ORDERS, before_hour=48)
    assert outcomes(shop) == (["kept", "kept"], [])
    assert shop.table(str(DAILY)).row.row_count == 200


def test_a_view_that_grew_old_itself_is_not_built_again_from_a_source_that_is_kept_longer(shop: Lake, clock: FixedClock) -> None:
    build_day(shop, 0, add_orders(shop, 0, 1))
    build_day(shop, 1, add_orders(shop, 24))
    assert expire(shop, clock, DAILY, before_hour=12) == 1
    assert outcomes(shop) == (["kept", "fresh"], [])


def test_other_changes_of_the_source_still_make_a_slice_stale(shop: Lake, clock: FixedClock) -> None:
    build_day(shop, 0, add_orders(shop, 0))
    build_day(shop, 1, add_orders(shop, 24, 25))
    expire(shop, clock, ORDERS, before_hour=5)
    add_orders(shop, 26)
    assert outcomes(shop) == (["kept"], ["changed"])


def test_a_view_made_later_is_built_from_what_is_left(shop: Lake, clock: FixedClock) -> None:
    add_orders(shop, 0, 1, 24, 25, 50)
    expire(shop, clock, ORDERS, before_hour=25)
    assert outcomes(shop) == ([], ["missing", "missing"])  # the second day partly, the third whole


def test_partitions_that_were_old_when_they_came_do_not_freeze_the_slice_they_came_in(shop: Lake, clock: FixedClock) -> None:
    clock.micros = BASE + 5 * HOUR
    build_day(shop, 0, add_orders(shop, 0, 1))
    expire(shop, clock, ORDERS, before_hour=1)
    assert outcomes(shop) == ([], ["changed"])


def test_what_was_retired_by_age_is_remembered_as_few_ranges(shop: Lake, clock: FixedClock) -> None:
    add_orders(shop, *range(0, 40, 3))
    table_id = shop.table(str(ORDERS)).table_id
    for hour in (5, 11, 30):
        expire(shop, clock, ORDERS, before_hour=hour)
    assert read_expired(shop.registry, table_id, "global") == (TimeRange(begin=BASE, end=BASE + 28 * HOUR),)
    assert read_expired(shop.registry, table_id, "other") == ()


def test_readers_of_a_table_come_before_it() -> None:
    a, b, c, d = (TableName("shop", name) for name in "abcd")
    ordered = order_readers_first([a, b, c, d], {b: frozenset({a}), c: frozenset({b, a}), d: frozenset({TableName("gone", "x")})})
    assert ordered.index(c) < ordered.index(b) < ordered.index(a)
    assert sorted(ordered) == [a, b, c, d]


RANGES = st.lists(st.builds(lambda b, n: TimeRange(begin=b, end=b + n), st.integers(0, 60), st.integers(1, 8)), max_size=12)


@given(ranges=RANGES, apart=RANGES)
def test_joined_ranges_hold_all_they_were_made_of_and_reach_over_nothing_that_is_left(
    ranges: list[TimeRange], apart: list[TimeRange]
) -> None:
    joined = join_ranges(ranges, apart=apart)
    assert all(any(j.contains(r) for j in joined) for r in ranges)
    assert all(left.end <= right.begin for left, right in itertools.pairwise(joined))
    bare = {t for j in joined for t in range(j.begin, j.end)} - {t for r in ranges for t in range(r.begin, r.end)}
    assert not any(r.begin in bare for r in apart)
