"""The breaker as a value: closed -> open -> half-open -> closed or open, by failures, health and timeouts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from lakebed.astha.circuit_breaker import BreakerPolicy, BreakerState, CircuitBreaker

if TYPE_CHECKING:
    from collections.abc import Sequence

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN
MOVES = {(CLOSED, OPEN), (OPEN, HALF_OPEN), (HALF_OPEN, CLOSED), (HALF_OPEN, OPEN)}


def fail(breaker: CircuitBreaker, tables: Sequence[int], *, now: float = 0.0) -> CircuitBreaker:
    for table in tables:
        breaker = breaker.after_failure(table, now)
    return breaker


def opened(now: float = 0.0) -> CircuitBreaker:
    return fail(CircuitBreaker(), [1, 2, 1, 2, 1], now=now)


def test_five_failures_over_two_tables_open_it() -> None:
    almost = fail(CircuitBreaker(), [1, 2, 1, 2])
    assert almost.state is CLOSED

    breaker = almost.after_failure(1, 0.0)

    assert breaker.state is OPEN
    assert not breaker.allows
    assert breaker.reason == "5 calls failed over 2 tables"


def test_one_poisoned_table_never_opens_it() -> None:
    assert fail(CircuitBreaker(), [7] * 1000).state is CLOSED


def test_a_second_table_joins_the_failures_of_the_first() -> None:
    assert fail(CircuitBreaker(), [7] * 1000 + [8]).state is OPEN


def test_a_success_forgets_the_failures() -> None:
    assert fail(fail(CircuitBreaker(), [1, 2, 1, 2]).after_success(), [1, 2, 1, 2]).state is CLOSED


def test_failures_of_long_ago_do_not_count() -> None:
    assert fail(fail(CircuitBreaker(), [1, 2, 1, 2], now=0.0), [1], now=61.0).state is CLOSED


def test_what_it_remembers_of_failures_is_bounded() -> None:
    assert len(fail(CircuitBreaker(), [7] * 1000).failed) <= 10


def test_three_failed_health_checks_in_a_row_open_it() -> None:
    breaker = CircuitBreaker()
    for well in (False, False, True, False, False):
        breaker = breaker.after_health(well=well, now=0.0)
        assert breaker.state is CLOSED

    assert breaker.after_health(well=False, now=0.0).state is OPEN


def test_silence_of_one_table_never_opens_it() -> None:
    breaker = CircuitBreaker()
    for now in range(1000):
        breaker = breaker.after_silence(7, float(now))

    assert breaker.state is CLOSED


def test_silence_over_two_tables_opens_it() -> None:
    breaker = CircuitBreaker().after_silence(1, 0.0).after_silence(2, 600.0)

    assert (breaker.state, breaker.reason) == (OPEN, "calls of 2 tables were not answered in time")


def test_whatever_is_answered_or_progresses_between_two_silences_proves_that_it_is_alive() -> None:
    silent = CircuitBreaker().after_silence(1, 0.0)

    assert silent.after_success().after_silence(2, 1.0).state is CLOSED
    assert silent.after_progress().after_silence(2, 1.0).state is CLOSED
    assert silent.after_health(well=True, now=0.5).after_silence(2, 1.0).state is OPEN


def test_health_before_the_pause_ends_changes_nothing() -> None:
    assert opened(now=10.0).after_health(well=True, now=10.9).state is OPEN


def test_after_the_pause_health_allows_the_trial() -> None:
    assert opened(now=10.0).after_health(well=True, now=11.0).state is HALF_OPEN


def test_bad_health_after_the_pause_prolongs_it() -> None:
    worse = opened(now=10.0).after_health(well=False, now=11.0)

    assert (worse.state, worse.pause_ends) == (OPEN, 12.0)


def test_the_trial_decides() -> None:
    trial = opened(now=0.0).after_health(well=True, now=1.0)

    assert trial.after_success().state is CLOSED
    assert trial.after_success().opened == 0
    assert trial.after_failure(1, 1.0).state is OPEN
    assert trial.after_silence(1, 1.0).state is OPEN
    assert trial.after_progress() is trial
    assert trial.after_health(well=False, now=1.0).state is OPEN


def test_every_failed_trial_doubles_the_pause_up_to_its_cap() -> None:
    breaker, now, pauses = opened(now=0.0), 0.0, []
    for _ in range(8):
        pauses.append(breaker.pause_ends - now)
        now = breaker.pause_ends
        breaker = breaker.after_health(well=True, now=now).after_failure(1, now)

    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]


def live(breaker: CircuitBreaker, what: str, table: int, now: float) -> CircuitBreaker:
    match what:
        case "fail":
            return breaker.after_failure(table, now)
        case "success":
            return breaker.after_success()
        case "well" | "ill":
            return breaker.after_health(well=what == "well", now=now)
        case "silence":
            return breaker.after_silence(table, now)
        case "progress":
            return breaker.after_progress()
        case _:
            return breaker


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["fail", "silence"]), st.integers(1, 3)),
            st.tuples(st.sampled_from(["success", "progress", "well", "ill", "wait"]), st.just(0)),
        ),
        max_size=60,
    )
)
def test_no_history_makes_another_move(history: list[tuple[str, int]]) -> None:
    breaker, now = CircuitBreaker(policy=BreakerPolicy(pause_cap_s=4.0)), 0.0
    for what, table in history:
        now += 2.0 if what == "wait" else 0.01
        after = live(breaker, what, table, now)
        assert after.state is breaker.state or (breaker.state, after.state) in MOVES
        assert after.allows == (after.state is not OPEN)
        breaker = after
