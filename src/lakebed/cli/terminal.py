"""What every command shares: options, exit codes, how a lake is opened and how an error is told."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console

from lakebed.core.errors import ConflictError, CorruptionError, LakebedError, RefusedError, UnavailableError

if TYPE_CHECKING:
    from lakebed.lake import Lake

EXIT_REFUSED, EXIT_DRIFT, EXIT_UNAVAILABLE = 1, 3, 4
URL, WAREHOUSE = "sqlite:///lake.db", "warehouse"

Url = Annotated[str, typer.Option("--registry", envvar="LAKEBED_REGISTRY_URL", help="sqlite:///lake.db or postgresql://user@host/database")]
Warehouse = Annotated[str, typer.Option("--warehouse", envvar="LAKEBED_WAREHOUSE", help="a directory or s3://bucket/prefix")]
AsJson = Annotated[bool, typer.Option("--json", help="machine-readable output with stable keys")]


class errors:  # noqa: N801 - reads as a statement: with errors()
    """Families become exit codes, messages go to standard error, nobody sees a traceback."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        if isinstance(exc, LakebedError):
            fail(exc)


class opened:  # noqa: N801 - reads as a statement: with opened(...)
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


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value))


def out() -> Console:
    return Console(highlight=False)
