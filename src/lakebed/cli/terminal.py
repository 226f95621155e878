"""What every command shares: options, exit codes, how a lake is opened and how an error is reported."""

from __future__ import annotations

import math
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from lakebed.cli.rendering import err
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

EXIT_REFUSED, EXIT_DRIFT, EXIT_UNAVAILABLE = 1, 3, 4  # 2 is wrong usage, by typer itself
URL, WAREHOUSE = COMMAND_URL, COMMAND_WAREHOUSE
_SETTINGS = {"registry": "registry_url", "warehouse": "warehouse"}
# Lines of the Java process would stand between ours
_QUIET_SPARK = {"spark.log.level": "OFF"}


def _find_setting(ctx: typer.Context, param: typer.CallbackParam, value: str) -> str:
    """What the command line does not name comes from where `config show` shows it."""
    if ctx.resilient_parsing or getattr(ctx.get_parameter_source(param.name or ""), "name", "") != "DEFAULT":
        return value
    with errors():
        return str(getattr(load_command_settings(), _SETTINGS[param.name or ""]))


def _complete_table(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of the lake's tables, for the shell; whatever keeps it from them is no concern of somebody who pressed a key."""
    from lakebed.registry.open import open_registry  # noqa: PLC0415 - only when the shell asks
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
    """ISO text; what names no zone is UTC."""
    if isinstance(text, datetime):
        return text
    from lakebed.core.times import parse_time  # noqa: PLC0415 - only commands with times need it

    try:
        return parse_time(text)
    except InvalidValueError as exc:
        raise typer.BadParameter(str(exc)) from exc


def require_finite(value: float | None) -> float | None:
    """For options that are numbers: neither NaN nor infinity is one of anything."""
    if value is not None and not math.isfinite(value):
        message = f"{value} is no number to go by"
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
# Of what changes something and destroys nothing
DryRun = Annotated[bool, typer.Option("--dry-run", help="only say what would be done")]
# Of what destroys: a preview unless it is told to go on
Execute = Annotated[bool, typer.Option("--execute/--dry-run", help="do it; without, only say what would be done")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="do not ask on the terminal before doing it")]
Moment = Annotated[datetime, typer.Option(parser=_read_moment, metavar="TIME", help="ISO, UTC unless it names a zone")]
MaybeMoment = Annotated[datetime | None, typer.Option(parser=_read_moment, metavar="TIME", help="ISO, UTC unless it names a zone")]
TableName = Annotated[str, typer.Argument(help="database.name", autocompletion=_complete_table)]
AnyTable = Annotated[str | None, typer.Argument(help="database.name; all tables when left out", autocompletion=_complete_table)]
Instance = Annotated[str | None, typer.Option("--instance", help="one instance; all of them when left out")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1_000_000, help="at most so many")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.0, max=86_400.0, callback=require_finite, help="seconds to wait")]
VerifyOption = Annotated[
    Verify,
    typer.Option("--verify", help="footer: read the footers; pages: decode every page of every column, too, which reads whole files"),
]
AsJson = Annotated[bool, typer.Option("--json", help="machine-readable output with stable keys")]


class errors:  # noqa: N801 - reads as a statement: with errors()
    """Families become exit codes, messages go to standard error, nobody sees a traceback."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        if isinstance(exc, LakebedError):
            fail(exc)


class opened:  # noqa: N801 - reads as a statement: with opened(...)
    """A lake for one command. `publishes`: what it commits reaches Iceberg before the command ends, if nobody else publishes."""

    def __init__(self, registry: str, warehouse: str, *, create: bool = False, publishes: bool = False, verify: bool = True) -> None:
        self._registry, self._warehouse, self._create, self._verify = registry, warehouse, create, verify
        self._service: ServiceMode = "auto" if publishes else "off"

    def __enter__(self) -> Lake:
        from lakebed.lake import connect  # noqa: PLC0415 - brings pyarrow

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
    """Whether somebody sits at a terminal and wants to be asked; a script has said `--execute`."""
    return not yes and sys.stdin.isatty()


def confirm(question: str, *, yes: bool) -> None:
    """Ask, on standard error."""
    if not asks(yes=yes):
        return
    if not typer.confirm(question, err=True):
        err().print("nothing was changed")
        raise typer.Exit(EXIT_REFUSED)


def showing(what: str, *, total: int | None = None) -> AbstractContextManager[Callable[..., None]]:
    """Gives what tells a bar how far long work has come, in numbers of `total`."""
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
