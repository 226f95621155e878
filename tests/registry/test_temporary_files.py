"""Files on their way out: claimed by one, deleted outside any transaction, finalized whole."""

from __future__ import annotations

from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from queued_files import queue_fakes

from builders import (
    ORDERS,
    SCHEMA,
    count,
    fake_file,
    logical_dump,
    make_table,
    publish,
    seal_pending,
    stepped_lake,
    within,
    write_partition,
)
from lakebed.admin import delete_expired_temporary_files
from lakebed.core.errors import FooterNotFoundError
from lakebed.registry.connect import open_backend
from lakebed.registry.files.deletion_queue import claim_expired, count_deletable, finalize_deleted, queue_files, release_failed
from lakebed.registry.files.footers import load_footer
from lakebed.registry.journal.leases import end_reading, hold_for_reading
from lakebed.registry.queries.listing import list_files
from lakebed.registry.registry import Registry
from lakebed.registry.snapshots.history import NewSnapshot, add_snapshot, expire_snapshots
from lakebed.registry.tables.groups import set_committed_group
from lakebed.testing import FixedClock, SteppedBackend, Steps
from retiring import retire_by_ids

if TYPE_CHECKING:
    from lakebed.lake import Lake

GRACE_US = 3600 * 1_000_000
TTL_US = 10 * 1_000_000


@pytest.fixture
def lake(timed_lake: Lake) -> Lake:
    timed_lake.create_table(str(ORDERS), SCHEMA, event_time="ts", index=("id",))
    return timed_lake


def retire(lake: Lake, *partitions: int, grace_us: int = GRACE_US) -> None:
    within(lake.registry, lambda tx: retire_by_ids(tx, ORDERS, set(partitions), grace_us=grace_us))


def write_and_retire(lake: Lake, number: int = 1, *, files: int = 1) -> list[str]:
    """Paths of real files whose grace has just begun."""
    done = write_partition(lake, number, files=files)
    paths = [f.file_path for f in lake.files.list(str(ORDERS)) if f.partition_id == done.partition_id]
    retire(lake, done.partition_id)
    return paths


def a_snapshot(number: int, group: int) -> NewSnapshot:
    return NewSnapshot(
        snapshot_id=number, parent_id=None, sequence_number=number, group_no=group, timestamp_ms=number, manifest_list="m",
        metadata_location="l", summary="{}", schema_id=0, operation="append", trigger="insert",
    )  # fmt: skip


def test_a_file_is_there_until_its_grace_has_passed_and_gone_after_the_first_clean_up(lake: Lake, clock: FixedClock) -> None:
    (path,) = write_and_retire(lake)

    clock.advance(seconds=3599)
    assert lake.delete_expired_temporary_files().deleted == 0
    assert Path(path).exists()
    clock.advance(seconds=1)
    cleaned = lake.delete_expired_temporary_files()

    assert (cleaned.deleted, cleaned.failed) == (1, {})
    assert not Path(path).exists()
    assert not Path(path).parent.exists()
    assert lake.check().clean


def test_queued_twice_the_later_expiry_wins(timed_registry: Registry, clock: FixedClock) -> None:
    make_table(timed_registry)

    for grace in (50, 90, 20):
        within(timed_registry, lambda tx, grace=grace: queue_files(tx, 1, {"/w/x": 5}, reason="lost", grace_us=grace))  # type: ignore[misc]

    assert timed_registry.query("SELECT file_path, expiration FROM temporary_files") == [("/w/x", clock.micros + 90)]


def test_finalizing_removes_every_row_of_the_file_in_one_transaction(lake: Lake, clock: FixedClock) -> None:
    write_and_retire(lake, files=2)
    survivor = write_partition(lake, 5)
    clock.advance(seconds=3600)

    lake.delete_expired_temporary_files()

    registry = lake.registry
    assert [f.id for f in list_files(registry, 1, retired=True)] == list(survivor.file_ids)
    assert [count(registry, t) for t in ("partition_metadata", "temporary_files")] == [1, 0]
    assert count(registry, "file_columns", f"file_id <> {survivor.first_file_id}") == 0
    assert [row[0] // 8 for row in registry.query("SELECT id FROM file_ranges")] == [survivor.first_file_id] * 2


@pytest.mark.parametrize("each", [1, 20], ids=["ids apart", "ids in runs"])
def test_the_files_between_those_that_go_keep_every_row(registry: Registry, each: int) -> None:
    table = make_table(registry)
    done = [publish(registry, table, *[fake_file(n * each + k) for k in range(each)]) for n in range(12)]
    leaving = {one.partition_id for one in done[::2]}
    staying = [file_id for one in done[1::2] for file_id in one.file_ids]
    before = {file_id: count(registry, "file_columns", f"file_id = {file_id}") for file_id in staying}
    within(registry, lambda tx: retire_by_ids(tx, ORDERS, leaving, grace_us=0))

    claim = claim_expired(registry)
    assert finalize_deleted(registry, claim, [f.path for f in claim.files]) == 6 * each

    assert [row[0] for row in registry.query("SELECT id FROM table_files ORDER BY id")] == staying
    assert {file_id: count(registry, "file_columns", f"file_id = {file_id}") for file_id in staying} == before
    assert count(registry, "file_columns") == sum(before.values()) > 0
    ranges = [row[0] // 8 for row in registry.query("SELECT id FROM file_ranges ORDER BY id")]
    assert ranges == sorted(ranges)
    assert set(ranges) == set(staying)
    assert count(registry, "partition_metadata") == len(staying)


def test_rows_of_a_file_that_another_finalized_are_left_alone(timed_registry: Registry, clock: FixedClock) -> None:
    """Only the process that takes the queue entry under its own claim may touch the rest."""
    queue_fakes(timed_registry, 3)
    slow = claim_expired(timed_registry)
    clock.advance(seconds=301)
    claim_expired(timed_registry)
    before = logical_dump(timed_registry)

    assert finalize_deleted(timed_registry, slow, [f.path for f in slow.files]) == 0

    assert logical_dump(timed_registry) == before


def test_a_footer_lives_exactly_as_long_as_its_file_row(lake: Lake, clock: FixedClock) -> None:
    (path,) = write_and_retire(lake)
    clock.advance(seconds=3600)
    claim = claim_expired(lake.registry)
    Path(path).unlink()

    assert load_footer(lake.registry, path)[-4:] == b"PAR1"  # deleted from storage, not yet final
    finalize_deleted(lake.registry, claim, [path])

    with pytest.raises(FooterNotFoundError):
        load_footer(lake.registry, path)


def test_a_finalize_that_fails_at_any_statement_leaves_every_row(url: str, clock: FixedClock, lake: Lake) -> None:
    write_and_retire(lake, files=2)
    clock.advance(seconds=3600)
    claim = claim_expired(lake.registry)
    before = logical_dump(lake.registry)

    for step in range(2, 100):
        stepped = Registry(SteppedBackend(open_backend(url), Steps(at=step, act=fail)), clock=clock)
        with closing(stepped), suppress(InterruptedError):
            finalize_deleted(stepped, claim, [f.path for f in claim.files])
            break
        assert logical_dump(lake.registry) == before

    assert step > 6
    assert count(lake.registry, "table_files") == count(lake.registry, "temporary_files") == 0


def fail(what: str) -> None:
    if what != "committed":
        raise InterruptedError


def test_a_missing_object_counts_as_deleted(lake: Lake, clock: FixedClock) -> None:
    (path,) = write_and_retire(lake)
    Path(path).unlink()
    clock.advance(seconds=3600)

    assert lake.delete_expired_temporary_files().deleted == 1

    assert count(lake.registry, "table_files") == 0


def test_what_storage_refuses_stays_queued_with_attempts_and_a_growing_pause(lake: Lake, clock: FixedClock) -> None:
    stuck, *others = write_and_retire(lake, files=4)
    Path(stuck).unlink()
    Path(stuck).mkdir()  # no file can be unlinked here
    clock.advance(seconds=3600)

    cleaned = lake.delete_expired_temporary_files()

    assert (cleaned.deleted, list(cleaned.failed)) == (len(others), [stuck])
    assert lake.registry.query("SELECT file_path, attempts, claimed_until FROM temporary_files") == [(stuck, 1, clock.micros + 10_000_000)]
    clock.advance(seconds=11)
    lake.delete_expired_temporary_files()
    assert lake.registry.query("SELECT attempts, claimed_until FROM temporary_files") == [(2, clock.micros + 20_000_000)]


def test_a_refused_file_is_not_tried_before_its_pause_and_goes_when_storage_relents(lake: Lake, clock: FixedClock) -> None:
    (stuck,) = write_and_retire(lake)
    Path(stuck).unlink()
    Path(stuck).mkdir()
    clock.advance(seconds=3600)
    lake.delete_expired_temporary_files()
    Path(stuck).rmdir()

    assert lake.delete_expired_temporary_files().deleted == 0
    clock.advance(seconds=11)

    assert lake.delete_expired_temporary_files().deleted == 1
    assert lake.check().clean


def test_the_pause_between_attempts_has_an_end(timed_registry: Registry, clock: FixedClock) -> None:
    queue_fakes(timed_registry, 1)
    with timed_registry.write() as tx:
        tx.run("UPDATE temporary_files SET attempts = 5000")
    claim = claim_expired(timed_registry)

    release_failed(timed_registry, claim, [claim.files[0].path])

    assert timed_registry.query("SELECT attempts, claimed_until FROM temporary_files") == [(5001, clock.micros + 3600 * 1_000_000)]


def test_a_leased_file_outlives_its_grace_until_the_reader_ends(lake: Lake, clock: FixedClock) -> None:
    done = write_partition(lake, 1)
    hold_for_reading(lake.registry, "reader/1", [done.table_id], owner="host/1/test", ttl_us=GRACE_US * 9)
    retire(lake, done.partition_id)
    clock.advance(seconds=7200)
    assert lake.delete_expired_temporary_files().deleted == 0

    end_reading(lake.registry, "reader/1")

    assert lake.delete_expired_temporary_files().deleted == 1


def test_the_lease_of_a_crashed_reader_expires(lake: Lake, clock: FixedClock) -> None:
    done = write_partition(lake, 1)
    hold_for_reading(lake.registry, "reader/1", [done.table_id], owner="host/1/test", ttl_us=GRACE_US + TTL_US)
    retire(lake, done.partition_id)

    clock.advance(seconds=3609)
    assert count_deletable(lake.registry) == (0, 0)
    clock.advance(seconds=1)

    assert lake.delete_expired_temporary_files().deleted == 1


def test_a_lease_taken_after_the_retirement_protects_nothing(lake: Lake, clock: FixedClock) -> None:
    write_and_retire(lake)
    hold_for_reading(lake.registry, "reader/1", [1], owner="host/1/test", ttl_us=GRACE_US * 9)
    clock.advance(seconds=3600)

    assert lake.delete_expired_temporary_files().deleted == 1


def test_a_lease_on_another_table_protects_nothing(lake: Lake, clock: FixedClock) -> None:
    other = lake.create_table("shop.returns", SCHEMA, event_time="ts")
    hold_for_reading(lake.registry, "reader/1", [other.table_id], owner="host/1/test", ttl_us=GRACE_US * 9)
    write_and_retire(lake)
    clock.advance(seconds=3600)

    assert lake.delete_expired_temporary_files().deleted == 1


def test_a_sealed_file_waits_until_iceberg_has_left_it(lake: Lake, clock: FixedClock) -> None:
    done = write_partition(lake, 1)
    assert seal_pending(lake.registry) == 1
    retire(lake, done.partition_id)
    clock.advance(seconds=3600)

    assert lake.delete_expired_temporary_files().deleted == 0
    within(lake.registry, lambda tx: set_committed_group(tx, ORDERS, 1, snapshot_id=11))
    assert lake.delete_expired_temporary_files().deleted == 0
    within(lake.registry, lambda tx: set_committed_group(tx, ORDERS, 2, snapshot_id=12))

    assert lake.delete_expired_temporary_files().deleted == 1


def test_a_retained_snapshot_protects_its_files_until_it_expires(lake: Lake, clock: FixedClock) -> None:
    done = write_partition(lake, 1)
    seal_pending(lake.registry)
    retire(lake, done.partition_id)
    for number, group in [(11, 1), (12, 2)]:
        within(lake.registry, lambda tx, n=number, g=group: add_snapshot(tx, ORDERS, a_snapshot(n, g)))  # type: ignore[misc]
    within(lake.registry, lambda tx: set_committed_group(tx, ORDERS, 2, snapshot_id=12))
    clock.advance(seconds=3600)
    assert lake.delete_expired_temporary_files().deleted == 0

    within(lake.registry, lambda tx: expire_snapshots(tx, ORDERS, [11]))

    assert lake.delete_expired_temporary_files().deleted == 1


def test_a_live_file_queued_by_hand_is_never_claimed(lake: Lake, clock: FixedClock) -> None:
    write_partition(lake, 1)
    (live,) = lake.files.list(str(ORDERS))
    within(lake.registry, lambda tx: queue_files(tx, 1, {live.file_path: live.file_size}, reason="mistake", grace_us=0))
    clock.advance(seconds=10**6)

    assert claim_expired(lake.registry).files == ()
    assert lake.delete_expired_temporary_files().deleted == 0
    assert Path(live.file_path).exists()


def test_a_file_that_no_row_knows_is_deleted_by_its_queue_entry_alone(lake: Lake, clock: FixedClock) -> None:
    """Outputs of a lost swap, and what was queued before the registry kept a table with it."""
    for number, table_id in enumerate([1, 0]):
        path = f"{lake.storage.paths.root}/shop/orders-1/data/{number:032x}/part-00000.parquet"
        lake.storage.create_exclusive(path, b"x")
        with lake.registry.write() as tx:
            queue_files(tx, table_id, {path: 1}, reason="lost", grace_us=0)
    clock.advance(seconds=1)

    cleaned = lake.delete_expired_temporary_files()

    assert (cleaned.deleted, cleaned.bytes_freed, cleaned.failed) == (2, 2, {})
    assert lake.check().clean


def test_a_path_outside_the_warehouse_is_never_deleted(lake: Lake, clock: FixedClock, tmp_path: Path) -> None:
    outside = tmp_path / "precious"
    outside.write_text("keep")
    with lake.registry.write() as tx:
        queue_files(tx, 1, {str(outside): 4}, reason="evil", grace_us=0)
    clock.advance(seconds=1)

    cleaned = lake.delete_expired_temporary_files()

    assert list(cleaned.failed) == [str(outside)]
    assert outside.read_text() == "keep"


def test_five_thousand_expired_files_go_in_transactions_of_at_most_one_batch(lake: Lake, url: str, clock: FixedClock) -> None:
    root, steps, progress = lake.storage.paths.root, Steps(), [0]
    done = publish(lake.registry, lake.table(str(ORDERS)), *[fake_file(n, root=root) for n in range(5000)])
    retire(lake, done.partition_id, grace_us=0)

    with stepped_lake(url, root, steps, clock=clock) as cleaner:
        delete_expired_temporary_files(cleaner.registry, cleaner.storage, batch_size=500, progress=progress.append)

    assert progress[-1] == 5000
    assert all(0 < after - before <= 500 for before, after in pairwise(progress))
    assert steps.done.count("commit") >= 20
    assert count(lake.registry, "table_files") == 0


def test_nothing_to_do_costs_one_claim(registry: Registry) -> None:
    make_table(registry)
    before = logical_dump(registry)

    assert claim_expired(registry).files == ()

    assert logical_dump(registry) == before
    assert count_deletable(registry) == (0, 0)
