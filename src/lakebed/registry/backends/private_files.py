"""Files that only the registry's owner may read."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from lakebed.core.errors import RegistryReadOnlyError, RegistryUnavailableError, StorageFullError

if TYPE_CHECKING:
    from pathlib import Path

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def open_private(path: Path, *, what: str, flags: int = 0) -> int:
    """A descriptor for reading and writing; a file that is not there is created readable by its owner alone, whatever the umask."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
    except PermissionError as exc:
        raise RegistryReadOnlyError(str(path)) from exc
    except FileExistsError:
        raise
    except OSError as exc:
        if exc.errno in _FULL:
            message = f"no room is left on the disk of {path}: free some and retry; nothing was changed"
            raise StorageFullError(message) from exc
        message = f"the {what} {path} cannot be opened: {exc.strerror}"
        raise RegistryUnavailableError(message) from exc


def create_private(path: Path, *, what: str) -> None:
    """Leaves an existing file alone: closing a descriptor of it would cancel the POSIX locks of SQLite's connections in this process."""
    with suppress(FileExistsError):
        os.close(open_private(path, what=what, flags=os.O_EXCL))
