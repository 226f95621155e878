"""Whatever fails, crashes and is delivered again: every lane sees every change in order, and the state is the registry's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorders import UPDATER, SickError, Stepper

from builders import fake_file, fresh_name, make_table, publish, seal_pending, within
from lakebed.core.events import COMPONENT_SUBSCRIPTIONS, ChangeKind, Component
from lakebed.core.rows import TableFiles, list_columns
from lakebed.registry.codec import decode_row
from lakebed.registry.journal.changes import last_journal_numbers, read_changes
from retiring import retire_by_ids

if TYPE_CHECKING:
    from lakebed.core.events import Event, RegistryTable
    from lakebed.core.rows import Row
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 5)),
        st.tuples(st.just("fail"), st.integers(1, 40)),  # so many calls in a row
        st.tuples(st.just("deliver"), st.integers(0, 6)),  # seconds pass
        st.tuples(st.sampled_from(["seal", "retire", "save", "crash", "ill", "well"]), st.just(0)),
    ),
    max_size=25,
)


@dataclass
class Mirror:
    """The files of one table by events and refreshes; its state outlives every crash of Astha."""

    registry: Registry
    table_id: int
    state: dict[int, TableFiles] = field(default_factory=dict)
    order: list[list[int]] = field(default_factory=lambda: [[]])  # numbers seen, a new list after each refresh and crash
    failures: int = 0

    component: Component = UPDATER

    def on_event(self, event: Event[Row]) -> None:
        if event.table_id != self.table_id:
            return
        self._fail()
        self.order[-1].append(event.sequence)
        if isinstance(event.data, TableFiles):
            if event.operation is ChangeKind.DELETE:
                self.state.pop(event.data.id, None)
            else:
                self.state[event.data.id] = event.data

    def on_refresh(self, table_id: int) -> int:
        with self.registry.read() as reader:
            mark = last_journal_numbers(reader)[table_id]
            if table_id == self.table_id:
                self._fail()
                columns = ", ".join(list_columns(TableFiles))
                rows = reader.query(f"SELECT {columns} FROM table_files WHERE table_id = :id", {"id": table_id})
                self.state = {row[0]: decode_row(TableFiles, row) for row in rows}
                self.order.append([-mark])
        return mark

    def on_health(self) -> None: ...

    def get_subscribed_tables(self) -> frozenset[RegistryTable]:
        return COMPONENT_SUBSCRIPTIONS[UPDATER]

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise SickError


def write(registry: Registry, table: LakeTable, what: str, files: int) -> None:
    if what == "publish":
        publish(registry, table, *[fake_file(n) for n in range(files)])
    elif what == "seal":
        seal_pending(registry, table.name)
    else:
        rows = registry.query("SELECT min(id) FROM partitions WHERE table_id = :id", {"id": table.table_id})
        if rows[0][0] is not None:
            within(registry, lambda tx: retire_by_ids(tx, table.name, {rows[0][0]}), table.name)


def act(registry: Registry, table: LakeTable, stepper: Stepper, mirror: Mirror, action: tuple[str, int]) -> Stepper:
    match action:
        case ("publish" | "seal" | "retire") as what, files:
            write(registry, table, what, files)
        case "fail", calls:
            mirror.failures = calls
        case "deliver", seconds:
            stepper.advance(float(seconds))
        case "ill", _:
            for _ in range(3):
                stepper.delivery.heard(UPDATER, well=False, now=stepper.time.now)
        case "well", _:
            stepper.time.now += 60.0
            stepper.delivery.heard(UPDATER, well=True, now=stepper.time.now)
        case "save", _:
            stepper.save()
        case _:
            mirror.order.append([])
            return Stepper(registry, {UPDATER: mirror})
    return stepper


def come_to_rest(stepper: Stepper, mirror: Mirror) -> None:
    mirror.failures = 0
    stepper.time.now += 60.0
    stepper.delivery.heard(UPDATER, well=True, now=stepper.time.now)
    stepper.delivery.unpark(UPDATER, mirror.table_id)
    for _ in range(3):
        stepper.advance(10.0)
    stepper.save()


def check(registry: Registry, actions: list[tuple[str, int]]) -> None:
    table = make_table(registry, fresh_name())
    mirror = Mirror(registry, table.table_id)
    stepper = Stepper(registry, {UPDATER: mirror})
    for action in actions:
        stepper = act(registry, table, stepper, mirror, action)
    come_to_rest(stepper, mirror)

    wanted = [e for e in read_changes(registry, table.table_id, after=0, limit=10_000) if e.table in COMPONENT_SUBSCRIPTIONS[UPDATER]]
    numbers = [e.sequence for e in wanted]
    reached = 0
    for run in mirror.order:
        if run and run[0] < 0:
            reached, run = max(reached, -run[0]), run[1:]  # noqa: PLW2901
        if run:
            first = numbers.index(run[0])
            assert first == 0 or numbers[first - 1] <= reached, "a change was skipped"
            assert run == numbers[first : first + len(run)], "changes came out of order"
            reached = max(reached, run[-1])
    assert reached >= numbers[-1]
    fresh = Mirror(registry, table.table_id)
    fresh.on_refresh(table.table_id)
    assert mirror.state == fresh.state


@given(actions=ACTIONS)
@settings(max_examples=25)
def test_any_history_ends_in_the_registrys_state(registry: Registry, actions: list[tuple[str, int]]) -> None:
    check(registry, actions)


@pytest.mark.long
@given(actions=ACTIONS)
@settings(max_examples=400)
def test_many_histories_end_in_the_registrys_state(registry: Registry, actions: list[tuple[str, int]]) -> None:
    check(registry, actions)
