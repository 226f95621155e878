"""A service that works for long holds no more than one that worked for a while: objects, descriptors, threads, WAL, memory."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from builders import ORDERS, arrow_rows, make_table, writing_path
from growth import Held, Sample, middle
from lakebed.core.errors import PartitionStraddlesError
from lakebed.core.tasks import OFF, Task
from lakebed.lake import connect
from lakebed.maintenance.schedule import Due
from lakebed.service.service import Service, Upkeep
from serving import Served, serving, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.lake import Lake

NO_SNAPSHOT_STAYS = {"all_s": 0, "all_most": 0, "hourly_s": 0, "daily_s": 0, "least_age_s": 0}
LIVE = 3  # partitions that a table keeps
ROUNDS = 40  # the log of metadata files is full after twenty
SOAK_S = float(os.environ.get("TEST_SOAK_S", "600"))
EVERY_FIVE_SECONDS = "*/5 * * * * *"


@contextmanager
def working(lake: Lake) -> Iterator[Service]:
    """Whole, with tasks that run when the test says so."""
    made = Service(lake.registry, lake.storage, upkeep=Upkeep(context=lambda: lake._context, schedule=dict.fromkeys(Task, OFF)))
    made.start()
    try:
        wait_until(lambda: made.astha.is_active)
        yield made
    finally:
        made.stop()


def work(lake: Lake, service: Service, number: int) -> None:
    """One partition comes, the oldest goes, and Iceberg follows."""
    insert(lake, number)
    retire_oldest(lake)
    assert service.drain(60)


def insert(lake: Lake, number: int) -> None:
    with lake.writing(str(ORDERS)) as writing:
        pq.write_table(arrow_rows(number, 5), writing_path(writing.new_path()))
        writing.publish()


def retire_oldest(lake: Lake) -> None:
    partitions = lake.list_partitions(str(ORDERS))
    if len(partitions) > LIVE:
        begin, end = partitions[0].begin_insert_time, partitions[-LIVE - 1].end_insert_time
        with suppress(PartitionStraddlesError):  # merged beyond the range meanwhile: not retired this time
            lake.retire_partitions(str(ORDERS), insert_begin=begin, insert_end=end, dry_run=False, grace_s=0)


def maintain(lake: Lake, service: Service) -> None:
    """Every task, and what those read who watch."""
    assert service.runner is not None
    assert service.astha.lease is not None
    for task in Task:
        service.runner._run(service.astha.lease, Due(task=task, window=lake.registry.now()))
    assert [task for task, tally in service.runner.tallies().items() if tally.error] == []
    service.to_metrics()
    service.to_status()
    assert service.drain(60)


def held_by(service: Service) -> Held:
    """Without the journal's last pages, which are few, and full of whatever came last."""
    assert service.astha._incarnation is not None
    service.astha._incarnation.delivery._pages.forget()
    return Held.of(service)


def test_a_service_that_worked_on_holds_no_more_than_before(url: str, tmp_path: Path) -> None:
    held: list[Held] = []
    with connect(url, warehouse=str(tmp_path / "warehouse"), service="off") as lake, working(lake) as service:
        make_table(lake.registry)
        lake.tables.configure(str(ORDERS), retention=NO_SNAPSHOT_STAYS)
        for number in range(2 * ROUNDS):
            work(lake, service, number)
            if number % ROUNDS == ROUNDS - 1:
                maintain(lake, service)
                maintain(lake, service)
                held.append(held_by(service))

    before, after = held
    assert after.objects.total() - before.objects.total() < ROUNDS, after.gains_since(before)
    assert after.descriptors - before.descriptors < ROUNDS / 4
    assert after.threads - before.threads < ROUNDS / 4


def soak(lake: Lake, served: Served, path: Path | None) -> Iterator[Sample]:
    """A sample per second, while partitions trickle in and the oldest go."""
    number, ends_at = 0, time.monotonic() + SOAK_S
    while time.monotonic() < ends_at:
        number += 1
        insert(lake, number)
        retire_oldest(lake)
        served.ask("/metrics")
        served.ask("/status")
        time.sleep(1)
        yield Sample.of(served.process.pid, path)


@pytest.mark.long
@pytest.mark.timeout(SOAK_S + 600)
def test_a_service_that_runs_for_long_stays_as_it_is(url: str, kind: str, tmp_path: Path) -> None:
    """Ten minutes; TEST_SOAK_S=3600 for an hour. The first third is warming up."""
    path = Path(url.removeprefix("sqlite:///")) if kind == "sqlite" else None
    tasks = {f"LAKEBED_SCHEDULE_{task.upper()}": EVERY_FIVE_SECONDS for task in Task}
    with connect(url, warehouse=str(tmp_path / "warehouse"), service="off") as lake:
        make_table(lake.registry)
        lake.tables.configure(str(ORDERS), retention=NO_SNAPSHOT_STAYS)
        with serving(url, tmp_path / "warehouse", tmp_path / "log", **tasks) as served:
            samples = list(soak(lake, served, path))
            failed = {task: seen["failures"] for task, seen in served.status()["tasks"].items() if seen["failures"]}
        early, late = (middle(part) for part in (samples[len(samples) // 3 : len(samples) // 2], samples[-len(samples) // 6 :]))
        for minute in range(0, len(samples), max(1, len(samples) // 10)):
            print(kind, minute, samples[minute])  # noqa: T201 - figures for docs/decisions, shown with -s
        print(kind, len(samples), early, late)  # noqa: T201

        assert failed == {}
        assert late.memory_kb < early.memory_kb * 1.05
        assert late.descriptors <= early.descriptors + 2
        assert late.threads <= early.threads + 2
        assert late.wal_bytes <= early.wal_bytes * 1.05
        assert lake.check().clean
