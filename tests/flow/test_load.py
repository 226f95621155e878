"""Twelve writers, the service, a retirer, a cleaner and readers at once: nothing planned is missing, and no writer is left behind."""

from __future__ import annotations

import os
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from builders import ORDERS, arrow_rows, make_table, writing_path
from lakebed.core.errors import LakebedError, PartitionStraddlesError
from lakebed.lake import connect
from lakebed.parquet.cache import FooterCache
from lakebed.registry.files.footers import load_partition_metadata
from lakebed.registry.journal.leases import end_reading, hold_for_reading
from serving import FORKS, start_service, warm_up

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.synchronize import Barrier
    from pathlib import Path

    from lakebed.lake import Lake

WRITERS, READERS = 12, 2
LOAD_S = float(os.environ.get("TEST_LOAD_S", "60"))
ROWS = 5
LIVE = 40  # partitions that the retirer leaves
LEASE_US = 60_000_000
FAIR = 0.9


@dataclass(slots=True)
class Done:
    """What one process did."""

    role: str
    turns: int = 0
    files: int = 0
    longest_s: float = 0.0
    missing: list[str] = field(default_factory=list)


def write(lake: Lake, done: Done) -> None:
    with lake.writing(str(ORDERS)) as writing:
        pq.write_table(arrow_rows(done.turns, ROWS), writing_path(writing.new_path()))
        writing.publish()
    done.files += 1


def read(lake: Lake, done: Done) -> None:
    """Open every file of one plan by its stored footer, under a lease that was taken before the plan was made."""
    name = f"reader/{os.getpid()}"
    hold_for_reading(lake.registry, name, [lake.table(str(ORDERS)).table_id], owner=name, ttl_us=LEASE_US)
    cache = FooterCache()
    for path in lake.files.plan(str(ORDERS)).paths:
        try:
            with pq.ParquetFile(path, metadata=load_partition_metadata(lake.registry, path, cache=cache)) as file:
                assert file.read().num_rows == file.metadata.num_rows
        except (LakebedError, OSError) as exc:
            done.missing.append(f"{path}: {exc}")
        done.files += 1
    end_reading(lake.registry, name)


def retire(lake: Lake, done: Done) -> None:
    partitions = lake.list_partitions(str(ORDERS))
    if len(partitions) > LIVE:
        begin, end = partitions[0].begin_insert_time, partitions[-LIVE - 1].end_insert_time
        with suppress(PartitionStraddlesError):  # merged beyond the range meanwhile: not retired this time
            done.files += lake.retire_partitions(str(ORDERS), insert_begin=begin, insert_end=end, dry_run=False, grace_s=0).files
    time.sleep(0.2)  # a retirer is a schedule, not a loop


def clean(lake: Lake, done: Done) -> None:
    done.files += lake.delete_expired_temporary_files().deleted
    time.sleep(0.2)


ROLES: dict[str, Callable[[Lake, Done], None]] = {"writer": write, "reader": read, "retirer": retire, "cleaner": clean}


def meet(barrier: Barrier) -> None:
    barrier.wait(timeout=120)


def keep_on(role: str, url: str, warehouse: str, seconds: float) -> Done:
    done = Done(role)
    with connect(url, warehouse=warehouse, service="off", create=False) as lake:
        ends_at = time.monotonic() + seconds
        while (began := time.monotonic()) < ends_at:
            ROLES[role](lake, done)
            done.turns += 1
            done.longest_s = max(done.longest_s, time.monotonic() - began)
    return done


def load(url: str, warehouse: Path, roles: Sequence[str], *, seconds: float) -> list[Done]:
    """Each role in a process of its own, beside a whole service; none begins before all are there."""
    warm_up()
    service = start_service(url, warehouse)
    barrier = FORKS.Barrier(len(roles))
    with ProcessPoolExecutor(len(roles), mp_context=FORKS, initializer=meet, initargs=(barrier,)) as pool:
        done = [each.result() for each in [pool.submit(keep_on, role, url, str(warehouse), seconds) for role in roles]]
    assert service.is_alive(), "the service ended by itself"
    service.terminate()
    service.join(60)
    return done


def fairness(shares: Sequence[int]) -> float:
    """Jain's index: 1 when all are equal, 1/n when one has everything."""
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


def describe(done: Sequence[Done]) -> dict[str, Any]:
    of = {role: [each for each in done if each.role == role] for role in ROLES}
    writes = sorted(each.turns for each in of["writer"])
    return {
        "commits": sum(writes),
        "least and most of a writer": (writes[0], writes[-1]),
        "fairness": round(fairness(writes), 3),
        "longest write, s": round(max(each.longest_s for each in of["writer"]), 2),
        "plans read": sum(each.turns for each in of["reader"]),
        "files opened": sum(each.files for each in of["reader"]),
        "files retired": sum(each.files for each in of["retirer"]),
        "files deleted": sum(each.files for each in of["cleaner"]),
    }


@pytest.mark.long
@pytest.mark.timeout(LOAD_S + 600)
def test_under_load_nothing_planned_is_missing_and_every_writer_gets_its_share(url: str, tmp_path: Path) -> None:
    warehouse = tmp_path / "warehouse"
    with connect(url, warehouse=str(warehouse), service="off") as lake:
        make_table(lake.registry)
        done = load(url, warehouse, ["writer"] * WRITERS + ["reader"] * READERS + ["retirer", "cleaner"], seconds=LOAD_S)
        print(describe(done))  # noqa: T201 - figures for docs/decisions, shown with -s
        with lake.service():
            assert lake.drain(300)

        assert [path for each in done for path in each.missing] == []
        assert min(each.turns for each in done) > 0
        assert fairness([each.turns for each in done if each.role == "writer"]) >= FAIR
        assert lake.check().clean
