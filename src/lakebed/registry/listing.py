"""What the registry holds, as typed rows: one per partition, one per file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.core.rows import TableFiles, list_columns
from lakebed.core.times import from_micros
from lakebed.registry.codec import decode_row
from lakebed.registry.transaction import ID_BITS

if TYPE_CHECKING:
    from datetime import datetime

    from lakebed.registry.engine import Registry
    from lakebed.registry.transaction import Reader, Transaction

_PARTITIONS = """SELECT p.id, p.table_id, p.view_instance_id, p.begin_insert_time, p.end_insert_time, p.min_event_time, p.max_event_time,
p.schema_hash, p.source_data_hash, p.lookup_hash, p.fingerprint, p.num_rows, p.partition_format_version, p.updated, p.file_count,
COALESCE((SELECT sum(f.file_size) FROM table_files f WHERE f.partition_id = p.id AND f.retired_seq IS NULL), 0),
CASE WHEN p.file_count = 1 THEN (SELECT f.file_path FROM table_files f WHERE f.partition_id = p.id AND f.retired_seq IS NULL) END
FROM partitions p WHERE p.id > :after AND p.id < :beyond ORDER BY p.id LIMIT :limit"""
_FILES = f"""SELECT {", ".join(list_columns(TableFiles))} FROM table_files
WHERE id > :after AND id < :beyond AND (:retired = 1 OR retired_seq IS NULL) ORDER BY id LIMIT :limit"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """One partition with the sums of its files; `file_path` only when there is exactly one."""

    partition_id: int
    table_id: int
    view_instance_id: str
    begin_insert_time: datetime
    end_insert_time: datetime
    min_event_time: datetime | None
    max_event_time: datetime | None
    schema_hash: str
    source_data_hash: str | None
    lookup_hash: str | None
    fingerprint: str
    num_rows: int
    partition_format_version: int
    updated: datetime
    file_count: int
    file_size: int
    file_path: str | None


def list_partitions(
    reader: Registry | Reader | Transaction, table_id: int, *, after: int = 0, limit: int = 1_000_000
) -> list[PartitionRow]:
    """Partitions in the order they were made; `after` a partition id continues a page."""
    window = {"after": max(after, table_id << ID_BITS), "beyond": (table_id + 1) << ID_BITS}
    rows = reader.query(_PARTITIONS, {**window, "limit": limit})
    return [
        PartitionRow(
            partition_id=r[0],
            table_id=r[1],
            view_instance_id=r[2],
            begin_insert_time=from_micros(r[3]),
            end_insert_time=from_micros(r[4]),
            min_event_time=None if r[5] is None else from_micros(r[5]),
            max_event_time=None if r[6] is None else from_micros(r[6]),
            schema_hash=r[7],
            source_data_hash=r[8],
            lookup_hash=r[9],
            fingerprint=r[10],
            num_rows=r[11],
            partition_format_version=r[12],
            updated=from_micros(r[13]),
            file_count=r[14],
            file_size=int(r[15]),
            file_path=r[16],
        )
        for r in rows
    ]


def list_files(
    reader: Registry | Reader | Transaction, table_id: int, *, retired: bool = False, after: int = 0, limit: int = 1_000_000
) -> list[TableFiles]:
    window = {"after": max(after, table_id << ID_BITS), "beyond": (table_id + 1) << ID_BITS}
    rows = reader.query(_FILES, {**window, "limit": limit, "retired": int(retired)})
    return [decode_row(TableFiles, row) for row in rows]
