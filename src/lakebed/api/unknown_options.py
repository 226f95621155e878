"""Answers a misspelled keyword with the nearest one that exists, where Python would raise a TypeError."""

from __future__ import annotations

from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from lakebed.core.suggestions import require_options

if TYPE_CHECKING:
    from collections.abc import Callable

KindT = TypeVar("KindT")


def refuse_unknown_options(kind: type[KindT]) -> type[KindT]:
    """Make every public call of the class refuse a keyword that it does not have (`invalid_value`)."""
    for name, call in list(vars(kind).items()):
        if isinstance(call, FunctionType) and not name.startswith("_") and not call.__code__.co_flags & _TAKES_ANY:
            setattr(kind, name, _checked(call))
    return kind


_TAKES_ANY = 0x08  # the function has a **parameter of its own


def _checked(call: FunctionType) -> Callable[..., Any]:
    code = call.__code__
    known = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    names = frozenset(known)

    @wraps(call)
    def checked(*args: Any, **options: Any) -> Any:
        if not options.keys() <= names:
            require_options(call.__name__, options, known)
        return call(*args, **options)

    return checked
