"""One spelling of SQL for both databases.

Statements are written once with `:name` parameters and run on the driver itself: SQLAlchemy's cost
per statement is as large as the whole transaction. `IN (:ids*)` takes a list of any length: no
parameter limit applies, because the list travels as one value.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


def transpose(rows: Sequence[Sequence[Value]]) -> list[list[Value]]:
    return [list(column) for column in zip(*rows, strict=True)]
