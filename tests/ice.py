"""Lakes whose Iceberg side is under test: real files, real commits, and what independent readers say of them."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable

from builders import HOUR, LONG, ORDERS, START, TIMESTAMP, op_id, seal_pending, within, writing_path
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, Primitive
from lakebed.core.times import TimeRange
from lakebed.iceberg.catalog import CATALOG_NAME, LakeCatalog, open_catalog
from lakebed.iceberg.commit.committer import Committer
from lakebed.iceberg.locations import from_uri
from lakebed.iceberg.manifests.cache import ManifestStore
from lakebed.iceberg.metadata.load import Base, TableOpener
from lakebed.parquet.capture import capture
from lakebed.parquet.schema.arrow import to_arrow
from lakebed.registry.files.operations import Operation
from lakebed.registry.partitions.publish import publish_partition
from lakebed.registry.partitions.retire import load_partitions_to_retire, retire_loaded
from lakebed.registry.tables.lake_tables import LakeTable, TableSpec, create_table, require_table
from lakebed.registry.tables.versions import evolve_schema
from lakebed.staging.partition import partition_of
from lakebed.staging.register import foreign_statistics_spec, place_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from duckdb import DuckDBPyConnection

    from lakebed.core.names import TableName
    from lakebed.iceberg.commit.results import Advanced
    from lakebed.iceberg.manifests.avro import Entry, Manifest
    from lakebed.lake import Lake
    from lakebed.registry.partitions.publish import Published
    from lakebed.registry.transaction import Transaction

DOUBLE, STRING, INT = Primitive(name="double"), Primitive(name="string"), Primitive(name="int")
SHOP = Schema(
    fields=(
        Field(field_id=1, name="id", type=LONG),
        Field(field_id=2, name="ts", type=TIMESTAMP),
        Field(field_id=3, name="amount", type=DOUBLE),
        Field(field_id=4, name="country", type=STRING),
    ),
)
ROWS = 20


@dataclass(slots=True)
class IceLake:
    """A lake, its catalog and a committer of its tables."""

    lake: Lake
    catalog: LakeCatalog
    committer: Committer
    slots: dict[TableName, int] = field(default_factory=dict)

    def close(self) -> None:
        self.catalog.close()

    def create(
        self, name: TableName = ORDERS, *, schema: Schema = SHOP, partition_by: tuple[str, ...] = (), kind: str = "table"
    ) -> LakeTable:
        spec = TableSpec(
            name=name,
            schema=schema,
            kind=kind,
            definition="SELECT 1" if kind == "view_set" else "",
            event_time="ts",
            partition_by=partition_by,
        )
        return create_table(self.lake.registry, spec)

    def write(self, number: int, name: TableName = ORDERS, **options: Any) -> Published:
        """One file of `ROWS` rows, described in this process, because a worker for each would take most of the time; ids from `number * 1000`, `country` and `day` the same in all of them; pending until sealed."""
        table = require_table(self.lake.registry, name)
        path = write_file(
            self.lake, table, shop_rows(table.schema, number, country=options.get("country", "DE"), day=options.get("day", 0))
        )
        slot = self.slots[name] = self.slots.get(name, 0) + 1
        base = int(START.timestamp()) * 1_000_000
        chosen = TimeRange(begin=base + slot * HOUR, end=base + (slot + 1) * HOUR) if table.row.kind == "view_set" else None
        captured = capture(self.lake.storage, path, table.schema, spec=foreign_statistics_spec(table, [path], adopt=False))
        placed = place_file(captured, table, relative=self.lake.storage.paths.relative(path))
        partition = partition_of(table, [placed], insert_range=chosen, instance=options.get("instance", "global"))
        operation = Operation(op_id=op_id(), kind="register")
        return publish_partition(self.lake.registry, partition, operation, replacing=options.get("replacing", frozenset()))

    def seal(self, name: TableName = ORDERS) -> int | None:
        return seal_pending(self.lake.registry, name)

    def advance(self, name: TableName = ORDERS) -> Advanced:
        """A commit that must have something to do."""
        done = self.committer.advance(self.table_id(name))
        assert done is not None
        return done

    def insert(self, number: int, name: TableName = ORDERS, **options: Any) -> Advanced:
        self.write(number, name, **options)
        self.seal(name)
        return self.advance(name)

    def retire(self, *partition_ids: int, name: TableName = ORDERS) -> None:
        def body(tx: Transaction) -> None:
            table = tx.require(name)
            retire_loaded(tx, table, load_partitions_to_retire(tx, table, set(partition_ids), exactly=True), reason="test", grace_us=0)

        within(self.lake.registry, body, name)

    def evolve(self, change: Callable[[tuple[Field, ...]], Sequence[Field]], name: TableName = ORDERS) -> None:
        current = require_table(self.lake.registry, name).schema.fields
        within(self.lake.registry, lambda tx: evolve_schema(tx, name, Schema(fields=tuple(change(current)))), name)

    def table_id(self, name: TableName = ORDERS) -> int:
        return self.lake.registry.require_table_id(name)

    def base(self, name: TableName = ORDERS) -> Base:
        """As another process would find it."""
        found = TableOpener(self.lake.registry, self.lake.storage, self.catalog).find(name)
        assert found is not None
        return found

    def static(self, name: TableName = ORDERS) -> StaticTable:
        """The table from its metadata file alone."""
        return StaticTable.from_metadata(self.base(name).location)

    def manifests(self, name: TableName = ORDERS) -> tuple[Manifest, ...]:
        current = self.base(name).metadata.current_snapshot()
        assert current is not None
        return ManifestStore(self.lake.storage).load_list(current.manifest_list)

    def entries(self, name: TableName = ORDERS) -> list[Entry]:
        store = ManifestStore(self.lake.storage)
        return [entry for manifest in self.manifests(name) for entry in store.load_entries(manifest)]

    def metadata_files(self, name: TableName = ORDERS) -> set[str]:
        directory = self.lake.storage.paths.metadata_directory(self.table_id(name), name)
        return {facts.path for facts in self.lake.storage.list_files(directory)}

    def require_true(self, name: TableName = ORDERS) -> None:
        """Manifests equal the registry, totals equal the counters, every path exists, and no file is named twice."""
        verified = self.committer.verify(self.table_id(name))
        assert verified is not None
        assert verified.clean, verified
        paths = [from_uri(entry["data_file"]["file_path"]) for entry in self.entries(name)]
        assert len(set(paths)) == len(paths)
        row = require_table(self.lake.registry, name).row
        summary = self.static(name).current_snapshot().summary  # type: ignore[union-attr]
        reported = tuple(int(summary[key]) for key in ("total-data-files", "total-records", "total-files-size"))  # type: ignore[index,arg-type]
        assert reported == (row.file_count, row.row_count, row.total_size)
        assert row.committed_group == row.last_group
        assert all(Path(path).exists() for path in paths)


def open_ice(lake: Lake) -> IceLake:
    """Another committer of the same lake, as another process would open it."""
    catalog = open_catalog(lake.registry, lake.storage)
    return IceLake(lake, catalog, Committer(lake.registry, lake.storage, catalog))


def open_stranger(lake: Lake) -> SqlCatalog:
    """PyIceberg's own catalog on the same rows."""
    return SqlCatalog(CATALOG_NAME, uri=lake.registry.backend.catalog_url, warehouse=lake.storage.paths.root)


def shop_rows(schema: Schema, number: int, *, country: str | None = "DE", day: int = 0, rows: int = ROWS) -> pa.Table:
    """Rows under the schema's physical names; unknown columns are null."""
    known: Mapping[str, list[Any]] = {
        "id": list(range(number * 1000, number * 1000 + rows)),
        "ts": [START + timedelta(days=day, seconds=number, microseconds=i) for i in range(rows)],
        "amount": [float(number + i) for i in range(rows)],
        "country": [country] * rows,
        "note": [f"note {number}"] * rows,
    }
    columns = [known.get(f.physical_name, [None] * rows) for f in schema.fields]
    return pa.table(columns, schema=to_arrow(schema))


def write_file(lake: Lake, table: LakeTable, rows: pa.Table) -> str:
    directory = lake.storage.paths.operation_directory(table.table_id, table.name, op_id())
    path = writing_path(f"{directory}/part-00000.parquet")
    pq.write_table(rows, path)
    return path


def duck() -> DuckDBPyConnection:
    """DuckDB with its Iceberg extension from a wheel: nothing is downloaded."""
    import duckdb  # noqa: PLC0415 - only the tests of other readers need it

    connection = duckdb.connect()
    for name in ("avro", "iceberg"):
        package = importlib.import_module(f"duckdb_extension_{name}")
        found = next(Path(str(package.__file__)).parent.rglob(f"{name}.duckdb_extension"))
        connection.execute(f"LOAD '{found}'")
    return connection
