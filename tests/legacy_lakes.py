"""An older lake with real tables in PostgreSQL and real files, in each version of its schema."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.parquet.footer import upgrade
from lakebed.parquet.footer.thrift import encode_integer

if TYPE_CHECKING:
    from pathlib import Path

DAY = datetime(2025, 6, 1, tzinfo=UTC)
OLD, NEW = b"\x01\x02", b"\x09\x08\x07"
_INLINE = ", file_metadata bytea"
_FORMAT = ", partition_format_version int NOT NULL DEFAULT 1"
_PARTITIONS = """CREATE TABLE lakehouse_partitions (view_set_name varchar(255), view_instance_id varchar(255),
begin_insert_time timestamptz, end_insert_time timestamptz, min_event_time timestamptz, max_event_time timestamptz, updated timestamptz,
file_path varchar(2047), file_size bigint, file_schema_hash bytea, source_data_hash bytea, num_rows bigint{more})"""
_FOOTERS = """CREATE TABLE partition_metadata (file_path varchar(2047) PRIMARY KEY, metadata bytea NOT NULL,
insert_time timestamptz NOT NULL{more})"""
_OTHERS = """CREATE TABLE temporary_files (file_path varchar(2047), file_size bigint, expiration timestamptz);
CREATE TABLE lakehouse_migration (version int)"""


def bare_footer(path: Path) -> bytes:
    """As version 2 stores it: the metadata alone, complete."""
    content = path.read_bytes()
    return content[-8 - int.from_bytes(content[-8:-4], "little") : -8]


def without_rows(meta: bytes) -> bytes:
    """As version 1 stores it: the file level says 0 rows."""
    edit = upgrade._survey(meta).set_rows
    return meta[: edit.start] + encode_integer(0) + meta[edit.end :]


def spans(hour: int, count: int, kind: pa.DataType) -> pa.Table:
    moments = pa.array([DAY + timedelta(hours=hour, seconds=i) for i in range(count)], pa.timestamp("us", tz="UTC"))
    return pa.table({"id": pa.array(range(hour * 1000, hour * 1000 + count), kind), "time": moments})


@dataclass
class LegacyLake:
    """`add` writes a file and its row; `row` only a row, exactly as given."""

    url: str
    root: Path
    version: int
    paths: list[str] = field(default_factory=list)

    def create(self) -> LegacyLake:
        self.root.mkdir(parents=True, exist_ok=True)
        more = (_INLINE if self.version < 4 else "") + (_FORMAT if self.version >= 5 else "")
        self.execute(_PARTITIONS.format(more=more))
        self.execute(_OTHERS)
        self.execute("INSERT INTO lakehouse_migration VALUES (%s)", self.version)
        if self.version >= 4:
            self.execute(_FOOTERS.format(more=_FORMAT if self.version >= 5 else ""))
        return self

    def execute(self, sql: str, *values: Any) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(sql.encode(), values or None)

    def add(
        self, hour: int, *, hours: int = 1, view_set: str = "spans", instance: str = "global", schema: bytes = NEW, rows: int = 5,
        footer: bytes | str | None = "right", updated: int = 0, **changes: Any,
    ) -> str:  # fmt: skip
        """One slice with a file; the footer right, of an old format ("v1"), missing (None) or given."""
        begin = DAY + timedelta(hours=hour)
        path = f"views/{view_set}/{instance}/{begin:%Y-%m-%d}/{begin:%H-%M-%S}_{uuid.uuid4()}.parquet"
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(spans(hour, rows, pa.int32() if schema == OLD else pa.int64()), place)
        values = {
            "view_set_name": view_set, "view_instance_id": instance, "begin_insert_time": begin,
            "end_insert_time": begin + timedelta(hours=hours), "min_event_time": begin, "max_event_time": begin + timedelta(seconds=rows - 1),
            "updated": DAY + timedelta(days=1 + updated), "file_path": path, "file_size": place.stat().st_size,
            "file_schema_hash": schema, "source_data_hash": (7).to_bytes(8, "little"), "num_rows": rows,
        }  # fmt: skip
        meta = bare_footer(place)
        old = self.version < 5 or footer == "v1"
        stored = (without_rows(meta) if old else meta) if isinstance(footer, str) else footer
        self.row(values | changes, stored, version=1 if old else 2)
        self.paths.append(path)
        return path

    def add_empty(self, hour: int, *, view_set: str = "spans", instance: str = "global", schema: bytes = NEW, **changes: Any) -> None:
        begin = DAY + timedelta(hours=hour)
        values = {
            "view_set_name": view_set, "view_instance_id": instance, "begin_insert_time": begin,
            "end_insert_time": begin + timedelta(hours=1), "updated": DAY + timedelta(days=1), "file_size": 0, "file_schema_hash": schema,
            "source_data_hash": b"\x00" * 8, "num_rows": 0,
        }  # fmt: skip
        self.row(values | changes, None, version=2)

    def row(self, values: dict[str, Any], footer: bytes | None, *, version: int) -> None:
        if self.version >= 5:
            values = values | {"partition_format_version": version}
        elif self.version < 4:
            values = values | {"file_metadata": footer}
        names = ", ".join(values)
        self.execute(f"INSERT INTO lakehouse_partitions ({names}) VALUES ({', '.join(['%s'] * len(values))})", *values.values())
        if self.version >= 4 and footer is not None:
            more = {"partition_format_version": version} if self.version >= 5 else {}
            own = {"file_path": values["file_path"], "metadata": footer, "insert_time": DAY, **more}
            placed = ", ".join(["%s"] * len(own))
            self.execute(f"INSERT INTO partition_metadata ({', '.join(own)}) VALUES ({placed}) ON CONFLICT DO NOTHING", *own.values())

    def queue(self, path: str, *, days: int, size: int = 10) -> None:
        self.execute("INSERT INTO temporary_files VALUES (%s, %s, %s)", path, size, DAY + timedelta(days=days))
