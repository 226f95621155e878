"""A clock that is wrong: this host's beside the database's, and one that was ahead when rows were inserted."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from builders import ORDERS, SCHEMA, count, fake_file, make_table, op_id, publish, write_partition
from lakebed.core.errors import ClockRegressedError, ClockSkewedError
from lakebed.core.times import to_micros
from lakebed.lake import Lake
from lakebed.registry.files.operations import Operation, open_operation
from lakebed.registry.open import open_registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.registry.registry import Registry
    from lakebed.testing import FixedClock

MINUTE_S = 60.0


class RunningClock:
    """The clock of a host that is `off_s` seconds ahead; every look at it takes `step_s` more."""

    def __init__(self, *, off_s: float, step_s: float = 0.0) -> None:
        self._off_s, self._step_s = off_s, step_s

    def __call__(self) -> int:
        now = to_micros(datetime.now(UTC) + timedelta(seconds=self._off_s))
        self._off_s += self._step_s
        return now


@pytest.fixture
def on_host(url: str, lake: Lake) -> Callable[[RunningClock], Lake]:
    """The same lake, opened on a host with that clock."""

    def open_there(clock: RunningClock) -> Lake:
        return Lake(open_registry(url, host_clock=clock), lake.storage)

    lake.create_table(str(ORDERS), SCHEMA, event_time="ts")
    return open_there


def files_in(lake: Lake) -> list[Path]:
    return [path for path in Path(lake.storage.paths.root).rglob("*") if "data" in path.parts]


@pytest.mark.parametrize("off_s", [-6 * MINUTE_S, 6 * MINUTE_S])
def test_a_host_more_than_five_minutes_off_the_database_is_refused_before_it_writes(
    off_s: float, kind: str, on_host: Callable[[RunningClock], Lake]
) -> None:
    if kind == "sqlite":
        pytest.skip("the host's clock is the only one")
    with closing(on_host(RunningClock(off_s=off_s))) as lake:
        with pytest.raises(ClockSkewedError, match="correct the wrong one") as refused:
            write_partition(lake, 1)

        assert refused.value.ahead_s == pytest.approx(off_s, abs=MINUTE_S)
        assert count(lake.registry, "operations") == 0
        assert files_in(lake) == []


@pytest.mark.parametrize("off_s", [-4 * MINUTE_S, 4 * MINUTE_S])
def test_a_host_within_five_minutes_writes_into_slots_of_the_database(
    off_s: float, kind: str, on_host: Callable[[RunningClock], Lake]
) -> None:
    with closing(on_host(RunningClock(off_s=off_s))) as lake:
        drawn = [write_partition(lake, number).insert_range.begin for number in range(2)]  # the second by the function in the server

    ahead_s = [(begin - to_micros(datetime.now(UTC))) / 1e6 for begin in drawn]
    assert ahead_s == pytest.approx([off_s if kind == "sqlite" else 0.0] * 2, abs=MINUTE_S)


def test_a_wait_for_the_database_does_not_count_as_a_difference(on_host: Callable[[RunningClock], Lake]) -> None:
    waiting = RunningClock(off_s=-10 * MINUTE_S, step_s=20 * MINUTE_S)
    with closing(on_host(waiting)) as lake:
        open_operation(lake.registry, ORDERS, Operation(op_id=op_id(), has_intent=True))


def test_a_registry_with_a_clock_of_its_own_compares_nothing(url: str, lake: Lake, clock: FixedClock) -> None:
    lake.create_table(str(ORDERS), SCHEMA, event_time="ts")
    with closing(Lake(open_registry(url, clock=clock), lake.storage)) as timed:
        assert write_partition(timed, 1).insert_range.begin == clock.micros


def test_a_long_insert_into_a_table_with_slots_in_the_future_is_refused_at_its_intent(timed_registry: Registry, clock: FixedClock) -> None:
    table = make_table(timed_registry)
    publish(timed_registry, table, fake_file(1))
    clock.advance(seconds=-3600)
    spark_insert = Operation(op_id=op_id(), has_intent=True, mode="append")
    window = Operation(op_id=op_id(), has_intent=True)

    with pytest.raises(ClockRegressedError, match=r"3600 s ahead.*2026-03-01T12:00:00.*2026-03-01T11:00:00.*lakebed repair shop\.orders"):
        open_operation(timed_registry, ORDERS, spark_insert)
    open_operation(timed_registry, ORDERS, window)

    assert count(timed_registry, "operations", "state = 'writing'") == 1
