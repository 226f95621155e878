"""At most 30 calls, exponential with full jitter, capped; what cannot get better is not tried again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorders import SickError

from lakebed.astha.retry import Again, GiveUp, RetryPolicy, is_permanent
from lakebed.core.errors import (
    CommitTimeoutError,
    FooterCorruptError,
    InvalidValueError,
    LakebedError,
    RegistryUnavailableError,
    VictimsChangedError,
)

POLICY = RetryPolicy()
PERMANENT = [InvalidValueError("no"), FooterCorruptError("broken")]
TRANSIENT: list[BaseException] = [
    SickError(), LakebedError("?"), RegistryUnavailableError("away"), VictimsChangedError("t", missing=(1,)), KeyError("x"), SystemExit(1),
    CommitTimeoutError("t", group=2, committed=1, timeout_s=1.0, holder=None),
]  # fmt: skip


def test_the_limit_doubles_from_50_ms_to_5_s() -> None:
    assert [POLICY.limit_s(n) for n in range(1, 10)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert POLICY.limit_s(10_000) == 5.0


@given(calls=st.integers(1, 29), draw=st.floats(0, 1, exclude_max=True))
def test_the_delay_is_any_part_of_the_limit(calls: int, draw: float) -> None:
    decision = POLICY.decide(SickError(), calls=calls, draw=draw)

    assert isinstance(decision, Again)
    assert decision.delay_s == draw * POLICY.limit_s(calls)
    assert 0 <= decision.delay_s <= 5.0


def test_the_thirtieth_failure_is_the_last() -> None:
    assert isinstance(POLICY.decide(SickError(), calls=29, draw=0.5), Again)
    assert POLICY.decide(SickError(), calls=30, draw=0.5) == GiveUp(permanent=False)


@pytest.mark.parametrize("error", PERMANENT, ids=lambda e: type(e).__name__)
def test_a_permanent_error_is_not_tried_again(error: BaseException) -> None:
    assert is_permanent(error)
    assert POLICY.decide(error, calls=1, draw=0.5) == GiveUp(permanent=True)


@pytest.mark.parametrize("error", TRANSIENT, ids=lambda e: type(e).__name__)
def test_everything_else_may_get_better(error: BaseException) -> None:
    assert not is_permanent(error)
    assert isinstance(POLICY.decide(error, calls=1, draw=0.5), Again)
