"""A clean-up killed anywhere, also between a file's end and its row's: the next one finishes, and nobody is lied to meanwhile."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from killing import NOW, staged, state_of, stride

from builders import ORDERS, count, within, write_partition
from lakebed.registry.files.deletion_queue import claim_expired
from lakebed.testing import kill_self
from retiring import retire_by_ids

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from killing import Stage, State

    from conftest import Databases
    from lakebed.lake import Lake
    from lakebed.testing import Steps

PAST_GRACE = NOW + timedelta(hours=25)
CLAIMS_RAN_OUT = NOW + timedelta(hours=26)


def clean_up(lake: Lake, _: Steps) -> None:
    lake.delete_expired_temporary_files(batch_size=2)


def die_after_claiming_two(lake: Lake, _: Steps) -> None:
    claim_expired(lake.registry, limit=2)
    kill_self("the claim is committed")


def five_retired_and_one_live(lake: Lake) -> None:
    write_partition(lake, 1, files=3)
    write_partition(lake, 5, files=2)
    ids = {p.partition_id for p in lake.list_partitions(str(ORDERS))}
    within(lake.registry, lambda tx: retire_by_ids(tx, ORDERS, ids))
    write_partition(lake, 9)


def paths_of(lake: Lake, table: str) -> AbstractSet[str]:
    return {row[0] for row in lake.registry.query(f"SELECT file_path FROM {table}")}


def assert_no_half_truth(lake: Lake) -> None:
    """Every file that has a row has its footer and, if retired, its place in the queue; no file lies there without a row."""
    known = paths_of(lake, "table_files")
    assert paths_of(lake, "partition_metadata") == known
    assert paths_of(lake, "temporary_files") == known - {f.file_path for f in lake.files.list(str(ORDERS))}
    assert {str(path) for path in Path(lake.storage.paths.root).rglob("*.parquet")} <= known
    assert all(lake.files.footer(path).num_rows == 50 for path in known)
    assert lake.check().clean


def without_journal(state: State) -> State:
    return {name: rows for name, rows in state.items() if name != "change_log"}


def assert_the_next_one_finishes(stage: Stage, *, every: int) -> None:
    after = stage.after(clean_up, at=PAST_GRACE)
    left: list[int] = []
    for step, url in stage.killed_everywhere(clean_up, every=every, at=PAST_GRACE):
        with stage.opened(url, at=CLAIMS_RAN_OUT) as lake:
            assert_no_half_truth(lake)
            left.append(count(lake.registry, "temporary_files"))
            assert lake.delete_expired_temporary_files().deleted == left[-1], step
            assert without_journal(state_of(lake)) == without_journal(after), step  # files may go in another order
            assert lake.check().clean, step
    assert (left[0], left[-1]) == (5, 0)  # in between, the steps of the deleters come as they will among those of the registry
    assert {5, 3, 1, 0} == set(left)


def test_a_killed_clean_up_is_finished_by_the_next(databases: Databases, kind: str, tmp_path: Path) -> None:
    with staged(databases, kind, tmp_path, five_retired_and_one_live) as stage:
        assert_the_next_one_finishes(stage, every=stride(kind))


@pytest.mark.long
def test_every_step_of_a_clean_up_on_postgresql(databases: Databases, tmp_path: Path) -> None:
    with staged(databases, "postgresql", tmp_path, five_retired_and_one_live) as stage:
        assert_the_next_one_finishes(stage, every=1)


def test_what_a_dead_clean_up_claimed_is_left_alone_until_its_claim_runs_out(databases: Databases, kind: str, tmp_path: Path) -> None:
    with staged(databases, kind, tmp_path, five_retired_and_one_live) as stage, stage.again() as url:
        assert stage.kill(die_after_claiming_two, url, step=0, at=PAST_GRACE)

        with stage.opened(url, at=PAST_GRACE) as lake:
            assert lake.delete_expired_temporary_files().deleted == 3
        with stage.opened(url, at=CLAIMS_RAN_OUT) as lake:
            assert lake.delete_expired_temporary_files().deleted == 2
            assert lake.check().clean
