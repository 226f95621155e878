"""Partitions: list and retire. What destroys is a preview unless `--execute` says otherwise."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from lakebed.cli.rendering import Format, out, print_json, print_rows, print_table
from lakebed.cli.terminal import (
    EXIT_DRIFT,
    URL,
    WAREHOUSE,
    AnyTable,
    AsJson,
    Execute,
    Instance,
    Limit,
    MaybeMoment,
    Moment,
    Output,
    TableName,
    Url,
    Warehouse,
    Yes,
    choose_format,
    confirm,
    opened,
    require_finite,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from lakebed.admin import BulkOptions, Retirement
    from lakebed.lake import Lake

partitions = typer.Typer(help="Partitions of the lake.", no_args_is_help=True)

_SHOWN = ("view_set_name", "view_instance_id", "begin_insert_time", "end_insert_time", "num_rows", "file_count", "file_size")
_WHY = ("view_set_name", "view_instance_id", "begin_insert_time", "end_insert_time", "reason", "num_rows", "file_size")
_OUTCOMES = ("view_set_name", "view_instance_id", "begin_insert_time", "end_insert_time", "num_rows", "outcome")
_MOST_SHOWN = 20
_EXPECTED = frozenset({"retired", "would_retire"})
SchemaHash = Annotated[str | None, typer.Option("--schema-hash", help="of one schema only")]
Atomic = Annotated[bool, typer.Option("--atomic", help="all or nothing, in one transaction")]
MaxPartitions = Annotated[int, typer.Option("--max-partitions", min=0, max=10_000_000, help="refuse to retire more")]
After = Annotated[int, typer.Option("--after", min=0, max=(1 << 63) - 1, help="the next page: the last id of the one before")]


@partitions.command("list")
def list_partitions(  # noqa: PLR0913 - one option per filter
    table: AnyTable = None,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    instance: Instance = None,
    schema_hash: SchemaHash = None,
    begin: MaybeMoment = None,
    end: MaybeMoment = None,
    insert_begin: MaybeMoment = None,
    insert_end: MaybeMoment = None,
    after: After = 0,
    limit: Limit = 1000,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """One row per partition; --begin and --end are event time.

    Example: lakebed partitions list shop.orders --json
    """
    form = choose_format(output, as_json=as_json)
    with opened(registry, warehouse) as lake:
        rows = lake.list_partitions(
            table, instance=instance, schema_hash=schema_hash, begin=begin, end=end, insert_begin=insert_begin, insert_end=insert_end,
            after=after, limit=limit,
        )  # fmt: skip
    print_rows(rows, output=form, columns=_SHOWN, empty="no partition")
    if len(rows) == limit and form is Format.TABLE:
        out().print(f"there may be more: --after {rows[-1].partition_id}")


@partitions.command("incompatible")
def list_incompatible(
    table: AnyTable = None, registry: Url = URL, warehouse: Warehouse = WAREHOUSE, *, output: Output = None, as_json: AsJson = False
) -> None:
    """Partitions that no reader sees any more, and why.

    Example: lakebed partitions incompatible
    """
    form = choose_format(output, as_json=as_json)
    with opened(registry, warehouse) as lake:
        rows = lake.list_incompatible_partitions(table)
    print_rows(rows, output=form, columns=_WHY, empty="every partition is compatible")


@partitions.command("retire")
def retire(  # noqa: PLR0913 - one option per question
    table: TableName,
    insert_begin: Moment,
    insert_end: Moment,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    instance: Instance = None,
    schema_hash: SchemaHash = None,
    exact: Annotated[bool, typer.Option("--exact", help="only the one partition with exactly this slice")] = False,
    atomic: Atomic = False,
    max_partitions: MaxPartitions = 10_000,
    execute: Execute = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Retire the partitions that are completely inside a range of insert time. Exit 3 when partitions overlap the range and none is inside it.

    Example: lakebed partitions retire shop.orders --insert-begin 2026-03-01 --insert-end 2026-03-02
    """

    def call(lake: Lake, options: BulkOptions) -> Retirement:
        if exact:
            return _retire_exactly(lake, table, instance, insert_begin, insert_end, schema_hash, dry_run=options["dry_run"])
        return lake.retire_partitions(
            table, insert_begin=insert_begin, insert_end=insert_end, instance=instance, schema_hash=schema_hash, **options
        )

    _carry_out(registry, warehouse, call, _options(atomic=atomic, max_partitions=max_partitions), execute=execute, yes=yes, as_json=as_json)


@partitions.command("retire-by-file", deprecated=True)
def retire_by_file(
    path: Annotated[str, typer.Argument(help="a registered file")],
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    execute: Execute = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Retire the whole partition that owns a file; use `retire --exact`.

    Example: lakebed partitions retire-by-file warehouse/a.parquet
    """

    def call(lake: Lake, options: BulkOptions) -> Retirement:
        if options["dry_run"]:
            return _preview_file(lake, path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the command itself is marked so
            return lake.retire_partition_by_file(path)

    _carry_out(registry, warehouse, call, _options(), execute=execute, yes=yes, as_json=as_json)


@partitions.command("retire-incompatible")
def retire_incompatible(
    table: AnyTable = None,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    atomic: Atomic = False,
    max_partitions: MaxPartitions = 10_000,
    execute: Execute = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Retire what no reader sees any more.

    Example: lakebed partitions retire-incompatible --execute
    """

    def call(lake: Lake, options: BulkOptions) -> Retirement:
        return lake.retire_incompatible_partitions(table, **options)

    _carry_out(registry, warehouse, call, _options(atomic=atomic, max_partitions=max_partitions), execute=execute, yes=yes, as_json=as_json)


@partitions.command("retire-expired")
def retire_expired(  # noqa: PLR0913 - one option per question
    older_than_days: Annotated[float, typer.Option("--older-than-days", min=0.0, max=1e6, callback=require_finite, help="by event time")],
    table: AnyTable = None,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    atomic: Atomic = False,
    max_partitions: MaxPartitions = 10_000,
    execute: Execute = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Retire partitions whose newest event is old.

    Example: lakebed partitions retire-expired --older-than-days 90 --execute
    """

    def call(lake: Lake, options: BulkOptions) -> Retirement:
        return lake.partitions.retire_expired(table, retention=timedelta(days=older_than_days), **options)

    _carry_out(registry, warehouse, call, _options(atomic=atomic, max_partitions=max_partitions), execute=execute, yes=yes, as_json=as_json)


def _options(*, atomic: bool = False, max_partitions: int = 10_000) -> BulkOptions:
    return {"dry_run": True, "atomic": atomic, "max_partitions": max_partitions}


def _carry_out(
    registry: str,
    warehouse: str,
    call: Callable[[Lake, BulkOptions], Retirement],
    options: BulkOptions,
    *,
    execute: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Always the preview first: what a person is asked about is what was found."""
    with opened(registry, warehouse, publishes=execute) as lake:
        done = call(lake, options)
        if execute and done.partitions:
            confirm(f"retire {done.partitions:,} partitions, {done.bytes_scheduled / 1e6:,.1f} MB?", yes=yes)
        if execute:
            done = call(lake, {**options, "dry_run": False})
    _render(done, as_json=as_json)
    if any(outcome.outcome == "rolled_back" for outcome in done.outcomes):
        raise typer.Exit(EXIT_DRIFT)


def _retire_exactly(
    lake: Lake, table: str, instance: str | None, begin: datetime, end: datetime, schema_hash: str | None, *, dry_run: bool
) -> Retirement:
    from lakebed.core.names import GLOBAL_INSTANCE  # noqa: PLC0415 - only here

    key = instance or GLOBAL_INSTANCE
    if dry_run:
        return _preview_key(lake, table, key, begin, end, schema_hash)
    return lake.retire_partition_by_metadata(table, key, insert_begin=begin, insert_end=end, schema_hash=schema_hash)


def _preview_key(lake: Lake, table: str, instance: str, begin: datetime, end: datetime, schema_hash: str | None) -> Retirement:
    """Refused as the call itself would refuse it."""
    from lakebed.core.errors import AmbiguousPartitionError, PartitionNotFoundError  # noqa: PLC0415

    rows = lake.list_partitions(table, instance=instance, schema_hash=schema_hash, insert_begin=begin, insert_end=end)
    found = [row for row in rows if (row.begin_insert_time, row.end_insert_time) == (begin, end)]
    wanted = f"{table} {instance} [{begin.isoformat()}, {end.isoformat()})"
    if not found:
        raise PartitionNotFoundError(wanted)
    if len(found) > 1:
        raise AmbiguousPartitionError(wanted, schema_hashes=tuple(sorted(row.schema_hash for row in found)))
    return _previewed([row.partition_id for row in found], lake)


def _preview_file(lake: Lake, path: str) -> Retirement:
    from lakebed.core.errors import PartitionNotFoundError  # noqa: PLC0415
    from lakebed.registry.partitions.retire_many import find_file_partition  # noqa: PLC0415

    canonical = lake.storage.canonical(path)
    owner = find_file_partition(lake.registry, canonical)
    if owner is None:
        raise PartitionNotFoundError(f"file {canonical!a}", hint="list the files")
    return _previewed([owner.partition_id] if owner.is_live else [], lake)


def _previewed(ids: list[int], lake: Lake) -> Retirement:
    from lakebed.admin import Retirement  # noqa: PLC0415 - brings the registry
    from lakebed.core.results import Rows  # noqa: PLC0415
    from lakebed.registry.partitions.retire_many import WOULD_RETIRE, RetireOutcome, outcome_of  # noqa: PLC0415
    from lakebed.registry.queries.listing import PartitionFilter, find_partitions  # noqa: PLC0415

    rows = find_partitions(lake.registry, PartitionFilter(ids=ids))
    return Retirement(outcomes=Rows(RetireOutcome, [outcome_of(row, WOULD_RETIRE) for row in rows]), dry_run=True)


def _render(done: Retirement, *, as_json: bool) -> None:
    if as_json:
        outcomes = [asdict(outcome) for outcome in done.outcomes]
        print_json({"dry_run": done.dry_run, "run_id": done.run_id, "message": done.message, **done.totals(), "outcomes": outcomes})
        return
    if done.outcomes:
        print_table(_OUTCOMES, [asdict(outcome) for outcome in done.outcomes[:_MOST_SHOWN]])
        more = len(done.outcomes) - _MOST_SHOWN
        out().print(f"and {more:,} more; --json lists them all\n" if more > 0 else "")
    out().print(done.summary)
    for outcome in [o for o in done.outcomes if o.outcome not in _EXPECTED][:_MOST_SHOWN]:
        out().print(str(outcome.message), markup=False, soft_wrap=True)
