"""Who asks, and who may: kept in `runs` beside everything that is changed by administration."""

from __future__ import annotations

import getpass
import socket
from typing import TYPE_CHECKING, Any

from lakebed.core.errors import InvalidValueError
from lakebed.registry.maintenance.runs import add_run, finish_run, read_administrators, write_administrators

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Transaction

_MAX_CHARS = 200


def find_actor(given: str | None = None) -> str:
    """`given`, or this process's user and host."""
    return (given or f"{_user()}@{socket.gethostname()}")[:_MAX_CHARS]


def write_down(tx: Transaction, job: str, plan: dict[str, Any], *, actor: str | None, table_id: int | None = None) -> None:
    """A run that is done with the transaction it is written in."""
    run_id = add_run(tx, job, actor=find_actor(actor), plan=plan, table_id=table_id)
    finish_run(tx, run_id, state="done", result={})


def list_administrators(registry: Registry) -> tuple[str, ...]:
    """Who may change the lake by administration; empty: everybody."""
    return read_administrators(registry)


def set_administrators(registry: Registry, actors: Sequence[str], *, actor: str | None = None) -> tuple[str, ...]:
    """From now on only these may retire, sweep, drop, alter, configure or repair; an empty list lets everybody. Asked of an administrator.

    Actors name themselves (`user@host` unless told): it keeps colleagues from accidents. Against others the database's roles stand.
    """
    if isinstance(actors, str):  # its letters would be the administrators
        message = f"administrators are given as a list, such as [{actors!r}]"
        raise InvalidValueError(message)

    def body(tx: Transaction) -> tuple[str, ...]:
        write_down(tx, "set_administrators", {"administrators": sorted(actors)}, actor=actor)
        return write_administrators(tx, actors)

    return registry.transact(body, tables=[])


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "unknown"
