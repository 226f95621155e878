"""Wherever a call fails: its run is done if and only if its work is, and none is left running."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from builders import SCHEMA, arrow_rows, logical_dump, stepped_lake, writing_path
from lakebed.core.errors import OutcomeUnknownError, RegistryUnavailableError
from lakebed.core.names import TableName
from lakebed.core.tables.snapshots import parse_requests
from lakebed.lake import connect
from lakebed.registry.maintenance.runs import list_runs
from lakebed.registry.snapshots.history import NewSnapshot, add_snapshot
from lakebed.testing import Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakebed.lake import Lake

LONG_AGO, FAR = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
OLD = timedelta(days=3)


@dataclass(frozen=True)
class Work:
    """A call of one job, and whether all that it is for is true."""

    call: Callable[[Lake], object]
    has_happened: Callable[[Lake], bool]


def insert(lake: Lake, name: str, number: int) -> None:
    with lake.writing(name) as writing:
        pq.write_table(arrow_rows(number), writing_path(writing.new_path()))
        writing.publish()


def make(lake: Lake, name: str, *, partitions: int = 2) -> str:
    lake.create_table(name, SCHEMA, event_time="ts")
    for number in range(partitions):
        insert(lake, name, number)
    return name


def make_with_snapshots(lake: Lake, name: str) -> str:
    make(lake, name, partitions=1)
    for number in (1, 2):
        snapshot = NewSnapshot(
            snapshot_id=number, parent_id=number - 1 or None, sequence_number=number, group_no=number, timestamp_ms=1000 + number,
            manifest_list=f"list-{number}", metadata_location=f"v{number}.json", summary="{}", schema_id=0, operation="append",
            trigger="insert",
        )  # fmt: skip
        lake.registry.transact(lambda tx, s=snapshot: add_snapshot(tx, TableName.parse(name), s), tables=[TableName.parse(name)])  # type: ignore[misc]
    return name


def litter(lake: Lake, name: str) -> Path:
    path = Path(lake.storage.paths.root) / "shop" / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"nobody's")
    os.utime(path, (1, 1))
    return path


def is_gone(name: str) -> Callable[[Lake], bool]:
    return lambda lake: not lake.list_partitions(name)


def requests_of(lake: Lake, name: str) -> Any:
    return parse_requests(lake.table(name).metadata.properties)


def tag(lake: Lake, name: str) -> Work:
    make_with_snapshots(lake, name)
    return Work(lambda lake: lake.snapshots.tag(name, "audit", 1), lambda lake: requests_of(lake, name).tags == {"audit": 1})


def untag(lake: Lake, name: str) -> Work:
    tag(lake, name).call(lake)
    return Work(lambda lake: lake.snapshots.untag(name, "audit"), lambda lake: not requests_of(lake, name).tags)


def expire(lake: Lake, name: str) -> Work:
    make_with_snapshots(lake, name)
    return Work(
        lambda lake: lake.snapshots.expire(name, snapshot_ids=[1], dry_run=False), lambda lake: requests_of(lake, name).expire == (1,)
    )  # fmt: skip


def retire_range(lake: Lake, name: str) -> Work:
    make(lake, name)
    return Work(lambda lake: lake.retire_partitions(name, insert_begin=LONG_AGO, insert_end=FAR, dry_run=False), is_gone(name))


def retire_at_once(lake: Lake, name: str) -> Work:
    make(lake, name)
    return Work(lambda lake: lake.retire_partitions(name, insert_begin=LONG_AGO, insert_end=FAR, dry_run=False, atomic=True), is_gone(name))


def retire_nothing(lake: Lake, name: str) -> Work:
    """There is nothing to do: it has happened once it is written down."""
    make(lake, name, partitions=0)
    before = len(list_runs(lake.registry))
    return Work(
        lambda lake: lake.retire_partitions(name, insert_begin=LONG_AGO, insert_end=FAR, dry_run=False),
        lambda lake: "done" in [r.state for r in list_runs(lake.registry)][: -before or None],
    )


def retire_expired(lake: Lake, name: str) -> Work:
    make(lake, name)
    return Work(lambda lake: lake.partitions.retire_expired(name, retention=timedelta(days=1), dry_run=False), is_gone(name))


def retire_one(lake: Lake, name: str) -> Work:
    make(lake, name, partitions=1)
    (row,) = lake.list_partitions(name)
    return Work(
        lambda lake: lake.retire_partition_by_metadata(name, insert_begin=row.begin_insert_time, insert_end=row.end_insert_time),
        is_gone(name),
    )


def drop(lake: Lake, name: str) -> Work:
    table_id = lake.table(make(lake, name)).table_id
    left = f"SELECT count(*) FROM partitions WHERE id >= {table_id << 40} AND id < {(table_id + 1) << 40}"
    hidden = f"SELECT count(*) FROM tables WHERE id = {table_id} AND dropped_at IS NOT NULL"
    return Work(
        lambda lake: lake.tables.drop(name, dry_run=False),
        lambda lake: (lake.registry.query(left), lake.registry.query(hidden)) == ([(0,)], [(1,)]),
    )


def drop_empty(lake: Lake, name: str) -> Work:
    table_id = lake.table(make(lake, name, partitions=0)).table_id
    hidden = f"SELECT count(*) FROM tables WHERE id = {table_id} AND dropped_at IS NOT NULL"
    return Work(lambda lake: lake.tables.drop(name, dry_run=False), lambda lake: lake.registry.query(hidden) == [(1,)])


def alter(lake: Lake, name: str) -> Work:
    make(lake, name, partitions=1)
    return Work(lambda lake: lake.columns.add(name, "note", "string"), lambda lake: lake.table(name).schema.find("note") is not None)


def configure(lake: Lake, name: str) -> Work:
    make(lake, name, partitions=0)
    return Work(lambda lake: lake.tables.configure(name, retire_after="90d"), lambda lake: "90d" in lake.table(name).metadata.properties)


def forget(lake: Lake, name: str) -> Work:
    refused = litter(lake, f"incoming_{name}/in")
    lake.tables.adopt(name, str(refused.parent), skip_refused=True)
    return Work(
        lambda lake: lake.files.forget_left_out([str(refused)], dry_run=False),
        lambda lake: str(refused) not in {row.file_path for row in lake.files.list_left_out()},
    )


def sweep(lake: Lake, name: str) -> Work:
    path = str(litter(lake, name))
    queued = "SELECT count(*) FROM temporary_files WHERE file_path = :path"
    return Work(
        lambda lake: lake.files.sweep_orphans(older_than=OLD, dry_run=False), lambda lake: lake.registry.query(queued, {"path": path}) == [(1,)]
    )  # fmt: skip


def compact(lake: Lake, name: str) -> Work:
    make(lake, name, partitions=3)
    return Work(lambda lake: lake.compact(name), lambda lake: len(lake.files.list(name)) == 1)


def adopt(lake: Lake, name: str) -> Work:
    source = Path(lake.storage.paths.root).parent / name
    source.mkdir()
    for number in range(3):
        pq.write_table(arrow_rows(number), source / f"{number}.parquet")

    def has_all(lake: Lake) -> bool:
        return any(f"{row.database}.{row.name}" == name for row in lake.tables.list()) and lake.table(name).row.row_count == 150

    return Work(lambda lake: lake.tables.adopt(name, str(source), batch_files=2), has_all)


def roll_back(lake: Lake, name: str) -> Work:
    make(lake, name, partitions=1)
    with lake.service():
        first = lake.snapshot(name)
    assert first is not None
    insert(lake, name, 5)
    return Work(lambda lake: lake.snapshots.rollback(name, first), lambda lake: lake.table(name).row.row_count == 50)


WORKS = [
    tag, untag, expire, retire_range, retire_at_once, retire_nothing, retire_expired, retire_one, drop, drop_empty, alter, configure, forget,
    sweep, compact, adopt, roll_back,
]  # fmt: skip


def go_away(what: str) -> None:
    message = f"the registry went away at {what}"
    raise RegistryUnavailableError(message)


def interrupt(_: str) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "warehouse")


@pytest.fixture
def watched(url: str, place: str) -> Iterator[Lake]:
    with connect(url, warehouse=place, service="off") as opened:
        yield opened


@pytest.mark.parametrize("faults", [(go_away, interrupt), pytest.param((interrupt, go_away), marks=pytest.mark.long)], ids=["", "reversed"])
@pytest.mark.parametrize("work", WORKS)
def test_a_run_is_done_if_and_only_if_its_work_is(
    watched: Lake, url: str, place: str, work: Callable[[Lake, str], Work], faults: Sequence[Callable[[str], None]]
) -> None:
    steps = Steps()
    faulty = stepped_lake(url, place, steps)
    prepared, before = work(watched, "shop.t0"), dump(watched)
    for step in count(1):
        if dump(watched) != before:
            prepared, before = work(watched, f"shop.t{step}"), dump(watched)
        known = {run.run_id for run in list_runs(watched.registry, limit=1000)}
        steps.done.clear()
        steps.at, steps.act, has_failed = step, faults[step % 2], False
        try:
            prepared.call(faulty)
        except (RegistryUnavailableError, OutcomeUnknownError, KeyboardInterrupt):
            has_failed = True
        steps.at, has_ended = 0, len(steps.done) < step
        states = sorted(run.state for run in list_runs(watched.registry, limit=1000) if run.run_id not in known)
        where = f"at step {step}: {steps.done[step - 1 : step]}, failed: {has_failed}"
        assert states.count("done") == int(prepared.has_happened(watched)), where
        assert set(states) <= {"done", "failed"}, where
        assert len(states) <= 1, where
        if has_ended:
            break
    faulty.close()
    assert step > 4


def dump(lake: Lake) -> dict[str, list[tuple[Any, ...]]]:
    return logical_dump(lake.registry, without=frozenset({"runs", "operations"}))
