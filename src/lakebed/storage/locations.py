"""Locations in other programs' metadata, and the paths of this warehouse that they name."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import unquote

from lakebed.core.errors import PathRefusedError
from lakebed.storage.paths import parse_location

if TYPE_CHECKING:
    from lakebed.storage.protocol import Storage


def find_paths(storage: Storage, location: str) -> tuple[str, ...]:
    """Canonical paths that `location` may name, the likeliest first; empty when it is outside the warehouse.

    There are two only where a name holds percent signs: engines take them literally, but some programs store encoded URIs. A caller
    that decides that a file is not needed must look for both.
    """
    try:
        written = parse_location(location)
    except PathRefusedError:
        return ()
    found: dict[str, None] = {}
    for spelled in (written, unquote(written)):
        with suppress(PathRefusedError):
            found[storage.canonical(spelled)] = None
    return tuple(found)


def find_path(storage: Storage, location: str) -> str:
    """The likeliest path; a location outside the warehouse in its canonical spelling, which every storage refuses to open."""
    return next(iter(find_paths(storage, location)), None) or parse_location(location)
