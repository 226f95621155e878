"""Small tables, files and partitions for tests: real values, made in one line."""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.core import bounds, fingerprints
from lakebed.core.files import ColumnStatistics, Footer, NewFile
from lakebed.core.ids import make_op_id
from lakebed.core.names import TableName
from lakebed.core.partitions import NewPartition
from lakebed.core.schema import Schema
from lakebed.core.times import TimeRange
from lakebed.core.types import Field, Primitive
from lakebed.parquet.arrow_schema import to_arrow
from lakebed.registry.lake_tables import LakeTable, TableSpec, create_table
from lakebed.registry.operations import Operation

if TYPE_CHECKING:
    from lakebed.lake import Lake
    from lakebed.registry.engine import Registry
    from lakebed.registry.publish import Published

HOUR = 3600 * 1_000_000
ORDERS = TableName("shop", "orders")
TIMESTAMP = Primitive(name="timestamptz")
LONG = Primitive(name="long")
SCHEMA = Schema(
    fields=(
        Field(field_id=1, name="id", type=LONG),
        Field(field_id=2, name="ts", type=TIMESTAMP),
        Field(field_id=3, name="amount", type=Primitive(name="double")),
    ),
)
START = datetime(2026, 1, 1, tzinfo=UTC)


def make_table(registry: Registry, name: TableName = ORDERS, *, event_time: str | None = "ts") -> LakeTable:
    return create_table(registry, TableSpec(name=name, schema=SCHEMA, event_time=event_time, index=("id",)))


def op_id() -> str:
    return make_op_id(1_700_000_000_000_000 + secrets.randbelow(10**12), secrets.token_bytes(10))


def fake_file(number: int, *, rows: int = 100, partition_path: str = "", size_bytes: int = 20_000) -> NewFile:
    """A file that exists only as registry rows: ids `number*1000 ...`, one second of events per number."""
    tail = hashlib.sha256(str(number).encode()).digest() * 20
    checksum = hashlib.sha256(tail).hexdigest()
    low, high = number * 1000, number * 1000 + 999
    columns = (
        ColumnStatistics(
            field_id=1,
            null_count=0,
            value_count=rows,
            lower=bounds.lower_bound(LONG, low),
            upper=bounds.upper_bound(LONG, high),
            lower_coordinate=bounds.coordinate(LONG, low),
            upper_coordinate=bounds.coordinate(LONG, high),
        ),
    )
    return NewFile(
        path=f"/warehouse/shop/orders-1/data/{op_id()}/part-{number:05d}.parquet",
        size_bytes=size_bytes,
        row_count=rows,
        checksum=checksum,
        partition_path=partition_path,
        footer=Footer(tail=tail, num_rows=rows, checksum=checksum),
        columns=columns,
    )


def new_partition(
    table: LakeTable,
    *files: NewFile,
    hours: tuple[int, int] | None = None,
    instance: str = "global",
    schema_hash: str | None = None,
) -> NewPartition:
    """Without `hours` a plain insert; with them the slice of those hours after START."""
    base = int(START.timestamp()) * 1_000_000
    return NewPartition(
        table=table.name,
        schema_hash=schema_hash or table.schema_hash,
        fingerprint=fingerprints.from_bytes(secrets.token_bytes(16)),
        files=files,
        instance=instance,
        insert_range=None if hours is None else TimeRange(begin=base + hours[0] * HOUR, end=base + hours[1] * HOUR),
        event_range=(base, base + 1000) if files else None,
    )


def operation() -> Operation:
    return Operation(op_id=op_id())


def arrow_rows(number: int, rows: int = 50) -> pa.Table:
    moments = [START + timedelta(seconds=number, microseconds=i) for i in range(rows)]
    values = [list(range(number * 1000, number * 1000 + rows)), moments, [float(i) for i in range(rows)]]
    return pa.table(values, schema=to_arrow(SCHEMA))


def write_partition(lake: Lake, number: int, *, files: int = 1, hours: tuple[int, int] | None = None, replacing: frozenset[int] = frozenset()) -> Published:
    """Real Parquet files, written with intent and published."""
    base = int(START.timestamp()) * 1_000_000
    insert_range = None if hours is None else TimeRange(begin=base + hours[0] * HOUR, end=base + hours[1] * HOUR)
    with lake.writing(str(ORDERS)) as writing:
        for i in range(files):
            pq.write_table(arrow_rows(number + i), writing_path(writing.new_path()))
        return writing.publish(insert_range=insert_range, replacing=replacing)


def writing_path(path: str) -> str:
    """Pyarrow's writer makes no directories."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    return path
