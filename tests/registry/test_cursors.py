"""Who has read how far: cursors that fence, and a journal that is purged only behind the slowest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from builders import ORDERS, count, fake_file, make_table, publish, within
from cursors import save_cursor
from lakebed.core.errors import JournalGapError
from lakebed.core.events import Component
from lakebed.registry.journal.changes import Cursor, last_journal_numbers, list_cursors, purge_journal, read_changes

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry

UPDATER, COMPACTOR = Component.ICEBERG_UPDATER, Component.COMPACTOR


@pytest.fixture
def last(registry: Registry) -> int:
    """A table whose journal has some changes: the number of the last one."""
    publish(registry, make_table(registry), *[fake_file(n) for n in range(20)])
    return last_journal_numbers(registry)[1]


def save(registry: Registry, component: Component, seq: int, epoch: int = 0) -> bool:
    return within(registry, lambda tx: save_cursor(tx, component, 1, seq=seq, epoch=epoch))


def save_all(registry: Registry, seq: int, *, but: Component | None = None) -> None:
    for component in Component:
        if component is not but:
            save(registry, component, seq)


def numbers(registry: Registry) -> list[int]:
    return [row[0] for row in registry.query("SELECT seq FROM change_log ORDER BY seq")]


@pytest.mark.usefixtures("last")
def test_every_component_starts_at_the_beginning(registry: Registry) -> None:
    assert list_cursors(registry, 1) == {c: Cursor(component=c, seq=0, epoch=0, needs_refresh=False) for c in Component}


def test_the_journal_is_purged_below_the_slowest_cursor_only(registry: Registry, last: int) -> None:
    save_all(registry, 12, but=COMPACTOR)
    save(registry, COMPACTOR, 4)

    assert purge_journal(registry, 1) == 4

    assert numbers(registry) == list(range(5, last + 1))
    assert [e.sequence for e in read_changes(registry, 1, after=4)] == list(range(5, last + 1))


def test_a_component_that_never_read_keeps_everything(registry: Registry, last: int) -> None:
    save_all(registry, last, but=COMPACTOR)

    assert purge_journal(registry, 1) == 0

    assert numbers(registry) == list(range(1, last + 1))


def test_once_every_cursor_has_passed_nothing_is_stored(registry: Registry, last: int) -> None:
    save_all(registry, last)

    assert purge_journal(registry, 1) == last
    assert purge_journal(registry, 1) == 0

    assert count(registry, "change_log") == 0
    assert read_changes(registry, 1, after=last) == []


def test_a_reader_behind_what_was_purged_gets_an_error_about_the_gap(registry: Registry, last: int) -> None:
    save_all(registry, last)
    purge_journal(registry, 1)

    with pytest.raises(JournalGapError, match="refresh"):
        read_changes(registry, 1, after=last - 1)
    publish(registry, make_table(registry, type(ORDERS)("shop", "returns")), fake_file(99))
    assert read_changes(registry, 2, after=0)[0].sequence == 1


def test_numbers_go_on_after_a_purge(registry: Registry, last: int) -> None:
    save_all(registry, last)
    purge_journal(registry, 1)

    within(registry, lambda tx: tx.run("UPDATE tables SET state = 'degraded'"))

    assert [e.sequence for e in read_changes(registry, 1, after=last)] == [last + 1]


def test_past_the_cap_the_laggard_must_refresh_and_no_longer_holds_the_journal(registry: Registry, last: int) -> None:
    save_all(registry, last, but=COMPACTOR)
    save(registry, COMPACTOR, 2, epoch=4)

    assert purge_journal(registry, 1, cap=last - 3) == last

    assert list_cursors(registry, 1)[COMPACTOR] == Cursor(component=COMPACTOR, seq=2, epoch=5, needs_refresh=True)
    assert not save(registry, COMPACTOR, 3, epoch=4)
    with pytest.raises(JournalGapError):
        read_changes(registry, 1, after=2)


def test_a_laggard_within_the_cap_keeps_what_it_has_not_read(registry: Registry, last: int) -> None:
    save_all(registry, last, but=COMPACTOR)
    save(registry, COMPACTOR, 2)

    purge_journal(registry, 1, cap=last - 2)

    assert not list_cursors(registry, 1)[COMPACTOR].needs_refresh
    assert numbers(registry)[0] == 3


def test_after_its_refresh_the_laggard_is_a_reader_like_the_others(registry: Registry, last: int) -> None:
    save_all(registry, last, but=COMPACTOR)
    purge_journal(registry, 1, cap=1)
    epoch = list_cursors(registry, 1)[COMPACTOR].epoch

    assert save(registry, COMPACTOR, last, epoch=epoch)

    assert list_cursors(registry, 1)[COMPACTOR] == Cursor(component=COMPACTOR, seq=last, epoch=epoch, needs_refresh=False)


def test_a_long_journal_is_purged_in_bounded_transactions(registry: Registry) -> None:
    publish(registry, make_table(registry), *[fake_file(n) for n in range(6000)])
    end = last_journal_numbers(registry)[1]
    save_all(registry, end)

    assert purge_journal(registry, 1) == end

    assert registry.query("SELECT purged_seq, last_seq FROM table_seq") == [(end, end)]
