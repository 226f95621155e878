"""The command line: parse, call, render. No JVM starts here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from lakebed.cli.files import files
from lakebed.cli.partitions import partitions
from lakebed.cli.running import astha, config, repair, serve
from lakebed.cli.snapshots import snapshots
from lakebed.cli.terminal import EXIT_DRIFT, URL, WAREHOUSE, AsJson, Url, Warehouse, errors, opened, out, print_json
from lakebed.cli.upkeep import clean, compaction

if TYPE_CHECKING:
    from lakebed.check import CheckReport

app = typer.Typer(help="Lakebed: the ground truth under a Spark lake.", no_args_is_help=True, pretty_exceptions_enable=False)
tables = typer.Typer(help="Tables of the lake.", no_args_is_help=True)
app.add_typer(tables, name="tables")
app.add_typer(files, name="files")
app.add_typer(partitions, name="partitions")
app.add_typer(snapshots, name="snapshots")
app.add_typer(compaction, name="compact")
app.add_typer(clean, name="clean")
app.add_typer(astha, name="astha")
app.add_typer(config, name="config")
app.command()(serve)
app.command()(repair)


@app.command()
def init(registry: Url = URL, warehouse: Warehouse = WAREHOUSE) -> None:
    """Create a registry and a warehouse, or say that they are there. Example: lakebed init --registry sqlite:///lake.db."""
    with opened(registry, warehouse, create=True) as lake:
        out().print(f"registry {lake.registry.backend.shown_url} and warehouse {lake.storage.paths.root} are ready")


@app.command()
def demo() -> None:
    """Walk through everything that is there, on real files in a temporary directory. Example: lakebed demo."""
    from lakebed.cli.demo import run_demo  # noqa: PLC0415 - brings pyarrow

    if not run_demo(out()):
        raise typer.Exit(EXIT_DRIFT)


@app.command()
def check(
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    *,
    deep: Annotated[bool, typer.Option("--deep", help="read every file whole and compare its SHA-256")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare registry, files, footers and journal with each other. Exit 3 when they differ. Example: lakebed check --deep."""
    with opened(registry, warehouse) as lake:
        report = lake.check(deep=deep)
    _render_check(report, as_json=as_json)
    if not report.clean:
        raise typer.Exit(EXIT_DRIFT)


@app.command()
def migrate(
    registry: Url = URL,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would be applied")] = False,
    as_json: AsJson = False,
) -> None:
    """Bring an older registry up to date; can be interrupted and run again. Example: lakebed migrate --dry-run."""
    from lakebed.registry.migrate import list_pending, migrate_registry  # noqa: PLC0415 - brings Alembic

    with errors():
        applied = list_pending(registry) if dry_run else migrate_registry(registry)
    if as_json:
        print_json({"dry_run": dry_run, "revisions": applied})
    elif applied:
        out().print(f"{'would apply' if dry_run else 'applied'} {', '.join(applied)}")
    else:
        out().print("the registry is up to date")


@app.command("migrate-footers")
def migrate_footers(registry: Url = URL, warehouse: Warehouse = WAREHOUSE, *, as_json: AsJson = False) -> None:
    """Upgrade stored footers of format version 1 in bounded batches; can be run again. Example: lakebed migrate-footers."""
    from lakebed.registry.footers import migrate_footers as upgrade  # noqa: PLC0415 - brings pyarrow

    with opened(registry, warehouse) as lake:
        done = upgrade(lake.registry)
    if as_json:
        print_json({"upgraded": done.upgraded, "skipped": done.skipped, "failed": done.failed})
    else:
        out().print(f"{done.upgraded} upgraded, {done.skipped} skipped, {len(done.failed)} failed")
        for path, reason in done.failed.items():
            out().print(f"  {path}: {reason}", style="red")
    if done.failed:
        raise typer.Exit(EXIT_DRIFT)


@tables.command("list")
def list_tables(registry: Url = URL, *, as_json: AsJson = False) -> None:
    """Tables with their counters. Example: lakebed tables list --json."""
    from lakebed.registry.create import open_registry  # noqa: PLC0415 - nothing but the registry is needed
    from lakebed.registry.lake_tables import list_tables as find  # noqa: PLC0415

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
    shown = Table("table", "kind", "rows", "files", "bytes", "modified")
    for r in rows:
        shown.add_row(
            f"{r.database}.{r.name}", r.kind, f"{r.row_count:,}", f"{r.file_count:,}", f"{r.total_size:,}", f"{r.last_modified:%F %T}"
        )
    out().print(shown)


def main() -> None:
    app()


def _render_check(report: CheckReport, *, as_json: bool) -> None:
    if as_json:
        found = [
            {"rule": f.rule, "table": f.table, "subject": f.subject, "message": f.message, "severity": str(f.severity)}
            for f in report.findings
        ]
        print_json({"clean": report.clean, "checked": dict(report.checked), "findings": found})
        return
    console = out()
    for finding in report.findings:
        console.print(f"{finding.severity}  {finding.rule}  {finding.table or ''}  {finding.message}", markup=False, soft_wrap=True)
    rules = len(report.checked)
    console.print(
        f"{'clean' if report.clean else 'NOT clean'}: {rules} rules, {sum(report.checked.values()):,} subjects, {report.seconds:.2f} s"
    )


if __name__ == "__main__":
    main()
