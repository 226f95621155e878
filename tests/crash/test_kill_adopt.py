"""Adopting and importing killed at any step: a second run finishes, and nothing is there twice."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from killing import LATER, staged, stride

from builders import ORDERS, arrow_rows
from legacy_lakes import NEW, OLD, LegacyLake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from killing import Stage

    from conftest import Databases
    from lakebed.lake import Lake
    from lakebed.testing import Steps


# Before the first batch is committed, and when the second has begun
ADOPTING = (33, 41)
IMPORTING = (40, 75)


def nothing(_: Lake) -> None:
    """The table of orders alone."""


def fill(source: Path) -> None:
    """Files without field ids, one of which has to be rewritten."""
    for number in range(3):
        place = source / (f"amount={number}.5" if number == 2 else "plain") / f"{number}.parquet"
        place.parent.mkdir(parents=True, exist_ok=True)
        table = arrow_rows(number, rows=5)
        pq.write_table(table.drop_columns(["amount"]) if number == 2 else table, place)


def adopt(lake: Lake, _: Steps, *, source: str) -> None:
    """Two files at a time."""
    lake.tables.adopt(str(ORDERS), source, batch_files=2)


def bring_over(lake: Lake, _: Steps, *, url: str, root: str) -> None:
    """Two partitions at a time."""
    lake.tables.import_legacy(url, root=root, dry_run=False, batch_partitions=2)


def content(lake: Lake) -> dict[str, list[tuple[Any, ...]]]:
    """What a reader can know, without ids and paths."""
    return {
        f"{t.database}.{t.name}": sorted(
            (p.view_instance_id, p.num_rows, p.file_count, p.min_event_time, p.source_data_hash)
            for p in lake.list_partitions(f"{t.database}.{t.name}")
        )
        for t in lake.tables.list()
    }


def assert_a_second_run_finishes(stage: Stage, action: Callable[[Lake, Steps], None], killed: Iterator[tuple[int, str]]) -> None:
    with stage.again() as url:
        assert not stage.kill(action, url, step=0)
        with stage.opened(url) as lake:
            wanted, rows = content(lake), sum(t.row_count for t in lake.tables.list())
    assert rows
    for step, url in killed:
        assert not stage.kill(action, url, step=0)  # at once, while the dead one's lease still stands
        with stage.opened(url, at=LATER) as lake:
            lake.files.recover()
            assert sum(t.row_count for t in lake.tables.list()) == rows, step
            if len(content(lake)[str(ORDERS)]) == len(wanted[str(ORDERS)]):
                assert content(lake) == wanted, step
            assert lake.check().clean, step


def killed_at(stage: Stage, action: Callable[[Lake, Steps], None], *steps: int) -> Iterator[tuple[int, str]]:
    for step in steps:
        with stage.again() as url:
            assert stage.kill(action, url, step=step), f"there is no step {step}"
            yield step, url


def make_old(stage: Stage, url: str, root: Path) -> LegacyLake:
    """Two schemas, and a slice that is empty."""
    old = LegacyLake(url, root, 5).create()
    for hour in range(3):
        old.add(hour, schema=OLD if hour == 2 else NEW, updated=-hour)
    old.add_empty(3)
    stage.keep()
    return old


def test_a_killed_adoption_is_finished_by_the_next(databases: Databases, kind: str, tmp_path: Path) -> None:
    fill(tmp_path / "source")
    action = partial(adopt, source=str(tmp_path / "source"))
    with staged(databases, kind, tmp_path, nothing) as stage:
        assert_a_second_run_finishes(stage, action, killed_at(stage, action, *ADOPTING))


def test_a_killed_import_is_finished_by_the_next(databases: Databases, kind: str, tmp_path: Path, legacy_url: str) -> None:
    with staged(databases, kind, tmp_path, nothing) as stage:
        old = make_old(stage, legacy_url, tmp_path / "old")
        action = partial(bring_over, url=old.url, root=str(old.root))
        assert_a_second_run_finishes(stage, action, killed_at(stage, action, *IMPORTING))


@pytest.mark.long
def test_every_step_of_an_adoption(databases: Databases, kind: str, tmp_path: Path) -> None:
    fill(tmp_path / "source")
    action = partial(adopt, source=str(tmp_path / "source"))
    with staged(databases, kind, tmp_path, nothing) as stage:
        assert_a_second_run_finishes(stage, action, stage.killed_everywhere(action, every=stride(kind)))


@pytest.mark.long
@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "linked"])
def test_every_step_of_an_import(databases: Databases, kind: str, tmp_path: Path, legacy_url: str, *, in_place: bool) -> None:
    with staged(databases, kind, tmp_path, nothing) as stage:
        old = make_old(stage, legacy_url, stage.warehouse if in_place else tmp_path / "old")
        action = partial(bring_over, url=old.url, root=str(old.root))
        assert_a_second_run_finishes(stage, action, stage.killed_everywhere(action, every=stride(kind)))
