"""What others do while a rollback copies its files: it conflicts, and nothing is changed, or both hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from builders import ORDERS, arrow_rows, grow_schema, logical_dump, make_table, stepped_lake, within, write_partition, writing_path
from lakebed.core.errors import SchemaChangedError, VictimsChangedError
from lakebed.lake import connect
from lakebed.registry.maintenance.runs import list_runs
from lakebed.testing import Steps
from retiring import retire_by_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lakebed.lake import Lake

NAME = str(ORDERS)
MOVING = frozenset({"leases", "lease_numbers", "subscriber_cursor", "astha_state"})  # the publisher's own


class Intent(Steps):
    """Acts once, when the operation is open: the rollback has read what it will replace, and has copied nothing."""

    def reach(self, what: str) -> None:
        self.done.append(what)
        if what == "committed" and "acted" not in self.done and self.done.count("committed") == self.at:
            self.done.append("acted")
            self.act(what)


@pytest.fixture
def lake(url: str, tmp_path: Path) -> Iterator[Lake]:
    with connect(url, warehouse=str(tmp_path / "warehouse"), service="auto") as opened:
        make_table(opened.registry)
        yield opened


def roll_back_while(url: str, tmp_path: Path, snapshot_id: int, act: Callable[[], object]) -> None:
    def once(_: str) -> None:
        act()

    steps = Intent(act=once, at=2)
    other = stepped_lake(url, str(tmp_path / "warehouse"), steps)
    try:
        other.snapshots.rollback(NAME, snapshot_id)
    finally:
        other.close()
    assert "acted" in steps.done


def prepare(lake: Lake) -> tuple[int, int]:
    """A snapshot to go back to, and a partition written since."""
    write_partition(lake, 1)
    first = lake.snapshot(NAME)
    assert first is not None
    lake.columns.drop(NAME, "amount")
    return first, write_partition_without_amount(lake)


def write_partition_without_amount(lake: Lake) -> int:
    with lake.writing(NAME) as writing:
        pq.write_table(arrow_rows(2).drop_columns(["amount"]), writing_path(writing.new_path()))
        return writing.publish().partition_id


def test_columns_changed_meanwhile_make_it_conflict(lake: Lake, url: str, tmp_path: Path) -> None:
    first, _ = prepare(lake)
    with pytest.raises(SchemaChangedError):
        roll_back_while(url, tmp_path, first, lambda: grow_schema(lake.registry))
    assert [f.name for f in lake.table(NAME).schema.fields] == ["id", "ts", "note"]
    assert [run for run in list_runs(lake.registry, job="rollback") if run.state == "done"] == []
    assert lake.drain(60)
    assert lake.check(deep=True).clean


def test_a_partition_gone_meanwhile_makes_it_conflict_and_the_columns_stay(lake: Lake, url: str, tmp_path: Path) -> None:
    first, second = prepare(lake)
    with pytest.raises(VictimsChangedError):
        roll_back_while(url, tmp_path, first, lambda: within(lake.registry, lambda tx: retire_by_ids(tx, ORDERS, {second})))
    assert [f.name for f in lake.table(NAME).schema.fields] == ["id", "ts"]
    assert lake.drain(60)
    assert lake.check(deep=True).clean


def test_rows_inserted_meanwhile_stay_and_are_null_in_what_came_back(lake: Lake, url: str, tmp_path: Path) -> None:
    first, _ = prepare(lake)
    roll_back_while(url, tmp_path, first, lambda: write_partition_without_amount(lake))
    assert [f.name for f in lake.table(NAME).schema.fields] == ["id", "ts", "amount"]
    assert lake.table(NAME).row.row_count == 100
    lake.snapshot(NAME)
    assert lake.check(deep=True).clean


def test_a_preview_changes_nothing_and_a_second_rollback_needs_no_new_version(lake: Lake) -> None:
    first, _ = prepare(lake)
    assert lake.drain(60)
    before = logical_dump(lake.registry, without=MOVING)
    planned = lake.snapshots.rollback(NAME, first, dry_run=True)
    assert logical_dump(lake.registry, without=MOVING) == before
    assert (planned.schema_version, planned.files, planned.dry_run) == (3, 1, True)

    done, again = lake.snapshots.rollback(NAME, first), lake.snapshots.rollback(NAME, first)

    assert (done.schema_version, again.schema_version) == (3, 3)
    lake.snapshot(NAME)
    assert lake.check(deep=True).clean
