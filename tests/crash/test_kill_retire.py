"""A process killed at any step of retiring: all partitions of the call are retired, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from killing import staged, state_of, stride

from builders import ORDERS, insert_hours, within, write_partition
from retiring import retire_by_ids, retire_by_key, retire_by_range, retire_expired

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from killing import Stage

    from conftest import Databases
    from lakebed.lake import Lake
    from lakebed.testing import Steps


def by_key(lake: Lake, _: Steps) -> None:
    within(lake.registry, lambda tx: retire_by_key(tx, ORDERS, instance="global", insert_range=insert_hours(0, 1)))


def by_range(lake: Lake, _: Steps) -> None:
    within(lake.registry, lambda tx: retire_by_range(tx, ORDERS, insert_hours(0, 2)))


def by_ids(lake: Lake, _: Steps) -> None:
    ids = {p.partition_id for p in lake.list_partitions(str(ORDERS))}
    within(lake.registry, lambda tx: retire_by_ids(tx, ORDERS, ids))


def expired(lake: Lake, _: Steps) -> None:
    within(lake.registry, lambda tx: retire_expired(tx, ORDERS, cutoff=tx.now))


def three_hours(lake: Lake) -> None:
    """Two partitions with files and an empty one between them."""
    write_partition(lake, 1, files=2, hours=(0, 1))
    write_partition(lake, 3, files=0, hours=(1, 2))
    write_partition(lake, 4, hours=(2, 3))


def assert_all_or_nothing(stage: Stage, action: Callable[[Lake, Steps], None], *, every: int) -> None:
    with stage.opened(stage.url) as lake:
        before, paths = state_of(lake), [f.file_path for f in lake.files.list(str(ORDERS))]
    after = stage.after(action)
    outcomes: list[bool] = []
    for step, url in stage.killed_everywhere(action, every=every):
        with stage.opened(url) as lake:
            found = state_of(lake)
            assert found in (before, after), f"some were retired and some not after a kill at step {step}"
            assert [lake.files.footer(path).num_rows for path in paths] == [50, 50, 50], step
            assert lake.check().clean, step
        outcomes.append(found == after)
    assert outcomes == sorted(outcomes)
    assert {False, True} == set(outcomes)


@pytest.mark.parametrize("action", [by_key, by_range, by_ids, expired])
def test_a_killed_retirement_retires_all_or_nothing(
    databases: Databases, kind: str, tmp_path: Path, action: Callable[[Lake, Steps], None]
) -> None:
    with staged(databases, kind, tmp_path, three_hours) as stage:
        assert_all_or_nothing(stage, action, every=stride(kind))


@pytest.mark.long
@pytest.mark.parametrize("action", [by_key, by_range, by_ids, expired])
def test_every_step_of_retiring_on_postgresql(databases: Databases, tmp_path: Path, action: Callable[[Lake, Steps], None]) -> None:
    with staged(databases, "postgresql", tmp_path, three_hours) as stage:
        assert_all_or_nothing(stage, action, every=1)
