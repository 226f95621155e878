"""Iceberg snapshots: list, take, expire, keep, return to one."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from lakebed.cli.rendering import out, print_json, print_rows, print_table
from lakebed.cli.terminal import (
    EXIT_UNAVAILABLE,
    URL,
    WAREHOUSE,
    AsJson,
    DryRun,
    Execute,
    Output,
    TableName,
    Timeout,
    Url,
    Warehouse,
    Yes,
    choose_format,
    confirm,
    opened,
    require_finite,
    showing,
)

if TYPE_CHECKING:
    from lakebed.admin import Expiry, Rollback
    from lakebed.lake import Lake

snapshots = typer.Typer(help="Iceberg snapshots of a table.", no_args_is_help=True)

_SHOWN = ("snapshot_id", "committed_at", "operation", "rows", "files", "added_files", "removed_files", "tags", "is_current")
_GOING = ("snapshot_id", "committed_at", "operation", "rows", "files")
_BIGGEST = (1 << 63) - 1


@snapshots.command("list")
def list_snapshots(
    table: TableName,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    expired: Annotated[bool, typer.Option("--expired", help="also list the snapshots that were expired")] = False,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Kept snapshots, oldest first.

    Example: lakebed snapshots list shop.orders
    """
    form = choose_format(output, as_json=as_json)
    with opened(registry, warehouse) as lake:
        rows = lake.snapshots(table, expired=expired)
    print_rows(rows, output=form, columns=_SHOWN, empty=f"{table} has no snapshot yet")


@snapshots.command("create")
def create_snapshot(
    table: TableName,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    timeout_s: Timeout = 60.0,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Seal what is pending and wait until Iceberg has it.

    Example: lakebed snapshots create shop.orders
    """
    with opened(registry, warehouse, publishes=not dry_run) as lake:
        if dry_run:
            _print_pending(lake, table, as_json=as_json)
            return
        found = lake.snapshot(table, timeout_s=timeout_s)
    if as_json:
        print_json({"table": table, "dry_run": False, "snapshot_id": found, "pending_files": 0})
    else:
        out().print(f"{table} has no file yet, so there is no snapshot" if found is None else f"{table}: snapshot {found} is current")


def _print_pending(lake: Lake, table: str, *, as_json: bool) -> None:
    from lakebed.registry.tables.groups import read_pending  # noqa: PLC0415 - after the registry is there

    found = lake.table(table)
    pending = read_pending(lake.registry, found.table_id)
    if as_json:
        print_json({"table": table, "dry_run": True, "snapshot_id": found.row.current_snapshot_id, "pending_files": pending.files})
    else:
        out().print(f"{table}: {pending.files:,} files with {pending.rows:,} rows would enter the next snapshot")


@snapshots.command("expire")
def expire_snapshots(  # noqa: PLR0913 - one option per question
    table: TableName,
    snapshot_ids: Annotated[list[int] | None, typer.Argument(min=0, max=_BIGGEST, help="only these")] = None,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    older_than_days: Annotated[
        float | None,
        typer.Option(
            "--older-than-days",
            min=0.0,
            max=1e6,
            callback=require_finite,
            help="all of that age; left out: what the table's retention gives up",
        ),
    ] = None,
    timeout_s: Timeout = 60.0,
    execute: Execute = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Give up old snapshots; the current one and tagged ones stay.

    Example: lakebed snapshots expire shop.orders --older-than-days 7 --execute
    """
    age = None if older_than_days is None else timedelta(days=older_than_days)
    with opened(registry, warehouse, publishes=execute) as lake:
        done = lake.snapshots.expire(table, snapshot_ids=snapshot_ids or (), older_than=age)
        if execute and done.snapshots:
            confirm(f"give up {len(done.snapshots):,} snapshots of {table}?", yes=yes)
            done = lake.snapshots.expire(table, snapshot_ids=[row.snapshot_id for row in done.snapshots], dry_run=False)
            lake.drain(timeout_s)
        left = {row.snapshot_id for row in lake.snapshots(table)}
    waiting = 0 if done.dry_run else sum(row.snapshot_id in left for row in done.snapshots)
    _render(done, execute=execute, waiting=waiting, as_json=as_json)
    if waiting:
        raise typer.Exit(EXIT_UNAVAILABLE)


def _render(done: Expiry, *, execute: bool, waiting: int, as_json: bool) -> None:
    ids = [row.snapshot_id for row in done.snapshots]
    if as_json:
        print_json(
            {"table": done.table, "dry_run": not execute, "run_id": done.run_id, "snapshots": ids, "kept": done.kept, "waiting": waiting}
        )
        return
    if ids:
        print_table(_GOING, [{name: getattr(row, name) for name in _GOING} for row in done.snapshots])
        out().print()
    late = f"; {waiting:,} of them wait for the process that publishes" if waiting else ""
    out().print(f"{'expired' if execute else 'would expire'} {len(ids):,} snapshots of {done.table}, {done.kept:,} stay{late}")


@snapshots.command("tag")
def tag_snapshot(
    table: TableName,
    tag: Annotated[str, typer.Argument(help="letters, digits and _")],
    snapshot_id: Annotated[int, typer.Argument(min=0, max=_BIGGEST)],
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    as_json: AsJson = False,
) -> None:
    """Keep a snapshot under a name, for every engine.

    Example: lakebed snapshots tag shop.orders audit 1234567890123456789
    """
    with opened(registry, warehouse, publishes=True) as lake:
        lake.snapshots.tag(table, tag, snapshot_id)
    if as_json:
        print_json({"table": table, "tag": tag, "snapshot_id": snapshot_id})
    else:
        out().print(f"{table}: {tag} keeps snapshot {snapshot_id}")


@snapshots.command("untag")
def untag_snapshot(
    table: TableName,
    tag: Annotated[str, typer.Argument()],
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    as_json: AsJson = False,
) -> None:
    """Take a tag off; the table's retention decides from now on about its snapshot.

    Example: lakebed snapshots untag shop.orders audit
    """
    with opened(registry, warehouse, publishes=True) as lake:
        lake.snapshots.untag(table, tag)
    if as_json:
        print_json({"table": table, "tag": tag, "snapshot_id": None})
    else:
        out().print(f"{table}: the tag {tag} is off")


def rollback(
    table: TableName,
    snapshot_id: Annotated[int, typer.Argument(min=0, max=_BIGGEST, metavar="SNAPSHOT", help="its id, from `lakebed snapshots list`")],
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    execute: Execute = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Make the rows and columns of a kept snapshot the current ones, and show which views this breaks.

    Example: lakebed rollback shop.orders 1234567890123456789 --execute
    """
    with opened(registry, warehouse, publishes=execute) as lake:
        done = lake.snapshots.rollback(table, snapshot_id, dry_run=True)
        if execute:
            confirm(f"replace the rows of {done.table} by the {done.files:,} files of snapshot {snapshot_id}?", yes=yes)
            with showing(f"rolling back {done.table}"):
                done = lake.snapshots.rollback(table, snapshot_id)
    _render_rollback(done, as_json=as_json)


def _render_rollback(done: Rollback, *, as_json: bool) -> None:
    names = [field.name for field in done.schema.fields]
    if as_json:
        facts = {"table": str(done.table), "dry_run": done.dry_run, "snapshot_id": done.snapshot_id, "files": done.files}
        changed = {"schema_version": done.schema_version, "columns": names, "broken_views": list(done.broken_views)}
        print_json({**facts, **changed, "group": done.group, "journal_number": done.journal_number})
        return
    word = "would become" if done.dry_run else "are"
    out().print(
        f"the {done.files:,} files of snapshot {done.snapshot_id} {word} the rows of {done.table}, "
        f"with schema version {done.schema_version}: {', '.join(names)}",
        markup=False,
        soft_wrap=True,
    )
    for view in done.broken_views:
        out().print(
            f"{view} breaks: its query does not fit these columns; define it again with create_view_set", markup=False, soft_wrap=True
        )
