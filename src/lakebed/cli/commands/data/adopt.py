"""Adopting what exists: a directory of Parquet, or an older lake."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli.rendering import out, print_json, print_rows
from lakebed.cli.terminal import (
    EXIT_DRIFT,
    EXIT_REFUSED,
    URL,
    WAREHOUSE,
    AsJson,
    DryRun,
    Execute,
    Url,
    VerifyOption,
    Warehouse,
    opened,
    showing,
)
from lakebed.core.errors import AdoptionRefusedError
from lakebed.core.files import Verify
from lakebed.storage.paths import has_scheme

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakebed.adopt import Adoption
    from lakebed.legacy import LegacyImport

_SHOWN_FILES = 50
_SHOWN_FINDINGS = 50

Directory = Annotated[str, typer.Argument(help="a directory of Parquet files, with or without name=value directories below it")]
LegacyUrl = Annotated[str, typer.Argument(help="the old registry, postgresql://user@host/database")]
TableOption = Annotated[str, typer.Option("--table", help="the table they become or are added to, database.name")]
EventTime = Annotated[str | None, typer.Option("--event-time", help="of a new table: the column that holds the event time")]
PartitionBy = Annotated[
    list[str] | None, typer.Option("--partition-by", help="of a new table, such as day(ts); its path columns when left out")
]
Unpartitioned = Annotated[bool, typer.Option("--unpartitioned", help="a new table has no partitions, whatever the paths say")]
PathColumn = Annotated[
    list[str] | None, typer.Option("--path-column", metavar="NAME=TYPE", help="another type than the values suggest, or NAME=ignore")
]
Evolve = Annotated[bool, typer.Option("--evolve", help="let an existing table grow by new columns")]
Rewrite = Annotated[bool, typer.Option("--rewrite", help="write files again whose types or field ids keep them out")]
Copy = Annotated[bool, typer.Option("--copy", help="copy files from outside the warehouse, even where a hard link is possible")]
SkipRefused = Annotated[bool, typer.Option("--skip-refused", help="take the rest where some files are refused")]
Root = Annotated[str | None, typer.Option("--root", help="where the old lake's paths begin; the warehouse when left out")]
Database = Annotated[str, typer.Option("--database", help="the database of the new tables")]
ViewSets = Annotated[list[str] | None, typer.Option("--view-set", help="only these; all of them when left out")]
Names = Annotated[list[str] | None, typer.Option("--name", metavar="VIEW=TABLE", help="the table that a view set becomes")]
EventTimes = Annotated[list[str] | None, typer.Option("--event-time", metavar="VIEW=COLUMN", help="the event time of a view set")]
Serving = Annotated[list[str] | None, typer.Option("--serving", metavar="VIEW=HASH", help="the schema that readers see; the newest else")]


def adopt(  # noqa: PLR0913 - one option per choice
    directory: Directory,
    table: TableOption,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    event_time: EventTime = None,
    partition_by: PartitionBy = None,
    unpartitioned: Unpartitioned = False,
    path_column: PathColumn = None,
    evolve: Evolve = False,
    rewrite: Rewrite = False,
    copy: Copy = False,
    skip_refused: SkipRefused = False,
    verify: VerifyOption = Verify.FOOTER,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make a table of a directory of Parquet, or add its files to one; run again, it adds what is new.

    Example: lakebed adopt /data/events --table shop.events --event-time ts --dry-run
    """
    types = _pairs(path_column)
    with opened(registry, warehouse, publishes=not dry_run) as lake, showing("adopt") as progress:
        try:
            done = lake.tables.adopt(
                table,
                directory if has_scheme(directory) else str(Path(directory).absolute()),
                event_time=event_time,
                partition_by=() if unpartitioned else partition_by or None,
                path_types=types,
                evolve=evolve,
                rewrite=rewrite,
                copy=copy,
                skip_refused=skip_refused,
                verify=verify,
                dry_run=dry_run,
                progress=progress,
            )
        except AdoptionRefusedError as exc:
            _render_refused(exc.files, as_json=as_json)
            raise
    _render_adoption(done, as_json=as_json)
    if done.refused:
        raise typer.Exit(EXIT_REFUSED)


def import_legacy(  # noqa: PLR0913 - one option per choice
    url: LegacyUrl,
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    root: Root = None,
    database: Database = "legacy",
    view_set: ViewSets = None,
    name: Names = None,
    event_time: EventTimes = None,
    serving: Serving = None,
    copy: Copy = False,
    execute: Execute = False,
    as_json: AsJson = False,
) -> None:
    """Take over an older lake from its PostgreSQL registry; exit 3 when rows were left out.

    Without --root its files stay where they are, in the warehouse: `lakebed init --adopt-warehouse --legacy URL` comes first.

    Example: lakebed import-legacy postgresql://reader@db/lake --root /data/lake --execute
    """
    names, event_times, hashes = _pairs(name), _pairs(event_time), _pairs(serving)
    with opened(registry, warehouse, publishes=execute) as lake, showing("import") as progress:
        done = lake.tables.import_legacy(
            url,
            root=None if root is None else root if has_scheme(root) else str(Path(root).absolute()),
            database=database,
            view_sets=view_set or (),
            copy=copy,
            dry_run=not execute,
            progress=progress,
            names=names,
            event_times=event_times,
            serving=hashes,
        )
    _render_import(done, as_json=as_json)
    if any(not finding.kept for finding in done.findings):
        raise typer.Exit(EXIT_DRIFT)


def _pairs(texts: Sequence[str] | None) -> Mapping[str, str]:
    pairs = [text.partition("=") for text in texts or ()]
    for name, equals, value in pairs:
        if not (name and equals and value):
            message = f"expected NAME=VALUE, got {name!a}"
            raise typer.BadParameter(message)
    return {name: value for name, _, value in pairs}


def _render_refused(files: Sequence[tuple[str, str]], *, as_json: bool) -> None:
    if as_json:
        return  # the error says it; a dry run lists the files
    for path, reason in files[:_SHOWN_FILES]:
        out().print(f"REFUSED  {path}", markup=False, soft_wrap=True)
        out().print(f"    {reason}", markup=False, soft_wrap=True)


def _render_adoption(done: Adoption, *, as_json: bool) -> None:
    if as_json:
        print_json(_adoption_json(done))
        return
    console, word = out(), "would be" if done.dry_run else "were"
    print_rows(done.files[:_SHOWN_FILES], columns=("how", "path", "row_count", "file_size", "reason"), empty="no Parquet file")
    if len(done.files) > _SHOWN_FILES:
        console.print(f"... and {len(done.files) - _SHOWN_FILES:,} more files: --json lists all")
    for text in done.differences:
        console.print(text, markup=False, soft_wrap=True)
    skipped = ", ".join(f"{count:,} {what}" for what, count in done.skipped.items())
    if done.creates_table and done.dry_run:
        console.print(f"{done.table} would be created: {', '.join(done.columns)}", markup=False, soft_wrap=True)
    suffix = f"; skipped: {skipped}" if skipped else ""
    console.print(f"{done.taken:,} files with {done.rows:,} rows, {done.size_bytes / 1e6:,.1f} MB {word} adopted in {done.table}{suffix}")


def _adoption_json(done: Adoption) -> dict[str, Any]:
    keys = (
        "table",
        "directory",
        "dry_run",
        "creates_table",
        "columns",
        "partition_by",
        "skipped",
        "differences",
        "partition_ids",
        "run_id",
    )
    totals = {"files_taken": done.taken, "rows": done.rows, "bytes": done.size_bytes}
    return {key: getattr(done, key) for key in keys} | totals | {"files": [asdict(file) for file in done.files]}


def _render_import(done: LegacyImport, *, as_json: bool) -> None:
    if as_json:
        keys = ("source", "version", "root", "in_place", "dry_run", "temporary_files", "run_id", "partitions")
        listed = {"view_sets": [asdict(v) for v in done.view_sets], "findings": [asdict(f) for f in done.findings]}
        print_json({key: getattr(done, key) for key in keys} | listed)
        return
    console = out()
    for finding in done.findings[:_SHOWN_FINDINGS]:
        where = " ".join(filter(None, (finding.view_set_name, finding.view_instance_id, finding.insert_range, finding.file_path)))
        console.print(f"{'kept' if finding.kept else 'LEFT OUT'}  {finding.kind}  {where}: {finding.message}", markup=False, soft_wrap=True)
    if len(done.findings) > _SHOWN_FINDINGS:
        console.print(f"... and {len(done.findings) - _SHOWN_FINDINGS:,} more: --json lists all")
    shown = ("view_set_name", "table", "partitions", "empty_partitions", "incompatible_partitions", "known_partitions", "left_out", "rows")
    print_rows(done.view_sets, columns=shown, empty="no view set")
    word = "would be taken over" if done.dry_run else "were taken over"
    console.print(f"{done.partitions:,} partitions and {done.temporary_files:,} temporary files {word} from version {done.version}")
