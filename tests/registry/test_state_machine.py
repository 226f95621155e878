"""Any sequence of moves leaves the registry as a plain model of it says, and the independent checker finds nothing."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from builders import HOUR, START, micros_of
from histories import History
from history_model import INSTANCES, PARTITION_PATHS, READERS, FileShape
from history_walks import wander
from lakebed.check import check
from lakebed.registry.open import open_registry
from lakebed.testing import FixedClock

if TYPE_CHECKING:
    from conftest import Databases
    from history_model import Partition, Table
    from lakebed.registry.registry import Registry

PICK = st.integers(0, 60)
SHAPES = st.lists(
    st.builds(
        FileShape, rows=st.integers(1, 5), partition_path=st.sampled_from(PARTITION_PATHS), is_large=st.booleans(), is_json=st.booleans()
    ),
    max_size=3,
)
WINDOWS = st.tuples(st.integers(0, 8), st.integers(1, 3)).map(lambda drawn: (drawn[0], drawn[0] + drawn[1]))
GRACE = st.sampled_from([0, HOUR, 24 * HOUR])


class RegistryMachine(RuleBasedStateMachine):
    """The clock starts among the windows, so that plain slots and windows meet."""

    def __init__(self, databases: Databases, kind: str) -> None:
        super().__init__()
        self._drop = databases.drop
        self._url = databases.new(kind)
        self.clock = FixedClock(START + timedelta(hours=4))
        self.registry = open_registry(self._url, clock=self.clock)
        self.history = History(self.registry, self.clock)

    def teardown(self) -> None:
        self.registry.close()
        self._drop(self._url)

    def table(self, pick: int) -> Table:
        return self.history.tables[pick % len(self.history.tables)]

    def filled(self, pick: int) -> Table:
        """A table with partitions, where there is one."""
        tables = [t for t in self.history.tables if t.partitions]
        return tables[pick % len(tables)]

    @staticmethod
    def one(table: Table, pick: int) -> Partition:
        return list(table.partitions.values())[pick % len(table.partitions)]

    def has_partitions(self) -> bool:
        return any(t.partitions for t in self.history.tables)

    def has_views(self) -> bool:
        return any(t.is_view for t in self.history.tables)

    def has_retired(self) -> bool:
        return bool(self.history.queue)

    @initialize(
        reader=st.sampled_from([None, *READERS]), is_promoted=st.booleans(), behind=st.integers(0, 2), hours=st.sampled_from([0, 30])
    )
    def begin(self, reader: str | None, is_promoted: bool, behind: int, hours: int) -> None:  # noqa: FBT001 - Hypothesis passes by name
        """Where everything can happen next: sealed, staged, leased, retired and committed files of both kinds of table."""
        history = self.history
        for is_view in (False, True):
            history.create(is_view=is_view)
            history.note()
            table = history.tables[-1]
            for hour in range(3):
                history.publish(table, [FileShape(rows=2), FileShape(partition_path="day=1")], hours=(hour, hour + 1))
                history.note()
            history.seal(table)
            history.note()
            history.commit_groups(table, behind=0)
            history.note()
            if reader is not None:
                history.hold(reader, [table], ttl_us=48 * HOUR)
            if is_view:
                self._stage(table, is_promoted=is_promoted)
            history.retire_key(table, self.one(table, 0), name_schema=True, grace_us=0)
            history.note()
            history.commit_groups(table, behind=behind)
            history.note()
        self.clock.advance(seconds=hours * 3600)

    def _stage(self, table: Table, *, is_promoted: bool) -> None:
        self.history.stage(table)
        self.history.note()
        self.history.publish(table, [FileShape(), FileShape(is_json=True)], hours=(1, 2), use_staged=True)
        self.history.note()
        if is_promoted:
            self.history.promote(table)
            self.history.note()

    @rule(is_view=st.booleans())
    def create(self, is_view: bool) -> None:  # noqa: FBT001 - as above
        self.history.create(is_view=is_view)

    @rule(pick=PICK, shapes=SHAPES, instance=st.sampled_from(INSTANCES))
    def insert(self, pick: int, shapes: list[FileShape], instance: str) -> None:
        self.history.publish(self.table(pick), shapes, hours=None, instance=instance)

    @rule(pick=PICK, shapes=SHAPES, hours=WINDOWS, instance=st.sampled_from(INSTANCES), use_staged=st.booleans())
    def publish_window(self, pick: int, shapes: list[FileShape], hours: tuple[int, int], instance: str, use_staged: bool) -> None:  # noqa: FBT001 - as above
        self.history.publish(self.table(pick), shapes, hours=hours, instance=instance, use_staged=use_staged)

    @precondition(has_partitions)
    @rule(pick=PICK, first=PICK, count=st.integers(1, 3), shapes=SHAPES, keep=st.integers(0, 3))
    def swap(self, pick: int, first: int, count: int, shapes: list[FileShape], keep: int) -> None:
        table = self.filled(pick)
        scope = self.one(table, first).scope
        of_scope = sorted((p for p in table.partitions.values() if p.scope == scope), key=lambda p: p.insert_range.begin)
        start = first % len(of_scope)
        self.history.swap(table, of_scope[start : start + count], shapes, keep=keep)

    @rule(pick=PICK, stale=PICK)
    def swap_stale(self, pick: int, stale: int) -> None:
        self.history.swap_stale(self.table(pick), pick=stale)

    @rule(pick=PICK)
    def publish_what_is_refused(self, pick: int) -> None:
        self.history.publish_into_unserved(self.table(pick))
        self.history.publish_a_known_path(self.table(pick))
        self.history.retire_unknown_key(self.table(pick))

    @precondition(has_partitions)
    @rule(pick=PICK, which=PICK, name_schema=st.booleans(), grace_us=GRACE)
    def retire_key(self, pick: int, which: int, name_schema: bool, grace_us: int) -> None:  # noqa: FBT001 - as above
        table = self.filled(pick)
        self.history.retire_key(table, self.one(table, which), name_schema=name_schema, grace_us=grace_us)

    @precondition(has_partitions)
    @rule(pick=PICK, count=st.integers(1, 3), add_gone=st.booleans(), exactly=st.booleans(), grace_us=GRACE)
    def retire_ids(self, pick: int, count: int, add_gone: bool, exactly: bool, grace_us: int) -> None:  # noqa: FBT001 - as above
        table = self.filled(pick)
        victims = list(table.partitions.values())[-count:]
        self.history.retire_ids(table, victims, add_gone=add_gone, exactly=exactly, grace_us=grace_us)

    @rule(pick=PICK, hours=WINDOWS, instance=st.sampled_from([None, *INSTANCES]), grace_us=GRACE)
    def retire_range(self, pick: int, hours: tuple[int, int], instance: str | None, grace_us: int) -> None:
        self.history.retire_range(self.table(pick), hours, instance=instance, grace_us=grace_us)

    @rule(pick=PICK, hour=st.integers(0, 12), grace_us=GRACE)
    def retire_old(self, pick: int, hour: int, grace_us: int) -> None:
        self.history.retire_old(self.table(pick), hour=hour, grace_us=grace_us)

    @rule(pick=PICK)
    def seal(self, pick: int) -> None:
        self.history.seal(self.table(pick))

    @rule(pick=PICK, behind=st.integers(0, 2))
    def commit_groups(self, pick: int, behind: int) -> None:
        self.history.commit_groups(self.table(pick), behind=behind)

    @rule(pick=PICK, keep=st.integers(0, 2))
    def expire_snapshots(self, pick: int, keep: int) -> None:
        table = self.table(pick)
        self.history.expire_snapshots(table, keep=min(keep, len(table.snapshots)))

    @rule(pick=PICK)
    def change_definition_or_schema(self, pick: int) -> None:
        table = self.table(pick)
        (self.history.stage if table.is_view else self.history.evolve)(table)

    @precondition(has_views)
    @rule(pick=PICK)
    def promote(self, pick: int) -> None:
        views = [t for t in self.history.tables if t.is_view]
        self.history.promote(views[pick % len(views)])

    @rule(reader=st.sampled_from(READERS), pick=PICK, ttl_us=st.sampled_from([HOUR, 48 * HOUR]))
    def hold(self, reader: str, pick: int, ttl_us: int) -> None:
        self.history.hold(reader, [self.table(pick)], ttl_us=ttl_us)

    @rule(reader=st.sampled_from(READERS))
    def end_reading(self, reader: str) -> None:
        self.history.end(reader)

    @rule(seconds=st.sampled_from([0.000001, 1.0, 1800.0, 3600.0, 30 * 3600.0]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds=seconds)

    @precondition(has_retired)
    @rule(limit=st.sampled_from([1, 3, 100]), refused=st.sampled_from([0, 0, 1]))
    def clean(self, limit: int, refused: int) -> None:
        self.history.clean(limit=limit, refused=refused)

    @invariant()
    def is_as_the_model_says(self) -> None:
        self.history.note()
        self.history.compare()
        report = check(self.registry, None)
        assert report.clean, report.findings


def machine(databases: Databases, kind: str) -> type[RegistryMachine]:
    class Bound(RegistryMachine):
        def __init__(self) -> None:
            super().__init__(databases, kind)

    return Bound


SUPPRESSED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def test_any_history_leaves_the_registry_as_the_model_says(databases: Databases, kind: str) -> None:
    run_state_machine_as_test(
        machine(databases, kind), settings=settings(max_examples=12, stateful_step_count=25, suppress_health_check=SUPPRESSED)
    )


def test_a_long_history_is_as_the_model_says_after_every_move(timed_registry: Registry, clock: FixedClock, kind: str) -> None:
    clock.micros = micros_of(START) + 4 * HOUR
    history = History(timed_registry, clock)

    for _ in wander(history, random.Random(kind), 150):
        history.compare()
        assert check(timed_registry, None).clean


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_thousand_longer_histories_leave_the_registry_as_the_model_says(databases: Databases, kind: str) -> None:
    run_state_machine_as_test(
        machine(databases, kind), settings=settings(max_examples=1000, stateful_step_count=60, suppress_health_check=SUPPRESSED)
    )
