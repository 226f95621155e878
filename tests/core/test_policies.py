"""When a snapshot is taken and which are kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.core.errors import InvalidValueError
from lakebed.core.tables.snapshots import (
    KeptSnapshot,
    Pending,
    Retention,
    SnapshotPolicy,
    Trigger,
    plan_expiry,
    read_retention,
    read_snapshot_policy,
)

SECOND = 1_000_000
HOUR, DAY = 3600 * SECOND, 86_400 * SECOND
NOW = 1_000 * DAY + 12 * HOUR


@pytest.mark.parametrize("trigger", list(Trigger))
def test_nothing_pending_is_never_due(trigger: Trigger) -> None:
    assert not SnapshotPolicy(trigger=trigger, interval_s=0, bytes=0, rows=0, files=0).is_due(Pending(), now=NOW)


def test_every_insert_is_due_at_once() -> None:
    assert SnapshotPolicy().is_due(Pending(files=1, rows=1, bytes=1, since=NOW), now=NOW)


def test_time_is_due_once_its_interval_has_passed_since_the_oldest_file() -> None:
    policy = SnapshotPolicy(trigger=Trigger.TIME, interval_s=30)
    assert not policy.is_due(Pending(files=9, since=NOW), now=NOW + 30 * SECOND - 1)
    assert policy.is_due(Pending(files=1, since=NOW), now=NOW + 30 * SECOND)
    assert policy.is_due(Pending(files=1, since=NOW + 9 * SECOND), now=NOW), "the clock was ahead when the file came"


@pytest.mark.parametrize("name", ["bytes", "rows", "files"])
def test_a_size_is_due_at_the_first_file_that_crosses_its_threshold(name: str) -> None:
    policy = read_snapshot_policy({"trigger": name, name: 10})
    below, at = {"files": 1, name: 9}, {"files": 1, name: 10}
    assert not policy.is_due(Pending(**below), now=NOW)
    assert policy.is_due(Pending(**at), now=NOW)


@pytest.mark.parametrize("trigger", [Trigger.MANUAL, Trigger.QUERY])
def test_manual_and_query_wait_to_be_asked(trigger: Trigger) -> None:
    assert not SnapshotPolicy(trigger=trigger).is_due(Pending(files=10**6, rows=10**9, bytes=10**12, since=0), now=NOW)


@pytest.mark.parametrize(
    "given",
    [
        {"trigger": "sometimes"},
        {"files": -1},
        {"interval_s": float("nan")},
        {"interval_s": float("inf")},
        {"rows": 1.5},
        {"rows": True},
        {"pace": 1},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(InvalidValueError):
        read_snapshot_policy(given)


def test_a_retention_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(InvalidValueError):
        read_retention({"all_most": "many"})


def at(*, ago_s: float, number: int) -> KeptSnapshot:
    return KeptSnapshot(snapshot_id=number, at=NOW - int(ago_s * SECOND))


def test_of_the_last_hour_only_the_newest_fifty_stay_but_none_younger_than_ten_minutes_goes() -> None:
    snapshots = [at(ago_s=3000 - n, number=n) for n in range(100)] + [at(ago_s=500 - n, number=200 + n) for n in range(80)]
    gone = set(plan_expiry(snapshots, Retention(), now=NOW))
    assert gone == set(range(100))  # the young ones alone are more than fifty, and the last of the hour is one of them
    assert not gone & set(range(200, 280))


def test_older_ones_are_thinned_to_one_an_hour_then_one_a_day_then_none() -> None:
    ages_h = [5.1, 5.2, 30.1, 30.2, 62, 63, 24 * 29, 24 * 31]
    snapshots = [at(ago_s=h * 3600, number=n) for n, h in enumerate(ages_h)] + [at(ago_s=1, number=99)]
    assert set(plan_expiry(snapshots, Retention(), now=NOW)) == {1, 3, 5, 7}


def test_tags_and_the_newest_always_stay() -> None:
    snapshots = [at(ago_s=400 * 86_400, number=1), at(ago_s=399 * 86_400, number=2)]
    assert plan_expiry(snapshots, Retention(), now=NOW, protected={1}) == ()
    assert plan_expiry(snapshots, Retention(), now=NOW) == (1,)


@given(st.lists(st.integers(0, 60 * 86_400), max_size=200), st.integers(0, 5))
def test_a_second_thinning_at_the_same_moment_finds_nothing_more(ages_s: list[int], tagged: int) -> None:
    snapshots = [at(ago_s=age, number=n) for n, age in enumerate(ages_s)]
    protected = frozenset(range(tagged))
    gone = set(plan_expiry(snapshots, Retention(), now=NOW, protected=protected))
    left = [s for s in snapshots if s.snapshot_id not in gone]
    assert plan_expiry(left, Retention(), now=NOW, protected=protected) == ()
    assert not gone & protected
