"""Names close to a misspelled one, for messages that ask "did you mean ...?"."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from lakebed.core.errors import InvalidValueError, SchemaRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST = 3


def list_near(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """The nearest of the known names, the best first, compared without regard to case; empty when none is close."""
    spelled: dict[str, list[str]] = {}
    for one in known:
        spelled.setdefault(one.lower(), []).append(one)
    near = difflib.get_close_matches(name.lower(), spelled, n=_MOST)
    return tuple(one for found in near for one in sorted(spelled[found]))[:_MOST]


def suggest(name: str, known: Iterable[str]) -> str:
    """A question such as "did you mean orders?"; without a near name it is empty."""
    near = list_near(name, known)
    return f"did you mean {' or '.join(near)}?" if near else ""


def missing_column(name: str, known: Iterable[str], *, listed: Iterable[str] | None = None) -> SchemaRefusedError:
    """The error that names the columns nearby, then those there are (`listed`, where the known ones are paths into them)."""
    every = tuple(known)
    near = suggest(name, every)
    shown = ", ".join(every if listed is None else listed)
    return SchemaRefusedError(f"there is no column {name!a}: {near + ' ' if near else ''}the columns are {shown}")


def require_options(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse unknown keyword arguments."""
    understood = tuple(known)
    for name in given:
        if name not in understood:
            near = suggest(name, understood)
            message = f"{what} has no option {name!a}: {near + ' ' if near else ''}the options are {', '.join(understood)}"
            raise InvalidValueError(message)
