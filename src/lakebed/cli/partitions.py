"""Partitions: list and retire. What destroys is a preview unless `--no-dry-run` says otherwise."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from lakebed.cli.terminal import (
    URL,
    WAREHOUSE,
    AnyTable,
    AsJson,
    DryRun,
    Moment,
    TableName,
    Url,
    Warehouse,
    opened,
    out,
    print_json,
    print_rows,
)

if TYPE_CHECKING:
    from lakebed.admin import Retirement

partitions = typer.Typer(help="Partitions of the lake.", no_args_is_help=True)

_SHOWN = ("view_set_name", "view_instance_id", "begin_insert_time", "end_insert_time", "num_rows", "file_count", "file_size")
_WHY = ("view_set_name", "view_instance_id", "begin_insert_time", "end_insert_time", "reason", "num_rows", "file_size")
Instance = Annotated[str | None, typer.Option("--instance", help="one instance; all of them when left out")]


@partitions.command("list")
def list_partitions(
    table: AnyTable = None, registry: Url = URL, warehouse: Warehouse = WAREHOUSE, *, instance: Instance = None, as_json: AsJson = False
) -> None:
    """One row per partition. Example: lakebed partitions list shop.orders --json."""
    with opened(registry, warehouse) as lake:
        rows = lake.list_partitions(table, instance=instance)
    print_rows(rows, as_json=as_json, columns=_SHOWN, empty="no partition")


@partitions.command("incompatible")
def list_incompatible(table: AnyTable = None, registry: Url = URL, warehouse: Warehouse = WAREHOUSE, *, as_json: AsJson = False) -> None:
    """Partitions that no reader sees any more, and why. Example: lakebed partitions incompatible."""
    with opened(registry, warehouse) as lake:
        rows = lake.list_incompatible_partitions(table)
    print_rows(rows, as_json=as_json, columns=tuple(c for c in _WHY if c in rows.columns), empty="every partition is compatible")


@partitions.command("retire")
def retire(
    table: TableName,
    insert_begin: Moment,
    insert_end: Moment,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    instance: Instance = None,
    dry_run: DryRun = True,
    as_json: AsJson = False,
) -> None:
    """Retire what lies wholly in a range of insert time. Example: lakebed partitions retire shop.orders --insert-begin 2026-03-01 --insert-end 2026-03-02."""
    with opened(registry, warehouse, publishes=not dry_run) as lake:
        done = lake.retire_partitions(
            table, insert_begin=_utc(insert_begin), insert_end=_utc(insert_end), instance=instance, dry_run=dry_run
        )
    _render(done, as_json=as_json)


@partitions.command("retire-incompatible")
def retire_incompatible(
    table: AnyTable = None, registry: Url = URL, warehouse: Warehouse = WAREHOUSE, *, dry_run: DryRun = True, as_json: AsJson = False
) -> None:
    """Retire what no reader sees any more. Example: lakebed partitions retire-incompatible --no-dry-run."""
    with opened(registry, warehouse, publishes=not dry_run) as lake:
        done = lake.retire_incompatible_partitions(table, dry_run=dry_run)
    _render(done, as_json=as_json)


@partitions.command("retire-expired")
def retire_expired(
    older_than_days: Annotated[float, typer.Option("--older-than-days", min=0.0, help="by event time")],
    table: AnyTable = None,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    dry_run: DryRun = True,
    as_json: AsJson = False,
) -> None:
    """Retire partitions whose newest event is old. Example: lakebed partitions retire-expired --older-than-days 90."""
    with opened(registry, warehouse, publishes=not dry_run) as lake:
        done = lake.retire_expired_partitions(timedelta(days=older_than_days), table, dry_run=dry_run)
    _render(done, as_json=as_json)


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC)


def _render(done: Retirement, *, as_json: bool) -> None:
    if as_json:
        print_json({"dry_run": done.dry_run, "run_id": done.run_id, "message": done.message, **done.totals()})
        return
    word = "would retire" if done.dry_run else "retired"
    told = f"; {done.message}" if done.message else ""
    out().print(
        f"{word} {done.non_empty} partitions with rows and {done.empty} empty ones, "
        f"{done.bytes_scheduled / 1e6:,.1f} MB scheduled for deletion{told}"
    )
