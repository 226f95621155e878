"""A lane in several hands: its own thread's, the monitor's, the supervisor's."""

from __future__ import annotations

import threading

from recorders import UPDATER

from lakebed.astha.delivery.lanes import Lane


def new_lane() -> Lane:
    return Lane(component=UPDATER, table_id=1, end=1_000_000)


def test_an_answer_of_an_epoch_that_is_over_moves_nothing() -> None:
    lane = new_lane()
    assert lane.handled(1, epoch=0)

    lane.must_refresh()

    assert not lane.handled(2, epoch=0)
    lane.skipped(3, epoch=0)
    assert (lane.position, lane.answered, lane.needs_refresh) == (1, 1, True)


def test_skipping_never_goes_back() -> None:
    lane = new_lane()
    lane.skipped(5, epoch=0)

    lane.skipped(4, epoch=0)

    assert lane.position == 5


def test_while_answers_come_in_each_counts_before_the_refresh_or_not_at_all() -> None:
    lane = new_lane()
    accepted: list[int] = []
    started, stopped = threading.Event(), threading.Event()

    def answer() -> None:
        sequence = 0
        while not stopped.is_set():
            sequence += 1
            if lane.handled(sequence, epoch=0):
                accepted.append(sequence)
                started.set()

    thread = threading.Thread(target=answer)
    thread.start()
    assert started.wait(10)
    lane.must_refresh()
    frozen = lane.to_save()
    stopped.set()
    thread.join()

    assert lane.to_save() == frozen
    assert accepted == list(range(1, frozen.seq + 1))
    assert lane.take_answered() == frozen.seq
    assert lane.take_answered() == 0
