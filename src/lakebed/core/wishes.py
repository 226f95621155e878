"""What the snapshotter wants of a table's Iceberg history; the updater carries it out. Kept in the table's properties."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

WISHES = "wishes"  # stored: never rename


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """Snapshots to expire (those already gone are no wish any more), and the refs that are to be there, by name."""

    expire: tuple[int, ...] = ()
    tags: Mapping[str, int] = field(default_factory=dict)
    branches: Mapping[str, int] = field(default_factory=dict)

    def expiring(self, going: Iterable[int], *, present: AbstractSet[int]) -> Wishes:
        """These too, of the snapshots that are there. A tag may have come meanwhile: what it names stays."""
        named = {*self.tags.values(), *self.branches.values()}
        return replace(self, expire=tuple(sorted(({*self.expire, *going} & present) - named)))

    def to_property(self) -> dict[str, object]:
        return {"expire": sorted(self.expire), "tags": dict(self.tags), "branches": dict(self.branches)}


def parse_wishes(properties: str) -> Wishes:
    """From the text of `table_metadata.properties`."""
    stored = json.loads(properties).get(WISHES, {})
    return Wishes(expire=tuple(stored.get("expire", ())), tags=dict(stored.get("tags", {})), branches=dict(stored.get("branches", {})))
