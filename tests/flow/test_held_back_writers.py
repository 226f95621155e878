"""Every writer without Spark waits behind a long queue, independent of the publisher; administration and compaction continue."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from builders import ORDERS, arrow_rows, count, make_table, seal_pending, within, write_partition, writing_path
from lakebed.core.errors import BackPressureError
from lakebed.core.tables.snapshots import BackPressure
from lakebed.registry.journal.leases import acquire_lease
from lakebed.registry.maintenance.runs import list_runs
from lakebed.registry.tables.groups import set_committed_group

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.lake import Lake

NAME = str(ORDERS)


@pytest.fixture
def held(lake: Lake) -> Lake:
    """One group waits where none may, and a process of another host publishes."""
    make_table(lake.registry)
    for number in range(2):
        write_partition(lake, number)
    seal_pending(lake.registry)
    lake.registry.back_pressure = BackPressure(backlog=0, timeout_s=0)
    acquire_lease(lake.registry, "astha", owner="elsewhere/1/service")
    return lake


def put_file(lake: Lake) -> str:
    """A file of another program's, in the warehouse."""
    path = f"{lake.storage.paths.root}/incoming/orders.parquet"
    pq.write_table(arrow_rows(9), writing_path(path))
    return path


def write(lake: Lake, _: str) -> None:
    with lake.writing(NAME) as writing:
        pq.write_table(arrow_rows(9), writing_path(writing.new_path()))
        writing.publish()


def register(lake: Lake, path: str) -> None:
    lake.files.register(NAME, [path])


@pytest.mark.parametrize("write", [write, register])
def test_a_writer_is_refused_with_nothing_written_until_the_queue_is_shorter(held: Lake, write: Callable[[Lake, str], None]) -> None:
    path = put_file(held)
    known = sorted(held.storage.list_files(held.storage.paths.root), key=lambda facts: facts.path)
    operations = count(held.registry, "operations")

    with pytest.raises(BackPressureError) as caught:
        write(held, path)

    assert (caught.value.table, caught.value.backlog, caught.value.limit) == (NAME, 1, 0)
    assert sorted(held.storage.list_files(held.storage.paths.root), key=lambda facts: facts.path) == known
    assert (count(held.registry, "operations"), count(held.registry, "partitions")) == (operations, 2)
    within(held.registry, lambda tx: set_committed_group(tx, ORDERS, 1, snapshot_id=1))
    write(held, path)
    assert count(held.registry, "partitions") == 3


def test_an_adoption_is_held_back_batch_by_batch_and_says_so_in_its_run(held: Lake) -> None:
    path = put_file(held)

    with pytest.raises(BackPressureError):
        held.tables.adopt(NAME, str(Path(path).parent))

    assert count(held.registry, "partitions") == 2
    (run,) = list_runs(held.registry)
    assert (run.job, run.state, run.result["partitions"]) == ("adopt", "failed", 0)


def test_compaction_and_a_retirement_are_not_held_back(held: Lake) -> None:
    """They make the table smaller, and what a person orders is done."""
    assert len(held.compact(NAME).runs) == 1
    (row,) = held.list_partitions(NAME)
    held.retire_partition_by_metadata(NAME, insert_begin=row.begin_insert_time, insert_end=row.end_insert_time)

    assert count(held.registry, "partitions") == 0
