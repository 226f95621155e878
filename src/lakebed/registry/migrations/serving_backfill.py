"""The history of serving versions of a registry that did not keep one, as far as its rows still show it.

A version served from behind the last change of files before it on, one of a plain table at the latest from its own first file on; files
of a view set are built before their version serves. Changes in between changed no file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

_TABLES = text("SELECT t.id, t.kind, t.created_at, s.last_seq FROM tables t JOIN table_seq s ON s.table_id = t.id ORDER BY t.id")
# a version that was staged and withdrawn never served: no file of it has a group
_VERSIONS = text(
    """SELECT m.id, m.schema_version, m.schema_hash, m.created_at, m.updated_at FROM table_metadata m WHERE m.table_id = :t AND (
    m.standing IN ('serving', 'readable') OR m.schema_version = (SELECT min(x.schema_version) FROM table_metadata x WHERE x.table_id = :t)
    OR (m.standing = 'incompatible' AND EXISTS (SELECT 1 FROM table_files f
        WHERE f.table_id = :t AND f.schema_hash = m.schema_hash AND f.added_group IS NOT NULL))) ORDER BY m.schema_version"""
)
_FIRST_FILES = text(
    "SELECT min(added_seq), min(created_at), min(added_group) FROM table_files WHERE table_id = :t AND schema_hash = :hash"
)  # fmt: skip
_JOURNALED = text(
    "SELECT min(seq) FROM change_log WHERE table_id = :t AND registry_table = 'table_metadata' AND operation = 'INSERT' AND row_id = :id"
)
_LAST_CHANGE = text(
    """SELECT max(n) FROM (SELECT max(added_seq) AS n FROM table_files WHERE table_id = :t AND created_at < :at
    UNION ALL SELECT max(retired_seq) FROM table_files WHERE table_id = :t AND retired_seq IS NOT NULL AND modified_at < :at) AS found"""
)
_LAST_GROUP = text("SELECT max(group_no) FROM table_snapshots WHERE table_id = :t AND timestamp_ms * 1000 + 999 < :at")
_NEVER = 1 << 62
_ADD = text("INSERT INTO serving_history (table_id, seq, schema_version, group_no, at) VALUES (:t, :seq, :version, :group_no, :at)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    version: int
    number: int  # the first that it can have served
    latest: int  # the last that it can have begun at
    group: int
    at: int


def backfill_serving(bind: Connection) -> None:
    """One row per version of every table; versions that share a journal number become one, the newest."""
    if bind.execute(text("SELECT 1 FROM serving_history LIMIT 1")).first() is not None:
        return
    for table_id, kind, created_at, last_seq in bind.execute(_TABLES).all():
        known: dict[int, _Version] = {}
        for version in _place(list(_read(bind, table_id, kind, created_at=created_at)), last_seq):
            known[version.number] = version
        for number, version in known.items():
            bind.execute(_ADD, {"t": table_id, "seq": number, "version": version.version, "group_no": version.group, "at": version.at})


def _read(bind: Connection, table_id: int, kind: str, *, created_at: int) -> Iterator[_Version]:
    ended_at: int | None = None  # when the version before was given up
    for row_id, version, schema_hash, made_at, updated_at in bind.execute(_VERSIONS, {"t": table_id}).all():
        first_seq, first_file_at, first_group = bind.execute(_FIRST_FILES, {"t": table_id, "hash": schema_hash}).one()
        latest = first_seq if first_seq is not None and kind == "table" else _NEVER
        if ended_at is None:
            yield _Version(version=version, number=0, latest=latest, group=0, at=created_at)
        elif kind == "table":
            at = made_at if first_file_at is None else min(made_at, first_file_at)
            yield _Version(
                version=version, number=_find_number(bind, table_id, row_id, at), latest=latest, group=_find_group(bind, table_id, at), at=at
            )  # fmt: skip
        else:
            group = first_group if first_group is not None else _find_group(bind, table_id, ended_at)
            yield _Version(version=version, number=_find_number(bind, table_id, None, ended_at), latest=latest, group=group, at=ended_at)
        ended_at = updated_at


def _find_number(bind: Connection, table_id: int, row_id: int | None, at: int) -> int:
    """As the journal still shows it, else behind the last change of files before that instant."""
    journaled = None if row_id is None else bind.execute(_JOURNALED, {"t": table_id, "id": row_id}).scalar()
    return int(journaled if journaled is not None else (bind.execute(_LAST_CHANGE, {"t": table_id, "at": at}).scalar() or 0) + 1)


def _find_group(bind: Connection, table_id: int, at: int) -> int:
    return int(bind.execute(_LAST_GROUP, {"t": table_id, "at": at}).scalar() or 0)


def _place(versions: list[_Version], last_seq: int) -> Iterator[_Version]:
    """In order, none behind the latest that it or a later version can have begun at."""
    number = -1
    for position, version in enumerate(versions):
        latest = min([last_seq, *(later.latest for later in versions[position:])])
        number = min(max(version.number, number + 1), latest) if position else 0
        yield _Version(version=version.version, number=number, latest=latest, group=version.group, at=version.at)
