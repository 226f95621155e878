"""The component: events only mark, workers take what is marked, and rest where there is nothing to win."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from compaction_lakes import disk_paths, fill, insert_rows, make_orders, read_all

from builders import ORDERS, arrow_rows
from lakebed.compaction import Engines, LocalEngine
from lakebed.components.compactor import Backlog, Compactor, CompactorOptions
from lakebed.core.errors import InvalidValueError, UnavailableError
from lakebed.core.events import COMPONENT_SUBSCRIPTIONS, ChangeKind, Component, Event, RegistryTable
from lakebed.core.rows import TableFiles, TableStats
from lakebed.registry.journal.changes import last_journal_numbers, read_changes
from lakebed.registry.maintenance.runs import list_runs

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.compaction import RewriteRequest, Rewriting
    from lakebed.lake import Lake

NOW = datetime(2026, 1, 1, tzinfo=UTC)
QUICK = CompactorOptions(small_files=3, hot_s=0.0)


def stats(small: int, *, path: str = "day=1") -> TableStats:
    return TableStats(
        id=1, table_id=7, partition_path=path, row_count=1, file_count=small, small_file_count=small, total_size=1, last_modified=NOW,
        created_at=NOW, updated_at=NOW,
    )  # fmt: skip


def file(kind: str = "parquet", *, retired: int | None = None) -> TableFiles:
    return TableFiles(
        id=1, table_id=7, partition_id=1, file_name="f", file_path="/f", file_size=1, file_type=kind, partition_path="", row_count=1,
        checksum="", checksum_kind="none", is_compressed=True, schema_hash="", added_seq=1, retired_seq=retired, added_group=None,
        removed_group=None, created_at=NOW, modified_at=NOW,
    )  # fmt: skip


def event(operation: ChangeKind, row: TableFiles | TableStats) -> Event[TableFiles | TableStats]:
    table = RegistryTable.TABLE_STATS if isinstance(row, TableStats) else RegistryTable.TABLE_FILES
    before = None if operation is ChangeKind.INSERT else row
    return Event(table=table, operation=operation, data=row, before=before, table_id=7, sequence=1, timestamp=NOW)


def deliver(lake: Lake, compactor: Compactor) -> None:
    """Every change of the journal, as Astha would."""
    for table_id in last_journal_numbers(lake.registry):
        for change in read_changes(lake.registry, table_id, after=0, limit=100_000):
            if change.table in COMPONENT_SUBSCRIPTIONS[Component.COMPACTOR]:
                compactor.on_event(change)  # type: ignore[arg-type]


def await_that(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        threading.Event().wait(0.01)


@pytest.fixture
def compactor(lake: Lake) -> Any:
    made = Compactor(lake.registry, lake.storage, options=QUICK)
    yield made
    made.stop()


@pytest.mark.parametrize(
    ("operation", "row", "marked"),
    [
        (ChangeKind.INSERT, stats(3), True),
        (ChangeKind.INSERT, stats(2), False),
        (ChangeKind.UPDATE, stats(3), True),
        (ChangeKind.UPDATE, stats(2), False),
        (ChangeKind.DELETE, stats(3), False),
        (ChangeKind.INSERT, file(), False),
        (ChangeKind.INSERT, file("json"), True),
        (ChangeKind.UPDATE, file("json", retired=3), False),
        (ChangeKind.UPDATE, file(), False),
        (ChangeKind.DELETE, file("json"), False),
    ],
)
def test_what_each_event_marks(lake: Lake, operation: ChangeKind, row: TableFiles | TableStats, *, marked: bool) -> None:
    local = LocalEngine(storage=lake.storage)
    compactor = Compactor(lake.registry, lake.storage, options=QUICK, engines=Engines(local=local, spark=local))

    compactor.on_event(event(operation, row))

    assert compactor.metrics().backlog == int(marked)


def test_json_waits_without_spark(compactor: Compactor) -> None:
    compactor.on_event(event(ChangeKind.INSERT, file("json")))

    assert compactor.metrics().backlog == 0


def test_statistics_that_fall_below_the_threshold_take_the_mark_back(compactor: Compactor) -> None:
    compactor.on_event(event(ChangeKind.INSERT, stats(5)))
    compactor.on_event(event(ChangeKind.INSERT, stats(5, path="day=2")))
    compactor.on_event(event(ChangeKind.UPDATE, stats(1)))
    assert compactor.metrics().backlog == 1

    compactor.on_event(event(ChangeKind.DELETE, stats(5, path="day=2")))

    assert compactor.metrics().backlog == 0


def test_it_subscribes_to_files_and_statistics(compactor: Compactor) -> None:
    assert compactor.get_subscribed_tables() == COMPONENT_SUBSCRIPTIONS[Component.COMPACTOR]


def test_the_journal_leads_to_a_compaction_and_its_own_changes_to_none(lake: Lake, compactor: Compactor) -> None:
    make_orders(lake)
    fill(lake, 5)
    rows = read_all(lake)
    deliver(lake, compactor)

    done = compactor.run_once()

    assert done is not None
    assert (done.files_before, done.files_after) == (5, 1)
    deliver(lake, compactor)
    assert compactor.run_once() is None
    reported = compactor.metrics()
    assert (
        reported.looks,
        reported.swaps,
        reported.files_in,
        reported.files_out,
        reported.conflicts,
        reported.failures,
        reported.backlog,
    ) == (1, 1, 5, 1, 0, 0, 0)
    assert (reported.bytes_in, reported.bytes_out) == (done.bytes_before, done.bytes_after)
    assert reported.seconds > 0
    assert read_all(lake) == rows
    assert "compactor" in list_runs(lake.registry)[0].actor
    assert lake.check().clean


def test_a_refresh_finds_what_missed_events_would_have_reported(lake: Lake, compactor: Compactor) -> None:
    make_orders(lake)
    fill(lake, 5)
    table_id = lake.table(str(ORDERS)).table_id

    assert compactor.on_refresh(table_id) == last_journal_numbers(lake.registry)[table_id]

    assert compactor.metrics().backlog == 1
    assert compactor.run_once() is not None
    compactor.on_refresh(table_id)
    assert compactor.metrics().backlog == 0


def test_workers_compact_in_the_background_and_stop_without_a_trace(lake: Lake) -> None:
    make_orders(lake)
    fill(lake, 5)
    compactor = Compactor(lake.registry, lake.storage, options=CompactorOptions(small_files=3, hot_s=0.0, workers=2))
    compactor.start()
    compactor.on_health()

    deliver(lake, compactor)
    await_that(lambda: compactor.metrics().swaps == 1)
    compactor.stop()

    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lakebed-compactor")]
    assert len(lake.files.list(str(ORDERS))) == 1
    assert lake.check().clean


def test_stopping_cancels_what_runs(lake: Lake) -> None:
    make_orders(lake)
    fill(lake, 5)
    disk, entered = disk_paths(lake), threading.Event()

    class Endless:
        name = "endless"

        def rewrite(self, request: RewriteRequest, *, cancelled: Callable[[], bool]) -> Rewriting | None:
            assert request.run.rewriting
            entered.set()
            await_that(cancelled)
            return None

    compactor = Compactor(lake.registry, lake.storage, options=QUICK, engines=Engines(local=Endless()))
    compactor.start()
    deliver(lake, compactor)
    assert entered.wait(20)

    compactor.stop()

    assert (disk_paths(lake), [run.state for run in list_runs(lake.registry)]) == (disk, ["cancelled"])
    assert lake.check().clean


def test_an_inactive_process_compacts_nothing(lake: Lake) -> None:
    make_orders(lake)
    fill(lake, 5)
    active = threading.Event()
    compactor = Compactor(lake.registry, lake.storage, options=QUICK, is_active=active.is_set)
    compactor.start()
    deliver(lake, compactor)
    compactor.on_event(event(ChangeKind.INSERT, stats(1)))
    assert compactor.metrics().looks == 0

    active.set()
    await_that(lambda: compactor.metrics().swaps == 1)
    compactor.stop()


def test_hot_slices_are_looked_at_again_when_they_have_cooled_down(lake: Lake) -> None:
    make_orders(lake)
    fill(lake, 5)
    clock = [0.0]
    compactor = Compactor(
        lake.registry, lake.storage, options=CompactorOptions(small_files=3, hot_s=3600.0), monotonic=lambda: clock[0]
    )  # fmt: skip
    deliver(lake, compactor)

    first = compactor.run_once()

    assert first is not None
    assert (first.runs, [group.reason for group in first.groups]) == ((), ["hot"])
    assert (compactor.run_once(), compactor.metrics().backlog) == (None, 1)
    clock[0] = 3601.0
    assert compactor.run_once() is not None


def test_a_failure_is_counted_and_the_table_rests(lake: Lake) -> None:
    make_orders(lake)
    fill(lake, 5)

    class Broken:
        name = "broken"

        def rewrite(self, request: RewriteRequest, *, cancelled: Callable[[], bool]) -> Rewriting | None:
            assert not cancelled()
            message = f"{request.run.wanted}: the disk is away"
            raise UnavailableError(message)

    clock = [0.0]
    compactor = Compactor(lake.registry, lake.storage, options=QUICK, engines=Engines(local=Broken()), monotonic=lambda: clock[0])
    deliver(lake, compactor)

    assert compactor.run_once() is None
    assert (compactor.metrics().failures, compactor.metrics().backlog, len(list_runs(lake.registry))) == (1, 1, 1)
    assert compactor.run_once() is None
    assert len(list_runs(lake.registry)) == 1
    clock[0] = 31.0
    compactor.run_once()
    assert (compactor.metrics().failures, len(list_runs(lake.registry))) == (2, 2)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dead_worker_is_replaced_and_reported(lake: Lake) -> None:
    make_orders(lake)
    fill(lake, 5)
    seen: list[object] = []

    class Deadly:
        name = "deadly"

        def rewrite(self, request: RewriteRequest, *, cancelled: Callable[[], bool]) -> Rewriting | None:
            seen.append((request, cancelled))
            raise SystemExit

    compactor = Compactor(lake.registry, lake.storage, options=QUICK, engines=Engines(local=Deadly()))
    compactor.start()
    deliver(lake, compactor)
    await_that(lambda: bool(seen) and not any(t.is_alive() for t in compactor._threads))

    with pytest.raises(UnavailableError, match="1 compaction worker"):
        compactor.on_health()

    compactor.on_health()
    compactor.stop()


def test_a_dropped_table_is_forgotten(compactor: Compactor) -> None:
    compactor.on_event(event(ChangeKind.INSERT, stats(5)))

    assert compactor.run_once() is None

    assert compactor.metrics().backlog == 0


def test_tables_take_turns_and_pauses_grow_where_nothing_can_be_won() -> None:
    backlog = Backlog(small_files=2, pause_s=10.0)
    backlog.count(1, "", 5)
    backlog.count(2, "", 5)

    assert (backlog.take(0.0), backlog.take(0.0), backlog.take(0.0)) == (1, 2, None)
    backlog.done(1, now=0.0, changed=False)
    backlog.done(2, now=0.0, changed=True)
    assert (backlog.take(0.0), backlog.take(9.9), backlog.take(10.0)) == (2, None, 1)
    backlog.done(1, now=10.0, changed=False)
    assert backlog.next_due_s(10.0) == 20.0
    for _ in range(20):
        backlog.busy.add(1)
        backlog.done(1, now=100.0, changed=False)
    assert backlog.rests_until[1] == 300.0


def test_marks_that_arrive_during_a_look_are_kept() -> None:
    backlog = Backlog(small_files=2, pause_s=10.0)
    backlog.mark(1)
    assert backlog.take(0.0) == 1

    backlog.mark(1)
    backlog.done(1, now=0.0, changed=True)

    assert backlog.take(0.0) == 1


def test_wrong_options_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="workers=0"):
        CompactorOptions(workers=0)


def test_inserts_go_on_while_workers_compact(lake: Lake) -> None:
    make_orders(lake)
    compactor = Compactor(lake.registry, lake.storage, options=QUICK)
    compactor.start()
    for number in range(12):
        insert_rows(lake, arrow_rows(number, rows=5))
        deliver(lake, compactor)
    await_that(lambda: compactor.metrics().working == 0 and compactor.metrics().swaps > 0)
    compactor.stop()

    assert sum(read_all(lake).values()) == 60
    assert len(read_all(lake)) == 60
    assert lake.check().clean
