"""The public face: one registry and one warehouse, together a lake."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from lakebed import admin, writing
from lakebed.core.errors import InvalidRangeError, RegistryRefusedError
from lakebed.core.names import GLOBAL_INSTANCE, TableName
from lakebed.core.schema import Schema
from lakebed.core.times import TimeRange
from lakebed.parquet.arrow_schema import from_arrow
from lakebed.parquet.cache import FooterCache
from lakebed.registry import lake_tables, listing, plans, retire
from lakebed.registry.create import open_registry
from lakebed.registry.footers import FooterIndex, load_partition_metadata
from lakebed.storage.connect import open_storage, read_marker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from contextlib import AbstractContextManager
    from datetime import datetime

    import pyarrow as pa
    from pyarrow.parquet import FileMetaData
    from pyspark.sql import SparkSession

    from lakebed.check import CheckReport
    from lakebed.core.rows import TableFiles, Tables
    from lakebed.core.times import Clock
    from lakebed.pipeline.context import Context
    from lakebed.registry.engine import Registry
    from lakebed.registry.publish import Published
    from lakebed.storage.access import Storage


def connect(
    url: str,
    *,
    warehouse: str,
    spark: SparkSession | None = None,
    spark_options: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    timeout_s: float = 30.0,
    create: bool = True,
) -> Lake:
    """Open the lake, creating registry and warehouse where there are none. A registry belongs to one warehouse for life.

    Spark starts when it is first needed, with `spark_options`; a session given as `spark` is used as it is.
    """
    storage = open_storage(warehouse, create=create)
    registry = open_registry(url, clock=clock, timeout_s=timeout_s)
    try:
        _bind(registry, storage)
    except BaseException:
        registry.close()
        raise
    return Lake(registry, storage, spark=spark, spark_options=spark_options)


class Lake:
    """Registry work starts no JVM and prints nothing. Use as a context manager, or call `close`."""

    def __init__(
        self,
        registry: Registry,
        storage: Storage,
        *,
        spark: SparkSession | None = None,
        spark_options: Mapping[str, str] | None = None,
    ) -> None:
        self.registry, self.storage = registry, storage
        self._given_spark, self._spark_options = spark, spark_options
        self.cache = FooterCache()
        self.footers = FooterIndex(registry, storage, cache=self.cache)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.registry.close()

    # -- Spark --------------------------------------------------------------------------------

    @cached_property
    def context(self) -> Context:
        from lakebed.pipeline.context import Context  # noqa: PLC0415 - importing pyspark takes longer than most registry work
        from lakebed.pipeline.session import SparkSource  # noqa: PLC0415

        return Context(self.registry, self.storage, SparkSource(self._given_spark, options=self._spark_options))

    @property
    def spark(self) -> SparkSession:
        """The session, built or adopted when it is first asked for."""
        return self.context.spark

    # -- tables -------------------------------------------------------------------------------

    def create_table(
        self,
        name: str,
        schema: Schema | pa.Schema,
        *,
        event_time: str | None = None,
        partition_by: Sequence[str] = (),
        sort_by: Sequence[str] = (),
        index: Sequence[str] = (),
        properties: dict[str, Any] | None = None,
    ) -> lake_tables.LakeTable:
        """Create a plain table; an Arrow schema is given field ids in the order of its columns."""
        spec = lake_tables.TableSpec(
            name=TableName.parse(name),
            schema=schema if isinstance(schema, Schema) else from_arrow(schema),
            event_time=event_time,
            partition_by=tuple(partition_by),
            sort_by=tuple(sort_by),
            index=tuple(index),
            properties=properties or {},
        )
        return lake_tables.create_table(self.registry, spec)

    def table(self, name: str) -> lake_tables.LakeTable:
        return lake_tables.require_table(self.registry, TableName.parse(name))

    def list_tables(self) -> list[Tables]:
        return lake_tables.list_tables(self.registry)

    # -- writing ------------------------------------------------------------------------------

    def writing(self, name: str) -> AbstractContextManager[writing.Writing]:
        """`with lake.writing("db.t") as w:` write files to `w.new_path()`, then `w.publish()`."""
        return writing.open_writing(self.registry, self.storage, self.table(name))

    def register_files(
        self,
        name: str,
        paths: Sequence[str],
        *,
        insert_begin: datetime | None = None,
        insert_end: datetime | None = None,
        instance: str = GLOBAL_INSTANCE,
        replacing: AbstractSet[int] = frozenset(),
        batch: tuple[str, int] | None = None,
    ) -> Published:
        """Publish Parquet files that others wrote into the warehouse, parsed in a disposable process."""
        return writing.register_files(
            self.registry,
            self.storage,
            self.table(name),
            paths,
            insert_range=_range(insert_begin, insert_end),
            instance=instance,
            replacing=replacing,
            batch=batch,
        )

    # -- looking ------------------------------------------------------------------------------

    def list_partitions(self, name: str) -> list[listing.PartitionRow]:
        return listing.list_partitions(self.registry, self.table(name).table_id)

    def list_files(self, name: str, *, retired: bool = False) -> list[TableFiles]:
        return listing.list_files(self.registry, self.table(name).table_id, retired=retired)

    def plan(self, name: str, *, ranges: Sequence[plans.ColumnRange] = (), as_of: int | None = None) -> plans.Plan:
        return plans.plan_files(self.registry, TableName.parse(name), ranges=ranges, as_of=as_of)

    def load_partition_metadata(self, path: str) -> FileMetaData:
        """The footer of a registered file; `self.footers.load` also falls back to the file itself."""
        return load_partition_metadata(self.registry, self.storage.canonical(path), cache=self.cache)

    # -- retiring and cleaning ----------------------------------------------------------------

    def retire_partition(
        self,
        name: str,
        *,
        insert_begin: datetime,
        insert_end: datetime,
        instance: str = GLOBAL_INSTANCE,
        schema_hash: str | None = None,
        grace_s: float = retire.DEFAULT_GRACE_US / 1e6,
    ) -> retire.Retired:
        """Retire exactly one partition by its key."""
        table = TableName.parse(name)
        wanted = TimeRange.of(insert_begin, insert_end)
        return self.registry.transact(
            lambda tx: retire.retire_by_key(
                tx, table, instance=instance, insert_range=wanted, schema_hash=schema_hash, grace_us=int(grace_s * 1e6)
            ),
            tables=[table],
        )

    def retire_partitions(
        self,
        name: str,
        *,
        insert_begin: datetime,
        insert_end: datetime,
        instance: str | None = None,
        grace_s: float = retire.DEFAULT_GRACE_US / 1e6,
    ) -> retire.Retired:
        """Retire every partition wholly inside the range; those that straddle its edge are named."""
        table = TableName.parse(name)
        wanted = TimeRange.of(insert_begin, insert_end)
        return self.registry.transact(
            lambda tx: retire.retire_by_range(tx, table, wanted, instance=instance, grace_us=int(grace_s * 1e6)), tables=[table]
        )

    def delete_expired_temporary_files(self, *, batch_size: int = 1000, max_batches: int | None = None) -> admin.CleanUp:
        return admin.delete_expired_temporary_files(self.registry, self.storage, batch_size=batch_size, max_batches=max_batches)

    def recover(self) -> list[str]:
        """Undo what dead writers left behind; the ids of the operations undone."""
        return admin.recover_operations(self.registry, self.storage)

    def check(self, *, deep: bool = False) -> CheckReport:
        """The independent checker: registry, files, footers and journal against each other."""
        from lakebed.check import check  # noqa: PLC0415 - needed by few, and it brings its own readers

        return check(self.registry, self.storage, deep=deep)


def _range(begin: datetime | None, end: datetime | None) -> TimeRange | None:
    if begin is None and end is None:
        return None
    if begin is None or end is None:
        message = "only one end of the insert range was given"
        raise InvalidRangeError(message)
    return TimeRange.of(begin, end)


def _bind(registry: Registry, storage: Storage) -> None:
    """A registry that met another warehouse would judge its files as lost and the others as orphans."""
    found = read_marker(storage).warehouse_id
    with registry.write() as tx:
        tx.run("INSERT INTO registry_facts (key, value) VALUES ('warehouse_id', :id) ON CONFLICT (key) DO NOTHING", {"id": found})
        ((bound,),) = tx.query("SELECT value FROM registry_facts WHERE key = 'warehouse_id'")
    if bound != found:
        message = f"{registry.backend.shown_url} belongs to another warehouse than {storage.paths.root}: give both as they were created"
        raise RegistryRefusedError(message)
