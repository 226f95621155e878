"""Freshness is algebra: merging and compacting never make a view stale, any other change makes exactly its slices stale.

The model keeps the rows themselves, as sets of numbers: a window is fresh exactly when the view partitions that tile
it were built from the rows that the source holds now.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count as counting
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import HOUR, fake_file, fresh_name, make_table, operation, within
from lakebed.core import fingerprints
from lakebed.core.partitions import NewPartition
from lakebed.core.tables.view_sets import Definition
from lakebed.core.tables.windows import PartitionSummary, State, Window, find_runs, judge, list_windows, span
from lakebed.core.times import DAY_US
from lakebed.registry.open import open_registry
from lakebed.registry.partitions.publish import publish_partition
from lakebed.registry.tables.lake_tables import LakeTable, TableSpec, create_table
from lakebed.registry.tables.view_sets import list_partition_summaries
from lakebed.testing import FixedClock
from retiring import retire_by_ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conftest import Databases
    from lakebed.core.times import TimeRange
    from lakebed.registry.registry import Registry

_NUMBERS = counting(1)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["insert", "empty", "wait", "merge", "compact", "replace", "retire", "build", "merge view"]), st.integers(0, 10**6)
    ),
    min_size=1,
    max_size=25,
)


@dataclass
class Model:
    """A source and a view of it in a real registry, beside the rows that each partition stands for."""

    registry: Registry
    clock: FixedClock
    source: LakeTable
    view: LakeTable
    slice_us: int
    rows: dict[int, frozenset[int]] = field(default_factory=dict)

    def step(self, action: str, choice: int) -> None:
        match action:
            case "insert":
                self.put(self.source, rows=frozenset({next(_NUMBERS)}))
            case "empty":
                self.put(self.source, rows=frozenset())
            case "wait":
                self.clock.advance(seconds=choice % 40_000)
            case "merge":
                self.join(self.source, choice, touching=False)
            case "compact":
                self.swap(self.source, self.choose(self.source, choice), same_content=True)
            case "replace":
                self.swap(self.source, self.choose(self.source, choice), same_content=False)
            case "retire":
                ids = {partition.partition_id for partition in self.choose(self.source, choice)}
                within(self.registry, lambda tx: retire_by_ids(tx, self.source.name, ids), self.source.name)
            case "build":
                self.build(choice)
            case _:
                self.join(self.view, choice, touching=True)

    def partitions(self, table: LakeTable) -> list[PartitionSummary]:
        with self.registry.read() as reader:
            return list_partition_summaries(reader, table.table_id, instance="global")

    def windows(self) -> list[Window]:
        return list_windows(self.slice_us, source=self.partitions(self.source), view=self.partitions(self.view))

    def choose(self, table: LakeTable, choice: int) -> tuple[PartitionSummary, ...]:
        partitions = self.partitions(table)
        return (partitions[choice % len(partitions)],) if partitions else ()

    def join(self, table: LakeTable, choice: int, *, touching: bool) -> None:
        runs = find_runs(self.partitions(table), window_us=DAY_US, touching=touching)
        if runs:
            self.swap(table, runs[choice % len(runs)], same_content=True)

    def swap(self, table: LakeTable, run: Sequence[PartitionSummary], *, same_content: bool) -> None:
        if not run:
            return
        rows: frozenset[int] = frozenset().union(*(self.rows[p.partition_id] for p in run))
        if not same_content:
            rows = frozenset(next(_NUMBERS) for _ in rows) or frozenset({next(_NUMBERS)})
        known = [p.source_data_hash for p in run if p.source_data_hash is not None]
        self.put(
            table,
            rows=rows,
            insert_range=span(run),
            fingerprint=fingerprints.add(p.fingerprint for p in run) if same_content else None,
            source_data_hash=fingerprints.add(known) if known else None,
            replacing=frozenset(p.partition_id for p in run),
        )

    def build(self, choice: int) -> None:
        stale = [w for w in self.windows() if judge(w) is not State.FRESH]
        for window in stale[: 1 + choice % 5]:
            self.put(
                self.view,
                rows=frozenset().union(*(self.rows[p.partition_id] for p in window.source)),
                insert_range=window.insert_range,
                source_data_hash=window.source_sum,
                replacing=frozenset(p.partition_id for p in window.view),
            )

    def put(
        self,
        table: LakeTable,
        *,
        rows: frozenset[int],
        insert_range: TimeRange | None = None,
        fingerprint: str | None = None,
        source_data_hash: str | None = None,
        replacing: frozenset[int] = frozenset(),
    ) -> None:
        """The row numbers live in the model only: the registry sees one file of as many rows."""
        files = (fake_file(next(_NUMBERS), rows=len(rows)),) if rows else ()
        partition = NewPartition(
            table=table.name,
            schema_hash=table.schema_hash,
            fingerprint=fingerprint or (fingerprints.from_bytes(secrets.token_bytes(16)) if rows else fingerprints.ZERO),
            files=files,
            insert_range=insert_range,
            event_range=(0, 1) if files else None,
            source_data_hash=source_data_hash,
        )
        done = publish_partition(self.registry, partition, operation(), replacing=replacing)
        self.rows[done.partition_id] = rows

    def is_fresh(self, window: Window) -> bool:
        built: frozenset[int] = frozenset().union(*(self.rows[p.partition_id] for p in window.view))
        now: frozenset[int] = frozenset().union(*(self.rows[p.partition_id] for p in window.source))
        filled = sum(p.end - p.begin for p in window.view) == window.insert_range.end - window.insert_range.begin
        return filled and built == now


def make_model(registry: Registry, clock: FixedClock, slice_us: int) -> Model:
    source = make_table(registry, fresh_name())
    definition = Definition(sql="SELECT 1", over=source.name, slice_us=slice_us).to_json()
    view = create_table(
        registry, TableSpec(name=fresh_name(), schema=source.schema, kind="view_set", event_time="ts", definition=definition)
    )
    return Model(registry, clock, source, view, slice_us)


@pytest.fixture(scope="module")
def sqlite_registry(databases: Databases) -> Iterator[tuple[Registry, FixedClock]]:
    yield from _open(databases, "sqlite")


@pytest.fixture(scope="module")
def postgres_registry(databases: Databases) -> Iterator[tuple[Registry, FixedClock]]:
    yield from _open(databases, "postgresql")


def _open(databases: Databases, kind: str) -> Iterator[tuple[Registry, FixedClock]]:
    clock = FixedClock(datetime(2026, 3, 1, 12, tzinfo=UTC))
    url = databases.new(kind)
    registry = open_registry(url, clock=clock)
    yield registry, clock
    registry.close()
    databases.drop(url)


def live_through(model: Model, steps: list[tuple[str, int]]) -> None:
    """After every step the sums say of every window what the rows themselves say."""
    for action, choice in steps:
        before = {w.insert_range: w for w in model.windows() if judge(w) is State.FRESH}
        model.step(action, choice)
        windows = model.windows()
        assert [judge(w) is State.FRESH for w in windows] == [model.is_fresh(w) for w in windows], (action, choice)
        if action in {"merge", "compact", "merge view", "wait", "build"}:
            lost = [r for r in before if not any(w.insert_range.contains(r) and _held(w, before) for w in windows)]
            assert lost == [], (action, choice)
    model.build(0)


def _held(window: Window, before: dict[TimeRange, Window]) -> bool:
    """Fresh, or widened by a merge over a window that was stale already."""
    inside = [r for r in before if window.insert_range.contains(r)]
    filled = sum(r.end - r.begin for r in inside) == window.insert_range.end - window.insert_range.begin
    return judge(window) is State.FRESH or not filled


@given(steps=STEPS, slice_us=st.sampled_from([HOUR, HOUR // 4, DAY_US, 2 * DAY_US]))
@settings(max_examples=60)
def test_sums_show_what_the_rows_show_after_any_history(
    sqlite_registry: tuple[Registry, FixedClock], steps: list[tuple[str, int]], slice_us: int
) -> None:
    live_through(make_model(*sqlite_registry, slice_us), steps)


@given(steps=STEPS, slice_us=st.sampled_from([HOUR, DAY_US]))
@settings(max_examples=6)
def test_sums_show_what_the_rows_show_on_postgresql_too(
    postgres_registry: tuple[Registry, FixedClock], steps: list[tuple[str, int]], slice_us: int
) -> None:
    live_through(make_model(*postgres_registry, slice_us), steps)
