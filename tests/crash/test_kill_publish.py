"""A writer killed at any step of publishing: the partition is there whole, or there is no trace of it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from killing import LATER, NOW, staged, state_of, stride

from builders import ORDERS, arrow_rows, write_partition, writing_path
from lakebed.testing import kill_self

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from killing import Stage

    from conftest import Databases
    from lakebed.lake import Lake
    from lakebed.testing import Steps


def publish(lake: Lake, steps: Steps, *, replace: bool = False) -> None:
    """Two files of one partition; with `replace` in the place of the first."""
    replacing = {lake.list_partitions(str(ORDERS))[0].partition_id} if replace else frozenset()
    with lake.writing(str(ORDERS)) as writing:
        for number in (7, 8):
            pq.write_table(arrow_rows(number, rows=5), writing_path(writing.new_path()))
            steps.reach("file written")
        writing.publish(replacing=frozenset(replacing))


def give_up(lake: Lake, steps: Steps) -> None:
    """A write that fails by itself, and is killed while it takes itself back."""
    with lake.writing(str(ORDERS)) as writing:
        pq.write_table(arrow_rows(7, rows=5), writing_path(writing.new_path()))
        steps.reach("file written")


def recover(lake: Lake, _: Steps) -> None:
    lake.files.recover()


def two_partitions(lake: Lake) -> None:
    write_partition(lake, 1)
    write_partition(lake, 2)


def die_writing(lake: Lake, _: Steps) -> None:
    with lake.writing(str(ORDERS)) as writing:
        for number in (7, 8):
            pq.write_table(arrow_rows(number, rows=5), writing_path(writing.new_path()))
        kill_self("both files are written")


def leave_a_dead_writer(stage: Stage) -> None:
    assert stage.kill(die_writing, stage.url, step=0)
    with stage.opened(stage.url, at=NOW) as lake:
        assert lake.files.recover() == []  # its lease protects it still
    stage.keep()


def assert_all_or_nothing(stage: Stage, action: Callable[[Lake, Steps], None], *, every: int) -> None:
    """Killed early nothing is left, killed late everything is there, and there is one moment at which it turns."""
    with stage.opened(stage.url) as lake:
        before = state_of(lake)
    after = stage.after(action)
    outcomes: list[bool] = []
    for step, url in stage.killed_everywhere(action, every=every):
        with stage.opened(url) as lake:
            lake.files.recover()
            found = state_of(lake)
            assert found in (before, after), f"neither all nor nothing after a kill at step {step}"
            assert lake.check().clean, step
        outcomes.append(found == after)
    assert outcomes == sorted(outcomes)
    assert {False, True} == set(outcomes)


def test_a_killed_insert_is_there_whole_or_not_at_all(databases: Databases, kind: str, tmp_path: Path) -> None:
    with staged(databases, kind, tmp_path, two_partitions) as stage:
        assert_all_or_nothing(stage, publish, every=stride(kind))


def test_a_killed_replacement_leaves_the_old_or_the_new_partition(databases: Databases, kind: str, tmp_path: Path) -> None:
    with staged(databases, kind, tmp_path, two_partitions) as stage:
        assert_all_or_nothing(stage, partial(publish, replace=True), every=stride(kind))


@pytest.mark.long
@pytest.mark.parametrize("action", [publish, partial(publish, replace=True)], ids=["insert", "replacement"])
def test_every_step_of_publishing_on_postgresql(databases: Databases, tmp_path: Path, action: Callable[[Lake, Steps], None]) -> None:
    with staged(databases, "postgresql", tmp_path, two_partitions) as stage:
        assert_all_or_nothing(stage, action, every=1)


def test_a_write_killed_while_it_takes_itself_back_leaves_nothing(databases: Databases, kind: str, tmp_path: Path) -> None:
    with staged(databases, kind, tmp_path, two_partitions) as stage:
        with stage.opened(stage.url) as lake:
            before = state_of(lake)
        for step, url in stage.killed_everywhere(give_up, every=stride(kind)):
            with stage.opened(url) as lake:
                lake.files.recover()
                assert state_of(lake) == before, step
                assert lake.check().clean, step


def test_a_recovery_that_is_killed_is_finished_by_the_next(databases: Databases, kind: str, tmp_path: Path) -> None:
    with staged(databases, kind, tmp_path, two_partitions) as stage:
        with stage.opened(stage.url) as lake:
            before = state_of(lake)
        leave_a_dead_writer(stage)
        for step, url in stage.killed_everywhere(recover, every=stride(kind), at=LATER):
            with stage.opened(url) as lake:
                lake.files.recover()
                assert state_of(lake) == before, step
                assert lake.check().clean, step
