"""`why(file)`: the story of one file, at every stage of its life."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from builders import ORDERS, arrow_rows, make_table, write_partition, writing_path
from lakebed.core.errors import PathRefusedError
from lakebed.iceberg.catalog import open_catalog
from lakebed.iceberg.commit.committer import Committer
from lakebed.registry.journal.leases import end_reading, hold_for_reading
from lakebed.registry.repair.journal import forget_journal
from lakebed.registry.tables.groups import seal_table

if TYPE_CHECKING:
    from lakebed.admin import FileHistory
    from lakebed.lake import Lake
    from lakebed.testing import FixedClock

HOUR_US = 3_600_000_000


def commit(lake: Lake) -> None:
    table_id = lake.registry.require_table_id(ORDERS)
    seal_table(lake.registry, table_id)
    catalog = open_catalog(lake.registry, lake.storage)
    Committer(lake.registry, lake.storage, catalog).advance(table_id)
    catalog.close()


def filled(lake: Lake) -> str:
    make_table(lake.registry)
    write_partition(lake, 1)
    return lake.files.list(str(ORDERS))[0].file_path


def retire(lake: Lake, *, grace_s: float = 60.0) -> None:
    (partition,) = lake.list_partitions(str(ORDERS))
    lake.retire_partition_by_metadata(
        str(ORDERS), insert_begin=partition.begin_insert_time, insert_end=partition.end_insert_time, grace_s=grace_s, actor="ann"
    )


def story(history: FileHistory) -> list[str]:
    return [event.what for event in history.events]


def test_the_whole_life_of_a_file_is_listed_in_order(timed_lake: Lake, clock: FixedClock) -> None:
    lake, path = timed_lake, filled(timed_lake)
    clock.advance(seconds=1)
    commit(lake)
    clock.advance(seconds=1)
    retire(lake)
    clock.advance(seconds=1)
    commit(lake)

    found = lake.files.why(path)

    assert (found.table, found.state) == (str(ORDERS), "retired")
    reported = set(story(found))
    assert {"intent", "registered", "sealed", "entered Iceberg", "retired", "run", "queued", "left Iceberg", "there"} <= reported
    assert "ann" in next(event.detail for event in found.events if event.what == "run")
    assert {event.source for event in found.events} == {"operations", "journal", "table_snapshots", "temporary_files", "runs", "storage"}


def test_every_spelling_of_the_path_gives_the_same_answer(lake: Lake) -> None:
    path = filled(lake)

    reported = [lake.files.why(spelled) for spelled in (path, f"file://{path}", path.replace("/shop/", "//shop/./"))]

    assert [found.events for found in reported] == [reported[0].events] * 3
    assert (reported[0].state, reported[0].because) == ("live", "readers see it")


def test_a_retired_file_says_what_keeps_it(timed_lake: Lake, clock: FixedClock) -> None:
    lake, path = timed_lake, filled(timed_lake)
    hold_for_reading(lake.registry, "reader/7", [lake.table(str(ORDERS)).table_id], owner="host/1/slow", ttl_us=HOUR_US)
    retire(lake)
    both = lake.files.why(path).because
    clock.advance(seconds=61)
    lease = lake.files.why(path).because
    end_reading(lake.registry, "reader/7")
    nothing = lake.files.why(path).because

    assert ("grace period ends at" in both, "reader/7" in both) == (True, True)
    assert ("grace" in lease, "host/1/slow" in lease) == (False, True)
    assert "next clean-up" in nothing


def test_a_kept_snapshot_is_named_as_the_reason(timed_lake: Lake, clock: FixedClock) -> None:
    lake, path = timed_lake, filled(timed_lake)
    commit(lake)
    clock.advance(seconds=1)
    retire(lake)
    commit(lake)
    clock.advance(seconds=61)

    assert "1 kept snapshot(s) reference it" in lake.files.why(path).because


def test_a_file_that_was_deleted_is_remembered_by_the_journal(timed_lake: Lake, clock: FixedClock) -> None:
    lake, path = timed_lake, filled(timed_lake)
    retire(lake)
    clock.advance(seconds=61)
    assert lake.delete_expired_temporary_files().deleted == 1

    found = lake.files.why(path)

    assert (found.state, story(found)[-1]) == ("deleted", "not there")
    assert {"intent", "registered", "retired", "deleted"} <= set(story(found))


def test_rows_hold_what_a_purged_journal_does_not(lake: Lake) -> None:
    path = filled(lake)
    retire(lake)
    forget_journal(lake.registry, lake.registry.require_table_id(ORDERS))

    assert {"intent", "registered", "retired", "queued"} <= set(story(lake.files.why(path)))


def test_orphans_and_files_of_an_open_writer_are_distinguished(lake: Lake) -> None:
    make_table(lake.registry)
    with lake.writing(str(ORDERS)) as writing:
        path = writing_path(writing.new_path())
        pq.write_table(arrow_rows(1), path)
        assert lake.files.why(path).state == "writing"
        writing.publish()
    litter = Path(lake.storage.paths.root) / "litter.parquet"
    litter.write_bytes(b"x")

    assert lake.files.why(str(litter)).state == "orphan"
    assert lake.files.why(str(litter.with_name("never.parquet"))).state == "unknown"
    litter.unlink()


def test_a_lost_live_file_says_so_and_a_path_outside_is_refused(lake: Lake) -> None:
    path = filled(lake)
    Path(path).unlink()

    assert "lakebed check" in lake.files.why(path).because
    with pytest.raises(PathRefusedError):
        lake.files.why("/etc/passwd")
