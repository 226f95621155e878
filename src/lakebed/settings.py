"""Settings, read once: arguments first, then the environment, then `lakebed.toml`, then defaults; each knows where it came from."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from lakebed.core.errors import InvalidValueError
from lakebed.core.redaction import hide_secrets, strip_password
from lakebed.core.suggestions import require_options, suggest
from lakebed.core.tasks import DEFAULT_SCHEDULE, Task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

FILE_NAME = "lakebed.toml"
# The lake of a command that was given none; `connect` creates by default, and asks for names instead
COMMAND_URL, COMMAND_WAREHOUSE = "sqlite:///lake.db", "warehouse"
_PREFIX = "LAKEBED_"
_SCHEDULE = "schedule"

MetadataMode = Literal["async", "sync"]
ServiceMode = Literal["auto", "off"]
LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]
SweepMode = Literal["preview", "queue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkRequest:
    """Which session a lake uses; known before Spark starts."""

    session: SparkSession | None = None
    options: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting and its origin: `argument`, the variable's name, the file's path, or `default`."""

    name: str
    value: Any
    origin: str

    def __repr__(self) -> str:
        return f"{self.name}={hide_secrets(repr(self.value))} ({self.origin})"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    default: Any
    choices: tuple[str, ...] = ()
    is_number: bool = False


_KNOWN: Mapping[str, _Known] = {
    "registry_url": _Known(default=None),
    "warehouse": _Known(default=None),
    "metadata_mode": _Known(default="async", choices=get_args(MetadataMode)),
    "service": _Known(default="auto", choices=get_args(ServiceMode)),
    "commit_timeout_s": _Known(default=60.0, is_number=True),
    "listen": _Known(default="127.0.0.1:9464"),
    "allowed_hosts": _Known(default=""),
    "log_format": _Known(default="text", choices=get_args(LogFormat)),
    "log_level": _Known(default="info", choices=get_args(LogLevel)),
    "sweep": _Known(default="preview", choices=get_args(SweepMode)),
    **{f"{_SCHEDULE}.{task}": _Known(default=cron) for task, cron in DEFAULT_SCHEDULE.items()},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a lake is opened with."""

    registry_url: str | None
    warehouse: str | None
    metadata_mode: MetadataMode
    service: ServiceMode
    commit_timeout_s: float
    listen: str  # where `serve` answers HTTP: host:port
    allowed_hosts: str  # names besides its own under which it may be asked, separated by commas
    log_format: LogFormat
    log_level: LogLevel
    sweep: SweepMode  # whether the scheduled sweep only counts orphans, or queues them for deletion
    schedule: Mapping[Task, str]  # cron expressions in UTC, or "off"
    origins: tuple[Setting, ...]

    def __repr__(self) -> str:
        return f"Settings({', '.join(map(repr, self.origins))})"


def load_settings(
    *,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
    defaults: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> Settings:
    """Arguments that are None and variables that are empty count as not given; `file` is looked for in the working directory unless named."""
    require_options("connect", arguments, _KNOWN)
    found = _read_file(file)
    env = os.environ if environment is None else environment
    known_here = {name: replace(known, default=(defaults or {}).get(name, known.default)) for name, known in _KNOWN.items()}
    settings = tuple(_resolve(name, known, arguments.get(name), env, found) for name, known in known_here.items())
    values = {setting.name: setting.value for setting in settings}
    schedule = {task: values.pop(f"{_SCHEDULE}.{task}") for task in Task}
    return Settings(**values, schedule=schedule, origins=settings)


def load_command_settings(**arguments: Any) -> Settings:
    """What every command works with, and `config show` shows."""
    return load_settings(defaults={"registry_url": COMMAND_URL, "warehouse": COMMAND_WAREHOUSE}, **arguments)


def restore_password(url: str, *, environment: Mapping[str, str] | None = None) -> str:
    """The environment's URL where it names the same registry; otherwise the one given, and PostgreSQL looks for a password by itself."""
    known = (os.environ if environment is None else environment).get(f"{_PREFIX}REGISTRY_URL")
    return known if known is not None and strip_password(known) == url else url


def _resolve(name: str, known: _Known, argument: Any, environment: Mapping[str, str], file: tuple[str, Mapping[str, Any]]) -> Setting:
    variable = _PREFIX + name.upper().replace(".", "_")
    if argument is not None:
        return Setting(name=name, value=_check(name, known, argument, "argument"), origin="argument")
    if environment.get(variable):
        return Setting(name=name, value=_check(name, known, environment[variable], variable), origin=variable)
    if name in file[1]:
        return Setting(name=name, value=_check(name, known, file[1][name], file[0]), origin=file[0])
    return Setting(name=name, value=known.default, origin="default")


def _check(name: str, known: _Known, value: Any, origin: str) -> Any:
    if known.choices and value not in known.choices:
        message = f"{name}={value!r} ({origin}) is not known: give one of {', '.join(map(repr, known.choices))}"
        raise InvalidValueError(message)
    if known.is_number:
        return _number(name, value, origin)
    if origin != "argument" and not isinstance(value, str):
        message = f"{name}={value!r} ({origin}) is not a string: write it in quotes"
        raise InvalidValueError(message)
    return value


def _number(name: str, value: Any, origin: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number < float("inf"):
        message = f"{name}={value!r} ({origin}) is not a number of seconds: give 0 or more"
        raise InvalidValueError(message)
    return number


def _read_file(file: Path | None) -> tuple[str, Mapping[str, Any]]:
    path = Path(FILE_NAME) if file is None else file
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as exc:
        if file is None:
            return str(path), {}
        message = f"there is no settings file {path}"
        raise InvalidValueError(message) from exc
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        message = f"{path} cannot be read as TOML: {exc}"
        raise InvalidValueError(message) from exc
    flat = _flatten(content)
    if unknown := sorted(flat.keys() - _KNOWN.keys()):
        near = suggest(unknown[0], _KNOWN)
        message = f"{path} has unknown settings {', '.join(unknown)}: {near + ' ' if near else ''}the settings are {', '.join(_KNOWN)}"
        raise InvalidValueError(message)
    return str(path), flat


def _flatten(content: Mapping[str, Any]) -> dict[str, Any]:
    """The table `[schedule]` as settings of their own: `schedule.clean`."""
    flat = {name: value for name, value in content.items() if name != _SCHEDULE}
    tasks = content.get(_SCHEDULE, {})
    return flat | ({f"{_SCHEDULE}.{task}": cron for task, cron in tasks.items()} if isinstance(tasks, dict) else {_SCHEDULE: tasks})
