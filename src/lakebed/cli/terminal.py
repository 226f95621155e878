"""What every command shares: options, exit codes, how a lake is opened and how an error is told."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from lakebed.core.errors import ConflictError, CorruptionError, LakebedError, RefusedError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.core.results import Rows
    from lakebed.lake import Lake
    from lakebed.settings import ServiceMode

EXIT_REFUSED, EXIT_DRIFT, EXIT_UNAVAILABLE = 1, 3, 4
_LONGEST_GROUPED = 10**15
URL, WAREHOUSE = "sqlite:///lake.db", "warehouse"

Url = Annotated[str, typer.Option("--registry", envvar="LAKEBED_REGISTRY_URL", help="sqlite:///lake.db or postgresql://user@host/database")]
Warehouse = Annotated[str, typer.Option("--warehouse", envvar="LAKEBED_WAREHOUSE", help="a directory or s3://bucket/prefix")]
DryRun = Annotated[bool, typer.Option("--dry-run/--no-dry-run", help="only say what would be done")]
Moment = Annotated[datetime, typer.Option(formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f"], help="UTC")]
TableName = Annotated[str, typer.Argument(help="database.name")]
AnyTable = Annotated[str | None, typer.Argument(help="database.name; all tables when left out")]
AsJson = Annotated[bool, typer.Option("--json", help="machine-readable output with stable keys")]


class errors:  # noqa: N801 - reads as a statement: with errors()
    """Families become exit codes, messages go to standard error, nobody sees a traceback."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        if isinstance(exc, LakebedError):
            fail(exc)


class opened:  # noqa: N801 - reads as a statement: with opened(...)
    """A lake for one command. `publishes`: what it commits reaches Iceberg before the command ends, if nobody else publishes."""

    def __init__(self, registry: str, warehouse: str, *, create: bool = False, publishes: bool = False) -> None:
        self._registry, self._warehouse, self._create = registry, warehouse, create
        self._service: ServiceMode = "auto" if publishes else "off"

    def __enter__(self) -> Lake:
        from lakebed.lake import connect  # noqa: PLC0415 - brings pyarrow

        try:
            self._lake = connect(self._registry, warehouse=self._warehouse, create=self._create, service=self._service)
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


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, default=_plain))


def print_rows(rows: Rows[Any], *, as_json: bool, columns: Sequence[str] = (), empty: str = "nothing there") -> None:
    """All columns as JSON, whose keys are the rows' own names; `columns` of them as a table for people."""
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    shown = columns or rows.columns
    if not rows:
        out().print(empty)
        return
    table = Table(*shown)
    for row in rows:
        table.add_row(*(_show(getattr(row, name)) for name in shown))
    out().print(table)


def _show(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else ""
        case int() if abs(value) < _LONGEST_GROUPED:  # ids of snapshots are no amounts
            return f"{value:,}"
        case datetime():
            return f"{value:%F %T}"
        case _:
            return str(value)


def _plain(value: object) -> str:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else str(value)


def out() -> Console:
    return Console(highlight=False)
