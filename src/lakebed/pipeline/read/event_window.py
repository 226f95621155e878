"""A range of event times as conditions on files and on rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the conventional name

from lakebed.core.errors import InvalidValueError
from lakebed.core.schema.types import Primitive
from lakebed.core.times import DAY_US, MAX_MICROS, Time, TimeRange, from_micros, show, to_micros
from lakebed.pipeline.rows.types import quote
from lakebed.pipeline.sql.filters import Filter
from lakebed.pipeline.sql.predicates import Condition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakebed.core.schema.types import Field
    from lakebed.registry.tables.lake_tables import LakeTable


@dataclass(frozen=True, slots=True, kw_only=True)
class EventWindow:
    """Event times `[begin, end)` in UTC microseconds; None = open."""

    begin: int | None = None
    end: int | None = None

    @classmethod
    def of(cls, begin: Time | None, end: Time | None) -> EventWindow:
        if begin is not None and end is not None:
            both = TimeRange.of(begin, end)
            return cls(begin=both.begin, end=both.end)
        return cls(begin=None if begin is None else to_micros(begin), end=None if end is None else to_micros(end))

    @property
    def is_bounded(self) -> bool:
        return self.begin is not None or self.end is not None

    def __str__(self) -> str:
        return f"[{'...' if self.begin is None else show(self.begin)}, {'...' if self.end is None else show(self.end)})"

    def conditions(self, table: LakeTable) -> Filter:
        if not self.is_bounded:
            return Filter()
        column, kind = _event_time(table)
        low, high = _in_unit(self.begin, kind), _in_unit(self.end, kind)
        return Filter(conditions=(Condition(field=column, lower=low, upper=None if high is None else high - 1),))

    def apply(self, frame: DataFrame, table: LakeTable) -> DataFrame:
        """Filters rows: a file may hold rows outside the window."""
        if not self.is_bounded:
            return frame
        column, kind = _event_time(table)
        named = F.col(quote(column.name))
        if (low := _in_unit(self.begin, kind)) is not None:
            frame = frame.where(named >= F.expr(_literal(low, kind)))
        if (high := _in_unit(self.end, kind)) is not None:
            frame = frame.where(named < F.expr(_literal(high, kind)))
        return frame


def _event_time(table: LakeTable) -> tuple[Field, Primitive]:
    found = table.schema.by_id.get(table.row.event_time_field or 0)
    if found is None or not isinstance(found.type, Primitive):
        message = f"{table.name} has no event time, so begin and end cannot be used: use where=, or create the table with event_time="
        raise InvalidValueError(message)
    return found, found.type


def _in_unit(micros: int | None, kind: Primitive) -> int | None:
    """A date means its midnight in UTC, so a bound within a day is rounded up to the next one; None after the last possible day."""
    if micros is None or kind.name != "date":
        return micros
    day = -(-micros // DAY_US)
    return day if day * DAY_US <= MAX_MICROS else None


def _literal(value: int, kind: Primitive) -> str:
    """Independent of the session's zone."""
    if kind.name == "long":
        return f"{value}L"
    text = from_micros(value * DAY_US if kind.name == "date" else value).replace(tzinfo=None)
    if kind.name == "date":
        return f"DATE '{text.date().isoformat()}'"
    moment = text.isoformat(sep=" ", timespec="microseconds")
    return f"TIMESTAMP '{moment}+00:00'" if kind.name == "timestamptz" else f"TIMESTAMP_NTZ '{moment}'"
