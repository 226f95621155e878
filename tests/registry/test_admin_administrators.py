"""Who may change the lake: one list and one check, which no administrative function goes around."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from builders import DAILY, ORDERS, START, logical_dump, make_table, make_view, promote, publish, stage, write_partition
from lakebed import admin
from lakebed.core.errors import InvalidValueError, NotAllowedError
from lakebed.core.files import Needed
from lakebed.core.schema.altering import DropColumn
from lakebed.registry.files.left_out import LeftOut, record_left_out
from lakebed.registry.maintenance.runs import list_runs
from lakebed.registry.snapshots.requests import change_requests

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.lake import Lake

NAME, VIEW = str(ORDERS), str(DAILY)
HOUR = timedelta(hours=1)

# Every public function of the administration that changes something, called by somebody who is no administrator
CHANGES: dict[str, Callable[[Lake], Any]] = {
    "retire_partition_by_metadata": lambda lake: lake.retire_partition_by_metadata(NAME, insert_begin=START, insert_end=START + HOUR),
    "retire_partitions": lambda lake: lake.retire_partitions(NAME, insert_begin=START, insert_end=START + HOUR, dry_run=False),
    "retire_expired_partitions": lambda lake: lake.partitions.retire_expired(retention=HOUR, dry_run=False),
    "retire_incompatible_partitions": lambda lake: lake.retire_incompatible_partitions(dry_run=False),
    "retire_partition_by_file": lambda lake: admin.retire_partition_by_file(
        lake.registry, lake.storage, lake.files.list(NAME)[0].file_path
    ),
    "drop_table": lambda lake: admin.drop_table(lake.registry, NAME, dry_run=False),
    "sweep_orphans": lambda lake: admin.sweep_orphans(
        lake.registry, lake.storage, find_needed=lambda: Needed(paths=frozenset(), unsure=()), older_than=HOUR, dry_run=False
    ),
    "forget_left_out_files": lambda lake: lake.files.forget_left_out([left_out(lake)], dry_run=False),
    "configure_table": lambda lake: lake.tables.configure(NAME, snapshot={"trigger": "manual"}),
    "untag_snapshot": lambda lake: lake.snapshots.untag(NAME, "kept"),
    "alter_table": lambda lake: admin.alter_table(lake.registry, NAME, DropColumn(column="amount")),
    "request_materialization": lambda lake: admin.request_materialization(lake.registry, VIEW),
    "request_regeneration": lambda lake: admin.request_regeneration(lake.registry, VIEW),
    "set_administrators": lambda lake: lake.administrators.set([]),
}
# Shorter names of alter_table; ends of what somebody decided before; and those below, which need a snapshot first
SAME_DOOR = {"add_column", "drop_column", "rename_column", "widen_column", "make_column_optional"}
NO_DECISION = {"delete_expired_temporary_files", "recover_operations"}
NEED_SNAPSHOTS = {"roll_back_to", "expire_snapshots", "tag_snapshot"}


@pytest.fixture
def guarded(lake: Lake) -> Lake:
    """A lake that only ann may administer, with something to change of every kind."""
    make_table(lake.registry)
    publish(lake.registry, make_view(lake.registry), hours=(0, 1))
    promote(lake.registry, stage(lake.registry))
    write_partition(lake, 1, hours=(0, 1))
    litter = f"{lake.storage.paths.root}/litter.parquet"
    lake.storage.create_exclusive(litter, b"nobody's")
    os.utime(litter, (1, 1))
    record_left_out(lake.registry, {left_out(lake): LeftOut(size_bytes=1, reason="it is not Parquet")}, source="adopt")
    change_requests(lake.registry, lake.table(NAME).table_id, lambda requested: replace(requested, tags={"kept": 1}))
    lake.administrators.set(["ann"], actor="ann")
    return lake


def left_out(lake: Lake) -> str:
    return f"{lake.storage.paths.root}/left-out.parquet"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", CHANGES)
def test_an_actor_that_is_not_an_administrator_changes_nothing(name: str, guarded: Lake) -> None:
    before = logical_dump(guarded.registry)

    with pytest.raises(NotAllowedError, match="administrators"):
        CHANGES[name](guarded)

    assert logical_dump(guarded.registry) == before


def test_every_public_function_that_changes_something_passes_the_check() -> None:
    changing = {name for name in admin.__all__ if name.islower() and not name.startswith(("list_", "why"))}

    assert changing == set(CHANGES) | SAME_DOOR | NO_DECISION | NEED_SNAPSHOTS


def test_an_administrator_may_and_is_written_down(guarded: Lake) -> None:
    done = guarded.retire_partitions(NAME, insert_begin=START, insert_end=START + HOUR, dry_run=False, actor="ann")
    by_sql = guarded.retire_partitions(NAME, insert_begin=START, insert_end=START + HOUR, dry_run=False, actor="sql ann")

    assert (done.non_empty, by_sql.non_empty) == (1, 0)
    assert {run.actor for run in list_runs(guarded.registry)} == {"ann", "sql ann"}


def test_a_preview_is_everybodys_and_so_is_the_services_own_work(guarded: Lake) -> None:
    assert guarded.retire_partitions(NAME, insert_begin=START, insert_end=START + HOUR).non_empty == 1
    assert guarded.repair().clean is False  # the litter
    assert guarded.partitions.retire_expired(retention=HOUR, dry_run=False, actor="maintenance").non_empty == 1
    assert guarded.delete_expired_temporary_files().deleted == 0
    assert guarded.files.recover() == []


def test_a_repair_needs_an_administrator(guarded: Lake) -> None:
    with pytest.raises(NotAllowedError):
        guarded.repair(dry_run=False)

    assert guarded.repair(dry_run=False, actor="ann").clean


def test_the_list_can_be_read_emptied_and_needs_names(guarded: Lake) -> None:
    assert guarded.administrators.list() == ("ann",)
    with pytest.raises(InvalidValueError, match="has a name"):
        guarded.administrators.set(["bob", " "], actor="ann")

    guarded.administrators.set([], actor="ann")

    assert guarded.administrators.list() == ()
    assert guarded.retire_partitions(NAME, insert_begin=START, insert_end=START + HOUR, dry_run=False).non_empty == 1
