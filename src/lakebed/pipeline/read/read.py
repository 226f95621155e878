"""Reading a table as a DataFrame: the planned files, and a filter over them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the conventional name

from lakebed.core.times import Time, show
from lakebed.pipeline.read.combine import combine_partials
from lakebed.pipeline.read.event_window import EventWindow
from lakebed.pipeline.read.planning import ScanRequest, plan_scans
from lakebed.pipeline.rows.scan import frame_of
from lakebed.pipeline.rows.types import quote
from lakebed.pipeline.spark.errors import spark_translated
from lakebed.pipeline.sql.filters import parse_where
from lakebed.registry.queries.plans import find_event_range
from lakebed.registry.tables.names import resolve_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from lakebed.pipeline.context import Context
    from lakebed.pipeline.read.planning import PlannedScan
    from lakebed.pipeline.sql.filters import Filter
    from lakebed.registry.tables.lake_tables import LakeTable

logger = logging.getLogger(__name__)


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

    An earlier state has the columns of that time, unless `with_current_columns`; `where` and `columns` refer to them. The files stay in
    the warehouse until this process releases its lease (`context.lease`).
    """
    window = EventWindow.of(begin, end)
    condition, zone = (None, None) if where is None else (parse_where(where), context.source.zone)

    def find(table: LakeTable) -> Filter:
        timed = window.conditions(table)
        return timed if condition is None or zone is None else timed & condition.find_filter(table.schema, zone)

    request = ScanRequest(
        name=resolve_name(context.registry, name), find=find, as_of=as_of, instance=instance, with_current_columns=with_current_columns
    )
    (planned,) = plan_scans(context, [request])
    for column in columns or ():
        planned.table.schema.resolve(column)
    if not planned.plan.paths and window.is_bounded:
        _warn_nothing_matches(context, planned, window)
    with spark_translated(f"reading {name}"):
        frame = window.apply(frame_of_scan(context, planned), planned.table)
        frame = frame if where is None else frame.where(where)
        return frame if columns is None else frame.select(*(F.col(quote(column)) for column in columns))


def frame_of_scan(context: Context, planned: PlannedScan) -> DataFrame:
    """All rows of the planned files, partial results of a view set combined."""
    return combine_partials(context, planned.table, frame_of(context, planned.table.schema, planned.plan.paths))


def _warn_nothing_matches(context: Context, planned: PlannedScan, window: EventWindow) -> None:
    with context.registry.read() as reader:
        known = find_event_range(reader, planned.table.table_id)
    exists = "it has no event times" if known is None else f"{show(known[0])} to {show(known[1])}"
    logger.warning(
        "no file of %s holds event times in %s; existing event times: %s",
        planned.table.name,
        window,
        exists,
        extra={"action": "read_nothing", "table": str(planned.table.name)},
    )
