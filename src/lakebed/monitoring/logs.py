"""Logs of the service: one line per record, as text or as JSON. Secrets are removed last, so that exceptions are covered too."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from lakebed.core.redaction import Redactor, find_passwords

if TYPE_CHECKING:
    from lakebed.settings import LogFormat, LogLevel, Settings

_SECRET_VARIABLES = ("PGPASSWORD", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class TextFormatter(logging.Formatter):
    """`time level logger sentence key=value ...`; a traceback follows on separate lines."""

    def __init__(self, hide: Redactor) -> None:
        super().__init__()
        self._hide = hide

    def format(self, record: logging.LogRecord) -> str:
        facts = "".join(f" {key}={value}" for key, value in hide_deep(_facts(record), self._hide).items())
        line = f"{_moment(record)} {record.levelname.lower()} {record.name}: {record.getMessage()}{facts}".replace("\n", " ")
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return self._hide(line + trace)


class JsonFormatter(logging.Formatter):
    """One object per record: time, level, logger, message, the fields of `extra`, and the traceback."""

    def __init__(self, hide: Redactor) -> None:
        super().__init__()
        self._hide = hide

    def format(self, record: logging.LogRecord) -> str:
        entry = {"time": _moment(record), "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        entry |= {key: value for key, value in _facts(record).items() if key not in entry}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(hide_deep(entry, self._hide), default=lambda value: self._hide(str(value)))


def hide_deep(value: Any, hide: Redactor) -> Any:
    """Removes secrets before the JSON encoding, which would escape a quote inside a secret."""
    match value:
        case str():
            return hide(value)
        case dict():
            return {hide(str(key)): hide_deep(one, hide) for key, one in value.items()}
        case list() | tuple():
            return [hide_deep(one, hide) for one in value]
        case _:
            return value


def make_redactor(settings: Settings) -> Redactor:
    """Removes the secrets of this process: those of its settings and of its environment."""
    return Redactor(
        [*find_passwords([settings.registry_url, settings.warehouse]), *(os.environ.get(name, "") for name in _SECRET_VARIABLES)]
    )


def set_up_logs(hide: Redactor, *, kind: LogFormat, level: LogLevel, stream: TextIO | None = None) -> logging.Handler:
    """Send records of every library through one handler: Lakebed's from `level` up, those of others from warnings up."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(hide) if kind == "json" else TextFormatter(hide))
    root = logging.getLogger()
    root.addHandler(handler)
    logging.getLogger("lakebed").setLevel(level.upper())
    logging.captureWarnings(capture=True)
    return handler


def take_down_logs(handler: logging.Handler) -> None:
    logging.getLogger().removeHandler(handler)
    logging.getLogger("lakebed").setLevel(logging.NOTSET)
    logging.captureWarnings(capture=False)


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD}


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
