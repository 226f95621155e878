"""The command line: parse, call, render. No JVM starts here."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from lakebed.core.errors import ConflictError, CorruptionError, LakebedError, RefusedError, UnavailableError

if TYPE_CHECKING:
    from lakebed.check import CheckReport
    from lakebed.lake import Lake

EXIT_REFUSED, EXIT_DRIFT, EXIT_UNAVAILABLE = 1, 3, 4

app = typer.Typer(help="Lakebed: the ground truth under a Spark lake.", no_args_is_help=True, pretty_exceptions_enable=False)
tables = typer.Typer(help="Tables of the lake.", no_args_is_help=True)
app.add_typer(tables, name="tables")

Url = Annotated[str, typer.Option("--registry", envvar="LAKEBED_REGISTRY_URL", help="sqlite:///lake.db or postgresql://user@host/database")]
Warehouse = Annotated[str, typer.Option("--warehouse", envvar="LAKEBED_WAREHOUSE", help="a directory or s3://bucket/prefix")]
AsJson = Annotated[bool, typer.Option("--json", help="machine-readable output with stable keys")]
_URL, _WAREHOUSE = "sqlite:///lake.db", "warehouse"


@app.command()
def init(registry: Url = _URL, warehouse: Warehouse = _WAREHOUSE) -> None:
    """Create a registry and a warehouse, or say that they are there. Example: lakebed init --registry sqlite:///lake.db."""
    with _open(registry, warehouse) as lake:
        _out().print(f"registry {lake.registry.backend.shown_url} and warehouse {lake.storage.paths.root} are ready")


@app.command()
def demo() -> None:
    """Walk through everything that is there, on real files in a temporary directory. Example: lakebed demo."""
    from lakebed.cli.demo import run_demo  # noqa: PLC0415 - brings pyarrow

    if not run_demo(_out()):
        raise typer.Exit(EXIT_DRIFT)


@app.command()
def check(
    registry: Url = _URL,
    warehouse: Warehouse = _WAREHOUSE,
    *,
    deep: Annotated[bool, typer.Option("--deep", help="read every file whole and compare its SHA-256")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare registry, files, footers and journal with each other. Exit 3 when they differ. Example: lakebed check --deep."""
    with _open(registry, warehouse, create=False) as lake:
        report = lake.check(deep=deep)
    _render_check(report, as_json=as_json)
    if not report.clean:
        raise typer.Exit(EXIT_DRIFT)


@app.command()
def migrate(
    registry: Url = _URL,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only say what would be applied")] = False,
    as_json: AsJson = False,
) -> None:
    """Bring an older registry up to date; can be interrupted and run again. Example: lakebed migrate --dry-run."""
    from lakebed.registry.migrate import list_pending, migrate_registry  # noqa: PLC0415 - brings Alembic

    with _errors():
        applied = list_pending(registry) if dry_run else migrate_registry(registry)
    if as_json:
        _json({"dry_run": dry_run, "revisions": applied})
    elif applied:
        _out().print(f"{'would apply' if dry_run else 'applied'} {', '.join(applied)}")
    else:
        _out().print("the registry is up to date")


@app.command("migrate-footers")
def migrate_footers(registry: Url = _URL, warehouse: Warehouse = _WAREHOUSE, *, as_json: AsJson = False) -> None:
    """Upgrade stored footers of format version 1 in bounded batches; can be run again. Example: lakebed migrate-footers."""
    from lakebed.registry.footers import migrate_footers as upgrade  # noqa: PLC0415 - brings pyarrow

    with _open(registry, warehouse, create=False) as lake:
        done = upgrade(lake.registry)
    if as_json:
        _json({"upgraded": done.upgraded, "skipped": done.skipped, "failed": done.failed})
    else:
        _out().print(f"{done.upgraded} upgraded, {done.skipped} skipped, {len(done.failed)} failed")
        for path, reason in done.failed.items():
            _out().print(f"  {path}: {reason}", style="red")
    if done.failed:
        raise typer.Exit(EXIT_DRIFT)


@tables.command("list")
def list_tables(registry: Url = _URL, *, as_json: AsJson = False) -> None:
    """Tables with their counters. Example: lakebed tables list --json."""
    from lakebed.registry.create import open_registry  # noqa: PLC0415 - nothing but the registry is needed
    from lakebed.registry.lake_tables import list_tables as find  # noqa: PLC0415

    with _errors():
        opened = open_registry(registry)
        rows = find(opened)
        opened.close()
    if as_json:
        _json(
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
    _out().print(shown)


def main() -> None:
    app()


class _errors:  # noqa: N801 - reads as a statement: with _errors()
    """Families become exit codes, messages go to standard error, nobody sees a traceback."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        if isinstance(exc, LakebedError):
            fail(exc)


class _open:  # noqa: N801 - reads as a statement: with _open(...)
    def __init__(self, registry: str, warehouse: str, *, create: bool = True) -> None:
        self._registry, self._warehouse, self._create = registry, warehouse, create

    def __enter__(self) -> Lake:
        from lakebed.lake import connect  # noqa: PLC0415 - brings pyarrow

        try:
            self._lake = connect(self._registry, warehouse=self._warehouse, create=self._create)
        except LakebedError as exc:
            fail(exc)
        return self._lake

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        self._lake.close()
        if isinstance(exc, LakebedError):
            fail(exc)


def fail(error: LakebedError) -> NoReturn:
    Console(stderr=True, highlight=False).print(f"{error.code}: {error}", style="red", markup=False, soft_wrap=True)
    match error:
        case UnavailableError():
            sys.exit(EXIT_UNAVAILABLE)
        case CorruptionError():
            sys.exit(EXIT_DRIFT)
        case RefusedError() | ConflictError() | LakebedError():
            sys.exit(EXIT_REFUSED)


def _render_check(report: CheckReport, *, as_json: bool) -> None:
    if as_json:
        found = [
            {"rule": f.rule, "table": f.table, "subject": f.subject, "message": f.message, "severity": str(f.severity)}
            for f in report.findings
        ]
        _json({"clean": report.clean, "checked": dict(report.checked), "findings": found})
        return
    out = _out()
    for finding in report.findings:
        out.print(f"{finding.severity}  {finding.rule}  {finding.table or ''}  {finding.message}", markup=False, soft_wrap=True)
    rules = len(report.checked)
    out.print(
        f"{'clean' if report.clean else 'NOT clean'}: {rules} rules, {sum(report.checked.values()):,} subjects, {report.seconds:.2f} s"
    )


def _json(value: Any) -> None:
    typer.echo(json.dumps(value))


def _out() -> Console:
    return Console(highlight=False)


if __name__ == "__main__":
    main()
