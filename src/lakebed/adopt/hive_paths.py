"""`name=value` directories: columns that exist only in the path, their values and their types."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING
from urllib.parse import unquote

from lakebed.core.errors import InvalidValueError
from lakebed.core.schema.types import Primitive
from lakebed.storage.partition_paths import NULL_TEXT

if TYPE_CHECKING:
    from collections.abc import Iterable

    PathValue = bool | int | float | str | date | datetime | Decimal | None

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_INT_MAX = (1 << 31) - 1
_BOOLEANS = {"true": True, "false": False}


def read_path(relative: str) -> dict[str, str | None]:
    """Column names with their texts, None for NULL; directories not named `name=value` are ignored.

    Raises for a name that occurs twice: which value is meant is unknown.
    """
    found: dict[str, str | None] = {}
    for segment in relative.split("/")[:-1]:
        name, equals, value = segment.partition("=")
        if not equals or not name:
            continue
        name = _unquoted(name)
        if name in found:
            message = f"{relative!a} names the column {name!a} twice: move the files"
            raise InvalidValueError(message)
        found[name] = None if value == NULL_TEXT else _unquoted(value)
    return found


def infer_type(texts: Iterable[str | None]) -> Primitive:
    """The narrowest of int, long, date and string that holds every value, as Spark would read them."""
    known = [text for text in texts if text is not None]
    if known and all(_INTEGER.fullmatch(text) for text in known):
        return Primitive(name="int" if all(abs(int(text)) <= _INT_MAX for text in known) else "long")
    if known and all(_is_date(text) for text in known):
        return Primitive(name="date")
    return Primitive(name="string")


def parse_value(text: str | None, kind: Primitive, *, column: str) -> PathValue:
    """The value in the path, converted for Arrow."""
    if text is None:
        return None
    try:
        return _parse(text, kind)
    except (ValueError, InvalidOperation, KeyError) as exc:
        message = f"the path has {column}={text!a}, expected a {kind}: give the column another type, or move the file"
        raise InvalidValueError(message) from exc


def _parse(text: str, kind: Primitive) -> PathValue:
    match kind.name:
        case "string":
            return text
        case "int" | "long":
            return int(text)
        case "float" | "double":
            return float(text)
        case "decimal":
            return Decimal(text)
        case "boolean":
            return _BOOLEANS[text.lower()]
        case "date":
            return date.fromisoformat(text)
        case "timestamp":
            return datetime.fromisoformat(text)
        case "timestamptz":
            moment = datetime.fromisoformat(text)
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
        case _:
            raise KeyError(kind.name)


def _is_date(text: str) -> bool:
    try:
        return bool(_DATE.fullmatch(text)) and date.fromisoformat(text) is not None
    except ValueError:
        return False


def _unquoted(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError as exc:
        message = f"the directory {text!a} has escapes that are not valid UTF-8: rename it"
        raise InvalidValueError(message) from exc
