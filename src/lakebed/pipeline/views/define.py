"""View sets: defining, redefining beside the serving version, promoting."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

from lakebed.core.errors import DefinitionRefusedError, InvalidValueError, SchemaRefusedError, TableExistsError
from lakebed.core.schema.evolution import align_schema, is_same_shape, loosen
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.transforms import resolve_transforms
from lakebed.core.schema.types import Primitive, can_promote
from lakebed.core.tables.view_sets import Definition, require_fitting
from lakebed.core.times import parse_duration
from lakebed.pipeline.read.combine import parse_combine
from lakebed.pipeline.rows.scan import frame_of
from lakebed.pipeline.rows.types import from_spark
from lakebed.pipeline.spark.errors import spark_translated
from lakebed.pipeline.sql.definitions import PARTIALS, find_aggregates, has_unknown_functions, parse_sources, run_definition
from lakebed.registry.table_cache import missing_table
from lakebed.registry.tables.lake_tables import TableSpec, create_table, find_table, read_table, require_table
from lakebed.registry.tables.names import resolve_name
from lakebed.registry.tables.versions import list_versions, promote_version, stage_version, withdraw_staged
from lakebed.registry.tables.view_sets import as_view, list_definitions, merge_window, promote_when_covered, read_newest, read_view

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from lakebed.core.names import TableName
    from lakebed.core.tables.view_sets import Lookups
    from lakebed.pipeline.context import Context
    from lakebed.pipeline.sql.parse import Query
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.tables.view_sets import ViewSet
    from lakebed.registry.transaction import Transaction

Promote = Literal["auto", "now"]
_SEES_ALL = ("Aggregate [", "Window [", "Distinct\n", "Deduplicate", "GlobalLimit")


def create_view_set(  # noqa: PLR0913 - one keyword per part of a definition
    context: Context,
    name: str,
    *,
    sql: str,
    over: str,
    event_time: str | None = None,
    slice: str | int | timedelta = "1h",  # noqa: A002 - the public name
    combine: str | None = None,
    lookups: Lookups = "ignore",
    partial: bool = False,
    partition_by: Sequence[str] = (),
    sort_by: Sequence[str] = (),
    promote: Promote = "auto",
) -> ViewSet:
    """Define a view set, or redefine one: the new definition is staged, and readers use the serving one until it is promoted.

    No Spark job runs. The same definition again changes nothing.
    """
    view, source = resolve_name(context.registry, name), resolve_name(context.registry, over)
    if promote not in {"auto", "now"}:
        message = f"promote={promote!r} is not known: give 'auto' or 'now'"
        raise InvalidValueError(message)
    query, mentioned = parse_sources(view, sql)
    names = dict.fromkeys(resolve_name(context.registry, one) for one in mentioned)
    definition = Definition(
        sql=sql,
        over=source,
        slice_us=parse_duration(slice),
        event_time=event_time,
        combine=combine,
        lookups=lookups,
        partial=partial,
        reads=tuple(read for read in names if read != source),
    )
    schema = _analyse(context, view, definition, query)
    spec = TableSpec(
        name=view,
        schema=schema,
        kind="view_set",
        event_time=event_time,
        partition_by=tuple(partition_by),
        sort_by=tuple(sort_by),
        definition=definition.to_json(),
    )
    _require_columns(spec)
    found = find_table(context.registry, view)
    if found is None:
        return as_view(create_table(context.registry, spec))
    return _redefine(context, found, spec, promote=promote)


def promote(context: Context, name: str) -> ViewSet:
    """Serve the staged definition now, independent of its coverage; one group of the table's Iceberg history."""
    view = resolve_name(context.registry, name)

    def body(tx: Transaction) -> None:
        staged = read_view(tx, view, staged=True)
        if staged is None:
            message = f"{view} has no staged definition: redefine it first, unless it was already promoted"
            raise InvalidValueError(message)
        promote_version(tx, view, staged.table.schema_hash)

    context.registry.transact(body, tables=[view])
    return as_view(require_table(context.registry, view))


def _redefine(context: Context, found: LakeTable, spec: TableSpec, *, promote: Promote) -> ViewSet:
    if found.row.kind != "view_set":
        raise TableExistsError(str(spec.name))

    def body(tx: Transaction) -> None:
        _stage(tx, spec)
        staged = read_view(tx, spec.name, staged=True)
        if staged is not None and promote == "now":
            promote_version(tx, spec.name, staged.table.schema_hash)
        elif staged is not None:
            promote_when_covered(tx, spec.name)

    context.registry.transact(body, tables=[spec.name])
    with context.registry.read() as reader:
        return read_newest(reader, spec.name)


def _stage(tx: Transaction, spec: TableSpec) -> None:
    """The newest definition again changes nothing; the serving one again removes the staged one."""
    newest, serving = read_newest(tx, spec.name), read_view(tx, spec.name)
    if _is_same(newest, spec):
        return
    _require_same_layout(newest.table, spec)
    if serving is not None and _is_same(serving, spec):
        withdraw_staged(tx, spec.name)
        return
    versions = [Schema.from_json(v.schema) for v in list_versions(tx, newest.table.table_id)]
    schema = align_schema(spec.schema, versions)
    _require_event_time(newest.table, spec, schema)
    stage_version(tx, spec.name, schema, definition=spec.definition)


def _is_same(view: ViewSet, spec: TableSpec) -> bool:
    return view.definition.to_json() == spec.definition and is_same_shape(view.table.schema, spec.schema)


def _require_same_layout(table: LakeTable, spec: TableSpec) -> None:
    for what, stored, wanted in (
        ("partition_by", table.partition_by, spec.partition_by),
        ("sort_by", table.sort_by, spec.sort_by),
    ):
        if stored != wanted:
            message = f"{spec.name}: {what} cannot be changed ({json.dumps(stored)}): give it unchanged, or create another view set"
            raise InvalidValueError(message)


def _require_event_time(table: LakeTable, spec: TableSpec, schema: Schema) -> None:
    """Ranges and retention use one column permanently: its id is part of the table."""
    field = schema.require(spec.event_time) if spec.event_time else None
    if (field.field_id if field is not None else None) != table.row.event_time_field:
        known = {f.field_id: f.name for f in table.schema.fields}.get(table.row.event_time_field or 0, "none")
        reason = f"its event time is {known} and cannot be changed: give a column of that name and type, or create another view set"
        raise DefinitionRefusedError(str(spec.name), reason=reason)


def _require_columns(spec: TableSpec) -> None:
    for column in (*((spec.event_time,) if spec.event_time else ()), *(text.split()[0] for text in spec.sort_by)):
        spec.schema.require(column)
    resolve_transforms(spec.schema, spec.partition_by)


def _analyse(context: Context, view: TableName, definition: Definition, query: Query) -> Schema:
    """The columns of the result, from Spark's analysis of the query over empty tables; refuses queries that cannot be sliced."""
    if str(definition.over).lower() not in {name.lower() for name in query.names}:
        raise DefinitionRefusedError(str(view), reason=f"the SQL does not read {definition.over}, which it is to be sliced over")
    tables = _require_inputs(context, view, definition.inputs)
    require_fitting(definition.slice_us, window_us=merge_window(tables[definition.over]), source=definition.over)
    frames = {str(name): frame_of(context, table.schema, []) for name, table in tables.items()}
    columns = _columns_of(context, view, query, frames)
    if definition.combine is None and not definition.partial:
        _require_no_aggregate(context, view, definition, query, frames)
    schema = loosen(from_spark(columns))  # a count is never NULL in one slice, but may be after combining
    if definition.combine is not None:
        _require_same_columns(context, view, definition.combine, schema)
    return schema


def _columns_of(context: Context, view: TableName, query: Query, frames: dict[str, DataFrame]) -> StructType:
    with spark_translated(str(view)):  # Spark Connect analyses a query only here
        return run_definition(context.spark, str(view), query, frames).schema


def _require_inputs(context: Context, view: TableName, names: Sequence[TableName]) -> dict[TableName, LakeTable]:
    if view in names:
        raise DefinitionRefusedError(str(view), reason="it refers to itself: read another table")
    with context.registry.read() as reader:
        tables = {name: read_table(reader, name) for name in names}
        known = list_definitions(reader)
    for name in (name for name, table in tables.items() if table is None):
        raise missing_table(context.registry, name)
    if (later := find_dependent(view, names, known)) is not None:
        raise DefinitionRefusedError(str(view), reason=f"{later} is built from {view} itself: read tables that do not depend on it")
    return {name: table for name, table in tables.items() if table is not None}


def find_dependent(view: TableName, names: Sequence[TableName], known: dict[TableName, frozenset[TableName]]) -> TableName | None:
    """The first of `names` that reads `view`, directly or not."""
    for name in names:
        seen, waiting = {name}, [name]
        while waiting:
            reads = known.get(waiting.pop(), frozenset())
            if view in reads:
                return name
            waiting += sorted(reads - seen)
            seen |= reads
    return None


def _require_no_aggregate(context: Context, view: TableName, definition: Definition, query: Query, frames: dict[str, DataFrame]) -> None:
    reason = find_aggregates(query, str(definition.over))
    if reason is None and has_unknown_functions(query) and _explains_aggregate(context, view, query, frames):
        reason = "Spark plans it as an aggregate"
    if reason is not None:
        advice = f"a slice would hold partial results. Give combine= (SQL over {PARTIALS!r}), or accept them with partial=True"
        raise DefinitionRefusedError(str(view), reason=f"{reason}, so {advice}")


def _explains_aggregate(context: Context, view: TableName, query: Query, frames: dict[str, DataFrame]) -> bool:
    """Spark's plan decides for functions that the parser does not know; it does not distinguish lookups from the source."""
    with spark_translated(str(view)):
        plan = str(run_definition(context.spark, str(view), query, frames, explain=True).collect()[0][0])
    analysed = plan.partition("== Analyzed Logical Plan ==")[2].partition("== Optimized Logical Plan ==")[0]
    return any(mark in analysed for mark in _SEES_ALL)


def _require_same_columns(context: Context, view: TableName, combine: str, schema: Schema) -> None:
    partials = frame_of(context, schema, [])
    try:
        combined = from_spark(_columns_of(context, view, parse_combine(str(view), combine), {PARTIALS: partials}))
    except SchemaRefusedError as exc:
        raise DefinitionRefusedError(str(view), reason=f"combine gives columns that cannot be stored: {exc}") from exc
    given, wanted = {f.name: f for f in combined.fields}, {f.name: f for f in schema.fields}
    if given.keys() != wanted.keys():
        reason = f"combine gives the columns {', '.join(sorted(given))}, the definition {', '.join(sorted(wanted))}: they must be the same"
        raise DefinitionRefusedError(str(view), reason=reason)
    for name, field in wanted.items():
        if not _is_castable(field.type, given[name].type):
            raise DefinitionRefusedError(str(view), reason=f"combine gives {name} as {given[name].type}, the definition as {field.type}")


def _is_castable(wanted: object, given: object) -> bool:
    if not isinstance(wanted, Primitive) or not isinstance(given, Primitive):
        return type(wanted) is type(given)
    return can_promote(given, wanted) or can_promote(wanted, given) or wanted.name == given.name == "decimal"
