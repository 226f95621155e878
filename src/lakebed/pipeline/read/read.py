"""Reading a table: a lease, one snapshot of the registry, the files that may hold wanted rows, and a filter over them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from lakebed.core.errors import InvalidValueError
from lakebed.core.names import TableName, require_instance
from lakebed.core.schema.types import Primitive
from lakebed.core.times import DAY_US, MAX_MICROS, Time, TimeRange, from_micros, show, to_micros
from lakebed.pipeline.read.combine import combine_partials, find_keys
from lakebed.pipeline.rows.scan import frame_of
from lakebed.pipeline.rows.types import quote
from lakebed.pipeline.spark.errors import spark_translated
from lakebed.pipeline.sql.filters import Filter, parse_where, prune_paths
from lakebed.pipeline.sql.predicates import Condition
from lakebed.registry.queries.plans import find_event_range, list_partition_paths, read_plan
from lakebed.registry.queries.time_travel import go_back
from lakebed.registry.table_cache import missing_table
from lakebed.registry.tables.lake_tables import read_table
from lakebed.registry.tables.names import resolve_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from lakebed.core.schema.types import Field
    from lakebed.pipeline.context import Context
    from lakebed.registry.queries.plans import AsOf, Plan
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.transaction import Reader

logger = logging.getLogger(__name__)

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a query wants of one table; `find` says it once the table's schema is known."""

    name: TableName
    find: Callable[[LakeTable], Filter] = field(default=lambda _: Filter())
    as_of: int | Time | None = None
    instance: str | None = None
    with_current_columns: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A table with the files that may hold wanted rows, as they stood when it was planned."""

    table: LakeTable
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`table` is under the version of `as_of`; `partition_paths` = None: all of them."""

    table: LakeTable
    used: Filter
    as_of: AsOf | None
    partition_paths: list[str] | None


def read(  # noqa: PLR0913 - one keyword per choice
    context: Context,
    name: str,
    *,
    begin: Time | None = None,
    end: Time | None = None,
    where: str | None = None,
    as_of: int | Time | None = None,
    instance: str | None = None,
    columns: Sequence[str] | None = None,
    with_current_columns: bool = False,
) -> DataFrame:
    """The rows of a table as a DataFrame: those with event time in `[begin, end)` that satisfy `where`, now or `as_of` earlier.

    An earlier state has the columns that served then, unless `with_current_columns`; `where` and `columns` name those. The files stay in the warehouse until this process lets go of its lease (`context.lease`).
    """
    window = Window.of(begin, end)
    condition, zone = (None, None) if where is None else (parse_where(where), context.source.zone)

    def find(table: LakeTable) -> Filter:
        timed = window.conditions(table)
        return timed if condition is None or zone is None else timed & condition.find_filter(table.schema, zone)

    ask = Ask(
        name=resolve_name(context.registry, name), find=find, as_of=as_of, instance=instance, with_current_columns=with_current_columns
    )
    (planned,) = plan_all(context, [ask])
    for column in columns or ():
        planned.table.schema.resolve(column)
    if not planned.plan.paths and window.is_bounded:
        _tell_nothing_matches(context, planned, window)
    with spark_translated(f"reading {name}"):
        frame = window.apply(frame_of_planned(context, planned), planned.table)
        frame = frame if where is None else frame.where(where)
        return frame if columns is None else frame.select(*(F.col(quote(column)) for column in columns))


def frame_of_planned(context: Context, planned: Planned) -> DataFrame:
    """All rows of the planned files, partial results of a view set combined."""
    return combine_partials(context, planned.table, frame_of(context, planned.table.schema, planned.plan.paths))


def plan_all(context: Context, asks: Sequence[Ask]) -> list[Planned]:
    """Plan every table of a query on one snapshot of the registry. The lease comes first: what is planned cannot be deleted before it is read."""
    for _ in range(_ATTEMPTS):
        ids = {context.registry.require_table_id(ask.name) for ask in asks}
        context.lease.hold(ids)
        with context.registry.read() as reader:
            tables = [require_in(reader, context, ask.name) for ask in asks]
            if {table.table_id for table in tables} <= ids:
                return [plan_one(reader, ask, table) for ask, table in zip(asks, tables, strict=True)]
        for ask in asks:  # dropped and made again by another process: what we remembered was the old one
            context.registry.tables.forget(ask.name)
    raise missing_table(context.registry, asks[0].name)


def plan_one(reader: Reader, ask: Ask, table: LakeTable) -> Planned:
    """The plan of one table inside a snapshot."""
    question = question_of(reader, ask, table)
    used = question.used
    plan = read_plan(
        reader,
        ask.name,
        ranges=used.ranges,
        nulls=used.nulls,
        partition_paths=question.partition_paths,
        instance=ask.instance,
        as_of=question.as_of,
    )
    return Planned(table=question.table, plan=plan)


def question_of(reader: Reader, ask: Ask, table: LakeTable) -> Question:
    """What planning may prune by, and at which number."""
    if ask.instance is not None:
        require_instance(ask.instance)
    moment = go_back(reader, table, ask.as_of)
    # a plain table reads the files of its earlier versions, a view set does not
    then = table if ask.with_current_columns and table.row.kind == "table" else moment.table
    used = _usable(then, ask.find(then))
    return Question(table=then, used=used, as_of=moment.at, partition_paths=find_paths(reader, then, used, moment.at))


def find_paths(reader: Reader, table: LakeTable, used: Filter, as_of: AsOf | None) -> list[str] | None:
    """The partition paths left by the conditions; None when the table has no such or all are left."""
    if not used.conditions:
        return None
    sources = {source.field_id for _, source in table.transforms}
    if not any(condition.field.field_id in sources for condition in used.conditions):
        return None
    return prune_paths(list_partition_paths(reader, table.table_id, as_of=as_of), table.transforms, used.conditions)


def _usable(table: LakeTable, found: Filter) -> Filter:
    """Partial results may be left out only by what combining leaves as it is."""
    keys = find_keys(table)
    return found if keys is None else found.only(keys)


def require_in(reader: Reader, context: Context, name: TableName) -> LakeTable:
    """The table as this snapshot shows it."""
    if (table := read_table(reader, name)) is None:
        context.registry.tables.forget(name)
        raise missing_table(reader, name)
    return table


def _tell_nothing_matches(context: Context, planned: Planned, window: Window) -> None:
    with context.registry.read() as reader:
        known = find_event_range(reader, planned.table.table_id)
    exists = "no event time is known" if known is None else f"{show(known[0])} to {show(known[1])}"
    logger.warning(
        "no file of %s holds event times in %s; what exists: %s",
        planned.table.name,
        window,
        exists,
        extra={"action": "read_nothing", "table": str(planned.table.name)},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Event times `[begin, end)` in UTC microseconds; None = open."""

    begin: int | None = None
    end: int | None = None

    @classmethod
    def of(cls, begin: Time | None, end: Time | None) -> Window:
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
        """Rows outside are dropped too: a file may hold more than the window."""
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
        message = f"{table.name} has no event time, so begin and end mean nothing: use where=, or create the table with event_time="
        raise InvalidValueError(message)
    return found, found.type


def _in_unit(micros: int | None, kind: Primitive) -> int | None:
    """A date stands for its midnight in UTC, so a bound inside a day counts from the next one; None behind the last day there is."""
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
