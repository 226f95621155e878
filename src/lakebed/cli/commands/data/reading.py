"""Queries, what a query would read of the lake, and how other engines read a table."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli.rendering import Format, err, out, print_csv, print_grid, print_json, print_table, text_of, to_json
from lakebed.cli.snippets import first_rows, snippet_of
from lakebed.cli.terminal import (
    URL,
    WAREHOUSE,
    AsJson,
    Limit,
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
    from datetime import datetime

    import pyarrow as pa

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


def sql(
    query: Annotated[str, typer.Argument(help="a query over lake tables in Spark SQL, in quotes")],
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    as_of: MaybeMoment = None,
    limit: Limit = 100,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Run a query and print its rows; the SQL functions answer too, those that retire without a further question.

    Example: lakebed sql "SELECT count(*) AS orders FROM shop.orders" --format csv
    """
    form = choose_format(output, as_json=as_json)
    with opened(registry, warehouse, publishes=_may_change(query)) as lake, showing("running the query"):
        found = _collect(lake, query, as_of=as_of, limit=limit + 1, as_objects=form is Format.JSON)
    _print_answer(found.column_names, _list_rows(found.slice(0, limit)), output=form)
    if found.num_rows > limit:
        err().print(f"there are more rows than the {limit:,} shown: raise --limit")


def _may_change(query: str) -> bool:
    """Publish to Iceberg what a function retires; a query without such a call costs nothing, because only a commit starts publishing."""
    from lakebed.pipeline.sql.functions.answers import FUNCTIONS  # noqa: PLC0415 - brings pyarrow

    return any(function.changes and name in query.lower() for name, function in FUNCTIONS.items())


def _collect(lake: Lake, query: str, *, as_of: datetime | None, limit: int, as_objects: bool) -> pa.Table:
    from lakebed.core.errors import InvalidValueError  # noqa: PLC0415 - only here
    from lakebed.pipeline.spark.errors import spark_translated  # noqa: PLC0415 - brings pyspark

    with lake.reading(), spark_translated("the query"):
        df = lake.sql(query, as_of=as_of)
        if as_objects and len(set(df.columns)) < len(df.columns):
            message = f"two columns have one name ({', '.join(df.columns)}), which JSON cannot show: rename one with AS"
            raise InvalidValueError(message)
        return df.limit(limit).toArrow()


def _list_rows(found: pa.Table) -> list[tuple[Any, ...]]:
    """By position: two columns may have one name."""
    columns = [column.to_pylist(maps_as_pydicts="strict") for column in found.columns]
    return list(zip(*columns, strict=True))


def _print_answer(names: list[str], rows: list[tuple[Any, ...]], *, output: Format) -> None:
    match output:
        case Format.JSON:
            print_json([to_json(dict(zip(names, row, strict=True))) for row in rows])
        case Format.CSV:
            print_csv(names, rows)
        case Format.TABLE:
            print_grid(names, [["NULL" if value is None else text_of(value) for value in row] for row in rows], empty="no row")


def explain(
    sql: Annotated[str, typer.Argument(help="a query over lake tables, in quotes")],
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    as_of: MaybeMoment = None,
    as_json: AsJson = False,
) -> None:
    """Show which files a query would scan and why others are pruned, without running it.

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
