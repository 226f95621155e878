"""Tables: list, show, create, drop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli.rendering import out, print_json, print_records, print_table
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
    errors,
    opened,
    showing,
)
from lakebed.core.tables.settings import INTERNAL

if TYPE_CHECKING:
    from lakebed.admin import Drop
    from lakebed.core.schema.schema import Schema
    from lakebed.lake import Lake
    from lakebed.registry.tables.lake_tables import LakeTable, TableSpec

tables = typer.Typer(help="Tables of the lake.", no_args_is_help=True)

NewTable = Annotated[str, typer.Argument(help="database.name of the new table")]
Ddl = Annotated[str | None, typer.Argument(metavar="[DDL]", help="its columns, in quotes: id BIGINT NOT NULL, tags ARRAY<STRING>")]
Like = Annotated[str | None, typer.Option("--like", metavar="FILE", help="take the columns of this Parquet file")]
EventTime = Annotated[str | None, typer.Option("--event-time", help="the column that says when a row happened")]
PartitionBy = Annotated[
    list[str] | None, typer.Option("--partition-by", help="a transform such as day(ts), bucket(16, id) or country; may be repeated")
]
SortBy = Annotated[list[str] | None, typer.Option("--sort-by", help="a column by which each file is sorted; may be repeated")]
Index = Annotated[list[str] | None, typer.Option("--index", help="a column whose value ranges are indexed; may be repeated")]
_LISTED = ("table", "kind", "rows", "files", "bytes")
_DROPPED = ("table", "dry_run", "run_id", "empty", "non_empty", "rows", "files", "bytes_scheduled")


@tables.command("list")
def list_tables(registry: Url = URL, *, output: Output = None, as_json: AsJson = False) -> None:
    """Tables with their counters.

    Example: lakebed tables list --json
    """
    from lakebed.registry.open import open_registry  # noqa: PLC0415 - nothing but the registry is needed
    from lakebed.registry.tables.lake_tables import list_tables as find  # noqa: PLC0415

    form = choose_format(output, as_json=as_json)
    with errors():
        opened = open_registry(registry)
        rows = find(opened)
        opened.close()
    found = [
        {
            "table": f"{r.database}.{r.name}", "kind": r.kind, "rows": r.row_count, "files": r.file_count, "bytes": r.total_size,
            "modified": r.last_modified,
        }
        for r in rows
    ]  # fmt: skip
    print_records(_LISTED, found, output=form, shown=(*_LISTED, "modified"), empty="no table")


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


@tables.command("create")
def create_table(  # noqa: PLR0913 - one option per choice
    table: NewTable,
    columns: Ddl = None,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    like: Like = None,
    event_time: EventTime = None,
    partition_by: PartitionBy = None,
    sort_by: SortBy = None,
    index: Index = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Create a table, with columns as SQL names them or those of a Parquet file.

    Example: lakebed tables create shop.orders "id BIGINT NOT NULL, ts TIMESTAMP, amount DOUBLE" --event-time ts --partition-by "day(ts)"
    """
    from lakebed.core.names import TableName as Name  # noqa: PLC0415 - only here
    from lakebed.registry.tables import lake_tables  # noqa: PLC0415

    if (columns is None) == (like is None):
        message = "give either the columns, such as 'id BIGINT, ts TIMESTAMP', or --like FILE"
        raise typer.BadParameter(message)
    with opened(registry, warehouse) as lake:
        spec = lake_tables.TableSpec.of(
            Name.parse(table), _find_columns(lake, table, columns, like), event_time=event_time, partition_by=partition_by or (),
            sort_by=sort_by or (), index=index or (),
        )  # fmt: skip
        if dry_run:
            lake_tables.require_creatable(lake.registry, spec)
        else:
            lake_tables.create_table(lake.registry, spec)
    _render_created(spec, dry_run=dry_run, as_json=as_json)


def _find_columns(lake: Lake, table: str, columns: str | None, like: str | None) -> Schema:
    from lakebed.adopt.places import read_file_columns  # noqa: PLC0415 - brings pyarrow
    from lakebed.core.schema.ddl import parse_columns  # noqa: PLC0415

    return read_file_columns(lake.storage, like) if like is not None else parse_columns(columns or "", table=table)


def _render_created(spec: TableSpec, *, dry_run: bool, as_json: bool) -> None:
    facts = _list_columns(spec.schema)
    if as_json:
        settings = {"partition_by": list(spec.partition_by), "sort_by": list(spec.sort_by), "index": list(spec.index)}
        print_json({"table": str(spec.name), "dry_run": dry_run, "event_time": spec.event_time, **settings, "columns": facts})
        return
    out().print(f"{'would create' if dry_run else 'created'} {spec.name} with the columns")
    print_table(("id", "column", "type", "required"), facts)


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
        "columns": _list_columns(table.schema),
    }


def _list_columns(schema: Schema) -> list[dict[str, Any]]:
    return [{"id": f.field_id, "column": f.name, "type": str(f.type), "required": f.required} for f in schema.fields]
