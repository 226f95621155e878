"""From listing to deletion with real files: what was retired is gone after its grace, what was kept can be read, the lake is clean."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from builders import ORDERS, START, make_table, write_partition
from lakebed import admin
from lakebed.core.errors import PartitionNotFoundError

if TYPE_CHECKING:
    from datetime import datetime

    from lakebed.lake import Lake
    from lakebed.testing import FixedClock


def hour(number: int) -> datetime:
    return START + timedelta(hours=number)


def test_listed_previewed_retired_and_cleaned_leaves_exactly_the_rest(timed_lake: Lake, clock: FixedClock) -> None:
    lake = timed_lake
    make_table(lake.registry)
    for h in range(4):
        write_partition(lake, h, files=0 if h == 2 else 2, hours=(h, h + 1))
    paths = {p: Path(p) for p in (f.file_path for f in admin.list_files(lake.registry))}

    preview = admin.retire_partitions(lake.registry, str(ORDERS), insert_begin=hour(0), insert_end=hour(3))
    done = admin.retire_partitions(lake.registry, str(ORDERS), insert_begin=hour(0), insert_end=hour(3), dry_run=False, grace_s=60)
    assert lake.delete_expired_temporary_files().deleted == 0
    clock.advance(seconds=61)
    cleaned = lake.delete_expired_temporary_files()

    left = [f.file_path for f in admin.list_files(lake.registry)]
    assert (preview.partitions, preview.files, preview.bytes_scheduled) == (done.partitions, done.files, done.bytes_scheduled)
    assert (done.empty, done.non_empty, cleaned.deleted, cleaned.bytes_freed) == (1, 2, 4, done.bytes_scheduled)
    assert {p for p, place in paths.items() if place.exists()} == set(left)
    assert sum(pq.read_metadata(p).num_rows for p in left) == 100
    assert lake.check().clean


def test_retiring_the_same_partitions_from_many_threads_in_every_way_retires_each_once(lake: Lake) -> None:
    make_table(lake.registry)
    for h in range(6):
        write_partition(lake, h, hours=(h, h + 1))
    retired: list[int] = []

    def by_key(h: int) -> None:
        try:
            done = admin.retire_partition_by_metadata(lake.registry, str(ORDERS), insert_begin=hour(h), insert_end=hour(h + 1))
        except PartitionNotFoundError:
            return
        retired.append(done.partitions)

    def by_range() -> None:
        done = admin.retire_partitions(lake.registry, str(ORDERS), insert_begin=hour(0), insert_end=hour(6), dry_run=False)
        retired.append(done.partitions)

    def by_age() -> None:
        retired.append(admin.retire_expired_partitions(lake.registry, retention=timedelta(seconds=1), dry_run=False).partitions)

    threads = [threading.Thread(target=by_key, args=(h,)) for h in range(6)] + [threading.Thread(target=f) for f in (by_range, by_age)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(retired) == 6
    assert admin.list_partitions(lake.registry) == []
    assert lake.check().clean
