"""Tables: list, look at, drop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli.rendering import out, print_json, print_table
from lakebed.cli.terminal import URL, WAREHOUSE, AsJson, Execute, TableName, Url, Warehouse, Yes, confirm, errors, opened, showing
from lakebed.core.tables.settings import INTERNAL

if TYPE_CHECKING:
    from lakebed.admin import Drop
    from lakebed.registry.tables.lake_tables import LakeTable

tables = typer.Typer(help="Tables of the lake.", no_args_is_help=True)

_DROPPED = ("table", "dry_run", "run_id", "empty", "non_empty", "rows", "files", "bytes_scheduled")


@tables.command("list")
def list_tables(registry: Url = URL, *, as_json: AsJson = False) -> None:
    """Tables with their counters.

    Example: lakebed tables list --json
    """
    from lakebed.registry.open import open_registry  # noqa: PLC0415 - nothing but the registry is needed
    from lakebed.registry.tables.lake_tables import list_tables as find  # noqa: PLC0415

    with errors():
        opened = open_registry(registry)
        rows = find(opened)
        opened.close()
    if as_json:
        print_json(
            [
                {"table": f"{r.database}.{r.name}", "kind": r.kind, "rows": r.row_count, "files": r.file_count, "bytes": r.total_size}
                for r in rows
            ]
        )
        return
    shown = [
        {
            "table": f"{r.database}.{r.name}", "kind": r.kind, "rows": r.row_count, "files": r.file_count, "bytes": r.total_size,
            "modified": r.last_modified,
        }
        for r in rows
    ]  # fmt: skip
    print_table(("table", "kind", "rows", "files", "bytes", "modified"), shown, empty="no table")


@tables.command("show")
def show_table(table: TableName, registry: Url = URL, warehouse: Warehouse = WAREHOUSE, *, as_json: AsJson = False) -> None:
    """A table's columns, counters, settings and place in Iceberg.

    Example: lakebed tables show shop.orders
    """
    with opened(registry, warehouse) as lake:
        found = lake.table(table)
        place = lake.storage.paths.table_directory(found.table_id, found.name)
    facts = _describe(found, place)
    if as_json:
        print_json(facts)
        return
    print_table(tuple(_PEOPLE), [{name: facts[name] for name in _PEOPLE}])
    out().print()
    print_table(("id", "column", "type", "required"), facts["columns"])


@tables.command("drop")
def drop_table(
    table: TableName,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    max_partitions: Annotated[int, typer.Option("--max-partitions", min=0, max=10_000_000, help="refuse to retire more")] = 10_000,
    execute: Execute = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Hide a table and retire all it holds; its files are deleted after their grace.

    Example: lakebed tables drop shop.orders --execute
    """
    with opened(registry, warehouse) as lake:
        done = lake.tables.drop(table)
        if execute:
            confirm(f"drop {table} with {done.rows:,} rows in {done.files:,} files?", yes=yes)
            with showing(f"dropping {table}", total=done.partitions) as progress:
                done = lake.tables.drop(table, dry_run=False, max_partitions=max_partitions, progress=progress)
    _render(done, as_json=as_json)


def _render(done: Drop, *, as_json: bool) -> None:
    if as_json:
        print_json({name: getattr(done, name) for name in _DROPPED})
        return
    out().print(
        f"{'would drop' if done.dry_run else 'dropped'} {done.table}: {done.non_empty:,} partitions with {done.rows:,} rows and "
        f"{done.empty:,} empty ones, {done.bytes_scheduled / 1e6:,.1f} MB in {done.files:,} files scheduled for deletion"
    )


_PEOPLE = (
    "table", "kind", "rows", "files", "bytes", "state", "event_time", "partition_by", "sort_by", "schema_version", "modified",
    "snapshot_id", "location",
)  # fmt: skip


def _describe(table: LakeTable, place: str) -> dict[str, Any]:
    row, metadata = table.row, table.metadata
    by_id = {field.field_id: field.name for field in table.schema.fields}
    return {
        "table": str(table.name),
        "kind": row.kind,
        "rows": row.row_count,
        "files": row.file_count,
        "bytes": row.total_size,
        "state": row.state,
        "event_time": by_id.get(row.event_time_field) if row.event_time_field is not None else None,
        "partition_by": ", ".join(table.partition_by),
        "sort_by": ", ".join(table.sort_by),
        "schema_version": metadata.schema_version,
        "schema_hash": metadata.schema_hash,
        "created": row.created_at,
        "modified": row.last_modified,
        "snapshot_id": row.current_snapshot_id,
        "last_group": row.last_group,
        "committed_group": row.committed_group,
        "location": place,
        "properties": {key: value for key, value in table.properties.items() if key not in INTERNAL},
        "columns": [{"id": f.field_id, "column": f.name, "type": str(f.type), "required": f.required} for f in table.schema.fields],
    }
