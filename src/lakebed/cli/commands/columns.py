"""Columns of a table: list and change them. No file is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lakebed.cli.rendering import out, print_json, print_rows
from lakebed.cli.terminal import (
    URL,
    WAREHOUSE,
    AsJson,
    DryRun,
    Execute,
    Output,
    TableName,
    Url,
    Warehouse,
    Yes,
    choose_format,
    confirm,
    opened,
)

if TYPE_CHECKING:
    from lakebed.admin import Alteration
    from lakebed.core.schema.types import Type

columns = typer.Typer(help="Columns of a table.", no_args_is_help=True)

Column = Annotated[str, typer.Argument(help="its name; a.b is the field b of the struct a")]
Kind = Annotated[
    str,
    typer.Argument(
        metavar="TYPE", help="such as long, string, decimal(10,2), timestamptz (with a zone), timestamp (without), ARRAY<STRING>"
    ),
]


@columns.command("list")
def list_columns(
    table: TableName, registry: Url = URL, warehouse: Warehouse = WAREHOUSE, *, output: Output = None, as_json: AsJson = False
) -> None:
    """List the columns of a table with their types, field ids and roles.

    Example: lakebed columns list shop.orders
    """
    form = choose_format(output, as_json=as_json)
    with opened(registry, warehouse) as lake:
        rows = lake.columns.list(table)
    print_rows(rows, output=form)


@columns.command("add")
def add_column(
    table: TableName,
    column: Column,
    kind: Kind,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Add an optional column; it is NULL in the rows that are there.

    Example: lakebed columns add shop.orders note string
    """
    with opened(registry, warehouse, publishes=not dry_run) as lake:
        done = lake.columns.add(table, column, _read_type(kind), dry_run=dry_run)
    _render(done, as_json=as_json)


@columns.command("rename")
def rename_column(
    table: TableName,
    column: Column,
    to: Annotated[str, typer.Argument(help="the new name; for a nested field the last part of its path")],
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Rename a column; its values stay.

    Example: lakebed columns rename shop.orders amount price
    """
    with opened(registry, warehouse, publishes=not dry_run) as lake:
        done = lake.columns.rename(table, column, to, dry_run=dry_run)
    _render(done, as_json=as_json)


@columns.command("drop")
def drop_column(
    table: TableName,
    column: Column,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    execute: Execute = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Drop a column; only earlier states and a rollback still show its values.

    Example: lakebed columns drop shop.orders note --execute
    """
    with opened(registry, warehouse, publishes=execute) as lake:
        done = lake.columns.drop(table, column, dry_run=True)
        if execute:
            confirm(f"drop the column {column} of {done.table}?", yes=yes)
            done = lake.columns.drop(table, column)
    _render(done, as_json=as_json)


@columns.command("widen")
def widen_column(
    table: TableName,
    column: Column,
    kind: Kind,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Promote a column: int to long, float to double, a decimal to a wider one of the same scale.

    Example: lakebed columns widen shop.orders id long
    """
    with opened(registry, warehouse, publishes=not dry_run) as lake:
        done = lake.columns.widen(table, column, _read_type(kind), dry_run=dry_run)
    _render(done, as_json=as_json)


@columns.command("make-optional")
def make_optional(
    table: TableName,
    column: Column,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Allow NULL in a required column.

    Example: lakebed columns make-optional shop.orders id
    """
    with opened(registry, warehouse, publishes=not dry_run) as lake:
        done = lake.columns.make_optional(table, column, dry_run=dry_run)
    _render(done, as_json=as_json)


def _read_type(text: str) -> str | Type:
    """The name of a type as the lake calls it, or a nested type as SQL writes it."""
    if "<" not in text:
        return text
    from lakebed.core.errors import SchemaRefusedError  # noqa: PLC0415 - only for nested types
    from lakebed.core.schema.ddl import parse_columns  # noqa: PLC0415

    found = parse_columns(f"column {text}", table="the type").fields
    if len(found) != 1 or found[0].required:
        message = f"{text!a} is more than one type: add columns one by one, all of them optional"
        raise SchemaRefusedError(message)
    return found[0].type


def _render(done: Alteration, *, as_json: bool) -> None:
    names = [field.name for field in done.schema.fields]
    if as_json:
        facts = {"table": str(done.table), "dry_run": done.dry_run, "changes": list(done.changes), "columns": names}
        version = {"schema_version": done.schema_version, "schema_hash": done.schema_hash}
        print_json({**facts, **version, "view_sets": list(done.view_sets)})
        return
    console, word = out(), "would have" if done.dry_run else "has"
    console.print(
        f"{done.table}: {'; '.join(done.changes)}; it {word} the columns {', '.join(names)} (schema version {done.schema_version})",
        markup=False,
        soft_wrap=True,
    )
    if done.view_sets:
        console.print(
            f"read by {', '.join(done.view_sets)}: check whether their queries name a changed column", markup=False, soft_wrap=True
        )
