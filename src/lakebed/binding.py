"""Functions over a registry (and a warehouse) as methods of the lake: their arguments and their promise are written once."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import Storage

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")


class _Halves(Protocol):
    registry: Registry
    storage: Storage


def on_registry(function: Callable[Concatenate[Registry, P], R]) -> Callable[Concatenate[_Halves, P], R]:
    """For what needs the registry alone."""

    @wraps(function)
    def method(self: _Halves, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return function(self.registry, *args, **kwargs)

    return _show_as_method(method, function, bound=1)


def on_halves(function: Callable[Concatenate[Registry, Storage, P], R]) -> Callable[Concatenate[_Halves, P], R]:
    """The same for what needs the warehouse too."""

    @wraps(function)
    def method(self: _Halves, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return function(self.registry, self.storage, *args, **kwargs)

    return _show_as_method(method, function, bound=2)


def _show_as_method(method: Callable[Q, R], function: Callable[..., R], *, bound: int) -> Callable[Q, R]:
    """`help` and editors show what a caller may give: the lake's halves are not among it."""
    signature = inspect.signature(function)
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    shown = signature.replace(parameters=[itself, *list(signature.parameters.values())[bound:]])
    method.__signature__ = shown  # type: ignore[attr-defined] # a protocol of `inspect`, unknown to the type of functions
    return method
