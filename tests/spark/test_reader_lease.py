"""The reader's lease of a process: cheap to hold, renewed while it lives, gone when it is closed. No Spark."""

from __future__ import annotations

import gc
import logging
import os
import threading
from typing import TYPE_CHECKING

import pytest

from builders import count, fake_file, fresh_name, make_table, publish
from lakebed.core.errors import RegistryUnavailableError
from lakebed.pipeline.spark.lease import ReaderLease
from lakebed.registry.connect import open_backend
from lakebed.registry.files.deletion_queue import claim_expired
from lakebed.registry.registry import Registry
from lakebed.testing import SteppedBackend, Steps
from retiring import retire_by_ids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.testing import FixedClock


class Monotonic:
    """Seconds that pass on request."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def table(registry: Registry) -> LakeTable:
    made = make_table(registry)
    publish(registry, made, fake_file(1))
    return made


@pytest.fixture
def lease(registry: Registry) -> Iterator[ReaderLease]:
    made = ReaderLease(registry)
    yield made
    made.close()


def beating() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "lakebed-reader"]


def last_number(registry: Registry) -> int:
    return int(registry.query("SELECT max(last_seq) FROM table_seq")[0][0])


def test_a_hold_protects_what_is_live_now(registry: Registry, table: LakeTable, lease: ReaderLease) -> None:
    done = publish(registry, table, fake_file(2))
    before = last_number(registry)

    assert lease.hold([table.table_id]) == {table.table_id: before}

    registry.transact(lambda tx: retire_by_ids(tx, table.name, {done.partition_id}, grace_us=0), tables=[table.name])
    assert claim_expired(registry, limit=10).files == ()
    lease.close()
    assert len(claim_expired(registry, limit=10).files) == 1


def test_a_second_hold_of_a_table_writes_nothing(url: str, table: LakeTable) -> None:
    steps = Steps()
    registry = Registry(SteppedBackend(open_backend(url), steps))
    lease = ReaderLease(registry)
    first = lease.hold([table.table_id])
    publish(registry, table, fake_file(3))
    done = len(steps.done)

    assert lease.hold([table.table_id]) == first
    assert len(steps.done) == done
    lease.close()
    registry.close()


def test_a_hold_near_its_end_is_renewed_before_a_plan_stands_on_it(registry: Registry, table: LakeTable) -> None:
    monotonic = Monotonic()
    lease = ReaderLease(registry, ttl_s=60, monotonic=monotonic)
    lease.hold([table.table_id])
    first = registry.query("SELECT expires_at FROM leases")[0][0]

    monotonic.now += 50
    lease.hold([table.table_id])

    assert registry.query("SELECT expires_at FROM leases")[0][0] > first
    lease.close()


def test_closing_leaves_neither_row_nor_thread(registry: Registry, table: LakeTable) -> None:
    lease = ReaderLease(registry)
    lease.hold([table.table_id])
    assert lease.is_beating
    assert count(registry, "leases") == 1

    lease.close()

    assert beating() == []
    assert count(registry, "leases") == count(registry, "lease_numbers") == 0
    lease.close()


def test_a_lease_without_references_ends_its_thread(registry: Registry, table: LakeTable) -> None:
    lease = ReaderLease(registry, ttl_s=0.03)
    lease.hold([table.table_id])
    (thread,) = beating()

    del lease
    gc.collect()

    thread.join(timeout=30)
    assert not thread.is_alive()


def test_the_heartbeat_renews_what_is_held(registry: Registry, table: LakeTable, lease: ReaderLease) -> None:
    number = lease.hold([table.table_id])[table.table_id]
    first = registry.query("SELECT expires_at FROM leases")[0][0]
    publish(registry, table, fake_file(4))

    lease.beat()

    assert registry.query("SELECT expires_at FROM leases")[0][0] > first
    assert lease.held == {table.table_id: number}


def test_a_block_lets_go_at_its_end(registry: Registry, table: LakeTable, lease: ReaderLease) -> None:
    with lease.reading():
        with lease.reading():
            lease.hold([table.table_id])
        assert count(registry, "leases") == 1

    assert count(registry, "leases") == 0
    assert beating() == []


def test_a_block_does_not_let_go_of_what_was_read_outside(registry: Registry, table: LakeTable, lease: ReaderLease) -> None:
    lease.hold([table.table_id])
    with lease.reading():
        lease.hold([table.table_id])

    assert lease.held != {}
    assert count(registry, "leases") == 1


def test_a_lease_ends_with_a_warning_when_it_is_too_old(registry: Registry, table: LakeTable, caplog: pytest.LogCaptureFixture) -> None:
    monotonic = Monotonic()
    lease = ReaderLease(registry, max_s=3600, monotonic=monotonic)
    lease.hold([table.table_id])
    name = lease.name

    monotonic.now += 3601
    with caplog.at_level(logging.WARNING, logger="lakebed"):
        lease.beat()

    assert "reached its maximum age" in caplog.text
    assert count(registry, "leases") == 0
    lease.hold([table.table_id])
    assert lease.name != name
    lease.close()
    assert beating() == []


def test_an_expired_lease_is_reported_and_held_again(timed_registry: Registry, clock: FixedClock, caplog: pytest.LogCaptureFixture) -> None:
    table = make_table(timed_registry)
    publish(timed_registry, table, fake_file(1))
    lease = ReaderLease(timed_registry)
    lease.hold([table.table_id])
    publish(timed_registry, table, fake_file(2))

    clock.advance(seconds=3600)
    with caplog.at_level(logging.WARNING, logger="lakebed"):
        lease.beat()

    assert "had expired" in caplog.text
    assert lease.held == {table.table_id: last_number(timed_registry)}
    lease.close()


def test_a_registry_that_does_not_answer_stops_no_heartbeat(url: str, table: LakeTable, caplog: pytest.LogCaptureFixture) -> None:
    failed = threading.Event()

    def fail(_: str) -> None:
        failed.set()
        message = "gone"
        raise RegistryUnavailableError(message)

    steps = Steps()
    registry = Registry(SteppedBackend(open_backend(url), steps))
    lease = ReaderLease(registry, ttl_s=0.03)
    with caplog.at_level(logging.WARNING, logger="lakebed"):
        lease.hold([table.table_id])
        steps.act, steps.at = fail, len(steps.done) + 1
        assert failed.wait(timeout=30)

        assert lease.is_beating
    lease.close()
    registry.close()


def test_several_tables_are_held_at_once_and_added_later(registry: Registry, table: LakeTable, lease: ReaderLease) -> None:
    other, third = make_table(registry, fresh_name()), make_table(registry, fresh_name())

    lease.hold([table.table_id, other.table_id])
    lease.hold([third.table_id])

    assert set(lease.held) == {table.table_id, other.table_id, third.table_id}
    assert lease.hold([987_654]) == {}


def test_threads_share_one_lease(registry: Registry, table: LakeTable, lease: ReaderLease) -> None:
    threads = [threading.Thread(target=lease.hold, args=([table.table_id],)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert count(registry, "leases") == 1
    assert len(beating()) == 1


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # forking beside a thread is the very case
def test_a_forked_child_starts_with_nothing_held(table: LakeTable, lease: ReaderLease) -> None:
    lease.hold([table.table_id])
    name = lease.name
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:  # pragma: no cover - another process
        lease._leave_parent()
        os.write(writer, f"{lease.name != name} {lease.held} {lease.is_beating}".encode())
        os._exit(0)
    os.waitpid(child, 0)

    assert os.read(reader, 100) == b"True {} False"
    assert lease.name == name
    os.close(reader)
    os.close(writer)
