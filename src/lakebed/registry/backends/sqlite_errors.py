"""Translate SQLite's errors into the registry's types; no other module reads its codes."""

from __future__ import annotations

import sqlite3
from typing import NoReturn

from lakebed.core.errors import CorruptionError, RegistryLockedError, RegistryReadOnlyError, RegistryUnavailableError, StorageFullError
from lakebed.registry.backends.constraints import raise_unstorable, raise_violation

_READ_ONLY = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)
_CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def was_rolled_back(exc: sqlite3.Error) -> bool:
    """A COMMIT that could not write its last page to the WAL has rolled back by itself; after a failed sync the outcome is open."""
    code = getattr(exc, "sqlite_errorcode", 0)
    return code & 0xFF == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR_WRITE


def is_full(exc: BaseException | None) -> bool:
    """Whether SQLite found no room on the disk, for the database, its WAL or the WAL's index."""
    code = getattr(exc, "sqlite_errorcode", 0)
    return code & 0xFF == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR_SHMSIZE


def translate(exc: sqlite3.Error | UnicodeEncodeError, where: str) -> NoReturn:
    """Raise what the caller can act on."""
    if isinstance(exc, UnicodeEncodeError):
        raise_unstorable(exc)
    code = getattr(exc, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_CONSTRAINT:
        raise_violation(_violated(str(exc)), cause=exc)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        message = f"another program holds the write lock of {where}: close it (or its open transaction) and retry"
        raise RegistryLockedError(message) from exc
    if code in _READ_ONLY:
        raise RegistryReadOnlyError(where) from exc
    if is_full(exc):
        message = f"no room is left on the disk of {where}: free some and retry; nothing was changed"
        raise StorageFullError(message) from exc
    if code in _CORRUPT:
        message = f"{where} is damaged or not a SQLite database ({exc}): restore it from a backup, then run `lakebed check`"
        raise CorruptionError(message) from exc
    message = f"the registry {where} failed: {exc}"
    raise RegistryUnavailableError(message) from exc


def _violated(message: str) -> str:
    """The constraint's name: given for CHECK and triggers, only columns for UNIQUE."""
    return message.removeprefix("CHECK constraint failed: ").removeprefix("UNIQUE constraint failed: ")
