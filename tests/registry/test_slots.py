"""The place of a plain insert on the insert-time axis: its own microsecond, whatever the clock does."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from builders import ORDERS, fake_file, logical_dump, make_table, publish, within
from lakebed.core.errors import ClockRegressedError
from lakebed.core.names import TableName
from lakebed.core.times import TimeRange, to_micros
from lakebed.registry.open import open_registry
from retiring import retire_by_range

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry
    from lakebed.testing import FixedClock

EVERYTHING = TimeRange(begin=0, end=to_micros(datetime(3000, 1, 1, tzinfo=UTC)))


def test_an_insert_takes_the_microsecond_of_the_clock(timed_registry: Registry, clock: FixedClock) -> None:
    table = make_table(timed_registry)

    done = publish(timed_registry, table, fake_file(1))

    assert done.insert_range == TimeRange(begin=clock.micros, end=clock.micros + 1)


def test_inserts_at_one_instant_take_consecutive_microseconds(timed_registry: Registry, clock: FixedClock) -> None:
    table = make_table(timed_registry)

    begins = [publish(timed_registry, table, fake_file(n)).insert_range.begin for n in range(5)]

    assert begins == [clock.micros + n for n in range(5)]


def test_slots_rise_although_the_clock_goes_back(timed_registry: Registry, clock: FixedClock) -> None:
    table = make_table(timed_registry)
    first = publish(timed_registry, table, fake_file(1)).insert_range
    clock.advance(seconds=-299)

    second = publish(timed_registry, table, fake_file(2)).insert_range

    assert second.begin == first.begin + 1


def test_a_clock_more_than_five_minutes_behind_the_newest_slot_is_refused(timed_registry: Registry, clock: FixedClock) -> None:
    table = make_table(timed_registry)
    publish(timed_registry, table, fake_file(1))
    before = logical_dump(timed_registry)
    clock.advance(seconds=-301)

    with pytest.raises(ClockRegressedError, match=r"newest slot of shop\.orders is 301 s ahead"):
        publish(timed_registry, table, fake_file(2))

    assert logical_dump(timed_registry) == before


def test_exactly_five_minutes_ahead_is_still_a_slot(timed_registry: Registry, clock: FixedClock) -> None:
    table = make_table(timed_registry)
    newest = publish(timed_registry, table, fake_file(1)).insert_range.begin
    clock.micros = newest + 1 - 5 * 60 * 1_000_000

    assert publish(timed_registry, table, fake_file(2)).insert_range.begin == newest + 1

    with pytest.raises(ClockRegressedError):
        publish(timed_registry, table, fake_file(3))


def test_retiring_everything_does_not_reset_the_slots(timed_registry: Registry, clock: FixedClock) -> None:
    table = make_table(timed_registry)
    last = publish(timed_registry, table, fake_file(1)).insert_range
    within(timed_registry, lambda tx: retire_by_range(tx, ORDERS, EVERYTHING))
    clock.advance(seconds=-10)

    assert publish(timed_registry, table, fake_file(2)).insert_range.begin == last.begin + 1


def test_slots_go_on_where_another_process_left_them(url: str, clock: FixedClock) -> None:
    one, other = open_registry(url, clock=clock), open_registry(url, clock=clock)
    table = make_table(one)

    begins = [publish(r, table, fake_file(n)).insert_range.begin for n, r in enumerate([one, other, one, other])]

    assert begins == list(range(begins[0], begins[0] + 4))
    one.close()
    other.close()


def test_a_refused_insert_takes_no_slot(timed_registry: Registry, clock: FixedClock) -> None:
    table = make_table(timed_registry)
    same = fake_file(1)
    publish(timed_registry, table, same)
    with pytest.raises(Exception, match="never reused"):
        publish(timed_registry, table, same)

    assert publish(timed_registry, table, fake_file(2)).insert_range.begin == clock.micros + 1


def test_without_a_fixed_clock_the_slot_is_now(registry: Registry) -> None:
    table = make_table(registry)

    begin = publish(registry, table, fake_file(1)).insert_range.begin

    assert abs(begin - to_micros(datetime.now(UTC))) < 60 * 1_000_000


def test_tables_draw_their_slots_apart(timed_registry: Registry, clock: FixedClock) -> None:
    tables = [make_table(timed_registry, ORDERS), make_table(timed_registry, TableName("shop", "returns"))]

    begins = [publish(timed_registry, table, fake_file(n)).insert_range.begin for n, table in enumerate(tables)]

    assert begins == [clock.micros, clock.micros]
