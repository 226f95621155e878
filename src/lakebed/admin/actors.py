"""Who asks: kept in `runs` beside everything destructive."""

from __future__ import annotations

import getpass
import socket

_MAX_CHARS = 200


def find_actor(given: str | None = None) -> str:
    """`given`, or this process's user and host."""
    return (given or f"{_user()}@{socket.gethostname()}")[:_MAX_CHARS]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return "unknown"
