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
        self._fd: int | None = None

    def acquire(self) -> None:
        if not self._threads.acquire(timeout=self._timeout_s):
            raise self._timed_out()
        try:
            fd = self._descriptor()
            if not _try_lock(fd):
                self._wait(fd)
        except BaseException:
            self._threads.release()
            raise

    def release(self) -> None:
        """Release if held; a second call does nothing."""
        if self._threads.locked() and self._fd is not None:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            self._threads.release()

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _descriptor(self) -> int:
        if self._fd is None:
            try:
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except PermissionError as exc:
                raise RegistryReadOnlyError(str(self._path)) from exc
            except OSError as exc:
                message = f"the lock file {self._path} cannot be opened: {exc.strerror}"
                raise RegistryUnavailableError(message) from exc
        return self._fd

    def _wait(self, fd: int) -> None:
        """Block in the kernel's queue, which is fair where polling is not; a helper thread makes the wait bounded."""
        granted, given_up = threading.Event(), threading.Event()

        def block() -> None:
            own = os.dup(fd)  # the same open file: the lock taken here is ours
            try:
                fcntl.flock(own, fcntl.LOCK_EX)
                if given_up.is_set():
                    fcntl.flock(own, fcntl.LOCK_UN)
                granted.set()
            finally:
                os.close(own)

        threading.Thread(target=block, daemon=True, name="lakebed-lock").start()
        if not granted.wait(self._timeout_s):
            given_up.set()
            raise self._timed_out()

    def _timed_out(self) -> RegistryLockedError:
        message = f"another writer held {self._path} for more than {self._timeout_s:.0f} s: find it (it may be stopped) and retry"
        return RegistryLockedError(message)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
