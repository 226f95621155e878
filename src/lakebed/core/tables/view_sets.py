"""What a view set is: a query over one driving source, cut into slices of insert time."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from lakebed.core.errors import InvalidValueError
from lakebed.core.names import TableName
from lakebed.core.times import DAY_US, UNITS, show_duration, unit_of

if TYPE_CHECKING:
    from collections.abc import Mapping

MERGE_WINDOW = "merge_window_us"  # property of a table: never rename
Lookups = Literal["ignore", "track"]  # stored: never rename
_LOOKUPS = ("ignore", "track")
_NEAR = 100  # units: so far a fitting slice is looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A view set's query and how it is sliced. `reads` are the lookups: every table of the query but the driving source."""

    sql: str
    over: TableName
    slice_us: int
    event_time: str | None = None
    combine: str | None = None
    lookups: Lookups = "ignore"
    partial: bool = False
    reads: tuple[TableName, ...] = ()

    def __post_init__(self) -> None:
        if self.lookups not in _LOOKUPS:
            message = f"lookups={self.lookups!r} is not known: give 'ignore' or 'track'"
            raise InvalidValueError(message)

    @property
    def inputs(self) -> tuple[TableName, ...]:
        return (self.over, *self.reads)

    def to_json(self) -> str:
        """Stored, and part of the version's hash: keys are never renamed."""
        stored = {
            "sql": self.sql,
            "over": str(self.over),
            "slice_us": self.slice_us,
            "event_time": self.event_time,
            "combine": self.combine,
            "lookups": self.lookups,
            "partial": self.partial,
            "reads": [str(name) for name in self.reads],
        }
        return json.dumps(stored, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, stored: str) -> Definition:
        values: dict[str, Any] = json.loads(stored)
        return cls(
            sql=values["sql"],
            over=TableName.parse(values["over"]),
            slice_us=values["slice_us"],
            event_time=values["event_time"],
            combine=values["combine"],
            lookups=cast("Lookups", values["lookups"]),
            partial=values["partial"],
            reads=tuple(TableName.parse(name) for name in values["reads"]),
        )


def find_definition(properties: str) -> Definition | None:
    """The definition among a version's stored properties; None for a plain table, or if the text is not a definition of ours."""
    stored = json.loads(properties).get("definition", "")
    return Definition.from_json(stored) if isinstance(stored, str) and stored.startswith("{") else None


def merge_window_of(properties: Mapping[str, Any]) -> int:
    """How far merging may reach, in microseconds; one UTC day unless the table says otherwise."""
    found = properties.get(MERGE_WINDOW, DAY_US)
    if not isinstance(found, int) or isinstance(found, bool) or found <= 0:
        message = f"the property {MERGE_WINDOW} is {found!r}: it must be a positive whole number of microseconds"
        raise InvalidValueError(message)
    return found


def require_fitting(slice_us: int, *, window_us: int, source: TableName) -> None:
    """Otherwise a merged source would widen windows again and again across the edges of its merge windows."""
    if window_us % slice_us and slice_us % window_us:
        unit = unit_of(slice_us)
        near = [f"{n}{unit}" for n in _list_fitting(slice_us // UNITS[unit], unit=unit, window_us=window_us)]
        message = (
            f"a slice of {show_duration(slice_us)} does not fit the merge window of {source} ({show_duration(window_us, unit=unit)}): "
            f"give one that divides it or is a whole multiple of it{', such as ' + ' or '.join(near) if near else ''}"
        )
        raise InvalidValueError(message)


def _list_fitting(wanted: int, *, unit: str, window_us: int) -> list[int]:
    """The nearest smaller and larger number of units that fits."""
    size = UNITS[unit]

    def fits(n: int) -> bool:
        return window_us % (n * size) == 0 or (n * size) % window_us == 0

    below = next((n for n in range(wanted - 1, max(0, wanted - _NEAR), -1) if fits(n)), None)
    above = next((n for n in range(wanted + 1, wanted + _NEAR) if fits(n)), None)
    return [n for n in (below, above) if n is not None]
