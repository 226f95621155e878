"""Partitions that no reader will ever see again: of another schema, of an unknown format, of a table that was dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.core.partitions import PARTITION_FORMAT
from lakebed.core.results import Rows
from lakebed.core.times import from_micros
from lakebed.registry.transaction import ID_BITS

if TYPE_CHECKING:
    from datetime import datetime

    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Reader, Transaction

# What the SQL functions show: never rename
UNKNOWN_VIEW_SET, SCHEMA, FORMAT = "unknown view set", "schema", "format"
_LOWEST_FORMAT = 1
# A staged version is being built: its partitions are the future, not the past
_SELECT = f"""SELECT p.id, COALESCE(t.database || '.' || t.name, ''), p.table_id, p.view_instance_id, p.begin_insert_time, p.end_insert_time,
CASE WHEN t.id IS NULL OR t.dropped_at IS NOT NULL THEN '{UNKNOWN_VIEW_SET}' WHEN m.id IS NULL THEN '{SCHEMA}' ELSE '{FORMAT}' END,
p.schema_hash, CASE WHEN t.dropped_at IS NULL THEN s.schema_hash END, p.partition_format_version, p.num_rows, p.file_count,
COALESCE((SELECT sum(f.file_size) FROM table_files f WHERE f.partition_id = p.id AND f.retired_seq IS NULL), 0),
CASE WHEN p.file_count = 1 THEN (SELECT f.file_path FROM table_files f WHERE f.partition_id = p.id AND f.retired_seq IS NULL) END
FROM partitions p LEFT JOIN tables t ON t.id = p.table_id
LEFT JOIN table_metadata s ON s.table_id = p.table_id AND s.standing = 'serving'
LEFT JOIN table_metadata m ON m.table_id = p.table_id AND m.schema_hash = p.schema_hash AND m.standing <> 'incompatible'
WHERE (t.id IS NULL OR t.dropped_at IS NOT NULL OR m.id IS NULL
OR p.partition_format_version NOT BETWEEN {_LOWEST_FORMAT} AND {PARTITION_FORMAT}) AND {{where}} ORDER BY p.id"""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncompatibleRow:
    """One partition, empty or not, and why it is out of sight. No current hash when its table was dropped.

    `incompatible_schema_hash` is `schema_hash` under the name of the specification; `file_path` only when there is exactly one file.
    """

    partition_id: int
    view_set_name: str
    table_id: int
    view_instance_id: str
    begin_insert_time: datetime
    end_insert_time: datetime
    reason: str
    schema_hash: str
    incompatible_schema_hash: str
    current_schema_hash: str | None
    partition_format_version: int
    num_rows: int
    file_count: int
    file_size: int
    file_path: str | None


def list_incompatible(
    reader: Registry | Reader | Transaction, table_id: int | None = None, *, ids: list[int] | None = None
) -> Rows[IncompatibleRow]:
    """In the order of their ids; nothing that a reader can see, or will see after a promotion, is ever among them."""
    conditions, params = ["1 = 1"], {}
    if table_id is not None:
        conditions.append("p.id > :after AND p.id < :beyond")
        params = {"after": table_id << ID_BITS, "beyond": (table_id + 1) << ID_BITS}
    if ids is not None:
        conditions.append("p.id IN (:ids*)")
    rows = reader.query(_SELECT.format(where=" AND ".join(conditions)), {**params, **({} if ids is None else {"ids": ids})})
    return Rows(IncompatibleRow, map(_row, rows))


def _row(r: tuple[Any, ...]) -> IncompatibleRow:
    return IncompatibleRow(
        partition_id=r[0],
        view_set_name=r[1],
        table_id=r[2],
        view_instance_id=r[3],
        begin_insert_time=from_micros(r[4]),
        end_insert_time=from_micros(r[5]),
        reason=r[6],
        schema_hash=r[7],
        incompatible_schema_hash=r[7],
        current_schema_hash=r[8],
        partition_format_version=r[9],
        num_rows=r[10],
        file_count=r[11],
        file_size=int(r[12]),
        file_path=r[13],
    )
