"""Small tables, files and partitions for tests: real values, made in one line."""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.core import fingerprints
from lakebed.core.files import ColumnStatistics, Footer, NewFile
from lakebed.core.ids import make_op_id
from lakebed.core.names import TableName
from lakebed.core.partitions import NewPartition
from lakebed.core.schema import bounds
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, Primitive
from lakebed.core.times import TimeRange
from lakebed.lake import Lake
from lakebed.parquet.schema.arrow import to_arrow
from lakebed.registry.connect import open_backend
from lakebed.registry.files.operations import Operation
from lakebed.registry.partitions.publish import publish_partition
from lakebed.registry.registry import Registry
from lakebed.registry.schema.tables import METADATA
from lakebed.registry.tables.groups import seal
from lakebed.registry.tables.lake_tables import LakeTable, TableSpec, create_table, require_table
from lakebed.registry.tables.versions import evolve_schema, promote_version, stage_version
from lakebed.storage.open import open_storage
from lakebed.testing import SteppedBackend, Steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Table

    from lakebed.core.times import Clock
    from lakebed.registry.partitions.publish import Published
    from lakebed.registry.transaction import Transaction

T = TypeVar("T")

HOUR = 3600 * 1_000_000
ORDERS = TableName("shop", "orders")
DAILY = TableName("shop", "daily")
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


def fresh_name() -> TableName:
    """For properties that share one registry: every example has a table of its own."""
    return TableName("shop", f"t{secrets.token_hex(8)}")


def op_id() -> str:
    return make_op_id(1_700_000_000_000_000 + secrets.randbelow(10**12), secrets.token_bytes(10))


def fake_file(number: int, *, rows: int = 100, partition_path: str = "", size_bytes: int = 20_000, root: str = "/warehouse") -> NewFile:
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
        path=f"{root}/shop/orders-1/data/{op_id()}/part-{number:05d}.parquet",
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


def write_partition(
    lake: Lake, number: int, *, files: int = 1, hours: tuple[int, int] | None = None, replacing: frozenset[int] = frozenset()
) -> Published:
    """Real Parquet files, written with intent and published."""
    base = int(START.timestamp()) * 1_000_000
    insert_range = None if hours is None else TimeRange(begin=base + hours[0] * HOUR, end=base + hours[1] * HOUR)
    with lake.writing(str(ORDERS)) as writing:
        for i in range(files):
            pq.write_table(arrow_rows(number + i), writing_path(writing.new_path()))
        return writing.publish(insert_range=insert_range, replacing=replacing)


def stepped_lake(url: str, warehouse: str, steps: Steps, *, clock: Clock | None = None) -> Lake:
    """The lake at that place, every statement to its registry counted."""
    return Lake(Registry(SteppedBackend(open_backend(url), steps), clock=clock), open_storage(warehouse, create=True))


def recover_writers(lake: Lake) -> None:
    """As if the leases of the writers that failed had run out."""
    lake.registry.transact(lambda tx: tx.run("UPDATE operations SET lease_until = 1 WHERE state IN ('writing', 'rolling_back')"), tables=[])
    lake.files.recover()


def writing_path(path: str) -> str:
    """Pyarrow's writer makes no directories."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    return path


def publish(registry: Registry, table: LakeTable, *files: NewFile, **options: Any) -> Published:
    """One partition in a transaction of its own; `hours`, `instance`, `schema_hash` as for `new_partition`, the rest as for publishing."""
    chosen = {key: options.pop(key) for key in ("hours", "instance", "schema_hash") if key in options}
    return publish_partition(registry, new_partition(table, *files, **chosen), options.pop("operation", None) or operation(), **options)


def within(registry: Registry, body: Callable[[Transaction], T], *tables: TableName) -> T:
    """`body` in a transaction of its own, as the only writer of `tables` (by default the orders)."""
    return registry.transact(body, tables=tables or (ORDERS,))


def insert_hours(begin: int, end: int) -> TimeRange:
    base = int(START.timestamp()) * 1_000_000
    return TimeRange(begin=base + begin * HOUR, end=base + end * HOUR)


def micros_of(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond


def make_view(registry: Registry, name: TableName = DAILY) -> LakeTable:
    """A view set: its slices are windows, and its next definition is staged before it serves."""
    return create_table(registry, TableSpec(name=name, schema=SCHEMA, kind="view_set", event_time="ts", definition="SELECT 1"))


def stage(registry: Registry, name: TableName = DAILY, *, definition: str = "SELECT 2") -> str:
    return within(registry, lambda tx: stage_version(tx, name, SCHEMA, definition=definition), name)


def promote(registry: Registry, schema_hash: str, name: TableName = DAILY) -> int:
    return within(registry, lambda tx: promote_version(tx, name, schema_hash), name)


def grow_schema(registry: Registry, name: TableName = ORDERS, *, column: str = "note", field_id: int = 9) -> str:
    """Add a nullable column: the earlier version stays readable."""
    current = require_table(registry, name).schema
    grown = Schema(fields=(*current.fields, Field(field_id=field_id, name=column, type=Primitive(name="string"))))
    return within(registry, lambda tx: evolve_schema(tx, name, grown), name)


def seal_pending(registry: Registry, name: TableName = ORDERS) -> int | None:
    return within(registry, lambda tx: seal(tx, name), name)


def count(registry: Registry, table: str, where: str = "1 = 1") -> int:
    return int(registry.query(f"SELECT count(*) FROM {table} WHERE {where}")[0][0])


def logical_dump(registry: Registry, *, without: frozenset[str] = frozenset()) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table as plain values, so that 'nothing changed' is one comparison."""
    with registry.read() as reader:
        return {
            table.name: sorted((tuple(map(_plain, row)) for row in reader.query(f"SELECT {_columns(table)} FROM {table.name}")), key=repr)
            for table in METADATA.sorted_tables
            if table.name not in without
        } | {"file_ranges": reader.query("SELECT id FROM file_ranges ORDER BY id")}


def _columns(table: Table) -> str:
    return ", ".join(column.name for column in table.columns)


def _plain(value: Any) -> Any:
    return bytes(value).hex() if isinstance(value, bytes | memoryview) else value
