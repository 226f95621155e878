"""The rows of the five monitored registry tables, exactly as the database holds them.

The journal's triggers are generated from these classes, so a column added here appears in the
next event after its migration. Columns not marked `MUTABLE` never change once a row exists: the
database refuses it, and an UPDATE's before-image carries only the others; of `PARTIAL_IMAGE` rows the after-image too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


MUTABLE = {"changes": True}  # marks a column that an UPDATE may change


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    id: int
    database: str
    name: str = field(metadata=MUTABLE)
    kind: str
    event_time_field: int | None
    row_count: int = field(metadata=MUTABLE)
    file_count: int = field(metadata=MUTABLE)
    total_size: int = field(metadata=MUTABLE)
    last_modified: datetime = field(metadata=MUTABLE)
    last_group: int = field(metadata=MUTABLE)
    committed_group: int = field(metadata=MUTABLE)
    current_snapshot_id: int | None = field(metadata=MUTABLE)
    state: str = field(metadata=MUTABLE)
    created_at: datetime
    dropped_at: datetime | None = field(metadata=MUTABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMetadata:
    id: int
    table_id: int
    schema_version: int
    schema: bytes
    schema_hash: str
    standing: str = field(metadata=MUTABLE)
    storage_engine: str
    engine_config: str = field(metadata=MUTABLE)
    format: str
    compression: str = field(metadata=MUTABLE)
    partition_by: str
    sort_by: str = field(metadata=MUTABLE)
    properties: str = field(metadata=MUTABLE)
    last_modified: datetime = field(metadata=MUTABLE)
    created_at: datetime
    updated_at: datetime = field(metadata=MUTABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFiles:
    id: int
    table_id: int
    partition_id: int = field(metadata=MUTABLE)
    file_name: str
    file_path: str
    file_size: int
    file_type: str
    partition_path: str
    row_count: int
    checksum: str
    checksum_kind: str
    is_compressed: bool
    schema_hash: str
    added_seq: int
    retired_seq: int | None = field(metadata=MUTABLE)
    added_group: int | None = field(metadata=MUTABLE)
    removed_group: int | None = field(metadata=MUTABLE)
    created_at: datetime
    modified_at: datetime = field(metadata=MUTABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStats:
    id: int
    table_id: int
    partition_path: str
    row_count: int = field(metadata=MUTABLE)
    file_count: int = field(metadata=MUTABLE)
    small_file_count: int = field(metadata=MUTABLE)
    total_size: int = field(metadata=MUTABLE)
    last_modified: datetime = field(metadata=MUTABLE)
    created_at: datetime
    updated_at: datetime = field(metadata=MUTABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSnapshots:
    id: int
    table_id: int
    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    group_no: int
    timestamp_ms: int
    manifest_list: str
    metadata_location: str
    summary: str
    schema_id: int
    operation: str
    trigger: str
    expired_at: datetime | None = field(metadata=MUTABLE)


Row = Tables | TableMetadata | TableFiles | TableStats | TableSnapshots

# One statement may change thousands. The reader of such an UPDATE takes the rest from the row or, once it is gone, from the image of its deletion.
PARTIAL_IMAGE: frozenset[type[Row]] = frozenset({TableFiles})


def list_columns(row: type[Row]) -> tuple[str, ...]:
    return tuple(f.name for f in fields(row))


def list_changing_columns(row: type[Row]) -> tuple[str, ...]:
    return tuple(f.name for f in fields(row) if f.metadata.get("changes"))
