"""Whatever is done, in whatever order, with faults in between: disk, registry and Iceberg end up the same."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from builders import ORDERS, grow_schema, make_table, recover_writers, stepped_lake, write_partition
from lakebed.core.errors import ConflictError, LakebedError, RegistryUnavailableError, UnavailableError
from lakebed.lake import connect
from lakebed.registry.snapshots.history import list_snapshots
from lakebed.testing import Steps

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakebed.lake import Lake

NAME = str(ORDERS)
SAMPLE, WHOLE = 60, 1_000


class Walk:
    """A lake that publishes, a second one whose registry fails now and then, and what may happen to them."""

    def __init__(self, lake: Lake, faulty: Lake, steps: Steps, seed: int) -> None:
        self.lake, self.faulty, self.steps = lake, faulty, steps
        self.random = random.Random(seed)
        self.number = self.columns = self.faults = 0
        self.moves: list[tuple[Callable[[Lake], object], int]] = [
            (self.insert, 10), (self.replace, 3), (self.retire, 4), (self.compact, 2), (self.roll_back, 1), (self.grow, 1),
            (self.tag, 1), (self.change_policy, 1), (self.clean, 2), (self.restart, 1),
        ]  # fmt: skip

    def take(self, count: int) -> None:
        moves, weights = zip(*self.moves, strict=True)
        for move in self.random.choices(moves, weights, k=count):
            self.try_out(move)

    def try_out(self, move: Callable[[Lake], object]) -> None:
        """A third of all moves meets a registry that goes away at some step."""
        if self.random.random() < 2 / 3:
            move(self.lake)
            return
        self.steps.done.clear()
        self.steps.at = self.random.randint(1, 25)
        try:
            move(self.faulty)
        except (UnavailableError, ConflictError):
            self.faults += 1
        finally:
            self.steps.at = 0

    def insert(self, lake: Lake) -> None:
        self.number += 3
        write_partition(lake, self.number, files=self.random.randint(1, 3))

    def replace(self, lake: Lake) -> None:
        if chosen := self.choose(lake):
            self.number += 1
            write_partition(lake, self.number, replacing=frozenset({chosen}))

    def retire(self, lake: Lake) -> None:
        rows = lake.list_partitions(NAME)
        if rows:
            row = self.random.choice(rows)
            lake.retire_partition_by_metadata(
                NAME, insert_begin=row.begin_insert_time, insert_end=row.end_insert_time, schema_hash=row.schema_hash
            )

    def compact(self, lake: Lake) -> None:
        lake.compact(NAME)

    def roll_back(self, lake: Lake) -> None:
        if snapshots := lake.snapshots(NAME):
            lake.snapshots.rollback(NAME, self.random.choice(snapshots).snapshot_id)

    def grow(self, lake: Lake) -> None:
        self.columns += 1
        grow_schema(lake.registry, column=f"more_{self.columns}", field_id=100 + self.columns)

    def tag(self, lake: Lake) -> None:
        snapshots = lake.snapshots(NAME)
        chosen = self.random.choice([None, *(snapshot.snapshot_id for snapshot in snapshots)])
        if chosen is not None:
            lake.snapshots.tag(NAME, "kept", chosen)
        elif any(snapshot.tags == "kept" for snapshot in snapshots):
            lake.snapshots.untag(NAME, "kept")

    def change_policy(self, lake: Lake) -> None:
        policies: list[dict[str, Any]] = [{"trigger": "every_insert"}, {"trigger": "files", "files": 3}, {"trigger": "manual"}]
        lake.tables.configure(NAME, snapshot=self.random.choice(policies))

    def clean(self, lake: Lake) -> None:
        lake.registry.transact(lambda tx: tx.run("UPDATE temporary_files SET expiration = 1"), tables=[])
        lake.delete_expired_temporary_files()

    def restart(self, _: Lake) -> None:
        """The publisher ends in the middle of whatever it does; the next commit starts another."""
        self.lake._embedded._end(drain_s=0.0)
        self.lake._embedded._starter = None

    def choose(self, lake: Lake) -> int | None:
        rows = lake.list_partitions(NAME)
        return self.random.choice(rows).partition_id if rows else None


def fail(_: str) -> None:
    message = "the registry went away"
    raise RegistryUnavailableError(message)


def walk(url: str, place: Path, *, seed: int, count: int) -> None:
    steps = Steps(act=fail)
    with connect(url, warehouse=str(place), service="auto") as lake:
        make_table(lake.registry)
        faulty = stepped_lake(url, str(place), steps)
        story = Walk(lake, faulty, steps, seed)
        story.take(count)
        faulty.close()
        lake.tables.configure(NAME, snapshot=None)
        write_partition(lake, story.number + 10)
        end_open_operations(lake)
        lake.snapshot(NAME)
        assert lake.drain(120)
        assert_equal(lake, place)
        assert story.faults > 0


def end_open_operations(lake: Lake) -> None:
    """As if the leases of the writers that failed had run out, and the claims of clean-ups that did."""
    recover_writers(lake)
    lake.registry.transact(lambda tx: tx.run("UPDATE temporary_files SET expiration = 1, claimed_until = NULL"), tables=[])
    lake.delete_expired_temporary_files()


def assert_equal(lake: Lake, place: Path) -> None:
    live = {file.file_path: file.row_count for file in lake.files.list(NAME)}
    newest = list_snapshots(lake.registry, lake.registry.require_table_id(ORDERS))[-1]
    table = StaticTable.from_metadata(newest.metadata_location)
    planned = {task.file.file_path.removeprefix("file://"): task.file.record_count for task in table.scan().plan_files()}
    assert planned == live
    registry_ids = sorted(i for path in live for i in pq.read_table(path, columns=["id"])["id"].to_pylist())
    assert sorted(table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()) == registry_ids
    on_disk = {str(path) for path in place.rglob("*.parquet")}
    assert on_disk == {file.file_path for file in lake.files.list(NAME, retired=True)}
    assert [str(f) for f in lake.check(deep=True).findings if f.severity != "info"] == []


@pytest.mark.parametrize("seed", [1])
def test_a_sample_of_random_operations_with_faults_leaves_no_difference(url: str, tmp_path: Path, seed: int) -> None:
    walk(url, tmp_path / "warehouse", seed=seed, count=SAMPLE)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3, 13))
def test_ten_thousand_random_operations_with_faults_leave_no_difference(url: str, tmp_path: Path, seed: int) -> None:
    walk(url, tmp_path / "warehouse", seed=seed, count=WHOLE)


def test_the_walk_knows_a_difference_when_it_sees_one(url: str, tmp_path: Path) -> None:
    place = tmp_path / "warehouse"
    walk(url, place, seed=4, count=15)
    with connect(url, warehouse=str(place), service="off") as lake:
        next(place.rglob("data/**/*.parquet")).unlink()
        with pytest.raises((AssertionError, LakebedError, FileNotFoundError)):
            assert_equal(lake, place)
