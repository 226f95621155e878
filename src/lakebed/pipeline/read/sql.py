"""SQL over the lake: its tables under their names, on one snapshot of the registry for the whole query."""

from __future__ import annotations

from datetime import date
from functools import partial
from typing import TYPE_CHECKING

from lakebed.core.errors import InvalidValueError
from lakebed.pipeline.read.planning import ScanRequest, plan_scans
from lakebed.pipeline.read.read import frame_of_scan
from lakebed.pipeline.rows.types import quote
from lakebed.pipeline.sql.filters import Filter
from lakebed.pipeline.sql.functions.answers import answer, bind_arguments, find_function
from lakebed.pipeline.sql.parse import find_conditions, parse_query, run_query
from lakebed.registry.queries.time_travel import require_past
from lakebed.registry.table_cache import missing_table
from lakebed.registry.tables.names import resolve_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from lakebed.core.names import TableName
    from lakebed.core.times import Time
    from lakebed.pipeline.context import Context
    from lakebed.pipeline.spark.zone import Zone
    from lakebed.pipeline.sql.parse import Call, Mention, Place, Query
    from lakebed.registry.tables.lake_tables import LakeTable


def sql(context: Context, text: str, *, as_of: Time | None = None) -> DataFrame:
    """The answer of a query as a DataFrame; all lake tables in it are read as of one instant, now or `as_of`.

    `database.name` is looked up in the lake first, then in Spark's catalog. Nothing is left in the session.
    """
    require_moment(context, as_of)
    query = parse_query(text)
    frames = _table_frames(context, query, as_of) | _function_frames(context, query)
    return run_query(context.spark, query, frames)


def require_moment(context: Context, as_of: Time | None) -> None:
    """A number belongs to the journal of one table, and a query may have several tables."""
    if as_of is None:
        return
    if not isinstance(as_of, (date, str)):
        message = f"as_of={as_of!r}: SQL can only read as of a time; give a datetime with a zone or ISO 8601 text"
        raise InvalidValueError(message)
    require_past(as_of, context.registry)


def list_requests(context: Context, query: Query, as_of: Time | None, *, in_catalog: bool) -> list[tuple[Mention, ScanRequest]]:
    """The request for each lake table that the query names, once per mention. `in_catalog`: start Spark to look up others in its catalog."""
    named = [(mention, name) for mention in query.mentions if (name := mention.lake_name) is not None]
    ours = [(mention, name) for mention, name in named if _is_ours(context, name, in_catalog=in_catalog)]
    zone, spell = context.source.zone if ours else None, partial(resolve_name, context.registry)
    return [(mention, ScanRequest(name=spell(name), find=_finder(query, mention, zone), as_of=as_of)) for mention, name in ours]


def resolve_function(context: Context, call: Call) -> DataFrame | None:
    """The answer of one of Lakebed's table functions, called in this process; None if Spark resolves the call."""
    if find_function(call.name) is None or call.arguments is None:
        return None
    positional, named = call.arguments
    table = answer(context.registry, context.storage, call.name, bind_arguments(call.name, positional, named))
    return context.spark.createDataFrame(table)


def _table_frames(context: Context, query: Query, as_of: Time | None) -> dict[Place, DataFrame]:
    asked = list_requests(context, query, as_of, in_catalog=True)
    if not asked:
        return {}
    planned = plan_scans(context, [request for _, request in asked])
    return {query.require_place(mention): frame_of_scan(context, one) for (mention, _), one in zip(asked, planned, strict=True)}


def _function_frames(context: Context, query: Query) -> dict[Place, DataFrame]:
    made = {call.place: resolve_function(context, call) for call in query.calls}
    return {place: frame for place, frame in made.items() if frame is not None}


def _finder(query: Query, mention: Mention, zone: Zone | None) -> Callable[[LakeTable], Filter]:
    return lambda table: Filter() if zone is None else find_conditions(query, mention, table.schema, zone)


def _is_ours(context: Context, name: TableName, *, in_catalog: bool) -> bool:
    """Whether it is a lake table; an unknown name is refused with similar names."""
    if context.registry.find_table_id(name) is not None:
        return True
    if (in_catalog or context.source.is_there) and context.spark.catalog.tableExists(f"{quote(name.database)}.{quote(name.name)}"):
        return False
    raise missing_table(context.registry, name)
