"""A fair, bounded wait for an exclusive lock on a file, between processes and threads."""

from __future__ import annotations

import fcntl
import os
import threading
from typing import TYPE_CHECKING

from lakebed.core.errors import RegistryLockedError, RegistryReadOnlyError, RegistryUnavailableError

if TYPE_CHECKING:
    from pathlib import Path


class FileLock:
    """`flock` on a lock file; released by the kernel when its process dies."""

    def __init__(self, path: Path, *, timeout_s: float) -> None:
        self._path, self._timeout_s = path, timeout_s
        self._threads = threading.Lock()  # flock does not tell threads of one process apart
        self._holder: int | None = None
        self._fd: int | None = None

    def acquire(self) -> None:
        if not self._threads.acquire(timeout=self._timeout_s):
            raise self._timed_out()
        try:
            if self._fd is None:
                self._fd = self._open()
            if not _try_lock(self._fd):
                self._wait(self._fd)
        except BaseException:
            self._threads.release()
            raise
        self._holder = threading.get_ident()

    def release(self) -> None:
        """Release if this thread holds it; a second call does nothing, whoever holds it by then."""
        if self._holder == threading.get_ident() and self._fd is not None:
            self._holder = None
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            self._threads.release()

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except PermissionError as exc:
            raise RegistryReadOnlyError(str(self._path)) from exc
        except OSError as exc:
            message = f"the lock file {self._path} cannot be opened: {exc.strerror}"
            raise RegistryUnavailableError(message) from exc

    def _wait(self, tried: int) -> None:
        """Block in the kernel's queue, which is fair where polling is not; a helper thread makes the wait bounded."""
        own = self._open()  # not `tried`: a waiter that gave up would later unlock what somebody else of us holds
        decision, granted, given_up = threading.Lock(), threading.Event(), threading.Event()

        def block() -> None:
            fcntl.flock(own, fcntl.LOCK_EX)
            with decision:
                if given_up.is_set():
                    os.close(own)
                else:
                    granted.set()

        threading.Thread(target=block, daemon=True, name="lakebed-lock").start()
        if not granted.wait(self._timeout_s):
            with decision:
                if not granted.is_set():
                    given_up.set()
                    raise self._timed_out()
        os.close(tried)
        self._fd = own

    def _timed_out(self) -> RegistryLockedError:
        message = f"another writer held {self._path} for more than {self._timeout_s:.0f} s: find it (it may be stopped) and retry"
        return RegistryLockedError(message)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
