"""Readers beside a compaction: all inputs or the output, in every snapshot, and files they planned stay where they are."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from compaction_lakes import fill, make_orders

from builders import ORDERS
from lakebed.compaction import CompactionOptions, compact

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.lake import Lake
    from lakebed.registry.registry import Registry


def test_no_snapshot_has_both_or_neither(lake: Lake, another: Callable[[], Registry]) -> None:
    make_orders(lake)
    fill(lake, 30, rows=10)
    stop, seen, wrong = threading.Event(), set[int](), list[str]()
    registry = another()

    def read() -> None:
        while not stop.is_set():
            with registry.read() as reader:
                files = reader.query("SELECT file_path, row_count FROM table_files WHERE retired_seq IS NULL")
                ((counted,),) = reader.query("SELECT row_count FROM tables")
            rows = sum(pq.ParquetFile(path).metadata.num_rows for path, _ in files)  # an input that was swapped out is there still
            if not rows == sum(count for _, count in files) == counted == 300:
                wrong.append(f"{rows} rows in {len(files)} files, {counted} counted")
            seen.add(len(files))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        while len(lake.files.list(str(ORDERS))) > 1:
            compact(lake.registry, lake.storage, str(ORDERS), CompactionOptions(max_files=6))
    finally:
        stop.set()
        thread.join()

    assert wrong == []
    assert len(seen) > 1
    assert lake.check().clean
