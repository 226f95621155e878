"""A healthy lake that holds every kind of row and file, made through the public functions."""

from __future__ import annotations

import hashlib
from contextlib import closing
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from cursors import save_cursor
from lakebed.core import fingerprints
from lakebed.core.events import Component
from lakebed.core.files import ColumnStatistics, FileType, Footer, NewFile
from lakebed.core.names import TableName
from lakebed.core.partitions import NewPartition
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, Primitive
from lakebed.core.times import TimeRange
from lakebed.iceberg.catalog import open_catalog
from lakebed.iceberg.commit.committer import Committer
from lakebed.registry.files.deletion_queue import claim_expired, finalize_deleted
from lakebed.registry.files.operations import Operation, open_operation
from lakebed.registry.journal.changes import last_journal_numbers, purge_journal
from lakebed.registry.journal.leases import hold_for_reading
from lakebed.registry.partitions.publish import Published, publish_partition
from lakebed.registry.tables.groups import seal, seal_table
from lakebed.registry.tables.lake_tables import TableSpec, create_table, require_table
from lakebed.registry.tables.versions import promote_version, stage_version
from retiring import retire_by_ids

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import Storage

ORDERS, DAILY, OLD, LINES = (TableName("shop", name) for name in ("orders", "daily", "old", "lines"))
SCHEMA = Schema(
    fields=(
        Field(field_id=1, name="id", type=Primitive(name="long")),
        Field(field_id=2, name="ts", type=Primitive(name="timestamptz")),
        Field(field_id=3, name="amount", type=Primitive(name="long")),
    )
)
HOUR = 3_600_000_000


class HealthyLake:
    """Four tables: one with a complete journal, one after a promotion, one with a purged journal, one that Iceberg readers see."""

    def __init__(self, registry: Registry, storage: Storage) -> None:
        self.registry, self.storage = registry, storage
        self._count = 0

    def fill(self) -> None:
        self._fill_orders()
        self._fill_daily()
        self._fill_old()
        self._fill_lines()
        hold_for_reading(self.registry, "reader/1", [self.table_id(ORDERS)], owner="test/1/reader", ttl_us=HOUR)

    def _fill_orders(self) -> None:
        """Complete journal; partition paths, an empty partition, groups, a swap, a JSON file, a finished deletion, an open intent."""
        create_table(self.registry, TableSpec(name=ORDERS, schema=SCHEMA, event_time="ts", index=("amount",)))
        self.publish(ORDERS, paths=("", ""))
        self.publish(ORDERS, paths=("day=1", "day=2"))
        self.publish(ORDERS, paths=(), instance="eu", insert_range=TimeRange(begin=0, end=HOUR))
        with self.registry.write([ORDERS]) as tx:
            assert seal(tx, ORDERS) == 1
        replaced = self.publish(ORDERS, paths=("",))
        self.publish(ORDERS, paths=("",), replacing={replaced.partition_id})
        self.publish(ORDERS, paths=("",), file_type=FileType.JSON)
        self._delete(ORDERS, self.publish(ORDERS, paths=("day=3",)))
        with self.registry.write([ORDERS]) as tx:
            save_cursor(tx, Component.COMPACTOR, self.table_id(ORDERS), seq=5, epoch=1)
        op_id = uuid4().hex
        staging = self.storage.paths.operation_directory(self.table_id(ORDERS), ORDERS, op_id)
        open_operation(self.registry, ORDERS, Operation(op_id=op_id, has_intent=True, staging_path=staging))
        self.storage.create_exclusive(self.storage.paths.new_file(staging, 0, "parquet"), b"half a file")

    def _fill_daily(self) -> None:
        """A view set after a promotion: partitions of the old definition are incompatible now."""
        create_table(self.registry, TableSpec(name=DAILY, schema=SCHEMA, kind="view_set", definition="SELECT 1"))
        window = TimeRange(begin=0, end=HOUR)
        self.publish(DAILY, paths=("",), insert_range=window)
        with self.registry.write([DAILY]) as tx:
            staged = stage_version(tx, DAILY, SCHEMA, definition="SELECT 2")
        self.publish(DAILY, paths=("",), insert_range=window, schema_hash=staged)
        with self.registry.write([DAILY]) as tx:
            promote_version(tx, DAILY, staged)

    def _fill_old(self) -> None:
        """A purged journal: rows may be tampered with here, and no replay will notice."""
        create_table(self.registry, TableSpec(name=OLD, schema=SCHEMA))
        self.publish(OLD, paths=("",))
        retired = self.publish(OLD, paths=("",))
        with self.registry.write([OLD]) as tx:
            retire_by_ids(tx, OLD, {retired.partition_id})
        table_id = self.table_id(OLD)
        with self.registry.write([OLD]) as tx:
            for component in Component:
                save_cursor(tx, component, table_id, seq=last_journal_numbers(tx)[table_id], epoch=1)
        assert purge_journal(self.registry, table_id) > 0

    def _fill_lines(self) -> None:
        """An Iceberg table of two snapshots, the second without a file of the first."""
        create_table(self.registry, TableSpec(name=LINES, schema=SCHEMA))
        gone = self.publish(LINES, paths=("",))
        self.publish(LINES, paths=("", ""))
        with closing(open_catalog(self.registry, self.storage)) as catalog:
            committer = Committer(self.registry, self.storage, catalog)
            seal_table(self.registry, self.table_id(LINES))
            assert committer.advance(self.table_id(LINES)) is not None
            with self.registry.write([LINES]) as tx:
                retire_by_ids(tx, LINES, {gone.partition_id})
            assert committer.advance(self.table_id(LINES)) is not None

    def churn(self) -> None:
        """Write, replace, retire and delete, in the table that no reader holds."""
        first = self.publish(OLD, paths=("",))
        self._delete(OLD, self.publish(OLD, paths=("day=4",)))
        self.publish(OLD, paths=("", "day=5"), replacing={first.partition_id})

    def _delete(self, name: TableName, published: Published) -> None:
        with self.registry.write([name]) as tx:
            retire_by_ids(tx, name, {published.partition_id}, grace_us=0)
        claim = claim_expired(self.registry)
        gone = [outcome.path for outcome in self.storage.delete([file.path for file in claim.files]) if outcome.gone]
        assert finalize_deleted(self.registry, claim, gone) == 1

    def table_id(self, name: TableName) -> int:
        return self.registry.require_table_id(name)

    def publish(
        self,
        name: TableName,
        *,
        paths: tuple[str, ...],
        insert_range: TimeRange | None = None,
        instance: str = "global",
        replacing: set[int] | None = None,
        schema_hash: str | None = None,
        file_type: FileType = FileType.PARQUET,
    ) -> Published:
        table = require_table(self.registry, name)
        op_id = uuid4().hex
        directory = self.storage.paths.operation_directory(table.table_id, name, op_id)
        operation = Operation(op_id=op_id, has_intent=True, staging_path=directory)
        open_operation(self.registry, name, operation)
        partition = NewPartition(
            table=name,
            schema_hash=schema_hash or table.schema_hash,
            fingerprint=fingerprints.from_bytes(uuid4().bytes),
            files=tuple(self._write(directory, number, path, file_type) for number, path in enumerate(paths)),
            instance=instance,
            insert_range=insert_range,
            event_range=(1, 2 * HOUR) if paths else None,
        )
        return publish_partition(self.registry, partition, operation, replacing=replacing or set())

    def _write(self, directory: str, number: int, partition_path: str, file_type: FileType) -> NewFile:
        self._count += 1
        rows = 10 + self._count
        place = self.storage.paths.new_file(directory, number, file_type.value)
        content = parquet_bytes(rows) if file_type is FileType.PARQUET else b'{"id": 1}\n' * rows
        self.storage.create_exclusive(place, content)
        tail = content[-(int.from_bytes(content[-8:-4], "little") + 8) :]
        return NewFile(
            path=place,
            size_bytes=len(content),
            row_count=rows,
            checksum=hashlib.sha256(content).hexdigest(),
            file_type=file_type,
            partition_path=partition_path,
            footer=Footer(tail=tail, num_rows=rows, checksum=hashlib.sha256(tail).hexdigest()) if file_type is FileType.PARQUET else None,
            columns=tuple(ColumnStatistics(field_id=n, null_count=0, value_count=rows, lower=b"\x01", upper=b"\x02") for n in (1, 2, 3)),
        )


def parquet_bytes(rows: int) -> bytes:
    table = pa.table({"id": range(rows), "ts": pa.array(range(rows), pa.timestamp("us", tz="UTC")), "amount": [7] * rows})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, write_page_index=True)
    return bytes(sink.getvalue())
