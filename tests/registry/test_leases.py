"""Leases: one owner at a time with an epoch that fences, and readers that hold files by journal number."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from builders import ORDERS, count, fake_file, logical_dump, make_table, publish, seal_pending, within
from lakebed.core.errors import InvalidNameError, LeaseHeldError, LeaseLostError
from lakebed.core.names import TableName
from lakebed.registry.journal.leases import (
    Lease,
    acquire_lease,
    end_reading,
    hold_for_reading,
    release_lease,
    renew_lease,
    require_epoch,
)
from lakebed.registry.processes import make_owner
from lakebed.registry.tables.groups import set_committed_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakebed.registry.registry import Registry
    from lakebed.testing import FixedClock

NAME = "committer/shop.orders"
TTL_US = 10_000_000


def acquire(registry: Registry, owner: str = "elsewhere/1/updater") -> Lease:
    return acquire_lease(registry, NAME, owner=owner, ttl_us=TTL_US)


def write_under(registry: Registry, lease: Lease) -> None:
    """A write that only the holder may make."""
    with registry.write() as tx:
        require_epoch(tx, lease)
        tx.run("INSERT INTO astha_state (key, value, updated_at) VALUES (:k, 'x', 1)", {"k": f"{lease.epoch}"})


def test_a_lease_has_one_holder_and_the_refusal_names_it(registry: Registry) -> None:
    acquire(registry)

    with pytest.raises(LeaseHeldError, match=r"is held by elsewhere/1/updater: wait until it is released or expires"):
        acquire(registry, "elsewhere/2/updater")


def test_every_grant_raises_the_epoch_even_after_a_release(timed_registry: Registry, clock: FixedClock) -> None:
    epochs = []
    for _ in range(3):
        lease = acquire(timed_registry)
        epochs.append(lease.epoch)
        release_lease(timed_registry, lease)
    acquire(timed_registry)
    clock.advance(seconds=11)
    epochs.append(acquire(timed_registry, "elsewhere/2/updater").epoch)

    assert epochs == [1, 2, 3, 5]


def test_a_lease_granted_while_the_clock_was_ahead_does_not_block_until_that_time(timed_registry: Registry, clock: FixedClock) -> None:
    clock.advance(seconds=2 * 3600)
    first = acquire(timed_registry)
    clock.advance(seconds=-2 * 3600)

    second = acquire(timed_registry, "elsewhere/2/updater")

    assert (second.epoch, second.expires_at) == (2, clock.micros + TTL_US)
    with pytest.raises(LeaseLostError):
        write_under(timed_registry, first)


def test_a_lease_is_kept_by_renewing_it(timed_registry: Registry, clock: FixedClock) -> None:
    lease = acquire(timed_registry)
    for _ in range(5):
        clock.advance(seconds=9)
        lease = renew_lease(timed_registry, lease, ttl_us=TTL_US)

    assert lease == Lease(name=NAME, owner="elsewhere/1/updater", epoch=1, expires_at=clock.micros + TTL_US)
    with pytest.raises(LeaseHeldError):
        acquire(timed_registry, "elsewhere/2/updater")


def test_an_expired_lease_is_granted_to_another_and_its_old_holder_is_fenced_out(timed_registry: Registry, clock: FixedClock) -> None:
    old = acquire(timed_registry)
    clock.advance(seconds=10)

    new = acquire(timed_registry, "elsewhere/2/updater")

    for step in (lambda: write_under(timed_registry, old), lambda: renew_lease(timed_registry, old)):
        with pytest.raises(LeaseLostError, match="was lost after epoch 1: acquire it again and start from the registry"):
            step()
    write_under(timed_registry, new)
    assert timed_registry.query("SELECT key FROM astha_state") == [("2",)]


def test_an_expired_lease_that_was_not_taken_still_fences_no_one(timed_registry: Registry, clock: FixedClock) -> None:
    lease = acquire(timed_registry)
    clock.advance(seconds=100)

    write_under(timed_registry, lease)

    assert count(timed_registry, "astha_state") == 1


def test_releasing_a_lease_that_was_lost_leaves_the_new_holder_alone(timed_registry: Registry, clock: FixedClock) -> None:
    old = acquire(timed_registry)
    clock.advance(seconds=11)
    acquire(timed_registry, "elsewhere/2/updater")
    before = logical_dump(timed_registry)

    release_lease(timed_registry, old)

    assert logical_dump(timed_registry) == before


_NAMED = "import os\nfrom lakebed.registry.processes import make_owner\nprint(os.getpid(), make_owner('updater'), flush=True)\ninput()"


@contextmanager
def named_process(*prefix: str) -> Iterator[tuple[int, str]]:
    """A process that says how it names itself, alive until the block ends."""
    command = [*prefix, sys.executable, "-c", _NAMED]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid, owner = process.stdout.readline().split()
        yield int(pid), owner
        process.communicate("\n")


def test_a_dead_process_of_this_host_loses_its_lease_at_once(registry: Registry) -> None:
    with named_process() as (_, owner):
        acquire(registry, owner)
        with pytest.raises(LeaseHeldError):
            acquire(registry, make_owner("updater"))

    assert acquire(registry, make_owner("updater")).epoch == 2


def test_a_process_that_has_the_id_of_a_dead_one_does_not_keep_its_lease(registry: Registry) -> None:
    host, process, label = make_owner("updater").split("/")
    pid, _, identity = process.partition("@")
    _, _, space = identity.partition(".")
    acquire(registry, f"{host}/{pid}@1.{space}/{label}")

    assert acquire(registry, make_owner("updater")).epoch == 2


def test_a_living_process_of_this_host_and_any_of_another_keep_theirs(registry: Registry) -> None:
    acquire(registry, make_owner("updater"))
    with pytest.raises(LeaseHeldError):
        acquire(registry, "elsewhere/2/updater")
    with named_process() as (_, owner):
        pass

    acquire_lease(registry, "other", owner=f"another-host/{owner.partition('/')[2]}")
    with pytest.raises(LeaseHeldError):
        acquire_lease(registry, "other", owner=make_owner("updater"))


def test_a_process_in_another_namespace_of_ids_keeps_its_lease_though_the_host_has_the_same_name(registry: Registry) -> None:
    prefix = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")
    if shutil.which("unshare") is None or subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system does not allow a new namespace of process ids")
    with named_process(*prefix) as (pid, owner):
        assert pid < 10
        assert owner.partition("/")[0] == socket.gethostname()
        acquire(registry, owner)
        with pytest.raises(LeaseHeldError):
            acquire(registry, make_owner("updater"))


def said_behind_a_mount(mount: str, program: str, *arguments: str) -> str:
    """What a Python program prints where only it sees the mount: containers hide parts of /proc like this."""
    prefix = ("unshare", "--user", "--map-root-user", "--mount")
    if shutil.which("unshare") is None or subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system does not allow a new namespace of mounts")
    command = [*prefix, "sh", "-c", f'mount {mount} && exec "$@"', "sh", sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_living_process_of_which_proc_shows_nothing_counts_as_alive() -> None:
    judge = "import sys\nfrom lakebed.registry.processes import is_dead\nprint(is_dead(sys.argv[1]))"
    with named_process() as (pid, owner):
        assert said_behind_a_mount(f"-t tmpfs none /proc/{pid}", judge, owner) == "False"


def test_where_the_boot_is_hidden_no_system_is_named() -> None:
    name = "from lakebed.registry.processes import make_owner\nprint(make_owner('updater'))"
    assert "@" not in said_behind_a_mount("--bind /dev/null /proc/sys/kernel/random/boot_id", name)


@pytest.mark.parametrize("owner", ["{host}/999999999/updater", "{host}/999999999@5.4026531836.another-boot/updater", "{host}/x/updater"])
def test_a_holder_of_which_nothing_is_proven_keeps_its_lease_until_it_expires(registry: Registry, owner: str) -> None:
    acquire(registry, owner.format(host=socket.gethostname()))

    with pytest.raises(LeaseHeldError):
        acquire(registry, make_owner("updater"))


_FROZEN = """
import os, signal, sys
from lakebed.core.errors import LeaseLostError
from lakebed.registry.open import open_registry
from lakebed.registry.journal.leases import acquire_lease, require_epoch
from lakebed.registry.processes import make_owner
registry = open_registry(sys.argv[1])
lease = acquire_lease(registry, "committer/shop.orders", owner=make_owner("frozen"), ttl_us=100_000)
print("held", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
try:
    with registry.write() as tx:
        require_epoch(tx, lease)
        tx.run("INSERT INTO astha_state (key, value, updated_at) VALUES ('late', 'x', 1)")
    print("committed")
except LeaseLostError:
    print("fenced")
"""


def test_a_holder_frozen_beyond_its_lease_is_fenced_out_when_it_thaws(registry: Registry, url: str) -> None:
    with subprocess.Popen([sys.executable, "-c", _FROZEN, url], stdout=subprocess.PIPE, text=True) as frozen:
        assert frozen.stdout is not None
        assert frozen.stdout.readline() == "held\n"
        os.waitid(os.P_PID, frozen.pid, os.WSTOPPED)
        new = acquire_when_free(registry)

        frozen.send_signal(signal.SIGCONT)

        assert frozen.stdout.readline() == "fenced\n"
    write_under(registry, new)
    assert registry.query("SELECT key FROM astha_state") == [("2",)]


def acquire_when_free(registry: Registry) -> Lease:
    while True:
        try:
            return acquire(registry)
        except LeaseHeldError:
            continue


def test_a_lease_is_not_granted_while_a_transaction_relies_on_it(registry: Registry, another: Callable[[], Registry]) -> None:
    lease = acquire_lease(registry, NAME, owner="elsewhere/1/updater", ttl_us=0)
    other, order = another(), []

    def take() -> None:
        acquire(other)
        order.append("taken")

    taker = threading.Thread(target=take)
    with registry.write() as tx:
        require_epoch(tx, lease)
        taker.start()
        taker.join(0.2)
        order.append("relied")
    taker.join()

    assert order == ["relied", "taken"]
    with pytest.raises(LeaseLostError):
        write_under(registry, lease)


def test_eight_candidates_at_once_have_one_winner(registry: Registry, another: Callable[[], Registry]) -> None:
    outcomes: list[str] = []

    def compete(own: Registry, number: int) -> None:
        try:
            acquire(own, f"elsewhere/{number}/updater")
            outcomes.append("won")
        except LeaseHeldError:
            outcomes.append("lost")

    threads = [threading.Thread(target=compete, args=(own, n)) for n, own in enumerate([registry, *[another() for _ in range(7)]])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(outcomes) == ["lost"] * 7 + ["won"]


def test_only_the_holder_may_say_how_far_iceberg_is(timed_registry: Registry, clock: FixedClock) -> None:
    publish(timed_registry, make_table(timed_registry), fake_file(1))
    seal_pending(timed_registry)
    old = acquire(timed_registry)
    clock.advance(seconds=11)
    new = acquire(timed_registry, "elsewhere/2/updater")

    with pytest.raises(LeaseLostError):
        within(timed_registry, lambda tx: set_committed_group(tx, ORDERS, 1, snapshot_id=5, lease=old))
    within(timed_registry, lambda tx: set_committed_group(tx, ORDERS, 1, snapshot_id=6, lease=new))

    assert timed_registry.query("SELECT committed_group, current_snapshot_id FROM tables") == [(1, 6)]


def test_a_lease_that_was_never_held_fences(registry: Registry) -> None:
    with pytest.raises(LeaseLostError):
        write_under(registry, Lease(name="nothing", owner="x", epoch=0, expires_at=0))


@pytest.mark.parametrize("name", ["", "A", "a b", "../x", "a'; DROP TABLE leases", "x" * 201, "\u0430"])
def test_a_lease_name_outside_the_allow_list_is_refused(registry: Registry, name: str) -> None:
    with pytest.raises(InvalidNameError):
        acquire_lease(registry, name, owner="x/1/y")
    with pytest.raises(InvalidNameError):
        hold_for_reading(registry, name, [], owner="x/1/y", ttl_us=1)


def hold(registry: Registry, *table_ids: int, ttl_us: int = TTL_US) -> dict[int, int]:
    return hold_for_reading(registry, "reader/1", table_ids, owner="elsewhere/1/reader", ttl_us=ttl_us)


def test_a_reader_holds_the_number_of_its_oldest_plan(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1))
    ((last,),) = registry.query("SELECT last_seq FROM table_seq")
    first = hold(registry, table.table_id)
    publish(registry, table, fake_file(2))

    assert first == {table.table_id: last}
    assert hold(registry, table.table_id) == first


def test_a_reader_adds_tables_as_it_plans_them(registry: Registry) -> None:
    one, two = make_table(registry), make_table(registry, TableName("shop", "returns"))
    first = hold(registry, one.table_id)
    publish(registry, one, fake_file(1))

    both = hold(registry, two.table_id)

    assert both[one.table_id] == first[one.table_id]
    assert set(both) == {one.table_id, two.table_id}


def test_numbers_of_an_expired_reader_protect_nothing_and_are_read_again(timed_registry: Registry, clock: FixedClock) -> None:
    table = make_table(timed_registry)
    first = hold(timed_registry, table.table_id)
    publish(timed_registry, table, fake_file(1))
    clock.advance(seconds=10)

    again = hold(timed_registry, table.table_id)

    assert again[table.table_id] > first[table.table_id]


def test_a_reader_that_ends_leaves_no_row(registry: Registry) -> None:
    table = make_table(registry)
    hold(registry, table.table_id)

    end_reading(registry, "reader/1")
    end_reading(registry, "reader/1")

    assert [count(registry, t) for t in ("leases", "lease_numbers")] == [0, 0]


def test_holding_a_table_that_does_not_exist_holds_nothing(registry: Registry) -> None:
    assert hold(registry, 99) == {}
