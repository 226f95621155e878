"""How other engines read a table, and what a query would read of the lake."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli.rendering import out, print_json, print_table
from lakebed.cli.snippets import first_rows, snippet_of
from lakebed.cli.terminal import URL, WAREHOUSE, AsJson, MaybeMoment, TableName, Url, Warehouse, opened

if TYPE_CHECKING:
    from lakebed.lake import Lake

_SCANS = ("table", "files_in_table", "files", "rows", "size_bytes", "pruned_by_event_time", "pruned_by_partition", "pruned_by_statistics")
_MOST_ROWS = 10_000


class Engine(StrEnum):
    """Programs that read what Lakebed publishes."""

    SPARK = "spark"
    DUCKDB = "duckdb"
    POLARS = "polars"
    PYICEBERG = "pyiceberg"


def read_with(
    table: TableName,
    engine: Annotated[Engine, typer.Option("--engine", help="the program that reads")],
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    run: Annotated[bool, typer.Option("--run", help="run it here and show the first rows")] = False,
    rows: Annotated[int, typer.Option("--rows", min=1, max=_MOST_ROWS, help="how many")] = 10,
    as_json: AsJson = False,
) -> None:
    """A runnable Python snippet that reads a table with another engine.

    Example: lakebed read-with shop.orders --engine duckdb --run
    """
    with opened(registry, warehouse) as lake:
        table = str(lake.table(table).name)
        location = None if engine is Engine.SPARK else _find_metadata(lake, table)
        place = (registry, lake.storage.paths.root)
        snippet = snippet_of(engine, table, location, place=place, rows=rows)
        found = first_rows(engine, lake, table, location, rows=rows) if run else None
    if as_json:
        print_json({"table": table, "engine": str(engine), "metadata_location": location, "snippet": snippet, "rows": found})
        return
    if not run:
        typer.echo(snippet)
        return
    print_table(tuple(found[0]) if found else (), found or [], empty=f"{table} has no row")


def explain(
    sql: Annotated[str, typer.Argument(help="a query over lake tables, in quotes")],
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    as_of: MaybeMoment = None,
    as_json: AsJson = False,
) -> None:
    """Which files a query would read, and why no more; nothing is read.

    Example: lakebed explain "SELECT * FROM shop.orders WHERE id = 7"
    """
    with opened(registry, warehouse) as lake:
        found = lake.explain(sql, as_of=as_of)
    scans = [asdict(scan) for scan in found.scans]
    if as_json:
        print_json({"sql": found.text, "scans": scans})
        return
    print_table(_SCANS, scans, empty="the query reads no table of the lake")
    for scan in found.scans:
        for reason in scan.reasons:
            out().print(f"{scan.table}: {reason}", markup=False)


def _find_metadata(lake: Lake, table: str) -> str:
    """Where the catalog's pointer stands; a table that was never published is refused."""
    from lakebed.core.errors import InvalidValueError  # noqa: PLC0415 - only here
    from lakebed.iceberg.catalog import looking_at_catalog  # noqa: PLC0415 - brings pyiceberg

    with looking_at_catalog(lake.registry, lake.storage) as catalog:
        pointer = None if catalog is None else catalog.find_pointer(lake.table(table).name)
    if pointer is None or pointer.location is None:
        message = f"{table} has no Iceberg table yet: insert, then `lakebed snapshots create {table}`"
        raise InvalidValueError(message)
    location: Any = pointer.location
    return str(location)
