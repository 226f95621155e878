"""Materializing: builds the stale slices of a view set from one snapshot of the registry."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING

from lakebed.core.errors import InvalidValueError, LakebedError
from lakebed.core.names import GLOBAL_INSTANCE, TableName
from lakebed.core.times import Time, TimeRange
from lakebed.pipeline.read.combine import combine_partials
from lakebed.pipeline.rows.scan import frame_of
from lakebed.pipeline.rows.types import quote
from lakebed.pipeline.spark.errors import SPARK_ERRORS, spark_translated, translate
from lakebed.pipeline.sql.definitions import parse_definition, run_definition
from lakebed.pipeline.views.plan import MaterializePlan, MaterializeResult, Outcome, SliceOutcome, SlicePlan, plan_materialize
from lakebed.pipeline.write.files import publish_files, write_frame
from lakebed.pipeline.write.spark_engine import pack
from lakebed.registry.files.operations import Operation
from lakebed.registry.partitions.publish import publish_partition
from lakebed.registry.snapshots.pressure import wait_for_room
from lakebed.registry.tables.names import resolve_name
from lakebed.registry.tables.view_sets import guard_source, list_definitions, promote_when_covered
from lakebed.staging.partition import partition_of
from lakebed.staging.write import new_op_id, staging

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from lakebed.core.partitions import NewPartition
    from lakebed.pipeline.context import Context


def materialize(  # noqa: PLR0913 - the ranges are four, all keyword-only
    context: Context,
    name: str,
    *,
    begin: Time | None = None,
    end: Time | None = None,
    insert_begin: Time | None = None,
    insert_end: Time | None = None,
    instance: str | None = GLOBAL_INSTANCE,
    regenerate: bool = False,
    parallel: int = 2,
    upstream: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> MaterializeResult:
    """Build every stale slice, or those of a range; `regenerate` builds fresh ones too. A failed slice does not affect the others.

    An instance is built from the partitions of the same instance of its source; None takes them all. A slice
    without source rows is empty, independent of the query. `upstream` first builds the view
    sets that this one reads. A staged definition is built beside the serving one and promoted once it covers it.
    """
    began = time.monotonic()
    _require_parallel(parallel)
    if upstream:
        for other in list_upstream(context, resolve_name(context.registry, name)):
            materialize(context, str(other), instance=instance, parallel=parallel, progress=progress)
    with context.lease.reading():
        plan = plan_materialize(
            context,
            name,
            events=TimeRange.open_ended(begin, end),
            inserts=TimeRange.open_ended(insert_begin, insert_end),
            instance=instance,
            regenerate=regenerate,
        )
        done = carry_out(context, plan, parallel=parallel, progress=progress)
    promoted = plan.view.is_staged and context.registry.transact(
        lambda tx: promote_when_covered(tx, plan.view.name), tables=[plan.view.name]
    )
    ordered = sorted((*plan.fresh, *done), key=lambda s: (s.instance, s.insert_range.begin))
    return MaterializeResult(view=name, slices=tuple(ordered), promoted=promoted, seconds=time.monotonic() - began, note=plan.note)


def list_in_order(context: Context) -> list[TableName]:
    """Every view set, each after those it reads."""
    with context.registry.read() as reader:
        reads = list_definitions(reader)
    return _in_order(reads, sorted(reads))


def list_upstream(context: Context, view: TableName) -> list[TableName]:
    """The view sets that this one reads, directly or indirectly, each after those it reads itself."""
    with context.registry.read() as reader:
        reads = list_definitions(reader)
    return [name for name in _in_order(reads, [view]) if name != view]


def carry_out(
    context: Context, plan: MaterializePlan, *, parallel: int = 2, progress: Callable[[int, int], None] | None = None
) -> list[SliceOutcome]:
    """Build the stale slices of a plan as parallel Spark jobs; an error affects only its slice."""
    if not plan.stale:
        return []
    wait_for_room(context.registry, plan.view.table.table_id)  # once for all slices: otherwise each would wait its whole timeout
    frames = _lookup_frames(context, plan) if any(s.paths for s in plan.stale) else {}
    done: list[SliceOutcome] = []
    with ThreadPoolExecutor(max_workers=parallel, thread_name_prefix="lakebed-slice") as pool:
        futures = [pool.submit(_try_slice, context, plan, chosen, frames) for chosen in plan.stale]
        try:
            for future in as_completed(futures):
                done.append(future.result())
                if progress is not None:
                    progress(len(done), len(futures))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # running jobs end by themselves, and the block waits for them
            raise
    return done


def build_slice(context: Context, plan: MaterializePlan, chosen: SlicePlan, frames: Mapping[str, DataFrame]) -> int:
    """Build and publish one slice. Return its row count. Raises a conflict if source or view changed meanwhile."""
    guard = guard_source(chosen.wanted, source=plan.source, then=chosen.guard_window.source, guard_window=chosen.guard_window.insert_range)
    replaced = frozenset(p.partition_id for p in chosen.window.view)
    if not chosen.paths:
        publish_partition(
            context.registry, _empty(plan, chosen), Operation(op_id=new_op_id(context.registry), kind="materialize"),
            replacing=replaced, inputs=[plan.source.name], guard=guard,
        )  # fmt: skip
        return 0
    table = plan.view.table
    with staging(context.registry, context.storage, table, kind="materialize", ahead=True, held_back=False) as stage:
        rows = slice_frame(context, plan, chosen, frames)
        captured = write_frame(context, stage, table, pack(rows, table, size_bytes=chosen.size_bytes))
        publish_files(
            context,
            stage,
            table,
            captured,
            instance=chosen.wanted.instance,
            insert_range=chosen.wanted.insert_range,
            replacing=replaced,
            source_data_hash=chosen.window.source_sum,
            lookup_hash=plan.lookup_hash,
            inputs=[plan.source.name],
            guard=guard,
        )
    return sum(c.file.row_count for c in captured)


def slice_frame(context: Context, plan: MaterializePlan, chosen: SlicePlan, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The definition over exactly the source rows of one window; a source with partial results is combined first, as for readers."""
    rows = combine_partials(context, plan.source, frame_of(context, plan.source.schema, chosen.paths))
    view = str(plan.view.name)
    query = parse_definition(view, plan.view.definition.sql)
    result = run_definition(context.spark, view, query, {**frames, str(plan.source.name): rows})
    with spark_translated(str(chosen.wanted)):
        return result.select(*(quote(column.name) for column in plan.view.table.schema.fields))


def _try_slice(context: Context, plan: MaterializePlan, chosen: SlicePlan, frames: Mapping[str, DataFrame]) -> SliceOutcome:
    began = time.monotonic()
    rows, error = 0, None
    try:
        rows = build_slice(context, plan, chosen, frames)
    except LakebedError as exc:
        error = exc
    except SPARK_ERRORS as exc:
        error = translate(exc, f"building {chosen.wanted}")
    outcome: Outcome = "failed" if error is not None else "built" if rows else "empty"
    return SliceOutcome(
        instance=chosen.wanted.instance,
        insert_range=chosen.wanted.insert_range,
        outcome=outcome,
        rows=rows,
        seconds=time.monotonic() - began,
        error=error,
    )


def _lookup_frames(context: Context, plan: MaterializePlan) -> dict[str, DataFrame]:
    """Whole lookups, as readers see them, all at the plan's snapshot."""
    return {
        str(name): combine_partials(context, table, frame_of(context, table.schema, paths)) for name, (table, paths) in plan.lookups.items()
    }


def _empty(plan: MaterializePlan, chosen: SlicePlan) -> NewPartition:
    """An empty slice that replaces an empty one keeps views over this one fresh."""
    return partition_of(
        plan.view.table,
        [],
        instance=chosen.wanted.instance,
        insert_range=chosen.wanted.insert_range,
        source_data_hash=chosen.window.source_sum,
        lookup_hash=plan.lookup_hash,
    )


def _require_parallel(parallel: int) -> None:
    if parallel < 1:
        message = f"parallel={parallel}: expected at least 1"
        raise InvalidValueError(message)


def _in_order(reads: Mapping[TableName, frozenset[TableName]], wanted: Sequence[TableName]) -> list[TableName]:
    """Depth first, every view set after those it reads; definitions have no cycles."""
    ordered: dict[TableName, None] = {}

    def visit(name: TableName) -> None:
        if name in ordered or name not in reads:
            return
        for other in sorted(reads[name] - {name}):
            visit(other)
        ordered[name] = None

    for name in wanted:
        visit(name)
    return list(ordered)
