"""A compaction killed at any step: all inputs or the output, never both or neither, and no file that nobody knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from killing import LATER, staged, stride

from builders import ORDERS, write_partition
from lakebed.compaction import compact
from lakebed.registry.maintenance.runs import list_runs

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Databases
    from lakebed.lake import Lake
    from lakebed.testing import Steps

ROWS = sorted([*range(1000, 1050), *range(2000, 2050), *range(3000, 3050)])


def compact_orders(lake: Lake, _: Steps) -> None:
    compact(lake.registry, lake.storage, str(ORDERS))


def three_partitions(lake: Lake) -> None:
    for number in (1, 2, 3):
        write_partition(lake, number)


def read_ids(lake: Lake) -> list[int]:
    return sorted(value for f in lake.files.list(str(ORDERS)) for value in pq.ParquetFile(f.file_path).read().column("id").to_pylist())


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.long)])
def test_a_killed_compaction_is_whole_or_never_was(databases: Databases, kind: str, tmp_path: Path, every: int) -> None:
    outcomes: list[int] = []
    with staged(databases, kind, tmp_path, three_partitions) as stage:
        for step, url in stage.killed_everywhere(compact_orders, every=every * stride(kind) if every > 1 else 1):
            with stage.opened(url, at=LATER) as lake:
                lake.files.recover()
                assert read_ids(lake) == ROWS, step
                assert lake.check().clean, step
                outcomes.append(len(lake.files.list(str(ORDERS))))
                compact(lake.registry, lake.storage, str(ORDERS))
                assert len(lake.files.list(str(ORDERS))) == 1
                assert {run.state for run in list_runs(lake.registry)} <= {"done", "failed", "running"}
                assert read_ids(lake) == ROWS
                assert lake.check().clean, step
    assert outcomes == sorted(outcomes, reverse=True)
    assert set(outcomes) == {1, 3}
