"""Pages of the journal: read once, shared by lanes, bounded however many changes wait."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from recorders import COMPACTOR, CountedPages, Stepper, recorders

from builders import fake_file, make_table, publish, within
from lakebed.core.errors import JournalGapError
from lakebed.core.events import Event
from lakebed.core.names import TableName
from lakebed.core.rows import Row
from lakebed.registry.journal.changes import last_journal_numbers, read_changes

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry


@pytest.fixture
def end(registry: Registry) -> int:
    publish(registry, make_table(registry), *[fake_file(n) for n in range(40)])
    return last_journal_numbers(registry)[1]


def kept(pages: CountedPages) -> int:
    return sum(len(page.events) for of_table in pages._kept.values() for page in of_table)


def test_pages_follow_one_another_without_a_gap(registry: Registry, end: int) -> None:
    pages, found = CountedPages(registry, page_events=7, tables=4), list[Event[Row]]()
    while events := pages.read(1, after=len(found)):
        found += events

    assert found == read_changes(registry, 1, after=0)
    assert (len(found), pages.read_count) == (end, end)


@pytest.mark.usefixtures("end")
def test_a_lane_in_the_middle_of_a_page_reads_what_is_left_of_it(registry: Registry) -> None:
    pages = CountedPages(registry, page_events=10, tables=4)
    pages.read(1, after=0)

    assert [e.sequence for e in pages.read(1, after=6)] == [7, 8, 9, 10]
    assert pages.read_count == 10


def test_at_the_end_there_is_nothing_until_something_comes(registry: Registry, end: int) -> None:
    pages = CountedPages(registry, page_events=100, tables=4)
    pages.read(1, after=0)
    assert pages.read(1, after=end) == ()

    within(registry, lambda tx: tx.run("UPDATE tables SET state = 'degraded'"))

    assert [e.sequence for e in pages.read(1, after=end)] == [end + 1]


@pytest.mark.usefixtures("end")
def test_lanes_that_ask_at_once_cause_one_reading(registry: Registry) -> None:
    pages = CountedPages(registry, page_events=100, tables=4)
    threads = [threading.Thread(target=pages.read, args=(1,), kwargs={"after": 0}) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert pages.read_count == last_journal_numbers(registry)[1]


def test_what_is_kept_is_bounded(registry: Registry) -> None:
    tables = [make_table(registry, TableName("shop", f"t{n}")) for n in range(6)]
    for table in tables:
        publish(registry, table, *[fake_file(n) for n in range(60)])
    pages = CountedPages(registry, page_events=5, tables=2)
    for table in tables:
        for after in range(0, 60, 5):
            pages.read(table.table_id, after=after)

    assert kept(pages) <= 2 * 3 * 5


@pytest.mark.usefixtures("end")
def test_a_gap_is_reported_to_every_lane(registry: Registry) -> None:
    within(registry, lambda tx: tx.run("DELETE FROM change_log WHERE seq = 5"))
    pages = CountedPages(registry, page_events=100, tables=4)

    for _ in range(2):
        with pytest.raises(JournalGapError):
            pages.read(1, after=0)
    assert pages.read(1, after=5)[0].sequence == 6


def test_a_component_that_stands_still_costs_no_memory(registry: Registry) -> None:
    """However far it is behind: the journal holds what it has not read, not this process."""
    table, components = make_table(registry), recorders(registry)
    stepper = Stepper(registry, components)
    stepper.settle()
    for _ in range(3):
        stepper.delivery.heard(COMPACTOR, well=False, now=stepper.time.now)
    for _ in range(20):
        publish(registry, table, *[fake_file(n) for n in range(100)])
        stepper.settle()

    assert stepper.delivery.lanes[COMPACTOR][1].position < last_journal_numbers(registry)[1] - 2000
    assert kept(stepper.pages) <= 3 * stepper.options.page_events
    assert components[COMPACTOR].seen == []
