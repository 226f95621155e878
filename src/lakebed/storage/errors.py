"""Failures of the operating system and of pyarrow as typed errors: what failed, on which path, and what to do."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakebed.core.errors import FileMissingError, LakebedError, PathRefusedError, StorageFullError, StorageUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_ADVICE = {
    errno.EACCES: "give this process permission on the file and every directory above it",
    errno.EPERM: "give this process permission on the file and every directory above it",
    errno.EROFS: "mount the file system writable",
    errno.EIO: "the device reports a fault: read the system log before you retry",
    errno.EMFILE: "raise the limit of open files",
    errno.ENFILE: "raise the limit of open files",
}


def translate(exc: OSError, path: str, *, doing: str) -> LakebedError:
    """The typed error for a failed system call or object-store request on `path`."""
    if isinstance(exc, FileNotFoundError):
        return FileMissingError(path)
    if exc.errno in _FULL:
        return StorageFullError(f"cannot {doing} {path!a}: no space is left; free some, then retry")
    if exc.errno == errno.ENAMETOOLONG:
        return PathRefusedError(path, reason="the file system allows no name of that length")
    what = exc.strerror or str(exc)
    advice = _ADVICE.get(exc.errno or 0, "try again when the storage answers")
    return StorageUnavailableError(f"cannot {doing} {path!a}: {what}; {advice}")


@contextmanager
def translated(path: str, *, doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise translate(exc, path, doing=doing) from exc
