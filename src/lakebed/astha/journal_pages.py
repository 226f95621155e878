"""The journal in pages: each change is read and decoded once for all lanes of its table; few pages are kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.registry.journal.changes import last_journal_numbers, read_changes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.core.events import Event
    from lakebed.core.rows import Row
    from lakebed.registry.registry import Registry

_STRIPES = 2  # concurrent reads: each takes a connection with its own cache, and decoding runs one at a time anyway
_PER_TABLE = 3  # the position of the fast lanes, that of a slow one, and the step between


@dataclass(frozen=True, slots=True)
class Page:
    """Consecutive changes, the first one numbered `after + 1`."""

    after: int
    events: tuple[Event[Row], ...]

    def find(self, after: int) -> Sequence[Event[Row]]:
        """The changes after `after`, if this page holds them."""
        skipped = after - self.after
        return self.events[skipped:] if 0 <= skipped < len(self.events) else ()


class JournalPages:
    """A few pages per table, for the most recently used tables: lanes of one table usually advance together."""

    def __init__(self, registry: Registry, *, page_events: int, tables: int) -> None:
        self._registry, self._limit, self._tables = registry, page_events, tables
        self._kept: OrderedDict[int, tuple[Page, ...]] = OrderedDict()
        self._guard = threading.Lock()
        self._reading = tuple(threading.Lock() for _ in range(_STRIPES))

    def read(self, table_id: int, *, after: int) -> Sequence[Event[Row]]:
        """The changes after `after`, at most a page; empty at the journal's end; a typed error if numbers are missing."""
        if found := self._find(table_id, after):
            return found
        with self._reading[table_id % _STRIPES]:  # a thread that waited here finds the page of the previous one
            return self._find(table_id, after) or self._load(table_id, after)

    def last_journal_number(self, table_id: int) -> int:
        return last_journal_numbers(self._registry, [table_id]).get(table_id, 0)

    def forget(self) -> None:
        with self._guard:
            self._kept.clear()

    def _find(self, table_id: int, after: int) -> Sequence[Event[Row]]:
        with self._guard:
            for page in self._kept.get(table_id, ()):
                if found := page.find(after):
                    return found
        return ()

    def _load(self, table_id: int, after: int) -> Sequence[Event[Row]]:
        page = Page(after, tuple(read_changes(self._registry, table_id, after=after, limit=self._limit)))
        with self._guard:
            self._kept[table_id] = (page, *self._kept.get(table_id, ())[: _PER_TABLE - 1])
            self._kept.move_to_end(table_id)
            while len(self._kept) > self._tables:
                self._kept.popitem(last=False)
        return page.events
