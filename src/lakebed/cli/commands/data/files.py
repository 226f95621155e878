"""Files that others wrote: check them before, then register them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli.rendering import Format, out, print_json, print_rows, print_table
from lakebed.cli.terminal import (
    EXIT_REFUSED,
    URL,
    WAREHOUSE,
    AnyTable,
    AsJson,
    DryRun,
    Execute,
    Limit,
    Output,
    Url,
    VerifyOption,
    Warehouse,
    Yes,
    choose_format,
    confirm,
    opened,
    showing,
)
from lakebed.core.files import Verify

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

    from lakebed.lake import Lake
    from lakebed.parquet.foreign.preflight import FileVerdict
    from lakebed.registry.partitions.publish import Published

files = typer.Typer(help="Files of the lake, and files that others wrote.", no_args_is_help=True)

Paths = Annotated[list[str], typer.Argument(help="Parquet files below the warehouse")]
TableOption = Annotated[str, typer.Option("--table", help="the table they are for, database.name")]
Adopt = Annotated[bool, typer.Option("--adopt", help="take files without field ids by their column names")]
_COLUMNS = ("column", "field_id", "type", "codec", "bytes", "nulls")


@files.command("list")
def list_files(
    table: AnyTable = None,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    retired: Annotated[bool, typer.Option("--retired", help="those too that wait for their deletion")] = False,
    after: Annotated[int, typer.Option("--after", min=0, max=(1 << 63) - 1, help="the next page: the last id of the one before")] = 0,
    limit: Limit = 1000,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Files of the lake, in the order they were added.

    Example: lakebed files list shop.orders --json
    """
    form = choose_format(output, as_json=as_json)
    with opened(registry, warehouse) as lake:
        rows = lake.files.list(table, retired=retired, after=after, limit=limit)
    print_rows(rows, output=form, columns=("file_path", "row_count", "file_size"), empty="no file")
    if len(rows) == limit and form is Format.TABLE:
        out().print(f"there may be more: --after {rows[-1].id}")


@files.command("check")
def check_files(
    paths: Paths,
    table: TableOption,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    adopt: Adopt = False,
    verify: VerifyOption = Verify.FOOTER,
    as_json: AsJson = False,
) -> None:
    """Say what keeps files out of a table and how to fix it; nothing is registered.

    Example: lakebed files check a.parquet --table shop.orders
    """
    with opened(registry, warehouse) as lake:
        verdicts = _check(lake, table, paths, adopt=adopt, verify=verify)
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
    verify: VerifyOption = Verify.FOOTER,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Register files where they are, all or none of them.

    Example: lakebed files register a.parquet --table shop.orders
    """
    from lakebed.staging import register  # noqa: PLC0415

    with opened(registry, warehouse, publishes=not dry_run) as lake:
        verdicts = _check(lake, table, paths, adopt=adopt, verify=verify)
        refused = not all(verdict.ok for verdict in verdicts)
        done = None
        if not refused and not dry_run:
            with showing("registering") as progress:
                found = lake.table(table)
                done = register.register_files(lake.registry, lake.storage, found, _absolute(paths), adopt=adopt, progress=progress)
    _render_registered(done, verdicts, table=table, dry_run=dry_run, as_json=as_json)
    if refused:
        raise typer.Exit(EXIT_REFUSED)


def _render_registered(done: Published | None, verdicts: list[FileVerdict], *, table: str, dry_run: bool, as_json: bool) -> None:
    files, rows = len(verdicts), sum(verdict.row_count for verdict in verdicts)
    if as_json:
        partition_id = None if done is None else done.partition_id
        facts = {"dry_run": dry_run, "partition_id": partition_id, "files": files, "rows": rows}
        print_json({**facts, "verdicts": [_as_json(verdict) for verdict in verdicts]})
    elif done is None:
        _render(verdicts, as_json=False)
    else:
        out().print(f"registered {files:,} files with {rows:,} rows in {table} as partition {done.partition_id}")


@files.command("left-out")
def left_out(
    table: AnyTable = None,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    forget: Annotated[list[str] | None, typer.Option("--forget", metavar="PATH", help="give this file up; may be repeated")] = None,
    execute: Execute = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """List files that an import or an adoption left out; with --forget, give some up so that `clean orphans` may take them.

    Example: lakebed files left-out --json
    """
    with opened(registry, warehouse) as lake:
        if forget and execute:
            confirm(f"give up {len(forget):,} files?", yes=yes)
        rows = lake.files.forget_left_out(_absolute(forget), dry_run=not execute).files if forget else lake.files.list_left_out(table)
    done = bool(forget) and execute
    if as_json:
        print_json({"dry_run": not done, "forgotten": len(rows) if done else 0, "files": [asdict(row) for row in rows]})
        return
    print_rows(rows, columns=("file_path", "file_size", "source", "reason"), empty="no file was left out")
    if forget:
        out().print(f"{'gave up' if done else 'would give up'} {len(rows):,} files")


@files.command("footer")
def show_footer(
    path: Annotated[str, typer.Argument(help="a registered file")],
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    as_json: AsJson = False,
) -> None:
    """What the registry keeps of a file's footer; the file itself is not opened.

    Example: lakebed files footer warehouse/shop/a.parquet
    """
    with opened(registry, warehouse) as lake:
        (wanted,) = _absolute([path])
        facts = _describe_footer(lake, lake.storage.canonical(wanted))
    if as_json:
        print_json(facts)
        return
    print_table(("path", "rows", "row_groups", "footer_bytes", "format_version", "created_by"), [facts])
    out().print()
    print_table(_COLUMNS, facts["columns"])


def _describe_footer(lake: Lake, path: str) -> dict[str, Any]:
    from lakebed.registry.files.footers import load_footer  # noqa: PLC0415 - brings pyarrow

    footer, metadata = load_footer(lake.registry, path), lake.files.footer(path)
    return {
        "path": path,
        "rows": metadata.num_rows,
        "row_groups": metadata.num_row_groups,
        "footer_bytes": len(footer),
        "format_version": metadata.format_version,
        "created_by": metadata.created_by,
        "columns": _describe_columns(lake, path, metadata),
    }


def _describe_columns(lake: Lake, path: str, metadata: FileMetaData) -> list[dict[str, Any]]:
    """Sizes from the footer, null counts from the registry: the statistics inside a stranger's footer are never touched here."""
    from lakebed.registry.queries.listing import list_null_counts  # noqa: PLC0415

    nulls, groups = list_null_counts(lake.registry, path), range(metadata.num_row_groups)
    found = []
    for number in range(metadata.num_columns):
        column, chunks = metadata.schema.column(number), [metadata.row_group(group).column(number) for group in groups]
        field_id = _field_id(metadata, column.path)
        found.append(
            {
                "column": column.path,
                "field_id": field_id,
                "type": str(column.logical_type) if str(column.logical_type) != "None" else column.physical_type,
                "codec": chunks[0].compression if chunks else None,
                "bytes": sum(chunk.total_compressed_size for chunk in chunks),
                "nulls": None if field_id is None else nulls.get(field_id),
            }
        )
    return found


def _field_id(metadata: FileMetaData, path: str) -> int | None:
    """Of a column at the top; those inside others are named by their path."""
    schema = metadata.schema.to_arrow_schema()
    if path not in schema.names:
        return None
    stored = (schema.field(path).metadata or {}).get(b"PARQUET:field_id")
    return None if stored is None else int(stored)


def _check(lake: Lake, table: str, paths: list[str], *, adopt: bool, verify: Verify) -> list[FileVerdict]:
    from lakebed.parquet.foreign.preflight import check_files as check  # noqa: PLC0415 - brings pyarrow

    found = lake.table(table)
    partition_by = found.partition_by
    event_time = found.row.event_time_field
    with showing("checking") as progress:
        return check(
            lake.storage, _absolute(paths), found.schema, partition_by, event_time=event_time, adopt=adopt, verify=verify, progress=progress
        )


def _absolute(paths: list[str]) -> list[str]:
    """A shell's paths start where it stands; the lake knows only whole ones."""
    from lakebed.storage.paths import has_scheme  # noqa: PLC0415 - after the lake is there

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
