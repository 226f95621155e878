"""Progress reports from inside long calls, to whatever listener the caller has set."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LISTENER: ContextVar[Callable[[], None] | None] = ContextVar("progress_listener", default=None)


def report_progress() -> None:
    """Call it between the steps of anything that may take minutes. Cheap, and without effect when there is no listener.

    A thread that the call starts must run in a copy of its context, or its reports reach no listener.
    """
    if (listener := _LISTENER.get()) is not None:
        listener()


@contextmanager
def progress_to(listener: Callable[[], None]) -> Iterator[None]:
    """Inside the block, `report_progress` of this thread calls `listener`."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)
