"""Translate PostgreSQL's errors into the registry's types; no other module reads SQLSTATEs."""

from __future__ import annotations

from typing import NoReturn

import psycopg
from psycopg import errors as pg

from lakebed.core.errors import CorruptionError, RegistryLockedError, RegistryReadOnlyError, RegistryUnavailableError, StorageFullError
from lakebed.registry.backends.constraints import raise_unstorable, raise_violation


def is_in_doubt(exc: psycopg.Error) -> bool:
    """Of an error while a commit is under way: only an answer of the server, other than a shutdown notice, proves that nothing was committed."""
    return exc.sqlstate is None or isinstance(exc, pg.AdminShutdown | pg.CrashShutdown)


def first_line(exc: BaseException) -> str:
    text = str(exc).strip().splitlines()
    return text[0][:200] if text else type(exc).__name__


def translate(exc: psycopg.Error | UnicodeEncodeError, where: str) -> NoReturn:
    """Raise what the caller can act on."""
    match exc:
        case UnicodeEncodeError():
            raise_unstorable(exc)
        case pg.IntegrityError():
            raise_violation(exc.diag.constraint_name or first_line(exc), cause=exc)
        case pg.LockNotAvailable():
            message = f"another program holds a lock on {where}: find it in pg_stat_activity, end its transaction and retry"
            raise RegistryLockedError(message) from exc
        case pg.DeadlockDetected() | pg.SerializationFailure():
            message = f"another writer was in the way on {where}: retry"
            raise RegistryLockedError(message) from exc
        case pg.ReadOnlySqlTransaction() | pg.InsufficientPrivilege():
            raise RegistryReadOnlyError(where) from exc
        case pg.DiskFull():
            message = f"no room is left on the disk of {where}: free some and retry; nothing was changed"
            raise StorageFullError(message) from exc
        case pg.DataCorrupted() | pg.IndexCorrupted():
            message = f"{where} reports damaged data: {first_line(exc)}"
            raise CorruptionError(message) from exc
        case _ if exc.sqlstate is None:  # the driver's own words may be about its pipeline
            message = f"the connection to the registry {where} was lost: retry"
            raise RegistryUnavailableError(message) from exc
        case _:
            message = f"the registry {where} failed: {first_line(exc)}"
            raise RegistryUnavailableError(message) from exc
