"""The only reader of an older lake's registry: PostgreSQL, one read-only snapshot, versions 2 to 5 of its schema."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

from lakebed.core.errors import InvalidValueError, RegistryRefusedError, RegistryUnavailableError
from lakebed.registry.backends.postgres_errors import first_line, translate
from lakebed.registry.backends.postgres_url import hide_password, require_safe_transport

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

OLDEST, NEWEST = 2, 5
_OWN_FOOTERS = 4  # from here on footers are in a separate table
_FORMATS = 5  # from here on rows record their format
_TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = ANY(current_schemas(false))"
_NEEDED = frozenset({"lakehouse_partitions", "lakehouse_migration", "temporary_files"})
_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"


def _micros(column: str) -> str:
    """Exact UTC microseconds; an infinite time is treated as NULL."""
    return f"CASE WHEN isfinite({column}) THEN round(extract(epoch FROM {column})::numeric * 1000000)::bigint END"


_PARTITIONS = f"""SELECT view_set_name, view_instance_id, {_micros("begin_insert_time")}, {_micros("end_insert_time")},
{_micros("min_event_time")}, {_micros("max_event_time")}, {_micros("updated")}, file_path, COALESCE(file_size, 0),
encode(COALESCE(file_schema_hash, ''), 'hex'), encode(source_data_hash, 'hex'), COALESCE(num_rows, -1), {{format}},
min_event_time IS NOT NULL, max_event_time IS NOT NULL
FROM lakehouse_partitions WHERE view_set_name = %s ORDER BY begin_insert_time, end_insert_time, view_instance_id, file_path"""
_INLINE = "SELECT file_path, file_metadata, 1 FROM lakehouse_partitions WHERE view_set_name = %s AND file_path = ANY(%s) AND file_metadata IS NOT NULL"
_SEPARATE = "SELECT file_path, metadata, {format} FROM partition_metadata WHERE file_path = ANY(%s)"
_FILES = "SELECT DISTINCT file_path, view_set_name FROM lakehouse_partitions WHERE file_path IS NOT NULL ORDER BY 1"
_SIZES = """SELECT file_path, max(COALESCE(file_size, 0)) FROM lakehouse_partitions WHERE file_path IS NOT NULL
GROUP BY file_path ORDER BY file_path"""
_TEMPORARY = f"""SELECT file_path, max(COALESCE(file_size, 0)), max({_micros("expiration")}), count(*) FROM temporary_files
WHERE file_path IS NOT NULL AND isfinite(expiration) GROUP BY file_path ORDER BY file_path"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyPartition:
    """One row unchanged, times in microseconds; what the row does not record is None."""

    view_set: str
    instance: str
    begin: int | None
    end: int | None
    min_event: int | None
    max_event: int | None
    updated: int | None
    file_path: str | None
    file_size: int
    schema_hash: str
    source_data_hash: str | None
    num_rows: int
    format_version: int
    has_min_event: bool = True
    has_max_event: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyFooter:
    stored: bytes
    format_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyTemporary:
    """`times` is how often it was queued; the latest expiry applies."""

    file_path: str
    file_size: int
    expiration: int
    times: int


class LegacySource:
    """One snapshot of the old registry; nothing is ever written to it."""

    def __init__(self, raw: psycopg.Connection[tuple[Any, ...]], shown_url: str, version: int) -> None:
        self._raw, self.shown_url, self.version = raw, shown_url, version

    def list_view_sets(self) -> list[str]:
        rows = self._query("SELECT DISTINCT view_set_name FROM lakehouse_partitions WHERE view_set_name IS NOT NULL ORDER BY 1")
        return [row[0] for row in rows]

    def count_nameless(self) -> int:
        return int(self._query("SELECT count(*) FROM lakehouse_partitions WHERE view_set_name IS NULL")[0][0])

    def list_partitions(self, view_set: str) -> list[LegacyPartition]:
        format_column = "COALESCE(partition_format_version, 1)" if self.version >= _FORMATS else "1"
        return [_partition(row) for row in self._query(_PARTITIONS.format(format=format_column), (view_set,))]

    def list_files(self) -> list[tuple[str, str]]:
        """Every path that a row names, with its view set; empty for a row without one."""
        return [(path, view_set or "") for path, view_set in self._query(_FILES)]

    def list_sizes(self) -> list[tuple[str, int]]:
        """Every path that a row names, with the size in the row."""
        return [(path, size) for path, size in self._query(_SIZES)]

    def load_footers(self, view_set: str, paths: Sequence[str]) -> dict[str, LegacyFooter]:
        """Stored footers by path; a path without one is left out."""
        if not paths:
            return {}
        if self.version < _OWN_FOOTERS:
            rows = self._query(_INLINE, (view_set, list(paths)))
        else:
            format_column = "partition_format_version" if self.version >= _FORMATS else "1"
            rows = self._query(_SEPARATE.format(format=format_column), (list(paths),))
        return {path: LegacyFooter(stored=bytes(stored), format_version=version) for path, stored, version in rows}

    def list_temporary_files(self) -> list[LegacyTemporary]:
        return [
            LegacyTemporary(file_path=path, file_size=size, expiration=expiration, times=times)
            for path, size, expiration, times in self._query(_TEMPORARY)
        ]

    def _query(self, sql: str, params: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._raw.execute(sql, params).fetchall()
        except psycopg.Error as exc:
            translate(exc, self.shown_url)


@contextmanager
def open_legacy(url: str, *, timeout_s: float = 30.0) -> Iterator[LegacySource]:
    """Refuses anything but a registry of a known version, before anything is read."""
    if not url.startswith(("postgresql://", "postgres://")):
        message = "expected the URL of the old registry as postgresql://user@host/database"
        raise InvalidValueError(message)
    require_safe_transport(url)
    shown = hide_password(url)
    try:
        raw = psycopg.connect(url, connect_timeout=max(1, int(timeout_s)))
    except psycopg.Error as exc:
        message = f"the old registry {shown} does not answer: {first_line(exc)}"
        raise RegistryUnavailableError(message) from None  # the driver's message may contain the password
    try:
        raw.execute(_SNAPSHOT)
        yield LegacySource(raw, shown, _require_version(raw, shown))
    finally:
        with suppress(psycopg.Error):
            raw.close()


def _require_version(raw: psycopg.Connection[tuple[Any, ...]], shown: str) -> int:
    try:
        tables = {row[0] for row in raw.execute(_TABLES).fetchall()}
        if missing := sorted(_NEEDED - tables):
            message = f"{shown} is not a registry of an older lake: it has no table {missing[0]}; nothing was changed"
            raise RegistryRefusedError(message)
        versions = [row[0] for row in raw.execute("SELECT version FROM lakehouse_migration").fetchall()]
    except psycopg.Error as exc:
        translate(exc, shown)
    if len(versions) != 1 or not OLDEST <= versions[0] <= NEWEST:
        found = versions[0] if len(versions) == 1 else f"{len(versions)} rows"
        message = f"{shown} has schema version {found}, expected {OLDEST} to {NEWEST}: migrate it with its own program first"
        raise RegistryRefusedError(message)
    if versions[0] >= _OWN_FOOTERS and "partition_metadata" not in tables:
        message = f"{shown} has version {versions[0]} but no table partition_metadata: finish its migration first"
        raise RegistryRefusedError(message)
    return int(versions[0])


def _partition(row: tuple[Any, ...]) -> LegacyPartition:
    return LegacyPartition(
        view_set=row[0], instance=row[1] or "", begin=row[2], end=row[3], min_event=row[4], max_event=row[5], updated=row[6],
        file_path=row[7], file_size=row[8], schema_hash=row[9], source_data_hash=row[10], num_rows=row[11], format_version=row[12],
        has_min_event=row[13], has_max_event=row[14],
    )  # fmt: skip
