"""`as_of` names a state that the table had: whatever names none is refused, wherever it is given."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from builders import ORDERS, make_table, write_partition
from lakebed.core.errors import LakebedError

if TYPE_CHECKING:
    from lakebed.lake import Lake
    from lakebed.testing import FixedClock

NAME = str(ORDERS)
FUTURE = "is in the future: the registry's clock says 2026-03-01"
# What names no state -> what the error says
UNKNOWN: dict[Any, str] = {
    0: "is not a journal number",
    -1: "is not a journal number",
    10_000: "journal number 10000 cannot be read; kept are 0 to",
    1 << 50: f"keeps no snapshot {1 << 50}: it has none yet",
    True: "is not a journal number",
    2.5: "is not a journal number",
    "snapshots": "invalid time 'snapshots'",
    "2013-01-01": "the table had no file yet at 2013-01-01",
    date(2026, 2, 27): "the table had no file yet at 2026-02-27",
    "2026-03-02": FUTURE,
    datetime(2999, 1, 1, tzinfo=UTC): FUTURE,
    datetime(2026, 1, 1): "has no time zone",  # noqa: DTZ001 - what is refused
    "9999-12-31T23:59:59.999999Z": FUTURE,
}


@pytest.fixture
def filled(timed_lake: Lake, clock: FixedClock) -> Lake:
    make_table(timed_lake.registry)
    write_partition(timed_lake, 1)
    clock.advance(seconds=60)
    write_partition(timed_lake, 2)
    return timed_lake


@pytest.mark.parametrize("as_of", UNKNOWN, ids=map(str, UNKNOWN))
def test_a_plan_of_a_state_that_never_was_is_refused(filled: Lake, as_of: Any) -> None:
    with pytest.raises(LakebedError) as refused:
        filled.files.plan(NAME, as_of=as_of)

    assert UNKNOWN[as_of] in str(refused.value)


def test_a_plan_goes_back_to_a_number_a_time_and_now(filled: Lake, clock: FixedClock) -> None:
    before, now = datetime.fromtimestamp(clock() / 1e6 - 30, tz=UTC), datetime.fromtimestamp(clock() / 1e6, tz=UTC)
    last = filled.files.plan(NAME).journal_number

    assert [len(filled.files.plan(NAME, as_of=then).paths) for then in (before, before.isoformat(), now, last)] == [1, 1, 2, 2]


def test_a_clock_that_is_a_little_ahead_may_name_its_own_present(filled: Lake, clock: FixedClock) -> None:
    ahead = datetime.fromtimestamp(clock() / 1e6, tz=UTC) + timedelta(minutes=4)

    assert len(filled.files.plan(NAME, as_of=ahead).paths) == 2
