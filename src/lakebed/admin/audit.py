"""The actor of an administrative change and the list of administrators; every change writes a row in `runs`."""

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
    """A run whose work is the transaction that writes it: it is stored as done."""
    run_id = add_run(tx, job, actor=find_actor(actor), plan=plan, table_id=table_id)
    finish_run(tx, run_id, state="done", result={})


def list_administrators(registry: Registry) -> tuple[str, ...]:
    """The actors that may run administrative calls; empty: every actor may."""
    return read_administrators(registry)


def set_administrators(registry: Registry, actors: Sequence[str], *, actor: str | None = None) -> tuple[str, ...]:
    """Allow only these actors to retire, sweep, drop, alter, configure and repair; an empty list allows every actor.

    Only an administrator may call this. Actors name themselves (default `user@host`), so the list prevents accidents, not attacks:
    use the roles of the database for access control.
    """
    if isinstance(actors, str):  # each letter would become an administrator
        message = f"administrators must be a list, for example [{actors!r}]"
        raise InvalidValueError(message)

    def body(tx: Transaction) -> tuple[str, ...]:
        write_down(tx, "set_administrators", {"administrators": sorted(actors)}, actor=actor)
        return write_administrators(tx, actors)

    return registry.transact(body, tables=[])


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the user of a container may have no name
        return "unknown"
