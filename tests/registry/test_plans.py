"""Planning: the pruned plan is the whole list filtered by a plain predicate, now and at every earlier number."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import strategies
from builders import (
    DAILY,
    LONG,
    ORDERS,
    TIMESTAMP,
    fake_file,
    fresh_name,
    grow_schema,
    make_table,
    make_view,
    new_partition,
    operation,
    promote,
    publish,
    stage,
    within,
)
from lakebed.core.errors import InvalidValueError, TableNotFoundError
from lakebed.core.files import ColumnStatistics
from lakebed.core.schema import bounds
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, Primitive
from lakebed.registry.files.deletion_queue import claim_expired, finalize_deleted
from lakebed.registry.journal.changes import last_journal_numbers
from lakebed.registry.partitions.publish import publish_partition
from lakebed.registry.queries.plans import ColumnRange, find_number_at, read_plan
from lakebed.registry.tables.lake_tables import TableSpec, create_table
from planning import plan_files
from retiring import retire_by_ids

if TYPE_CHECKING:
    from lakebed.core.files import NewFile
    from lakebed.core.schema.bounds import Value
    from lakebed.registry.registry import Registry
    from lakebed.testing import FixedClock

DOUBLE, STRING = Primitive(name="double"), Primitive(name="string")
KINDS = {1: LONG, 2: TIMESTAMP, 3: DOUBLE, 4: STRING}  # the first three are indexed
WIDE = Schema(fields=tuple(Field(field_id=i, name=f"c{i}", type=kind) for i, kind in KINDS.items()))
Range = tuple[Any, Any]  # of values, closed; None = open


@st.composite
def value_ranges(draw: st.DrawFn, kind: Primitive, *, open_ends: bool) -> Range:
    values = strategies.values_of(kind) if kind is not STRING else st.text("abc", max_size=3)
    low, high = sorted((draw(values), draw(values)), key=lambda v: bounds.encode(kind, v) or b"")
    if open_ends:
        return draw(st.sampled_from([(low, high), (low, None), (None, high), (low, low), (None, None)]))
    return low, high


columns_of_files = st.fixed_dictionaries({i: st.none() | value_ranges(kind, open_ends=False) for i, kind in KINDS.items()})
questions = st.dictionaries(st.sampled_from([*KINDS]), st.none(), max_size=3).flatmap(
    lambda asked: st.fixed_dictionaries({i: value_ranges(KINDS[i], open_ends=True) for i in asked})
)


def statistics(field_id: int, known: Range) -> ColumnStatistics:
    kind, (low, high) = KINDS[field_id], known
    return ColumnStatistics(
        field_id=field_id, lower=bounds.lower_bound(kind, low), upper=bounds.upper_bound(kind, high),
        lower_coordinate=bounds.coordinate(kind, low), upper_coordinate=bounds.coordinate(kind, high),
    )  # fmt: skip


def with_columns(number: int, columns: dict[int, Range | None], *, partition_path: str = "") -> NewFile:
    made = tuple(statistics(i, known) for i, known in columns.items() if known is not None)
    return replace(fake_file(number, partition_path=partition_path), columns=made)


def column_range(field_id: int, asked: Range) -> ColumnRange:
    def coordinate(value: Value | None) -> float | None:
        return None if value is None else bounds.coordinate(KINDS[field_id], value)

    low, high = asked
    return ColumnRange(
        field_id=field_id, lower=None if low is None else bounds.lower_bound(KINDS[field_id], low),
        upper=None if high is None else bounds.upper_bound(KINDS[field_id], high),
        lower_coordinate=coordinate(low), upper_coordinate=coordinate(high),
    )  # fmt: skip


def may_hold(columns: dict[int, Range | None], question: dict[int, Range]) -> bool:
    """The plain predicate, in the order of the values themselves."""

    def key(value: Value) -> Any:
        return value.encode() if isinstance(value, str) else value

    for field_id, (low, high) in question.items():
        known = columns[field_id]
        if known is None:
            continue
        if low is not None and key(known[1]) < key(low):
            return False
        if high is not None and key(known[0]) > key(high):
            return False
    return True


HUGE = {1: (-(2**63), 2**63 - 1), 2: None, 3: (1e300, float("inf")), 4: None}
TINY = {1: (2**53 + 1, 2**53 + 1), 2: None, 3: (float("-inf"), -1e300), 4: ("a", "a")}


@settings(max_examples=60)
@example(files=[HUGE, TINY], question={3: (1e300, 1e300)})
@example(files=[HUGE, TINY], question={3: (None, -1e300)})
@example(files=[HUGE, TINY], question={1: (2**53 + 1, 2**53 + 1)})
@example(files=[HUGE, TINY], question={3: (float("inf"), None), 1: (0, None)})
@given(files=st.lists(columns_of_files, max_size=6), question=questions)
def test_pruning_keeps_exactly_the_files_that_may_hold_a_wanted_row(
    registry: Registry, files: list[dict[int, Range | None]], question: dict[int, Range]
) -> None:
    table = create_table(registry, TableSpec(name=fresh_name(), schema=WIDE, index=("c1", "c2", "c3")))
    made = [with_columns(n, columns) for n, columns in enumerate(files)]
    if made:
        publish_partition(registry, replace(new_partition(table, *made), event_range=None), operation())

    plan = plan_files(registry, table.name, ranges=[column_range(i, asked) for i, asked in question.items()])

    assert sorted(plan.paths) == sorted(f.path for f, columns in zip(made, files, strict=True) if may_hold(columns, question))


def test_a_file_without_statistics_is_always_kept(registry: Registry) -> None:
    table = make_table(registry)
    blind = replace(fake_file(1), columns=())
    publish(registry, table, blind, fake_file(2))

    plan = plan_files(registry, ORDERS, ranges=[column_range(1, (10**9, 10**9))])

    assert plan.paths == [blind.path]


def test_files_of_a_column_that_came_later_are_kept(registry: Registry) -> None:
    table = make_table(registry)
    old = fake_file(1)
    publish(registry, table, old)
    grow_schema(registry, field_id=4)

    assert plan_files(registry, ORDERS, ranges=[column_range(4, ("x", "y"))]).paths == [old.path]


def test_partition_paths_narrow_the_plan(registry: Registry) -> None:
    table = make_table(registry)
    files = {path: fake_file(n, partition_path=path) for n, path in enumerate(["", "day=1", "day=2"])}
    publish(registry, table, *files.values())

    for asked in ([], [""], ["day=1"], ["day=2", ""], ["nothing"]):
        plan = plan_files(registry, ORDERS, partition_paths=asked)
        assert sorted(plan.paths) == sorted(files[p].path for p in asked if p in files)
    both = plan_files(registry, ORDERS, partition_paths=["day=1", "day=2"], ranges=[column_range(1, (2000, None))])
    assert both.paths == [files["day=2"].path]


def test_a_plan_of_one_table_never_names_files_of_another(registry: Registry) -> None:
    one, two = make_table(registry), make_table(registry, fresh_name())
    publish(registry, one, fake_file(1))
    theirs = fake_file(1)
    publish(registry, two, theirs)

    assert plan_files(registry, two.name, ranges=[column_range(1, (1000, 1999))]).paths == [theirs.path]


def test_files_of_a_staged_version_are_invisible_until_it_serves(registry: Registry) -> None:
    view = make_view(registry)
    old, new = fake_file(1), fake_file(2)
    publish(registry, view, old, hours=(0, 1))
    staged = stage(registry)
    publish(registry, view, new, hours=(0, 1), schema_hash=staged)
    assert plan_files(registry, DAILY).paths == [old.path]

    promote(registry, staged)

    assert plan_files(registry, DAILY).paths == [new.path]


def test_one_snapshot_serves_a_join_of_two_tables(registry: Registry) -> None:
    one, two = make_table(registry), make_table(registry, fresh_name())
    publish(registry, one, fake_file(1))
    with registry.read() as reader:
        first = read_plan(reader, one.name)
        publish(registry, one, fake_file(2))
        publish(registry, two, fake_file(3))

        assert read_plan(reader, two.name).paths == []
        assert read_plan(reader, one.name) == first


@dataclass
class History:
    """What was live after each transaction, by the number of its first change."""

    live: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.at: list[tuple[int, frozenset[str]]] = [(0, frozenset())]

    def note(self, number: int, live: frozenset[str]) -> None:
        self.live = live
        self.at.append((number, live))

    def find(self, number: int) -> frozenset[str]:
        return next(live for stamp, live in reversed(self.at) if stamp <= number)


def make_history(registry: Registry, moves: int, seed: int) -> tuple[int, History]:
    rng, table, history = random.Random(seed), make_table(registry), History()
    parts: dict[int, frozenset[str]] = {}
    for number in range(moves):
        victims = frozenset(rng.sample(sorted(parts), k=min(len(parts), rng.choice([0, 0, 1, 2]))))
        gone = frozenset(path for v in victims for path in parts.pop(v))
        if victims and rng.random() < 0.5:
            stamp = last_journal_numbers(registry)[table.table_id] + 1
            within(registry, lambda tx, v=victims: retire_by_ids(tx, ORDERS, v, grace_us=0))  # type: ignore[misc]
            history.note(stamp, history.live - gone)
        else:
            files = [fake_file(number * 10 + i) for i in range(rng.randint(1, 3))]
            done = publish(registry, table, *files, hours=(number, number + 1), replacing=victims, grace_us=0)
            parts[done.partition_id] = frozenset(f.path for f in files)
            history.note(done.journal_number, (history.live - gone) | parts[done.partition_id])
    return table.table_id, history


@pytest.mark.parametrize("seed", range(3))
def test_as_of_any_number_reads_what_was_live_then(registry: Registry, seed: int) -> None:
    table_id, history = make_history(registry, 12, seed)

    for number in range(last_journal_numbers(registry)[table_id] + 1):
        plan = plan_files(registry, ORDERS, as_of=number)
        assert (plan.journal_number, frozenset(plan.paths)) == (number, history.find(number))
    assert frozenset(plan_files(registry, ORDERS).paths) == history.live


def test_as_of_prunes_as_the_present_does(registry: Registry) -> None:
    table = make_table(registry)
    files = [fake_file(n) for n in range(3)]
    done = [publish(registry, table, f) for f in files]
    within(registry, lambda tx: retire_by_ids(tx, ORDERS, {done[1].partition_id}))

    asked = [column_range(1, (1000, 1999))]

    assert plan_files(registry, ORDERS, ranges=asked).paths == []
    assert plan_files(registry, ORDERS, ranges=asked, as_of=done[2].journal_number).paths == [files[1].path]


def test_a_number_whose_files_may_be_gone_is_refused_with_what_is_kept(registry: Registry) -> None:
    table_id, history = make_history(registry, 10, seed=4)
    claim = claim_expired(registry, limit=2)
    finalize_deleted(registry, claim, [f.path for f in claim.files])
    ((horizon,),) = registry.query("SELECT horizon_seq FROM table_seq")
    last = last_journal_numbers(registry)[table_id]

    for number in (horizon - 1, 0, last + 1, -1):
        with pytest.raises(InvalidValueError, match=rf"shop\.orders: journal number {number} cannot be read; kept are {horizon} to {last}"):
            plan_files(registry, ORDERS, as_of=number)
    for number in range(horizon, last + 1):
        assert frozenset(plan_files(registry, ORDERS, as_of=number).paths) == history.find(number)


def test_a_time_is_read_as_the_last_number_before_it(timed_registry: Registry, clock: FixedClock) -> None:
    table, files = make_table(timed_registry), [fake_file(n) for n in range(3)]
    moments = []
    for file in files:
        clock.advance(seconds=60)
        publish(timed_registry, table, file)
        moments.append(clock.micros)

    for number, moment in enumerate(moments, 1):
        found = find_number_at(timed_registry, table.table_id, moment + 1)
        assert sorted(plan_files(timed_registry, ORDERS, as_of=found).paths) == sorted(f.path for f in files[:number])
    with pytest.raises(InvalidValueError, match="the table had no file yet at 2026-03-01T12:00:59Z"):
        find_number_at(timed_registry, table.table_id, moments[0] - 1_000_000)


def test_planning_a_missing_table_is_refused(registry: Registry) -> None:
    with pytest.raises(TableNotFoundError, match=r"shop\.orders"):
        plan_files(registry, ORDERS)


def test_an_empty_table_has_an_empty_plan(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, hours=(0, 1))

    assert plan_files(registry, ORDERS).paths == []
    assert plan_files(registry, ORDERS, ranges=[column_range(1, (0, None))]).paths == []
