"""Files that nothing needs: values of the sweep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedTable:
    """A table whose directory the sweep leaves alone; `reason` says why and what to do."""

    table: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """Paths that the catalog's pointers reach. What is below `unsure` cannot be judged, so all of it counts as needed."""

    paths: frozenset[str] = frozenset()
    unsure: tuple[str, ...] = ()
    skipped: tuple[SkippedTable, ...] = ()

    def holds(self, path: str) -> bool:
        return path in self.paths or path.startswith(self.unsure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A file in the warehouse that no table, queue, open operation or snapshot knows."""

    path: str
    size_bytes: int
    modified_at: datetime
