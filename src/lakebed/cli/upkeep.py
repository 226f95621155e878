"""Compaction and clean-up."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from lakebed.cli.terminal import (
    EXIT_UNAVAILABLE,
    URL,
    WAREHOUSE,
    AsJson,
    DryRun,
    TableName,
    Url,
    Warehouse,
    opened,
    out,
    print_json,
    print_rows,
)

if TYPE_CHECKING:
    from lakebed.compaction import CompactionResult

compaction = typer.Typer(help="Few files of a good size out of many small ones.", no_args_is_help=True)
clean = typer.Typer(help="Delete what nobody needs any more.", no_args_is_help=True)

_MIB = 1024 * 1024
TargetMib = Annotated[int, typer.Option("--target-mib", min=1, help="size of the files to make")]
Partition = Annotated[str | None, typer.Option("--partition", help="one partition path")]
MaxFiles = Annotated[int | None, typer.Option("--max-files", min=1, help="rewrite at most so many")]


@compaction.command("plan")
def plan(
    table: TableName,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    target_mib: TargetMib = 128,
    partition: Partition = None,
    max_files: MaxFiles = None,
    as_json: AsJson = False,
) -> None:
    """Say what would be rewritten, and why the rest would not. Example: lakebed compact plan shop.orders."""
    with opened(registry, warehouse) as lake:
        found = lake.compact(table, dry_run=True, target_bytes=target_mib * _MIB, partition=partition, max_files=max_files)
    print_rows(found.groups, as_json=as_json, empty=f"{table} has no file")


@compaction.command("run")
def run(
    table: TableName,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    target_mib: TargetMib = 128,
    partition: Partition = None,
    max_files: MaxFiles = None,
    as_json: AsJson = False,
) -> None:
    """Rewrite small files; all rows are compared before the swap. Example: lakebed compact run shop.orders --max-files 1000."""
    with opened(registry, warehouse, publishes=True) as lake:
        done = lake.compact(table, target_bytes=target_mib * _MIB, partition=partition, max_files=max_files)
    _render(done, as_json=as_json)


@clean.command("temp")
def clean_temp(registry: Url = URL, warehouse: Warehouse = WAREHOUSE, *, batch_size: Annotated[int, typer.Option(min=1)] = 1000,
               max_batches: Annotated[int | None, typer.Option(min=1)] = None, dry_run: DryRun = False, as_json: AsJson = False) -> None:  # fmt: skip
    """Delete retired files that are past their grace and under no lease. Example: lakebed clean temp --dry-run."""
    from lakebed.registry.temporary_files import count_deletable  # noqa: PLC0415 - after the registry is there

    with opened(registry, warehouse) as lake:
        files, size = count_deletable(lake.registry) if dry_run else (0, 0)
        done = None if dry_run else lake.delete_expired_temporary_files(batch_size=batch_size, max_batches=max_batches)
    files, size, failed = (files, size, {}) if done is None else (done.deleted, done.bytes_freed, done.failed)
    if as_json:
        print_json({"dry_run": dry_run, "files": files, "bytes": size, "failed": failed})
    else:
        out().print(
            f"{'would delete' if dry_run else 'deleted'} {files:,} files, {size / 1e6:,.1f} MB; {len(failed)} failed and stay queued"
        )
    if failed:
        raise typer.Exit(EXIT_UNAVAILABLE)


@clean.command("orphans")
def clean_orphans(
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    older_than_hours: Annotated[float, typer.Option("--older-than-hours", min=1.0, help="leave younger files alone")] = 24.0,
    dry_run: DryRun = True,
    as_json: AsJson = False,
) -> None:
    """Queue files that nothing knows for deletion. Example: lakebed clean orphans --no-dry-run."""
    with opened(registry, warehouse) as lake:
        found = lake.sweep_orphans(older_than=timedelta(hours=older_than_hours), dry_run=dry_run)
    if as_json:
        print_rows(found.orphans, as_json=True)
        return
    print_rows(found.orphans, as_json=False, empty="no orphan")
    if found.orphans:
        word = "would be queued" if dry_run else "are queued; `lakebed clean temp` deletes them after a day"
        out().print(f"{len(found.orphans):,} files, {found.size_bytes / 1e6:,.1f} MB {word}")


def _render(done: CompactionResult, *, as_json: bool) -> None:
    if as_json:
        keys = ("table", "files_before", "files_after", "bytes_before", "bytes_after", "rows", "conflicts", "stopped", "run_id", "seconds")
        print_json({key: getattr(done, key) for key in keys})
        return
    told = f"; {done.conflicts} runs met a writer" if done.conflicts else ""
    out().print(
        f"{done.files_before:,} files into {done.files_after:,}, {done.bytes_before / 1e6:,.1f} MB into {done.bytes_after / 1e6:,.1f} MB, "
        f"{done.rows:,} rows, {done.seconds:.1f} s{told}"
    )
