"""Iceberg snapshots: list, take, keep."""

from __future__ import annotations

from typing import Annotated

import typer

from lakebed.cli.terminal import URL, WAREHOUSE, AsJson, TableName, Url, Warehouse, opened, out, print_json, print_rows

snapshots = typer.Typer(help="Iceberg snapshots of a table.", no_args_is_help=True)

_SHOWN = ("snapshot_id", "committed_at", "operation", "rows", "files", "added_files", "removed_files", "tags", "is_current")


@snapshots.command("list")
def list_snapshots(
    table: TableName,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    expired: Annotated[bool, typer.Option("--expired", help="those too that were expired")] = False,
    as_json: AsJson = False,
) -> None:
    """Kept snapshots, oldest first. Example: lakebed snapshots list shop.orders."""
    with opened(registry, warehouse) as lake:
        rows = lake.snapshots(table, expired=expired)
    print_rows(rows, as_json=as_json, columns=_SHOWN, empty=f"{table} has no snapshot yet")


@snapshots.command("create")
def create_snapshot(
    table: TableName,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    timeout_s: Annotated[float, typer.Option("--timeout", help="seconds to wait for the commit")] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Seal what is pending and wait until Iceberg has it. Example: lakebed snapshots create shop.orders."""
    with opened(registry, warehouse, publishes=True) as lake:
        found = lake.snapshot(table, timeout_s=timeout_s)
    if as_json:
        print_json({"table": table, "snapshot_id": found})
    else:
        out().print(f"{table} has no file yet, so there is no snapshot" if found is None else f"{table}: snapshot {found} is current")


@snapshots.command("tag")
def tag_snapshot(
    table: TableName,
    tag: Annotated[str, typer.Argument(help="letters, digits and _")],
    snapshot_id: Annotated[int | None, typer.Argument(help="left out: the tag is taken off")] = None,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    as_json: AsJson = False,
) -> None:
    """Keep a snapshot under a name, for every engine. Example: lakebed snapshots tag shop.orders audit 1234567890123456789."""
    with opened(registry, warehouse, publishes=True) as lake:
        lake.tag(table, tag, snapshot_id)
    if as_json:
        print_json({"table": table, "tag": tag, "snapshot_id": snapshot_id})
    else:
        out().print(f"{table}: the tag {tag} is off" if snapshot_id is None else f"{table}: {tag} keeps snapshot {snapshot_id}")
