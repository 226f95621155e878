"""A fair, bounded wait for an exclusive lock on a file, between processes and threads."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from lakebed.core.errors import LakebedError, RegistryLockedError
from lakebed.core.times import from_micros
from lakebed.registry.backends.private_files import open_private

if TYPE_CHECKING:
    from pathlib import Path


_HOST = socket.gethostname()
_NOTE_BYTES = 128
_PACE_S = 0.002  # a longer one favours the last holder, whose pages are still at hand: faster, but less fair
_SLOW_PACE_S = 0.01
_PATIENCE_S = 2.0  # a holder that takes longer is not in the middle of a registration


class FileLock:
    """`flock` on a lock file; released by the kernel when its process dies."""

    def __init__(self, path: Path, *, timeout_s: float) -> None:
        self._path, self._timeout_s = path, timeout_s
        self._threads = threading.Lock()  # flock does not distinguish threads of one process
        self._holder: int | None = None
        self._fd: int | None = None

    def acquire(self) -> None:
        if not self._threads.acquire(timeout=self._timeout_s):
            raise self._timed_out()
        try:
            if self._fd is None:
                self._fd = open_private(self._path, what="lock file")
            if not _try_lock(self._fd):
                self._wait(self._fd)
        except BaseException:
            self._threads.release()
            raise
        self._note_holder(self._fd)

    def try_acquire(self) -> bool:
        """Whether it was free, without waiting and without an error."""
        if not self._threads.acquire(blocking=False):
            return False
        with suppress(LakebedError):
            self._fd = open_private(self._path, what="lock file") if self._fd is None else self._fd
            if _try_lock(self._fd):
                self._note_holder(self._fd)
                return True
        self._threads.release()
        return False

    def release(self) -> None:
        """Release if this thread holds it; a second call does nothing, even if another thread holds it by then."""
        if self._holder == threading.get_ident() and self._fd is not None:
            self._holder = None
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            self._threads.release()

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _wait(self, fd: int) -> None:
        """Retry at a steady, random pace. Every waiter tries as often as any other, so none starves.

        Backing off, as SQLite's own busy handler does, favours the newest waiter; blocking in the kernel cannot time out.
        """
        started = time.monotonic()
        while not _try_lock(fd):
            waited = time.monotonic() - started
            if waited >= self._timeout_s:
                raise self._timed_out()
            pace = _PACE_S if waited < _PATIENCE_S else _SLOW_PACE_S
            time.sleep(pace * (0.5 + random.random()))  # noqa: S311 - to keep the waiters out of step, not to keep a secret

    def _note_holder(self, fd: int) -> None:
        """Name the holder in the lock file, for the error of a waiter that times out; valid only while the lock is held."""
        self._holder = threading.get_ident()
        with suppress(OSError):  # a full disk must not keep a writer out
            os.pwrite(fd, f"{os.getpid()} {time.time_ns() // 1000} {_HOST}".ljust(_NOTE_BYTES).encode()[:_NOTE_BYTES], 0)

    def _timed_out(self) -> RegistryLockedError:
        holder = self._describe_holder()
        message = f"{holder} held {self._path} for more than {self._timeout_s:.0f} s: find out why (it may be stopped), end it and retry"
        return RegistryLockedError(message)

    def _describe_holder(self) -> str:
        try:
            pid, since, host = self._path.read_text(errors="replace").split(maxsplit=2)
            return f"process {int(pid)} on {host.strip()}, a writer since {from_micros(int(since)).isoformat(timespec='seconds')},"
        except (OSError, ValueError, OverflowError):
            return "another writer"


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
