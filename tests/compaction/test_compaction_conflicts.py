"""Writers win: whatever happens to an input between plan and swap, nothing is lost, resurrected or left behind."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from compaction_lakes import disk_paths, fill, insert_rows, live_paths, make_orders, read_all

from builders import ORDERS, arrow_rows, logical_dump, micros_of, within, writing_path
from lakebed.compaction import Control, Engines, LocalEngine, RewriteRequest, Rewriting, compact, plan_compaction, swap
from lakebed.core.errors import OutcomeUnknownError, RewriteMismatchError, VictimsChangedError
from lakebed.core.times import TimeRange
from lakebed.parquet.rewrite.reader import RowSum
from lakebed.registry.files.operations import find_operation
from lakebed.registry.maintenance.runs import list_runs
from retiring import retire_by_ids

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.lake import Lake
    from lakebed.registry.partitions.publish import Published
    from lakebed.registry.partitions.retire import Retired

BOOKKEEPING = frozenset({"operations", "runs"})


@dataclass
class Meddling:
    """The local engine, and something that happens while it rewrites, or before it does."""

    lake: Lake
    meddle: Callable[[], object]
    before: Callable[[], object] = bool
    name: str = "meddling"
    done: int = 0
    _engine: LocalEngine = field(init=False)

    def __post_init__(self) -> None:
        self._engine = LocalEngine(storage=self.lake.storage)

    def rewrite(self, request: RewriteRequest, *, cancelled: Callable[[], bool]) -> Rewriting | None:
        self.before()
        found = self._engine.rewrite(request, cancelled=cancelled)
        self.done += 1
        self.meddle()
        return found


def retire(lake: Lake, published: Published) -> Retired:
    return within(lake.registry, lambda tx: retire_by_ids(tx, ORDERS, {published.partition_id}))


def replace_partition(lake: Lake, number: int, partition_id: int, insert_range: TimeRange) -> None:
    with lake.writing(str(ORDERS)) as work:
        pq.write_table(arrow_rows(number, rows=5), writing_path(work.new_path()))
        work.publish(insert_range=insert_range, replacing=frozenset({partition_id}))


def test_retiring_an_input_between_plan_and_swap_wins(lake: Lake) -> None:
    make_orders(lake)
    published = fill(lake, 4)
    (run,) = plan_compaction(lake.registry, str(ORDERS)).runs
    disk = disk_paths(lake)
    retire(lake, published[1])
    rows, before = read_all(lake), logical_dump(lake.registry, without=BOOKKEEPING)

    with pytest.raises(VictimsChangedError):
        swap(lake.registry, lake.storage, run, LocalEngine(storage=lake.storage))

    assert (read_all(lake), disk_paths(lake)) == (rows, disk)
    assert logical_dump(lake.registry, without=BOOKKEEPING) == before
    done = compact(lake.registry, lake.storage, str(ORDERS))
    assert (done.files_before, read_all(lake)) == (3, rows)
    assert lake.check().clean


def test_retiring_an_input_while_it_is_rewritten_wins_and_the_rest_is_compacted(lake: Lake) -> None:
    make_orders(lake)
    published = fill(lake, 4)
    victims = [published[2]]
    engine = Meddling(lake, lambda: victims and retire(lake, victims.pop()))

    done = compact(lake.registry, lake.storage, str(ORDERS), engines=Engines(local=engine))

    assert (done.conflicts, done.stopped, done.files_before, done.files_after) == (1, False, 3, 1)
    assert sum(read_all(lake).values()) == 60
    assert not any(f"(1, {2000 + i})" in row for row in read_all(lake) for i in range(20))
    assert lake.check().clean


def retire_and_delete(lake: Lake, published: Published) -> bool:
    within(lake.registry, lambda tx: retire_by_ids(tx, ORDERS, {published.partition_id}, grace_us=0))
    return lake.delete_expired_temporary_files().deleted == 1


def test_an_input_that_is_retired_and_deleted_before_it_is_read_is_not_taken_for_damaged(lake: Lake) -> None:
    make_orders(lake)
    published = fill(lake, 4)
    victims = [published[2]]
    engine = Meddling(lake, lambda: None, before=lambda: victims and retire_and_delete(lake, victims.pop()))

    done = compact(lake.registry, lake.storage, str(ORDERS), engines=Engines(local=engine))

    assert (done.conflicts, done.damaged, done.files_before, done.files_after) == (1, (), 3, 1)
    assert lake.check().clean


def test_replacing_an_input_wins_and_a_retry_has_the_new_content(lake: Lake) -> None:
    make_orders(lake)
    published = fill(lake, 3)
    (run,) = plan_compaction(lake.registry, str(ORDERS)).runs
    old = published[1]
    replace_partition(lake, 77, old.partition_id, old.insert_range)
    rows = read_all(lake)

    with pytest.raises(VictimsChangedError):
        swap(lake.registry, lake.storage, run, LocalEngine(storage=lake.storage))

    assert read_all(lake) == rows
    compact(lake.registry, lake.storage, str(ORDERS))
    assert (read_all(lake), len(live_paths(lake))) == (rows, 1)
    assert any("(1, 77000)" in row for row in rows)
    assert lake.check().clean


def test_inserting_meanwhile_does_not_conflict(lake: Lake) -> None:
    make_orders(lake)
    fill(lake, 3)

    done = compact(
        lake.registry, lake.storage, str(ORDERS), engines=Engines(local=Meddling(lake, lambda: insert_rows(lake, arrow_rows(50, rows=7))))
    )

    assert (done.conflicts, done.files_before) == (0, 3)
    assert sorted(f.row_count for f in lake.files.list(str(ORDERS))) == [7, 60]
    assert lake.check().clean


def test_two_compactions_of_the_same_files_swap_once(lake: Lake) -> None:
    make_orders(lake)
    fill(lake, 4)
    rows = read_all(lake)
    (one,), (other,) = (plan_compaction(lake.registry, str(ORDERS)).runs for _ in range(2))

    swap(lake.registry, lake.storage, one, LocalEngine(storage=lake.storage))
    with pytest.raises(VictimsChangedError):
        swap(lake.registry, lake.storage, other, LocalEngine(storage=lake.storage))

    assert (read_all(lake), len(live_paths(lake))) == (rows, 1)
    assert lake.check().clean


def test_after_three_conflicts_in_a_row_the_table_is_left_to_its_writers(lake: Lake) -> None:
    make_orders(lake)
    numbers = iter(range(100, 200))
    fill(lake, 3)

    def replace_first() -> None:
        old = lake.list_partitions(str(ORDERS))[0]
        insert_range = TimeRange(begin=micros_of(old.begin_insert_time), end=micros_of(old.end_insert_time))
        replace_partition(lake, next(numbers), old.partition_id, insert_range)

    engine = Meddling(lake, replace_first)
    done = compact(lake.registry, lake.storage, str(ORDERS), engines=Engines(local=engine))

    assert (done.conflicts, done.stopped, done.runs, engine.done) == (3, True, (), 3)
    (run,) = list_runs(lake.registry)
    assert (run.state, run.result["conflicts"]) == ("failed", 3)
    assert "3 consecutive conflicts" in run.result["error"]
    assert lake.check().clean


@pytest.mark.parametrize("conflicts", [20, pytest.param(200, marks=pytest.mark.long)])
def test_any_number_of_lost_compactions_leaves_no_file(lake: Lake, conflicts: int) -> None:
    make_orders(lake)
    published = fill(lake, 3)
    (run,) = plan_compaction(lake.registry, str(ORDERS)).runs
    retire(lake, published[0])
    before = disk_paths(lake)

    for _ in range(conflicts):
        with pytest.raises(VictimsChangedError):
            swap(lake.registry, lake.storage, run, LocalEngine(storage=lake.storage))

    assert disk_paths(lake) == before
    assert not [path for path in Path(lake.storage.paths.root).rglob("*") if path.is_dir() and not any(path.iterdir())]
    assert lake.check().clean


@dataclass
class Wrong:
    """An engine that answers with other rows, or fewer, than it was given."""

    lake: Lake
    spoil: Callable[[Rewriting], Rewriting]
    name: str = "wrong"

    def rewrite(self, request: RewriteRequest, *, cancelled: Callable[[], bool]) -> Rewriting | None:
        found = LocalEngine(storage=self.lake.storage).rewrite(request, cancelled=cancelled)
        assert found is not None
        return self.spoil(found)


@pytest.mark.parametrize(
    ("spoil", "reported"),
    [
        (lambda r: Rewriting(files=(), before=r.before, after=r.after), "gave 0 rows instead of 60"),
        (lambda r: Rewriting(files=r.files, before=r.before, after=RowSum(rows=60, hash=1)), "differ from the registered ones"),
        (lambda r: Rewriting(files=r.files, before=RowSum(rows=59, hash=1), after=r.after), "gave 60 rows instead of 59"),
    ],
    ids=["files lost", "other rows", "rows too many"],
)
def test_an_engine_that_changes_rows_is_found_out_before_the_swap(
    lake: Lake, spoil: Callable[[Rewriting], Rewriting], reported: str
) -> None:
    make_orders(lake)
    fill(lake, 3)
    rows, disk = read_all(lake), disk_paths(lake)

    with pytest.raises(RewriteMismatchError, match=reported):
        compact(lake.registry, lake.storage, str(ORDERS), engines=Engines(local=Wrong(lake, spoil)))

    assert (read_all(lake), disk_paths(lake)) == (rows, disk)
    assert [run.state for run in list_runs(lake.registry)] == ["failed"]
    assert lake.check().clean


def test_an_engine_without_sums_is_checked_by_reading_both_sides(lake: Lake) -> None:
    make_orders(lake)
    fill(lake, 3)
    rows = read_all(lake)

    compact(lake.registry, lake.storage, str(ORDERS), engines=Engines(local=Wrong(lake, lambda r: Rewriting(files=r.files))))

    assert read_all(lake) == rows
    assert lake.check().clean


def test_an_unknown_outcome_deletes_nothing_and_recovery_decides(lake: Lake) -> None:
    """The swap may have been committed: its new files are not touched until that is known."""
    make_orders(lake)
    fill(lake, 3)
    (run,) = plan_compaction(lake.registry, str(ORDERS)).runs
    requests: list[RewriteRequest] = []

    class Lost(Meddling):
        def rewrite(self, request: RewriteRequest, *, cancelled: Callable[[], bool]) -> Rewriting | None:
            super().rewrite(request, cancelled=cancelled)
            requests.append(request)
            self.lake.registry.attempts.send(request.operation.op_id)  # its commit is under way
            raise OutcomeUnknownError(request.operation.op_id)

    with pytest.raises(OutcomeUnknownError):
        swap(lake.registry, lake.storage, run, Lost(lake, int))

    (request,) = requests
    found = find_operation(lake.registry, request.operation.op_id)
    assert found is not None
    assert found.state == "writing"
    assert len([path for path in disk_paths(lake) if path.startswith(request.directory)]) == 1
    assert lake.files.recover() == []  # its lease protects it still


def test_a_cancellation_between_rewrite_and_swap_swaps_nothing(lake: Lake) -> None:
    make_orders(lake)
    fill(lake, 3)
    disk, stop = disk_paths(lake), threading.Event()
    engine = Meddling(lake, stop.set)

    done = compact(lake.registry, lake.storage, str(ORDERS), engines=Engines(local=engine), control=Control(cancelled=stop.is_set))

    assert (done.cancelled, done.runs, engine.done) == (True, (), 1)
    assert disk_paths(lake) == disk
    assert lake.check().clean
