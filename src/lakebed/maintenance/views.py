"""Maintenance of view sets: builds stale slices, merges closed windows, carries out requests. Starts Spark if needed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lakebed.admin.requests import REGENERATE
from lakebed.core.tables.view_sets import merge_window_of
from lakebed.core.times import from_micros
from lakebed.maintenance.reports import Report, StoppedError, isolated
from lakebed.registry.tables.lake_tables import require_table
from lakebed.registry.tables.view_sets import list_definitions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lakebed.core.names import TableName
    from lakebed.maintenance.workplace import Workplace
    from lakebed.pipeline.views.plan import MaterializeResult
    from lakebed.registry.maintenance.schedules import RequestedWork


def list_views(place: Workplace) -> list[TableName]:
    with place.registry.read() as reader:
        return sorted(list_definitions(reader))


def materialize_stale(place: Workplace) -> Report:
    """Every view set after those it reads. Spark does not start while everything is fresh."""
    if not list_views(place):
        return Report(result={"views": 0})
    from lakebed.pipeline.views.build import list_in_order, materialize  # noqa: PLC0415 - imports Spark's library

    context = place.context()
    results: list[MaterializeResult] = []
    problems: list[str] = []
    for view in list_in_order(context):
        if place.cancelled():
            break
        with isolated(str(view), problems):
            results.append(materialize(context, str(view), instance=None, progress=_stopping(place)))
    return _report(results, problems)


def merge_closed(place: Workplace) -> Report:
    """Only view sets (the compactor treats plain tables), and only merge windows that are over."""
    views = list_views(place)
    if not views:
        return Report(result={"views": 0})
    from lakebed.pipeline.views.merge import merge  # noqa: PLC0415 - imports Spark's library

    sums: Counter[str] = Counter(views=len(views))
    problems: list[str] = []
    for view in views:
        if place.cancelled():
            break
        with isolated(str(view), problems):
            window_us = merge_window_of(require_table(place.registry, view).properties)
            closed = place.registry.now() // window_us * window_us
            done = merge(place.context(), str(view), insert_end=from_micros(closed), instance=None)
            sums.update(runs=len(done.runs), partitions=done.partitions_before, files_in=done.files_before, files_out=done.files_after)
    return Report(result=dict(sums), problems=tuple(problems))


def carry_out_request(place: Workplace, work: RequestedWork) -> Report:
    """Carries out a request of `materialize_partitions` or `regenerate_partitions`."""
    from lakebed.pipeline.views.build import materialize  # noqa: PLC0415 - imports Spark's library

    name = str(work.plan["view_set_name"])
    begin, end = work.plan["insert_begin"], work.plan["insert_end"]
    results: list[MaterializeResult] = []
    problems: list[str] = []
    with isolated(name, problems):
        done = materialize(
            place.context(),
            name,
            instance=str(work.plan["view_instance_id"]),
            insert_begin=None if begin is None else from_micros(begin),
            insert_end=None if end is None else from_micros(end),
            regenerate=work.job == REGENERATE,
            progress=_stopping(place),
        )
        results.append(done)
    return _report(results, problems)


def _stopping(place: Workplace) -> Callable[[int, int], None]:
    """Called after each slice; at a stop, waiting slices are not started."""

    def look(done: int, total: int) -> None:
        if place.cancelled() and done < total:
            raise StoppedError

    return look


def _report(results: Iterable[MaterializeResult], problems: list[str]) -> Report:
    sums: Counter[str] = Counter()
    for one in results:
        sums.update(views=1, built=one.built, empty=one.empty, fresh=one.fresh, kept=one.kept, failed=len(one.failed), rows=one.rows)
        problems += [f"{one.view} {s.insert_range}: {'' if s.error is None else s.error}" for s in one.failed]
    return Report(result=dict(sums), problems=tuple(problems))
