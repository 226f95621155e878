"""Common to all commands: options, exit codes, opening a lake and reporting errors."""

from __future__ import annotations

import math
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from lakebed.cli.rendering import Format, err
from lakebed.core.errors import (
    ConflictError,
    CorruptionError,
    InvalidValueError,
    LakebedError,
    PartitionStraddlesError,
    RefusedError,
    UnavailableError,
)
from lakebed.core.files import Verify
from lakebed.settings import COMMAND_URL, COMMAND_WAREHOUSE, load_command_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from lakebed.lake import Lake
    from lakebed.settings import ServiceMode

EXIT_REFUSED, EXIT_DRIFT, EXIT_UNAVAILABLE = 1, 3, 4  # 2 is wrong usage, from typer itself
URL, WAREHOUSE = COMMAND_URL, COMMAND_WAREHOUSE
_SETTINGS = {"registry": "registry_url", "warehouse": "warehouse"}
# Lines of the Java process would mix with the output
_QUIET_SPARK = {"spark.log.level": "OFF"}


def _find_setting(ctx: typer.Context, param: typer.CallbackParam, value: str) -> str:
    """Settings that the command line does not give come from the origins that `config show` lists."""
    if ctx.resilient_parsing or getattr(ctx.get_parameter_source(param.name or ""), "name", "") != "DEFAULT":
        return value
    with errors():
        return str(getattr(load_command_settings(), _SETTINGS[param.name or ""]))


def _complete_table(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of the lake's tables, for completion in the shell, which shows no error."""
    from lakebed.registry.open import open_registry  # noqa: PLC0415 - needed only for completion
    from lakebed.registry.tables.lake_tables import list_tables  # noqa: PLC0415

    try:
        is_given = getattr(ctx.get_parameter_source("registry"), "name", "DEFAULT") != "DEFAULT"
        settings = load_command_settings(registry_url=ctx.params.get("registry") if is_given else None)
        registry = open_registry(str(settings.registry_url), timeout_s=1.0, verify=False, migrate=False)
    except LakebedError:
        return []
    try:
        return [name for name in (f"{row.database}.{row.name}" for row in list_tables(registry)) if name.startswith(incomplete)]
    except LakebedError:
        return []
    finally:
        registry.close()


def _read_moment(text: str) -> datetime:
    """ISO 8601; UTC unless it has an offset."""
    if isinstance(text, datetime):
        return text
    from lakebed.core.times import parse_time  # noqa: PLC0415 - only commands with times need it

    try:
        return parse_time(text)
    except InvalidValueError as exc:
        raise typer.BadParameter(str(exc)) from exc


def require_finite(value: float | None) -> float | None:
    """For options that are numbers: NaN and infinity are refused."""
    if value is not None and not math.isfinite(value):
        message = f"expected a finite number, got {value}"
        raise typer.BadParameter(message)
    return value


Url = Annotated[
    str,
    typer.Option(
        "--registry", envvar="LAKEBED_REGISTRY_URL", callback=_find_setting, help="sqlite:///lake.db or postgresql://user@host/database"
    ),
]
Warehouse = Annotated[
    str, typer.Option("--warehouse", envvar="LAKEBED_WAREHOUSE", callback=_find_setting, help="a directory or s3://bucket/prefix")
]
# For commands that change something and destroy nothing
DryRun = Annotated[bool, typer.Option("--dry-run", help="only report what would be done")]
# For commands that destroy something: a dry run by default
Execute = Annotated[bool, typer.Option("--execute/--dry-run", help="apply the change (default: dry run)")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="do not ask on the terminal before doing it")]
Moment = Annotated[datetime, typer.Option(parser=_read_moment, metavar="TIME", help="ISO 8601, UTC unless it has an offset")]
MaybeMoment = Annotated[datetime | None, typer.Option(parser=_read_moment, metavar="TIME", help="ISO 8601, UTC unless it has an offset")]
TableName = Annotated[str, typer.Argument(help="database.name", autocompletion=_complete_table)]
AnyTable = Annotated[str | None, typer.Argument(help="database.name; default: all tables", autocompletion=_complete_table)]
Instance = Annotated[str | None, typer.Option("--instance", help="one instance; default: all instances")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1_000_000, help="maximum number of rows")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.0, max=86_400.0, callback=require_finite, help="seconds to wait")]
VerifyOption = Annotated[
    Verify,
    typer.Option("--verify", help="footer: read the footers; pages: also decode every page of every column, which reads whole files"),
]
AsJson = Annotated[bool, typer.Option("--json", help="machine-readable output with stable keys")]
# Of commands that print rows, beside `AsJson`
Output = Annotated[
    Format | None, typer.Option("--format", help="how rows are printed (default: table); json is --json, csv is RFC 4180 with a header")
]


def choose_format(output: Format | None, *, as_json: bool) -> Format:
    """`--json` is short for `--format json`."""
    if as_json and output not in {None, Format.JSON}:
        message = f"--json and --format {output} exclude each other"
        raise typer.BadParameter(message)
    return Format.JSON if as_json else output or Format.TABLE


class errors:  # noqa: N801 - reads as a statement: with errors()
    """Turns families of errors into exit codes and prints their messages to standard error, without a traceback."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        if isinstance(exc, LakebedError):
            fail(exc)


class opened:  # noqa: N801 - reads as a statement: with opened(...)
    """A lake for one command. `publishes`: its commits reach Iceberg before the command ends, unless another process publishes."""

    def __init__(self, registry: str, warehouse: str, *, create: bool = False, publishes: bool = False, verify: bool = True) -> None:
        self._registry, self._warehouse, self._create, self._verify = registry, warehouse, create, verify
        self._service: ServiceMode = "auto" if publishes else "off"

    def __enter__(self) -> Lake:
        from lakebed.lake import connect  # noqa: PLC0415 - imports pyarrow

        spark: Mapping[str, str] = _QUIET_SPARK
        try:
            self._lake = connect(
                self._registry,
                warehouse=self._warehouse,
                create=self._create,
                verify=self._verify,
                service=self._service,
                spark_options=spark,
            )
        except LakebedError as exc:
            fail(exc)
        return self._lake

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        self._lake.close()
        if isinstance(exc, LakebedError):
            fail(exc)


def asks(*, yes: bool) -> bool:
    """Whether to ask for confirmation: only on a terminal; a script passes `--execute`."""
    return not yes and sys.stdin.isatty()


def confirm(question: str, *, yes: bool) -> None:
    """Ask, on standard error."""
    if not asks(yes=yes):
        return
    if not typer.confirm(question, err=True):
        err().print("nothing was changed")
        raise typer.Exit(EXIT_REFUSED)


def showing(what: str, *, total: int | None = None) -> AbstractContextManager[Callable[..., None]]:
    """Yields a callback that reports the progress of long work to a bar."""
    from lakebed.cli.progress import bar  # noqa: PLC0415 - most commands show none

    return bar(what, total=total)


def fail(error: LakebedError) -> NoReturn:
    err().print(f"{error.code}: {error}", style="red", markup=False, soft_wrap=True)
    match error:
        case UnavailableError():
            sys.exit(EXIT_UNAVAILABLE)
        case CorruptionError() | PartitionStraddlesError():
            sys.exit(EXIT_DRIFT)
        case RefusedError() | ConflictError() | LakebedError():
            sys.exit(EXIT_REFUSED)
