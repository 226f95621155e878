from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.core.errors import InvalidRangeError, InvalidValueError
from lakebed.core.times import MAX_MICROS, MIN_MICROS, Time, TimeRange, from_micros, show, to_micros
from strategies import aware_datetimes, micros, time_ranges

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
BERLIN = timezone(timedelta(hours=1))


@given(micros)
def test_microseconds_come_back_exactly(moment: int) -> None:
    assert to_micros(from_micros(moment)) == moment


@given(aware_datetimes, st.integers(-1439, 1439))
def test_equal_instants_are_equal_numbers_in_every_zone(moment: datetime, minutes: int) -> None:
    zone = timezone(timedelta(minutes=minutes))
    try:
        elsewhere = moment.astimezone(zone)
    except OverflowError:
        return

    assert to_micros(elsewhere) == to_micros(moment)


@pytest.mark.parametrize(
    "given_as", ["2026-11-15T12:00:00Z", "2026-11-15T12:00", " 2026-11-15 13:00:00+01:00 ", "2026-11-15T12:00:00.000000", NOON]
)
def test_text_is_a_time_and_utc_unless_it_names_a_zone(given_as: Time) -> None:
    assert to_micros(given_as) == to_micros(NOON)


def test_a_date_is_its_midnight() -> None:
    assert to_micros(NOON.date()) == to_micros("2026-11-15") == to_micros(NOON) - 12 * 3_600_000_000


@pytest.mark.parametrize("wrong", ["", "yesterday", "2026-13-01", "0001-01-01T00:00:00+23:00", "12:00", 12, None, b"2026-01-01"])
def test_what_is_not_a_time_is_refused_with_an_example(wrong: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"2026-03-01T12:00:00Z"):
        to_micros(wrong)


@given(aware_datetimes, aware_datetimes)
def test_the_order_of_instants_is_the_order_of_numbers(left: datetime, right: datetime) -> None:
    assert (left < right) == (to_micros(left) < to_micros(right))


def test_one_microsecond_is_kept_where_floats_would_lose_it() -> None:
    late = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)

    assert to_micros(late) == MAX_MICROS
    assert to_micros(late - timedelta(microseconds=1)) == MAX_MICROS - 1
    assert to_micros(datetime.min.replace(tzinfo=UTC)) == MIN_MICROS


def test_a_datetime_without_zone_is_refused() -> None:
    with pytest.raises(InvalidRangeError, match="no time zone"):
        to_micros(datetime(2026, 11, 15))  # noqa: DTZ001 - the naive one is the case
    with pytest.raises(InvalidRangeError):
        TimeRange.of(NOON, datetime(2026, 11, 16))  # noqa: DTZ001 - the naive one is the case


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(InvalidRangeError, match="ends before it begins"):
        TimeRange.of(NOON, NOON - timedelta(microseconds=1))


def test_a_range_without_width_is_refused() -> None:
    with pytest.raises(InvalidRangeError, match="has no width"):
        TimeRange.of(NOON, NOON.astimezone(BERLIN))


def test_a_range_of_one_microsecond_is_a_slot() -> None:
    slot = TimeRange.of(NOON, NOON + timedelta(microseconds=1))

    assert slot.end - slot.begin == 1
    assert str(slot) == "[2026-11-15T12:00:00Z, 2026-11-15T12:00:00.000001Z)"


@pytest.mark.parametrize(("begin", "end"), [(MIN_MICROS - 1, 0), (0, MAX_MICROS + 1), (-(2**70), 2**70)])
def test_a_range_beyond_the_calendar_is_refused(begin: int, end: int) -> None:
    with pytest.raises(InvalidRangeError, match="years 1 to 9999"):
        TimeRange(begin=begin, end=end)


@given(st.integers())
def test_every_number_can_be_shown(number: int) -> None:
    assert show(number)


@given(time_ranges(), time_ranges())
def test_ranges_overlap_exactly_when_they_share_a_microsecond(left: TimeRange, right: TimeRange) -> None:
    shared = max(left.begin, right.begin) < min(left.end, right.end)

    assert left.overlaps(right) == right.overlaps(left) == shared
    assert not left.contains(right) or left.overlaps(right)


@given(time_ranges())
def test_touching_ranges_do_not_overlap(whole: TimeRange) -> None:
    middle = (whole.begin + whole.end) // 2
    if middle == whole.begin:
        return
    left, right = TimeRange(begin=whole.begin, end=middle), TimeRange(begin=middle, end=whole.end)

    assert not left.overlaps(right)
    assert whole.contains(left)
    assert whole.contains(right)
