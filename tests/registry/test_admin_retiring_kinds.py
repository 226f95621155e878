"""Retiring what became incompatible, what is past its time, and what a file belongs to."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from retire_calls import fill, hour, left_behind, outcomes

from builders import (
    DAILY,
    ORDERS,
    START,
    count,
    fake_file,
    make_table,
    publish,
    within,
    write_partition,
)
from lakebed import admin
from lakebed.core.errors import (
    InvalidValueError,
    PartitionNotFoundError,
    RefusedError,
)
from lakebed.registry.partitions.retire_many import allow_incompatible, retire_in_batches
from lakebed.registry.tables.lake_tables import drop_table

if TYPE_CHECKING:
    from lakebed.lake import Lake
    from lakebed.registry.registry import Registry
    from lakebed.testing import FixedClock


# -- what became incompatible ---------------------------------------------------------------------


def test_what_became_incompatible_is_previewed_then_retired_and_nothing_else(registry: Registry) -> None:
    _, new = left_behind(registry)
    preview = admin.retire_incompatible_partitions(registry, str(DAILY))

    done = admin.retire_incompatible_partitions(registry, str(DAILY), dry_run=False)

    assert (preview.empty, preview.non_empty, preview.dry_run) == (1, 1, True)
    assert (done.empty, done.non_empty, done.files, done.bytes_scheduled) == (1, 1, 1, 20_000)
    assert preview.summary == "would retire 1 partitions with rows and 1 empty ones, 0.0 MB scheduled for deletion"
    assert done.summary == "retired 1 partitions with rows and 1 empty ones, 0.0 MB scheduled for deletion"
    assert [p.schema_hash for p in admin.list_partitions(registry)] == [new]
    assert admin.retire_incompatible_partitions(registry, dry_run=False).partitions == 0


def test_named_partitions_give_one_outcome_each_in_their_order(registry: Registry) -> None:
    left_behind(registry)
    first, second = (r.partition_id for r in admin.list_incompatible_partitions(registry))
    visible = next(p.partition_id for p in admin.list_partitions(registry) if p.partition_id not in {first, second})

    done = admin.retire_incompatible_partitions(registry, partition_ids=[second, visible, 7, first, second], dry_run=False)

    assert outcomes(done) == ["retired", "compatible", "not_found", "retired", "already_retired"]
    assert [o.partition_id for o in done.outcomes] == [second, visible, 7, first, second]
    missing = done.outcomes[2]
    assert (missing.num_rows, missing.file_count, missing.file_size) == (0, 0, 0)
    assert [p.partition_id for p in admin.list_partitions(registry)] == [visible]


def test_what_became_visible_since_it_was_listed_is_kept(registry: Registry) -> None:
    left_behind(registry)
    listed = admin.list_incompatible_partitions(registry)
    within(registry, lambda tx: tx.run("UPDATE table_metadata SET standing = 'readable' WHERE standing = 'incompatible'"), DAILY)

    (done,) = retire_in_batches(registry, listed, check=allow_incompatible)  # judged again, under the lock
    named = admin.retire_incompatible_partitions(registry, partition_ids=[r.partition_id for r in listed], dry_run=False)

    assert [o.outcome for o in done] == outcomes(named) == ["compatible"] * 2


def test_partitions_of_a_dropped_table_can_be_retired(registry: Registry) -> None:
    fill(registry, 2)
    within(registry, lambda tx: drop_table(tx, ORDERS))

    done = admin.retire_incompatible_partitions(registry, dry_run=False)

    assert (done.empty, done.non_empty) == (1, 1)
    assert count(registry, "temporary_files") == 1


# -- by age ---------------------------------------------------------------------------------------


def test_partitions_past_their_retention_go_by_event_time_and_by_slice(timed_registry: Registry, clock: FixedClock) -> None:
    table = make_table(timed_registry)
    publish(timed_registry, table, fake_file(1), hours=(0, 1))  # its events are at START
    publish(timed_registry, table, hours=(1, 2))  # empty: its slice ends two hours after START
    publish(timed_registry, table)  # inserted now, empty
    retention = timedelta(microseconds=clock.micros) - (START - hour(0)) - timedelta(seconds=START.timestamp())

    def expired(extra: timedelta) -> int:
        return admin.retire_expired_partitions(timed_registry, retention=retention + extra).partitions

    assert [expired(timedelta(0)), expired(timedelta(hours=-1)), expired(timedelta(hours=-3))] == [0, 1, 2]
    done = admin.retire_expired_partitions(timed_registry, str(ORDERS), retention=retention - timedelta(hours=3), dry_run=False)
    assert (done.empty, done.non_empty) == (1, 1)
    assert len(admin.list_partitions(timed_registry)) == 1


@pytest.mark.parametrize("retention", [timedelta(0), timedelta(days=-1)])
def test_a_retention_of_nothing_is_refused(registry: Registry, retention: timedelta) -> None:
    with pytest.raises(InvalidValueError, match="retention"):
        admin.retire_expired_partitions(registry, retention=retention)


# -- by file --------------------------------------------------------------------------------------


def test_retiring_by_file_warns_and_takes_the_whole_partition_once(lake: Lake) -> None:
    make_table(lake.registry)
    write_partition(lake, 1, files=2)
    path = lake.files.list(str(ORDERS))[0].file_path

    with pytest.warns(DeprecationWarning, match="use retire_partition_by_metadata") as warned:
        done = admin.retire_partition_by_file(lake.registry, lake.storage, f"file://{path}")
    with pytest.warns(DeprecationWarning, match="deprecated"):
        again = admin.retire_partition_by_file(lake.registry, lake.storage, path)

    assert warned[0].filename == __file__
    assert (done.partitions, done.files, outcomes(again)) == (1, 2, ["already_retired"])
    assert lake.check().clean


def test_an_unknown_file_and_an_empty_path_are_refused(lake: Lake) -> None:
    for path, error in (
        (f"{lake.storage.paths.root}/x.parquet", PartitionNotFoundError),
        (" ", InvalidValueError),
        ("/etc/passwd", RefusedError),
    ):
        with pytest.warns(DeprecationWarning, match="deprecated"), pytest.raises(error):
            admin.retire_partition_by_file(lake.registry, lake.storage, path)
