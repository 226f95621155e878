"""From a registry's URL to its database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lakebed.core.errors import InvalidValueError
from lakebed.registry.backends.sqlite import SqliteBackend
from lakebed.registry.schema.ddl import column_types

if TYPE_CHECKING:
    from lakebed.registry.backends.protocol import Backend


def open_backend(url: str, *, timeout_s: float = 30.0, strict: bool = False) -> Backend:
    where = parse_url(url)
    if isinstance(where, str):
        from lakebed.registry.backends.postgres import PostgresBackend  # noqa: PLC0415 - its driver takes as long to load as everything else

        return PostgresBackend(where, types=column_types(), timeout_s=timeout_s)
    return SqliteBackend(where, timeout_s=timeout_s, strict=strict)


def parse_url(url: str) -> Path | str:
    """A path for SQLite, the URL itself for PostgreSQL."""
    if url.startswith("sqlite:///"):
        path = url.removeprefix("sqlite:///")
        if path and path != ":memory:":
            return Path(path)
    if url.startswith(("postgresql://", "postgres://")):
        return url
    message = "a registry is named sqlite:///path/lake.db or postgresql://user@host/database"
    raise InvalidValueError(message)
