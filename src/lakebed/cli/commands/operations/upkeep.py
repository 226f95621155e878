"""Compaction and clean-up."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli.rendering import out, print_json, print_records, print_rows
from lakebed.cli.terminal import (
    EXIT_UNAVAILABLE,
    URL,
    WAREHOUSE,
    AnyTable,
    AsJson,
    DryRun,
    Execute,
    Limit,
    Output,
    TableName,
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
    from lakebed.admin import Sweep
    from lakebed.compaction import CompactionResult
    from lakebed.lake import Lake
    from lakebed.registry.maintenance.runs import Run

compaction = typer.Typer(help="Merge small files into larger ones.", no_args_is_help=True)
clean = typer.Typer(help="Delete files that are no longer needed.", no_args_is_help=True)

_MIB = 1024 * 1024
_PLAN = ("instance", "begin_insert_time", "end_insert_time", "partition_path", "reason", "files", "size_bytes", "files_after")
_HISTORY = ("run_id", "table", "state", "started_at", "seconds", "files_in", "files_out", "bytes_in", "bytes_out", "error")
_FIGURES = ("seconds", "files_in", "files_out", "bytes_in", "bytes_out", "conflicts", "error")
_RECORDED = ("run_id", "table", "state", "actor", "started_at", "finished_at", *_FIGURES)
_RESULT = ("table", "files_before", "files_after", "bytes_before", "bytes_after", "rows", "conflicts", "stopped", "run_id", "seconds")
_MOST = 1_000_000_000
TargetMib = Annotated[int, typer.Option("--target-mib", min=1, max=1_000_000, help="size of the files to make")]
Partition = Annotated[str | None, typer.Option("--partition", help="one partition path")]
MaxFiles = Annotated[int | None, typer.Option("--max-files", min=1, max=_MOST, help="maximum number of files to rewrite")]


@compaction.command("plan")
def plan(
    table: TableName,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    target_mib: TargetMib = 128,
    partition: Partition = None,
    max_files: MaxFiles = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Show what would be rewritten, and why the rest would not.

    Example: lakebed compact plan shop.orders
    """
    from lakebed.compaction.plan import CompactionOptions, plan_compaction  # noqa: PLC0415 - brings pyarrow

    form = choose_format(output, as_json=as_json)
    with opened(registry, warehouse) as lake:
        asked = CompactionOptions(target_bytes=target_mib * _MIB, partition=partition, max_files=max_files, has_spark=True)
        found = plan_compaction(lake.registry, table, asked)
    print_rows(found.groups, output=form, columns=_PLAN, empty=f"{table} has no file")


@compaction.command("run")
def run(
    table: TableName,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    target_mib: TargetMib = 128,
    partition: Partition = None,
    max_files: MaxFiles = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Rewrite small files; all rows are compared before the swap.

    Example: lakebed compact run shop.orders --max-files 1000
    """
    with opened(registry, warehouse, publishes=not dry_run) as lake, showing(f"compacting {table}") as progress:
        done = lake.compact(
            table, dry_run=dry_run, progress=progress, target_bytes=target_mib * _MIB, partition=partition, max_files=max_files
        )
    _render_compaction(done, as_json=as_json)


@compaction.command("history")
def history(
    table: AnyTable = None,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    limit: Limit = 20,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Compactions that ran, newest first.

    Example: lakebed compact history shop.orders
    """
    form = choose_format(output, as_json=as_json)
    with opened(registry, warehouse) as lake:
        rows = _list_history(lake, table, limit=limit)
    print_records(_RECORDED, rows, output=form, shown=_HISTORY, empty="no compaction ran yet")


@clean.command("temp")
def clean_temp(
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, max=100_000, help="files per claim")] = 1000,
    max_batches: Annotated[int | None, typer.Option("--max-batches", min=1, max=_MOST, help="maximum number of claims")] = None,
    execute: Execute = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete retired files that are past their grace and under no lease.

    Example: lakebed clean temp --execute --yes
    """
    from lakebed.registry.files.deletion_queue import count_deletable  # noqa: PLC0415 - brings pyarrow

    failed: dict[str, str] = {}
    with opened(registry, warehouse) as lake:
        files, size = count_deletable(lake.registry)
        if execute and files:
            confirm(f"delete {files:,} files, {size / 1e6:,.1f} MB, for good?", yes=yes)
        if execute:
            with showing("deleting", total=files) as progress:
                done = lake.delete_expired_temporary_files(batch_size=batch_size, max_batches=max_batches, progress=progress)
            files, size, failed = done.deleted, done.bytes_freed, done.failed
    _render_clean(files, size, failed, execute=execute, as_json=as_json)
    if failed:
        raise typer.Exit(EXIT_UNAVAILABLE)


@clean.command("orphans")
def clean_orphans(
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    older_than_hours: Annotated[
        float, typer.Option("--older-than-hours", min=1.0, max=1e6, callback=require_finite, help="leave younger files alone")
    ] = 24.0,
    execute: Execute = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Queue files that nothing knows for deletion.

    Example: lakebed clean orphans --older-than-hours 48 --execute
    """
    age = timedelta(hours=older_than_hours)
    with opened(registry, warehouse) as lake:
        with showing("looking at files") as progress:
            found = lake.files.sweep_orphans(older_than=age, progress=progress)
        if execute and found.orphans:
            confirm(f"queue {len(found.orphans):,} files, {found.size_bytes / 1e6:,.1f} MB, for deletion?", yes=yes)
            with showing("looking again, and queueing") as progress:
                found = lake.files.sweep_orphans(older_than=age, dry_run=False, progress=progress)
    _render_orphans(found, execute=execute, as_json=as_json)


def _list_history(lake: Lake, table: str | None, *, limit: int) -> list[dict[str, Any]]:
    from lakebed.registry.maintenance.runs import list_runs  # noqa: PLC0415 - after the registry is there
    from lakebed.registry.queries.small_files import COMPACT  # noqa: PLC0415

    table_id = None if table is None else lake.table(table).table_id
    runs = [run for run in list_runs(lake.registry, job=COMPACT, limit=1_000_000) if table_id in {None, run.table_id}]
    return [_history_row(run) for run in runs[:limit]]


def _history_row(run: Run) -> dict[str, Any]:
    facts = {"seconds": None, "files_in": None, "files_out": None, "bytes_in": None, "bytes_out": None, "conflicts": None, "error": None}
    return {
        "run_id": run.run_id, "table": run.plan.get("table"), "state": run.state, "actor": run.actor, "started_at": run.started_at,
        "finished_at": run.finished_at, **{key: run.result.get(key) for key in facts},
    }  # fmt: skip


def _render_clean(files: int, size: int, failed: dict[str, str], *, execute: bool, as_json: bool) -> None:
    if as_json:
        print_json({"dry_run": not execute, "files": files, "bytes": size, "failed": failed})
        return
    out().print(f"{'deleted' if execute else 'would delete'} {files:,} files, {size / 1e6:,.1f} MB; {len(failed)} failed and stay queued")
    for path, reason in failed.items():
        out().print(f"  {path}: {reason}", style="red", markup=False, soft_wrap=True)


def _render_orphans(found: Sweep, *, execute: bool, as_json: bool) -> None:
    if as_json:
        orphans = [asdict(orphan) for orphan in found.orphans]
        skipped = [asdict(table) for table in found.skipped]
        facts = {"dry_run": not execute, "complete": found.is_complete, "bytes": found.size_bytes, "newer": found.newer}
        print_json({**facts, "skipped": skipped, "orphans": orphans})
        return
    if found.newer:
        out().print(
            f"{found.newer:,} operations are newer than this registry, as after restoring a backup: nothing is swept before "
            "`lakebed check` is clean; see `lakebed repair`",
            style="red",
        )
    for table in found.skipped:
        out().print(f"{table.table} is skipped: {table.reason}", style="yellow", markup=False, soft_wrap=True)
    print_rows(found.orphans, empty="no orphan")
    if found.orphans:
        word = "are queued; `lakebed clean temp` deletes them after a day" if execute else "would be queued"
        more = "" if found.is_complete else "; there are more"
        out().print(f"{len(found.orphans):,} files, {found.size_bytes / 1e6:,.1f} MB {word}{more}")


def _render_compaction(done: CompactionResult, *, as_json: bool) -> None:
    if as_json:
        damaged = [asdict(file) for file in done.damaged]
        counts = {key: getattr(done, key) for key in _RESULT}
        print_json({"dry_run": done.dry_run, "planned_files": done.plan.files, **counts, "damaged": damaged})
        return
    if done.dry_run:
        out().print(f"would rewrite {done.plan.files:,} files, {done.plan.size_bytes / 1e6:,.1f} MB; `lakebed compact plan` says why")
        return
    for file in done.damaged:
        out().print(f"LEFT  {file.reason}", markup=False, soft_wrap=True)
    beside = f"; {done.conflicts} runs met a writer" if done.conflicts else ""
    beside += f"; {len(done.damaged)} damaged files were left as they are" if done.damaged else ""
    out().print(
        f"{done.files_before:,} files into {done.files_after:,}, {done.bytes_before / 1e6:,.1f} MB into {done.bytes_after / 1e6:,.1f} MB, "
        f"{done.rows:,} rows, {done.seconds:.1f} s{beside}"
    )
