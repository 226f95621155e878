"""One spelling of SQL for both databases.

Statements are written once with `:name` parameters and run on the driver itself: SQLAlchemy's cost
per statement is as large as the whole transaction. `IN (:ids*)` takes a list of any length: no
parameter limit applies, because the list travels as one value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence  # noqa: TC003 - dataclasses look at their fields
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any, Literal

Dialect = Literal["sqlite", "postgresql"]
Value = int | float | str | bytes | None
Params = dict[str, Any]

_LIST = re.compile(r"IN \(:(\w+)\*\)")
_NAMED = re.compile(r"(?<![:\w]):(\w+)")


@lru_cache(maxsize=1024)
def render(sql: str, dialect: Dialect) -> str:
    """The statement as the driver wants it."""
    if dialect == "sqlite":
        return _LIST.sub(r"IN (SELECT value FROM json_each(:\1))", sql)
    return _NAMED.sub(r"%(\1)s", _LIST.sub(r"= ANY(:\1)", sql))


def bind(params: Mapping[str, Any], dialect: Dialect) -> Mapping[str, Any]:
    """Lists become one JSON text for SQLite; PostgreSQL takes them as arrays."""
    if dialect == "postgresql" or not any(isinstance(value, list) for value in params.values()):
        return params
    return {name: json.dumps(value) if isinstance(value, list) else value for name, value in params.items()}


@lru_cache(maxsize=64)
def insert_values(table: str, columns: tuple[str, ...], dialect: Dialect) -> str:
    """INSERT of one row, positional."""
    holder = "?" if dialect == "sqlite" else "%s"
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join([holder] * len(columns))})"


@lru_cache(maxsize=64)
def insert_arrays(table: str, columns: tuple[str, ...], types: tuple[str, ...]) -> str:
    """INSERT of any number of rows from one array per column (PostgreSQL): one statement, one trigger call."""
    arrays = ", ".join(f"%s::{kind}[]" for kind in types)
    return f"INSERT INTO {table} ({', '.join(columns)}) SELECT * FROM unnest({arrays})"


@dataclass(frozen=True, slots=True)
class Insert:
    """Rows for one table."""

    table: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Value]]


@dataclass(frozen=True, slots=True)
class Execute:
    """One statement with `:name` parameters."""

    sql: str
    params: Mapping[str, Any]


Statement = Insert | Execute


def combine(parts: Sequence[Statement], types: Mapping[str, Mapping[str, str]]) -> tuple[str, list[Any]]:
    """Independent writes as one statement of PostgreSQL: one round trip, one plan, all triggers at its end."""
    shape = tuple((part.table, part.columns, len(part.rows) == 1) if isinstance(part, Insert) else part.sql for part in parts)
    values: list[Any] = []
    for part in parts:
        if isinstance(part, Execute):
            values.extend(part.params[name] for name in _NAMED.findall(_LIST.sub(r"= ANY(:\1)", part.sql)))
        elif len(part.rows) == 1:
            values.extend(part.rows[0])
        else:
            values.extend(transpose(part.rows))
    return _combined(shape, _Types(types)), values


class _Types:
    """Column types as a cache key: there is one such mapping per process."""

    def __init__(self, of: Mapping[str, Mapping[str, str]]) -> None:
        self.of = of

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Types)


@lru_cache(maxsize=256)
def _combined(shape: tuple[Any, ...], types: _Types) -> str:
    spelled = [_spell(part, types.of) for part in shape]
    named = [f"w{number} AS ({sql})" for number, sql in enumerate(spelled[:-1])]
    whole = f"WITH {', '.join(named)} {spelled[-1]}" if named else spelled[-1]
    # numbered as the server wants it: the driver would parse a statement of this length again on every call
    numbers = count(1)
    return re.sub("%s", lambda _: f"${next(numbers)}", whole)


def _spell(part: Any, types: Mapping[str, Mapping[str, str]]) -> str:
    if isinstance(part, str):
        return _NAMED.sub("%s", _LIST.sub(r"= ANY(:\1)", part))
    table, columns, single = part
    return insert_values(table, columns, "postgresql") if single else insert_arrays(table, columns, tuple(types[table][c] for c in columns))


def transpose(rows: Sequence[Sequence[Value]]) -> list[str]:
    """One array literal per column. The driver's own arrays take longer to convert than the insert itself."""
    return ["{" + ",".join(map(_element, column)) + "}" for column in zip(*rows, strict=True)]


def _element(value: Value) -> str:
    match value:
        case None:
            return "NULL"
        case str():
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case bytes():
            return f'"\\\\x{value.hex()}"'
        case _:
            return repr(value)
