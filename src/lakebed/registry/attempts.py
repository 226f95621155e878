"""What this process knows of its own open writes: whether a transaction that registers one of them may have been committed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Attempts:
    """Needs no registry, so that a failed write can delete its files while the registry is away.

    Of two attempts of one write the second gets the table's lock after the first has ended: refused, it speaks for both.
    """

    def __init__(self) -> None:
        self._sent: dict[str, bool] = {}

    @contextmanager
    def watching(self, op_id: str) -> Iterator[None]:
        """For as long as the write is open."""
        self._sent[op_id] = False
        try:
            yield
        finally:
            self._sent.pop(op_id, None)

    def send(self, op_id: str | None) -> None:
        """Its commit goes out: from now on it may be there, whatever is heard or interrupts."""
        if op_id in self._sent:
            self._sent[op_id] = True

    def refuse(self, op_id: str | None) -> None:
        """The database has said for certain that nothing was committed."""
        if op_id in self._sent:
            self._sent[op_id] = False

    def may_be_committed(self, op_id: str) -> bool:
        return self._sent.get(op_id, True)
