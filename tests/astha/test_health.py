"""Health checks as a value: asked in time, counted as failed when silent, asked again only after an answer."""

from __future__ import annotations

from lakebed.astha.health_monitor import Health

WELL = Health(every_s=5.0, timeout_s=2.0, due=5.0)


def test_it_is_asked_every_interval() -> None:
    assert not WELL.must_ask(4.9)
    assert WELL.must_ask(5.0)
    assert WELL.asked(5.0).answered(5.1).due == 10.1


def test_no_second_check_starts_while_one_waits() -> None:
    asked = WELL.asked(5.0)

    assert not asked.must_ask(100.0)
    assert not asked.silent(7.0).must_ask(100.0)


def test_silence_counts_at_the_timeout_and_then_every_interval() -> None:
    asked = WELL.asked(5.0)
    assert not asked.is_silent(6.9)
    assert asked.is_silent(7.0)

    silent = asked.silent(7.0)

    assert not silent.well
    assert not silent.is_silent(11.9)
    assert silent.is_silent(12.0)


def test_a_late_answer_is_an_answer() -> None:
    back = WELL.asked(5.0).silent(7.0).answered(9.0)

    assert back.well
    assert back.must_ask(14.0)


def test_a_problem_is_reported() -> None:
    ill = WELL.asked(5.0).answered(5.1, "disk full")

    assert (ill.well, ill.problem) == (False, "disk full")


def test_an_open_breaker_brings_the_next_check_forward() -> None:
    assert WELL.sooner(3.0).must_ask(3.0)
    assert not WELL.asked(5.0).sooner(1.0).must_ask(6.0)
