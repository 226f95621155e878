"""The lock in front of SQLite's writers: bounded, fair, and freed by the kernel."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from lakebed.core.errors import RegistryLockedError
from lakebed.registry.backends.write_queue import FileLock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_HOLDER = """
import sys
from pathlib import Path
from lakebed.registry.backends.write_queue import FileLock
FileLock(Path(sys.argv[1]), timeout_s=5).acquire()
print("held", flush=True)
sys.stdin.readline()
"""


@contextmanager
def held_elsewhere(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process holds the lock until the block ends or it is killed."""
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder
        holder.kill()


def is_free(path: Path) -> bool:
    with closing(FileLock(path, timeout_s=0.05)) as probe:
        try:
            probe.acquire()
        except RegistryLockedError:
            return False
        return True


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lake.db.lock"


def test_the_wait_is_bounded_and_the_message_says_what_to_do(path: Path) -> None:
    with (
        held_elsewhere(path),
        closing(FileLock(path, timeout_s=0.1)) as lock,
        pytest.raises(RegistryLockedError, match="it may be stopped"),
    ):
        lock.acquire()


def test_a_stopped_holder_is_waited_for_no_longer_than_the_timeout(path: Path) -> None:
    with held_elsewhere(path) as holder, closing(FileLock(path, timeout_s=0.1)) as lock:
        holder.send_signal(signal.SIGSTOP)

        with pytest.raises(RegistryLockedError):
            lock.acquire()


def test_a_killed_holder_frees_the_lock_at_once(path: Path) -> None:
    with held_elsewhere(path) as holder, closing(FileLock(path, timeout_s=30)) as lock:
        threading.Timer(0.1, holder.kill).start()

        lock.acquire()

        lock.release()


def test_a_waiter_that_gave_up_never_frees_the_lock_of_the_next(path: Path) -> None:
    lock = FileLock(path, timeout_s=0.1)
    with held_elsewhere(path) as holder, closing(lock):
        for _ in range(3):
            with pytest.raises(RegistryLockedError):
                lock.acquire()
        lock._timeout_s = 30
        threading.Timer(0.1, holder.kill).start()

        lock.acquire()

        for waiter in [t for t in threading.enumerate() if t.name == "lakebed-lock"]:
            waiter.join(0.5)
        assert not is_free(path)
        lock.release()
        for waiter in [t for t in threading.enumerate() if t.name == "lakebed-lock"]:
            waiter.join()
        assert is_free(path)


def test_only_the_thread_that_holds_the_lock_can_release_it(path: Path) -> None:
    with closing(FileLock(path, timeout_s=1)) as lock:
        lock.acquire()
        stranger = threading.Thread(target=lock.release)
        stranger.start()
        stranger.join()

        assert not is_free(path)
        lock.release()
        lock.release()
        assert is_free(path)


def test_threads_of_one_process_wait_for_each_other(path: Path) -> None:
    inside, most = [], []
    with closing(FileLock(path, timeout_s=30)) as lock:

        def work() -> None:
            for _ in range(50):
                lock.acquire()
                inside.append(1)
                most.append(len(inside))
                inside.pop()
                lock.release()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert max(most) == 1
    assert len(most) == 200


def test_the_lock_file_is_private(path: Path) -> None:
    old = os.umask(0)
    try:
        with closing(FileLock(path, timeout_s=1)) as lock:
            lock.acquire()
    finally:
        os.umask(old)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_message_names_the_process_that_holds_the_lock_and_since_when(path: Path) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    with held_elsewhere(path) as holder, closing(FileLock(path, timeout_s=0.05)) as lock, pytest.raises(RegistryLockedError) as caught:
        lock.acquire()

    found = re.match(r"process (\d+) on (\S+), a writer since (\S+), held .* end it and retry", str(caught.value))
    assert found is not None
    assert (int(found[1]), found[2]) == (holder.pid, socket.gethostname())
    assert before <= datetime.fromisoformat(found[3]) <= datetime.now(UTC)


def test_a_thread_of_the_same_process_is_named_too(path: Path) -> None:
    with closing(FileLock(path, timeout_s=0.05)) as lock:
        lock.acquire()
        caught: list[str] = []

        def wait() -> None:
            try:
                lock.acquire()
            except RegistryLockedError as exc:
                caught.append(str(exc))

        waiter = threading.Thread(target=wait)
        waiter.start()
        waiter.join()
    assert caught[0].startswith(f"process {os.getpid()} on ")
