"""Times and durations: integer microseconds in UTC inside, aware datetimes and timedeltas at the edges."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Protocol

from lakebed.core.errors import InvalidRangeError, InvalidValueError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY = date(1970, 1, 1)
MICROSECOND = timedelta(microseconds=1)
SECOND_US, HOUR_US, DAY_US = 1_000_000, 3_600_000_000, 86_400_000_000
UNITS = {"us": 1, "ms": 1000, "s": SECOND_US, "m": 60 * SECOND_US, "h": HOUR_US, "d": DAY_US}
MAX_MICROS = 253_402_300_799_999_999  # 9999-12-31T23:59:59.999999Z: the last instant a datetime can hold
MIN_MICROS = -62_135_596_800_000_000  # 0001-01-01T00:00:00Z
_DURATION = re.compile(r"([0-9]{1,18}) ?(us|ms|s|m|h|d)", re.ASCII)


# What a caller may give as a time: text and dates are UTC unless the text names a zone
Time = datetime | date | str


class Clock(Protocol):
    """The source of the current time: the registry's database unless a test brings its own."""

    def __call__(self) -> int:
        """Now, in UTC microseconds."""


def parse_time(text: str) -> datetime:
    """ISO 8601 text; what names no zone is UTC."""
    try:
        moment = datetime.fromisoformat(text.strip())
        return (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment).astimezone(UTC)
    except (ValueError, OverflowError) as exc:
        message = f"invalid time {text[:80]!a}: expected ISO 8601, for example 2026-03-01 or 2026-03-01T12:00:00Z"
        raise InvalidValueError(message) from exc


def to_micros(given: Time) -> int:
    """Exact: equality of instants is equality of the integers. A datetime without a zone is refused."""
    match given:
        case datetime():
            moment = given
        case date():
            moment = datetime(given.year, given.month, given.day, tzinfo=UTC)
        case str():
            moment = parse_time(given)
        case _:
            message = f"{given!r:.80} is not a time: expected a datetime with a zone, a date, or ISO 8601 text such as 2026-03-01T12:00:00Z"
            raise InvalidValueError(message)
    if moment.tzinfo is None or moment.utcoffset() is None:
        message = f"{moment.isoformat()} has no time zone"
        raise InvalidRangeError(message)
    return (moment - EPOCH) // MICROSECOND


def from_micros(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def micros_of(moment: datetime) -> int:
    """Of a value read from a column: what names no zone is UTC."""
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH) // MICROSECOND


def days_of(day: date) -> int:
    return (day - EPOCH_DAY).days


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TimeRange:
    """A half-open range `[begin, end)` of at least one microsecond, in UTC microseconds."""

    begin: int
    end: int

    def __post_init__(self) -> None:
        if self.begin >= self.end:
            kind = "has no width" if self.begin == self.end else "ends before it begins"
            message = f"range [{show(self.begin)}, {show(self.end)}) {kind}"
            raise InvalidRangeError(message)
        if self.begin < MIN_MICROS or self.end > MAX_MICROS:
            message = f"range [{self.begin}, {self.end}) is outside the years 1 to 9999"
            raise InvalidRangeError(message)

    @classmethod
    def of(cls, begin: Time, end: Time) -> TimeRange:
        return cls(begin=to_micros(begin), end=to_micros(end))

    @classmethod
    def maybe(cls, begin: Time | None, end: Time | None) -> TimeRange | None:
        """None when neither end is given; one alone is refused."""
        if begin is None and end is None:
            return None
        if begin is None or end is None:
            message = "only one end of the insert range was given"
            raise InvalidRangeError(message)
        return cls.of(begin, end)

    @classmethod
    def open_ended(cls, begin: Time | None, end: Time | None) -> TimeRange | None:
        """None when neither end is given; an omitted end is the edge of the calendar."""
        if begin is None and end is None:
            return None
        return cls(begin=MIN_MICROS if begin is None else to_micros(begin), end=MAX_MICROS if end is None else to_micros(end))

    def overlaps(self, other: TimeRange) -> bool:
        return self.begin < other.end and other.begin < self.end

    def contains(self, other: TimeRange) -> bool:
        return self.begin <= other.begin and other.end <= self.end

    def __str__(self) -> str:
        return f"[{show(self.begin)}, {show(self.end)})"


def show(micros: int) -> str:
    """ISO text, or the plain number where no calendar reaches."""
    if MIN_MICROS <= micros <= MAX_MICROS:
        return from_micros(micros).isoformat().replace("+00:00", "Z")
    return str(micros)


def parse_duration(given: str | int | timedelta, *, what: str = "slice") -> int:
    """A positive whole number of microseconds, from `15m`, a timedelta or the number itself."""
    micros = _micros(given)
    if micros is None or micros <= 0:
        message = f"{what} {given!r} is not a positive whole number of microseconds: write it as 15m, 1h, 1d, 500ms or 10us"
        raise InvalidValueError(message)
    return micros


def read_age(given: timedelta | str, *, what: str) -> timedelta:
    """A timedelta, or text such as `30d`; a bare number has no unit."""
    match given:
        case timedelta():
            return given
        case str():
            return timedelta(microseconds=parse_duration(given, what=what))
        case _:
            message = f"{what}={given!a}: give a timedelta or text such as 30d, 12h or 15m"
            raise InvalidValueError(message)


def _micros(given: object) -> int | None:
    match given:
        case timedelta():
            return given // MICROSECOND
        case str() if found := _DURATION.fullmatch(given):
            return int(found[1]) * UNITS[found[2]]
        case int() if not isinstance(given, bool):
            return given
        case _:
            return None


def show_duration(micros: int, *, unit: str | None = None) -> str:
    """As one writes it: `7h`; in `unit` where it is a whole number of those."""
    if unit is None or micros % UNITS[unit]:
        unit = unit_of(micros)
    return f"{micros // UNITS[unit]}{unit}"


def unit_of(micros: int) -> str:
    """The largest that measures it in whole numbers; beyond a day in hours unless whole days."""
    return next(unit for unit, size in reversed(UNITS.items()) if micros % size == 0)
