"""The watcher: a hint makes it read the ends of the tables that it names; all ends are read by the sweep, and for hints that name none."""

from __future__ import annotations

import queue
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest
from recorders import PATIENCE_S, Stepper, await_that, recorders

from builders import fake_file, make_table, publish
from lakebed.astha.registry_watcher import RegistryWatcher
from lakebed.core.names import TableName
from lakebed.registry.connect import open_backend
from lakebed.registry.journal.changes import _ALL_ENDS, _SOME_ENDS, last_journal_numbers
from lakebed.registry.journal.notifications import ANY_TABLE, Hint, open_hints
from lakebed.registry.registry import Registry
from lakebed.testing import SteppedBackend, Steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.astha.delivery.delivery import Delivery
    from lakebed.registry.journal.notifications import Hints
    from lakebed.registry.tables.lake_tables import LakeTable

NEVER_S = 3600.0


class GivenHints:
    """Hints that the test gives."""

    listening = True

    def __init__(self) -> None:
        self.given: queue.Queue[Hint] = queue.Queue()

    def wait(self, timeout_s: float) -> Hint | None:
        try:
            return self.given.get(timeout=timeout_s) if timeout_s else self.given.get_nowait()
        except queue.Empty:
            return None

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def tables(registry: Registry) -> list[LakeTable]:
    return [make_table(registry, TableName("shop", f"t{n}")) for n in range(3)]


@pytest.fixture
def delivery(registry: Registry, tables: list[LakeTable]) -> Delivery:
    assert len(tables) == 3
    return Stepper(registry, recorders(registry)).delivery


@contextmanager
def watching(url: str, delivery: Delivery, hints: Hints, *, sweep_s: float = NEVER_S) -> Iterator[Steps]:
    """A watcher past its first sweep; what it sends to the database is counted."""
    steps = Steps()
    with closing(Registry(SteppedBackend(open_backend(url), steps))) as counted:
        watcher = RegistryWatcher(counted, delivery, sweep_s=sweep_s, on_death=lambda: None, hints=hints)
        watcher.start()
        try:
            await_that(lambda: watcher._sweep_at > 0.0, "the first sweep")
            yield steps
        finally:
            watcher.stop()
            watcher.join(time.monotonic() + PATIENCE_S)
        assert watcher.error is None


def knows_end(registry: Registry, delivery: Delivery, table: LakeTable) -> bool:
    return delivery._ends[table.table_id] == last_journal_numbers(registry)[table.table_id]


def test_a_hint_of_one_table_reads_the_end_of_no_other(url: str, registry: Registry, tables: list[LakeTable], delivery: Delivery) -> None:
    hints = GivenHints()
    with watching(url, delivery, hints) as steps:
        for table in tables:
            publish(registry, table, fake_file(table.table_id))
        hints.given.put(Hint(tables=frozenset((tables[1].table_id,))))
        await_that(lambda: knows_end(registry, delivery, tables[1]))

        assert steps.done == [_ALL_ENDS, _SOME_ENDS]
        assert [knows_end(registry, delivery, table) for table in tables] == [False, True, False]


def test_a_notification_reads_the_end_of_no_other_table(
    url: str, kind: str, registry: Registry, tables: list[LakeTable], delivery: Delivery
) -> None:
    if kind == "sqlite":
        pytest.skip("its hints cannot tell this process's commits from those of others")
    hints = open_hints(registry)
    with watching(url, delivery, hints) as steps:
        publish(registry, tables[0], fake_file(1))
        await_that(lambda: knows_end(registry, delivery, tables[0]))

        assert set(steps.done[1:]) == {_SOME_ENDS}


def test_a_burst_of_hints_is_one_reading(url: str, registry: Registry, tables: list[LakeTable], delivery: Delivery) -> None:
    hints = GivenHints()
    for table in tables:
        publish(registry, table, fake_file(table.table_id))
        hints.given.put(Hint(tables=frozenset((table.table_id,))))

    with watching(url, delivery, hints) as steps:
        await_that(lambda: len(steps.done) == 2 and hints.given.empty())

        assert steps.done == [_ALL_ENDS, _SOME_ENDS]


def test_a_hint_that_names_no_table_reads_every_end(url: str, registry: Registry, tables: list[LakeTable], delivery: Delivery) -> None:
    hints = GivenHints()
    with watching(url, delivery, hints) as steps:
        for table in tables:
            publish(registry, table, fake_file(table.table_id))
        hints.given.put(ANY_TABLE)
        await_that(lambda: all(knows_end(registry, delivery, table) for table in tables))

        assert steps.done == [_ALL_ENDS, _ALL_ENDS]


def test_hints_that_name_no_table_wait_until_a_look_at_all_tables_is_paid_for(
    registry: Registry, tables: list[LakeTable], delivery: Delivery
) -> None:
    watcher = RegistryWatcher(registry, delivery, sweep_s=NEVER_S, on_death=lambda: None, hints=GivenHints())
    watcher._sweep_when_due(time.monotonic() - 1.0)  # as if it had taken a second
    publish(registry, tables[0], fake_file(1))
    watcher._follow(ANY_TABLE)

    watcher._sweep_when_due(watcher._free_at - 0.001)
    assert not knows_end(registry, delivery, tables[0])
    watcher._sweep_when_due(watcher._free_at)

    assert knows_end(registry, delivery, tables[0])


def test_without_any_hint_the_sweep_finds_every_change(url: str, registry: Registry, tables: list[LakeTable], delivery: Delivery) -> None:
    with watching(url, delivery, GivenHints(), sweep_s=0.01):
        publish(registry, tables[2], fake_file(1))

        await_that(lambda: knows_end(registry, delivery, tables[2]), "the sweep")
