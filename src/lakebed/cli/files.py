"""Files that others wrote: check them before, then register them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli.terminal import EXIT_REFUSED, URL, WAREHOUSE, AnyTable, AsJson, Url, Warehouse, opened, out, print_json, print_rows
from lakebed.storage.paths import has_scheme

if TYPE_CHECKING:
    from lakebed.lake import Lake
    from lakebed.parquet.preflight import FileVerdict

files = typer.Typer(help="Files of the lake, and files that others wrote.", no_args_is_help=True)

Paths = Annotated[list[str], typer.Argument(help="Parquet files below the warehouse")]
TableOption = Annotated[str, typer.Option("--table", help="the table they are for, database.name")]
Adopt = Annotated[bool, typer.Option("--adopt", help="take files without field ids by their column names")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="only check")]


@files.command("list")
def list_files(
    table: AnyTable = None,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    retired: Annotated[bool, typer.Option("--retired", help="those too that wait for their deletion")] = False,
    as_json: AsJson = False,
) -> None:
    """Files of the lake, in the order they were added. Example: lakebed files list shop.orders --json."""
    with opened(registry, warehouse) as lake:
        rows = lake.list_files(table, retired=retired)
    print_rows(rows, as_json=as_json, columns=("file_path", "row_count", "file_size"), empty="no file")


@files.command("check")
def check_files(
    paths: Paths,
    table: TableOption,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    adopt: Adopt = False,
    as_json: AsJson = False,
) -> None:
    """Say what keeps files out of a table and how to fix it; nothing is registered. Example: lakebed files check a.parquet --table shop.orders."""
    with opened(registry, warehouse) as lake:
        verdicts = _check(lake, table, paths, adopt=adopt)
    _render(verdicts, as_json=as_json)
    if not all(verdict.ok for verdict in verdicts):
        raise typer.Exit(EXIT_REFUSED)


@files.command("register")
def register_files(
    paths: Paths,
    table: TableOption,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    adopt: Adopt = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Register files where they lie, all or none of them. Example: lakebed files register a.parquet --table shop.orders."""
    from lakebed import writing  # noqa: PLC0415 - brings pyarrow

    with opened(registry, warehouse, publishes=True) as lake:
        verdicts = _check(lake, table, paths, adopt=adopt)
        refused = [verdict for verdict in verdicts if not verdict.ok]
        if refused or dry_run:
            _render(verdicts, as_json=as_json)
            raise typer.Exit(EXIT_REFUSED if refused else 0)
        done = writing.register_files(lake.registry, lake.storage, lake.table(table), _absolute(paths), adopt=adopt)
    rows = sum(verdict.row_count for verdict in verdicts)
    if as_json:
        print_json({"partition_id": done.partition_id, "files": done.file_count, "rows": rows})
    else:
        out().print(f"registered {done.file_count} files with {rows:,} rows in {table} as partition {done.partition_id}")


def _check(lake: Lake, table: str, paths: list[str], *, adopt: bool) -> list[FileVerdict]:
    from lakebed.parquet.preflight import check_files as check  # noqa: PLC0415 - brings pyarrow

    found = lake.table(table)
    partition_by = json.loads(found.metadata.partition_by)
    return check(lake.storage, _absolute(paths), found.schema, partition_by, event_time=found.row.event_time_field, adopt=adopt)


def _absolute(paths: list[str]) -> list[str]:
    """A shell's paths start where it stands; the lake knows only whole ones."""
    return [path if has_scheme(path) else str(Path(path).absolute()) for path in paths]


def _render(verdicts: list[FileVerdict], *, as_json: bool) -> None:
    if as_json:
        print_json([_as_json(verdict) for verdict in verdicts])
        return
    console = out()
    for verdict in verdicts:
        where = f"  {verdict.partition_path}" if verdict.partition_path else ""
        console.print(
            f"{'ok' if verdict.ok else 'REFUSED'}  {verdict.path}{where}  {verdict.row_count:,} rows", markup=False, soft_wrap=True
        )
        for problem in verdict.problems:
            console.print(f"    {problem.kind}: {problem}", markup=False, soft_wrap=True)
        for warning in verdict.warnings:
            console.print(f"    warning: {warning}", markup=False, soft_wrap=True)


def _as_json(verdict: FileVerdict) -> dict[str, Any]:
    problems, warnings = (
        [{"kind": p.kind, "column": p.column, "message": p.message, "fix": p.fix} for p in found]
        for found in (verdict.problems, verdict.warnings)
    )
    return {
        "path": verdict.path,
        "ok": verdict.ok,
        "rows": verdict.row_count,
        "bytes": verdict.size_bytes,
        "partition_path": verdict.partition_path,
        "problems": problems,
        "warnings": warnings,
    }
