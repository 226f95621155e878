"""View sets: list, build what is stale, merge, promote. Building starts Spark; the rest does not."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli.rendering import Format, out, print_json, print_rows, print_table
from lakebed.cli.terminal import (
    EXIT_REFUSED,
    URL,
    WAREHOUSE,
    AnyTable,
    AsJson,
    DryRun,
    Instance,
    MaybeMoment,
    Output,
    TableName,
    Url,
    Warehouse,
    choose_format,
    opened,
    showing,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.core.times import TimeRange
    from lakebed.lake import Lake
    from lakebed.pipeline.options import MaterializeOptions, MergeOptions
    from lakebed.pipeline.views.plan import SliceOutcome

views = typer.Typer(help="View sets: tables that are built from others, slice by slice.", no_args_is_help=True)

_SHOWN = ("view_set_name", "partition_count", "row_count", "file_count", "state", "staged", "last_modified")
_SLICES = ("view", "instance", "insert_begin", "insert_end", "outcome", "reason", "rows", "seconds", "error")
_RUNS = ("insert_begin", "insert_end", "instance", "partitions", "files_before", "files_after", "rows")
_MOST_PARALLEL = 64
Upstream = Annotated[bool, typer.Option("--upstream", help="first the view sets that it reads")]
Parallel = Annotated[int, typer.Option("--parallel", min=1, max=_MOST_PARALLEL, help="slices at a time")]


@views.command("list")
def list_views(registry: Url = URL, warehouse: Warehouse = WAREHOUSE, *, output: Output = None, as_json: AsJson = False) -> None:
    """View sets with their counters.

    Example: lakebed views list
    """
    form = choose_format(output, as_json=as_json)
    with opened(registry, warehouse) as lake:
        rows = lake.list_view_sets()
    if form is not Format.TABLE:
        print_rows(rows, output=form)
        return
    shown = [{name: getattr(row, name) for name in _SHOWN if name != "staged"} | {"staged": bool(row.staged_schema_hash)} for row in rows]
    print_table(_SHOWN, shown, empty="no view set")


@views.command("materialize")
def materialize(  # noqa: PLR0913 - one option per end of two ranges
    view: AnyTable = None,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    begin: MaybeMoment = None,
    end: MaybeMoment = None,
    insert_begin: MaybeMoment = None,
    insert_end: MaybeMoment = None,
    instance: Instance = None,
    upstream: Upstream = False,
    parallel: Parallel = 2,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Build what is stale of a view set, or of all.

    Example: lakebed views materialize shop.daily --upstream
    """
    options: MaterializeOptions = {
        "begin": begin, "end": end, "insert_begin": insert_begin, "insert_end": insert_end, "instance": instance, "upstream": upstream,
        "parallel": parallel,
    }  # fmt: skip
    with opened(registry, warehouse, publishes=not dry_run) as lake:
        names = [view] if view is not None else _in_order(lake)
        _build_all(lake, names, options, dry_run=dry_run, as_json=as_json)


@views.command("regenerate")
def regenerate(  # noqa: PLR0913 - one option per end of two ranges
    view: TableName,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    begin: MaybeMoment = None,
    end: MaybeMoment = None,
    insert_begin: MaybeMoment = None,
    insert_end: MaybeMoment = None,
    instance: Instance = None,
    parallel: Parallel = 2,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Build slices again, fresh or not.

    Example: lakebed views regenerate shop.daily --insert-begin 2026-03-01 --insert-end 2026-03-02
    """
    options: MaterializeOptions = {
        "begin": begin, "end": end, "insert_begin": insert_begin, "insert_end": insert_end, "instance": instance, "parallel": parallel,
        "regenerate": True,
    }  # fmt: skip
    with opened(registry, warehouse, publishes=not dry_run) as lake:
        _build_all(lake, [view], options, dry_run=dry_run, as_json=as_json)


@views.command("merge")
def merge(  # noqa: PLR0913 - one option per question
    table: TableName,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    insert_begin: MaybeMoment = None,
    insert_end: MaybeMoment = None,
    instance: Instance = None,
    window: Annotated[str | None, typer.Option("--window", help="shorter than the table's merge window, such as 6h")] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Turn runs of adjacent partitions into one each; views over them stay fresh.

    Example: lakebed views merge shop.daily
    """
    options: MergeOptions = {"insert_begin": insert_begin, "insert_end": insert_end, "instance": instance, "window": window}
    with opened(registry, warehouse, publishes=not dry_run) as lake:
        runs = _plan_merge(lake, table, options) if dry_run else _merge(lake, table, options)
    if as_json:
        print_json({"table": table, "dry_run": dry_run, "runs": runs})
        return
    print_table(_RUNS, runs, empty=f"{table} has nothing to merge")


@views.command("promote")
def promote(
    view: TableName, registry: Url = URL, warehouse: Warehouse = WAREHOUSE, *, dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Serve a staged definition now, complete or not.

    Example: lakebed views promote shop.daily
    """
    from lakebed.core.errors import InvalidValueError  # noqa: PLC0415 - only here
    from lakebed.core.names import TableName as Name  # noqa: PLC0415
    from lakebed.registry.tables.view_sets import read_view  # noqa: PLC0415

    with opened(registry, warehouse, publishes=not dry_run) as lake:
        with lake.registry.read() as reader:
            staged = read_view(reader, Name.parse(view), staged=True)
        if staged is None:
            message = f"{view} has no staged definition: redefine it first, or it was promoted already"
            raise InvalidValueError(message)
        if not dry_run:
            lake.views.promote(view)
    if as_json:
        print_json({"view": view, "dry_run": dry_run, "schema_hash": staged.table.schema_hash, "sql": staged.definition.sql})
    else:
        out().print(f"{view} {'would serve' if dry_run else 'serves'} its staged definition {staged.table.schema_hash}")


def _in_order(lake: Lake) -> list[str]:
    """Every view set after those it reads."""
    found: dict[str, None] = {}
    for row in lake.list_view_sets():
        found |= dict.fromkeys(lake.views.list_upstream(row.view_set_name))
        found[row.view_set_name] = None
    return list(found)


def _build_all(lake: Lake, names: Sequence[str], options: MaterializeOptions, *, dry_run: bool, as_json: bool) -> None:
    """One failed slice leaves the others alone."""
    slices: list[dict[str, Any]] = []
    notes: list[str] = []
    for name in names:
        found, note = _plan(lake, name, options) if dry_run else _build(lake, name, options)
        slices += found
        notes += [f"{name}: {note}"] if note else []
    failed = sum(one["outcome"] == "failed" for one in slices)
    if as_json:
        print_json({"dry_run": dry_run, "views": list(names), "failed": failed, "notes": notes, "slices": slices})
    else:
        _render(slices, notes)
    if failed:
        raise typer.Exit(EXIT_REFUSED)


def _build(lake: Lake, name: str, options: MaterializeOptions) -> tuple[list[dict[str, Any]], str]:
    with showing(f"building {name}") as progress:
        asked: MaterializeOptions = {**options, "progress": progress}
        done = lake.materialize(name, **asked)
    slices = [_slice(name, one.instance, one.insert_range, one.outcome) | _effort(one) for one in done.slices]
    return slices, "the staged definition serves now" if done.promoted else done.note


def _plan(lake: Lake, name: str, options: MaterializeOptions) -> tuple[list[dict[str, Any]], str]:
    """From the registry alone."""
    with lake.reading():
        plan = lake.views.plan(
            name, begin=options.get("begin"), end=options.get("end"), insert_begin=options.get("insert_begin"),
            insert_end=options.get("insert_end"), instance=options.get("instance"), regenerate=options.get("regenerate", False),
        )  # fmt: skip
    fresh = [_slice(name, one.instance, one.insert_range, one.outcome) for one in plan.fresh]
    stale = [_slice(name, one.wanted.instance, one.wanted.insert_range, "would_build") | {"reason": str(one.state)} for one in plan.stale]
    return fresh + stale, plan.note


def _slice(view: str, instance: str, insert_range: TimeRange, outcome: str) -> dict[str, Any]:
    from lakebed.core.times import from_micros  # noqa: PLC0415

    return {
        "view": view, "instance": instance, "insert_begin": from_micros(insert_range.begin), "insert_end": from_micros(insert_range.end),
        "outcome": outcome, "reason": None, "rows": None, "seconds": None, "error": None,
    }  # fmt: skip


def _effort(one: SliceOutcome) -> dict[str, Any]:
    error = None if one.error is None else f"{one.error.code}: {one.error}"
    return {"rows": one.rows, "seconds": round(one.seconds, 3), "error": error}


def _render(slices: Sequence[dict[str, Any]], notes: Sequence[str]) -> None:
    """What is fresh is counted, not listed: a view set has thousands of slices."""
    changed = [one for one in slices if one["outcome"] != "fresh"]
    if changed:
        print_table(_SLICES, changed)
        out().print()
    counts = Counter(one["outcome"] for one in slices)
    out().print(", ".join(f"{count:,} {outcome.replace('_', ' ')}" for outcome, count in sorted(counts.items())) or "nothing to build")
    for note in notes:
        out().print(note, markup=False)


def _merge(lake: Lake, table: str, options: MergeOptions) -> list[dict[str, Any]]:
    with showing(f"merging {table}") as progress:
        asked: MergeOptions = {**options, "progress": progress}
        done = lake.partitions.merge(table, **asked)
    return [
        _run(one.instance, one.insert_range, one.partitions, one.files_before, one.rows_after) | {"files_after": one.files_after}
        for one in done.runs
    ]


def _plan_merge(lake: Lake, table: str, options: MergeOptions) -> list[dict[str, Any]]:
    """From the registry alone; how many files a rewrite leaves is not known before."""
    with lake.reading():
        runs = lake.partitions.plan_merge(
            table, insert_begin=options.get("insert_begin"), insert_end=options.get("insert_end"), instance=options.get("instance"),
            window=options.get("window"),
        )  # fmt: skip
    return [
        _run(one.wanted.instance, one.wanted.insert_range, len(one.partitions), len(one.rewriting) + len(one.keeping), one.rows)
        for one in runs
    ]


def _run(instance: str, insert_range: TimeRange, partitions: int, files: int, rows: int) -> dict[str, Any]:
    from lakebed.core.times import from_micros  # noqa: PLC0415

    return {
        "instance": instance, "insert_begin": from_micros(insert_range.begin), "insert_end": from_micros(insert_range.end),
        "partitions": partitions, "files_before": files, "files_after": None, "rows": rows,
    }  # fmt: skip
