"""The resources of a lake, which are refused once it is closed, so that methods need no check of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar, overload

from lakebed.core.errors import LakeClosedError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Closable(Protocol):
    """The object that holds the attribute."""

    _is_closed: bool


class until_closed(Generic[T]):  # noqa: N801 - reads as a decorator, like `cached_property`
    """An attribute that is set, or built at its first access."""

    def __init__(self, func: Callable[[Any], T] | None = None, *, doc: str | None = None) -> None:
        self.func, self.__doc__ = func, doc if func is None else func.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, holder: None, owner: type) -> Self: ...
    @overload
    def __get__(self, holder: Closable, owner: type) -> T: ...
    def __get__(self, holder: Closable | None, owner: type) -> T | Self:
        if holder is None:
            return self
        if holder._is_closed:
            raise LakeClosedError
        if self._name not in vars(holder) and self.func is not None:
            self.__set__(holder, self.func(holder))
        found: T = vars(holder)[self._name]
        return found

    def __set__(self, holder: Closable, value: T) -> None:
        vars(holder)[self._name] = value
