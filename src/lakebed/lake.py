"""The public face: one registry and one warehouse, together a lake."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from lakebed import admin, halves
from lakebed.binding import on_halves, on_registry
from lakebed.core.errors import InvalidValueError
from lakebed.core.names import GLOBAL_INSTANCE, TableName
from lakebed.core.redaction import strip_password
from lakebed.core.tables.snapshots import Trigger
from lakebed.opening import open_halves
from lakebed.parquet.cache import FooterCache
from lakebed.registry.files.footers import FooterIndex, load_partition_metadata
from lakebed.registry.key_values import read_facts
from lakebed.registry.queries.time_travel import plan_at
from lakebed.registry.registry import Registry
from lakebed.registry.snapshots.waiting import Commits, take_snapshot, wait_until_published
from lakebed.registry.tables import lake_tables, names
from lakebed.service.embedded import Embedded
from lakebed.settings import ConnectOptions, Settings, SparkWishes, load_settings, restore_password
from lakebed.storage.protocol import Storage
from lakebed.until_closed import until_closed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pyarrow.parquet import FileMetaData
    from pyspark.sql import DataFrame, SparkSession

    from lakebed.compaction import CompactionResult, Engines
    from lakebed.compaction.plan import CompactOptions
    from lakebed.core.rows import Tables
    from lakebed.core.times import Clock, Time
    from lakebed.pipeline.change.delete import DeleteResult
    from lakebed.pipeline.context import Context, MetadataMode
    from lakebed.pipeline.options import DeleteOptions, MaterializeOptions, MergeOptions, ViewSetOptions, WriterOptions
    from lakebed.pipeline.read.explain import Explanation
    from lakebed.pipeline.results import InsertResult
    from lakebed.pipeline.views.merge import MergeResult
    from lakebed.pipeline.views.plan import MaterializeResult
    from lakebed.pipeline.write.grouped import GroupedWriter
    from lakebed.pipeline.write.insert import Mode
    from lakebed.registry.queries import plans
    from lakebed.registry.tables.lake_tables import TableOptions
    from lakebed.registry.tables.view_sets import ViewSet
    from lakebed.service.service import Service, ServiceOptions, Upkeep


def connect(
    url: str | None = None,
    *,
    warehouse: str | None = None,
    spark: SparkSession | None = None,
    spark_options: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    timeout_s: float = 30.0,
    create: bool = True,
    verify: bool = True,
    **chosen: Unpack[ConnectOptions],
) -> Lake:
    """Open the lake; where there is none create it, or with `create=False` refuse (`registry_missing`). A registry has one warehouse for life.

    What is not given comes from the environment or `lakebed.toml`. Spark starts when it is first needed, with `spark_options`; a
    session given as `spark` is checked and used as it is. `service="auto"` publishes to Iceberg from this process while no other does.
    `verify=False` opens a registry whose triggers were altered, for `repair`.
    """
    settings = load_settings(registry_url=url, warehouse=warehouse, **chosen)
    if settings.registry_url is None or settings.warehouse is None:
        message = "name the registry and the warehouse: in the call, LAKEBED_REGISTRY_URL and LAKEBED_WAREHOUSE, or lakebed.toml"
        raise InvalidValueError(message)
    registry, storage = open_halves(
        settings.registry_url, settings.warehouse, clock=clock, timeout_s=timeout_s, create=create, verify=verify
    )
    return Lake(registry, storage, settings=settings, wishes=SparkWishes(given=spark, options=spark_options))


class Lake:
    """Registry work starts no JVM and prints nothing. Use as a context manager, or call `close`.

    Pickled, it reconnects, with the password of LAKEBED_REGISTRY_URL or of PostgreSQL's password file: a pickle holds none.
    """

    registry = until_closed[Registry](doc="What `lakebed.registry` works with: tables, files, the journal.")
    storage = until_closed[Storage](doc="The files of the warehouse.")
    footers = until_closed[FooterIndex](doc="Footers of registered files, from the registry or else from the file.")
    _embedded = until_closed[Embedded]()

    def __init__(
        self, registry: Registry, storage: Storage, *, settings: Settings | None = None, wishes: SparkWishes | None = None
    ) -> None:
        self.is_closed = False
        self.registry, self.storage = registry, storage
        self.settings, self._wishes = settings or load_settings(service="off"), wishes or SparkWishes()
        self.cache = FooterCache()
        self.footers = FooterIndex(registry, storage, cache=self.cache)
        registry.back_pressure = replace(registry.back_pressure, timeout_s=self.settings.commit_timeout_s)
        self._embedded = Embedded(registry, storage, timeout_s=self.settings.commit_timeout_s)
        if self.settings.service == "auto":
            registry.add_listener(self._embedded.on_commit)

    def __reduce__(self) -> tuple[Any, ...]:
        known = None if self._url is None else strip_password(self._url)
        return _reconnect, (known, self.storage.paths.root, self._wishes.options, self.settings.metadata_mode)

    @property
    def _url(self) -> str | None:
        """As another process opens the registry, whatever directory it works in."""
        return self.registry.backend.shown_url if self.registry.dialect == "sqlite" else self.settings.registry_url

    def __enter__(self) -> Self:
        _ = self.registry  # a closed lake is refused
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Publish what is pending (5 s at most), then refuse all further calls (`lake_closed`). The Spark session is left running."""
        if self.is_closed:
            return
        try:
            self._embedded.close()
            if "context" in self.__dict__:
                self.context.lease.close()
        finally:
            self.registry.close()
            self.is_closed = True

    # -- Spark --------------------------------------------------------------------------------

    @until_closed
    def context(self) -> Context:
        from lakebed.pipeline.context import Context
        from lakebed.pipeline.spark.session import SparkSource

        url = self._url
        source = SparkSource(self._wishes.given, options=self._wishes.options, serves=(url, self.storage.paths.root) if url else None)
        return Context(self.registry, self.storage, source, self.commits, self.settings.metadata_mode, owner=self)

    @property
    def spark(self) -> SparkSession:
        """The session, built or adopted when it is first asked for."""
        return self.context.spark

    def register_functions(self, spark: SparkSession | None = None) -> tuple[str, ...]:
        """Make `list_partitions()`, `retire_partitions(...)` and the others known to the session; their names.

        Refused unless the session's Python workers have Lakebed and an environment that names this lake.
        """
        from lakebed.pipeline.sql.functions.register import register_functions

        return register_functions(spark or self.spark, read_facts(self.registry)["registry_id"])

    # -- tables -------------------------------------------------------------------------------

    def create_table(
        self, name: str, schema: halves.AnySchema | None = None, *, like: DataFrame | None = None, **options: Unpack[TableOptions]
    ) -> lake_tables.LakeTable:
        """Create a plain table: `"id BIGINT NOT NULL, tags ARRAY<STRING>"`, Spark's `StructType`, an Arrow schema, or `like` a DataFrame."""
        registry, given = self.registry, halves.schema_of(name, schema, like)
        return lake_tables.create_table(registry, lake_tables.TableSpec.of(TableName.parse(name), given, **options))

    def table(self, name: str) -> lake_tables.LakeTable:
        """The table with its serving schema; one that is not there is refused."""
        return lake_tables.require_table(self.registry, TableName.parse(name))

    def list_tables(self) -> list[Tables]:
        """Every table that was not dropped, with the counters of its visible files."""
        return lake_tables.list_tables(self.registry)

    alter = on_registry(admin.alter_table)
    add_column = on_registry(admin.add_column)
    rename_column = on_registry(admin.rename_column)
    drop_column = on_registry(admin.drop_column)
    widen_column = on_registry(admin.widen_column)
    make_column_optional = on_registry(admin.make_column_optional)
    drop_table = on_halves(halves.drop_table)

    # -- writing ------------------------------------------------------------------------------

    def insert(
        self,
        name: str,
        df: DataFrame,
        *,
        mode: Mode = "append",
        instance: str = GLOBAL_INSTANCE,
        evolve: bool = False,
        metadata_mode: MetadataMode | None = None,
        batch: tuple[str, int] | None = None,
    ) -> InsertResult:
        """Write the rows of `df` and publish them in one registry transaction, or leave everything as it was."""
        from lakebed.pipeline.write.insert import insert

        return insert(self.context, name, df, mode=mode, instance=instance, evolve=evolve, metadata_mode=metadata_mode, batch=batch)

    def delete(self, name: str, where: str, **options: Unpack[DeleteOptions]) -> DeleteResult:
        """Delete the rows for which `where` is true, or with `dry_run=True` say how many there are; rows where it is NULL stay."""
        from lakebed.pipeline.change.delete import delete

        return delete(self.context, name, where, **options)

    def insert_json(self, name: str, df: DataFrame, *, instance: str = GLOBAL_INSTANCE) -> InsertResult:
        """Write the rows as JSON lines: readable at once, in Iceberg once compaction has made Parquet of them."""
        from lakebed.pipeline.write.json import insert_json

        return insert_json(self.context, name, df, instance=instance)

    def writer(self, name: str, **options: Unpack[WriterOptions]) -> GroupedWriter:
        """`with lake.writer("db.t", rotate_after=60, rotate_bytes=...) as w: w.write(df)`: one registered batch per rotation, Parquet or JSON."""
        from lakebed.pipeline.write.grouped import GroupedWriter

        return GroupedWriter(self.context, name, **options)

    def foreach_batch(
        self, name: str, app_id: str, *, mode: Mode = "append", evolve: bool = False, checkpoint: str | None = None
    ) -> Callable[[DataFrame, int], None]:
        """For `writeStream.foreachBatch(...)`: each batch once, across restarts and replays; one `app_id` per checkpoint.

        Batches of another checkpoint are refused. Over Spark Connect give the query's `checkpointLocation` as `checkpoint`.
        """
        from lakebed.pipeline.write.streaming import foreach_batch

        return foreach_batch(self.context, name, app_id, mode=mode, evolve=evolve, checkpoint=checkpoint)

    writing = on_halves(halves.open_writing)
    register_files = on_halves(halves.register_files)
    adopt = on_halves(halves.adopt)
    import_legacy = on_halves(halves.import_legacy)

    # -- reading ------------------------------------------------------------------------------

    def read(
        self,
        name: str,
        *,
        begin: Time | None = None,
        end: Time | None = None,
        where: str | None = None,
        as_of: int | Time | Literal["snapshot"] | None = None,
        instance: str | None = None,
        columns: Sequence[str] | None = None,
        fresh: bool = False,
    ) -> DataFrame:
        """Rows with event time in `[begin, end)` that satisfy `where`; `fresh` first builds what is stale of a view set.

        `as_of` is a time, a journal number or a snapshot: the rows and the columns of then. "snapshot" seals what is pending and reads
        what every other engine reads now.
        """
        from lakebed.pipeline.read.read import read

        if fresh and self.table(name).row.kind == "view_set":
            self.materialize(name, upstream=True).raise_failed()
        parsed = names.resolve_name(self.registry, name)
        then = take_snapshot(self.registry, self.commits, parsed, trigger=Trigger.QUERY) if as_of == "snapshot" else as_of
        return read(
            self.context, name, begin=begin, end=end, where=where, as_of=then, instance=instance, columns=columns,
            with_current_columns=as_of == "snapshot",
        )  # fmt: skip

    def sql(self, text: str, *, as_of: Time | None = None) -> DataFrame:
        """A query over lake tables under their names, on one snapshot of the registry."""
        from lakebed.pipeline.read.sql import sql

        return sql(self.context, text, as_of=as_of)

    def explain(self, text: str, *, as_of: Time | None = None) -> Explanation:
        """What a query would read of the lake, and why no more; nothing is read."""
        from lakebed.pipeline.read.explain import explain

        return explain(self.context, text, as_of=as_of)

    def reading(self) -> AbstractContextManager[None]:
        """`with lake.reading():` files that a query inside the block plans stay until its end, and no longer."""
        return self.context.lease.reading()

    def plan(self, name: str, *, ranges: Sequence[plans.ColumnRange] = (), as_of: int | Time | None = None) -> plans.Plan:
        """Which files hold rows in the ranges, now or `as_of` as in `read`; no file is opened and Spark is not needed."""
        return plan_at(self.registry, TableName.parse(name), ranges=ranges, as_of=as_of)

    def load_partition_metadata(self, path: str) -> FileMetaData:
        """The footer of a registered file; `self.footers.load` also falls back to the file itself."""
        return load_partition_metadata(self.registry, self.storage.canonical(path), cache=self.cache)

    # -- view sets ----------------------------------------------------------------------------

    def create_view_set(self, name: str, *, sql: str, over: str, **options: Unpack[ViewSetOptions]) -> ViewSet:
        """Define a view set, or stage a new definition beside the one that serves; no Spark job runs."""
        from lakebed.pipeline.views.define import create_view_set

        return create_view_set(self.context, name, sql=sql, over=over, **options)

    def materialize(self, name: str, **options: Unpack[MaterializeOptions]) -> MaterializeResult:
        """Build all that is stale, or the slices of a range (`begin`/`end` event time, `insert_begin`/`insert_end` insert time)."""
        from lakebed.pipeline.views.build import materialize

        return materialize(self.context, name, **options)

    def promote(self, name: str) -> ViewSet:
        """Serve the staged definition from now on, complete or not."""
        from lakebed.pipeline.views.define import promote

        return promote(self.context, name)

    def merge(self, name: str, **options: Unpack[MergeOptions]) -> MergeResult:
        """Turn runs of adjacent partitions into one each, inside the table's merge window."""
        from lakebed.pipeline.views.merge import merge

        return merge(self.context, name, **options)

    # -- Iceberg ------------------------------------------------------------------------------

    @until_closed
    def commits(self) -> Commits:
        """How writers of this lake wait for Iceberg."""
        if self.settings.service == "auto":
            return self._embedded.commits
        return Commits(self.registry, timeout_s=self.settings.commit_timeout_s)

    def service(self, **options: Unpack[ServiceOptions]) -> AbstractContextManager[Service]:
        """Astha, all components, maintenance and their work in this process, until the block ends."""
        return self._embedded.serve(self._engines, self._upkeep, **options)

    def drain(self, timeout_s: float = 30.0) -> bool:
        """Whether everything committed so far has reached every component, and Iceberg, within the timeout."""
        service = self._embedded.require_service() if self.settings.service == "auto" else self._embedded.service
        if service is not None:
            return service.drain(timeout_s)
        return wait_until_published(self.registry, timeout_s=timeout_s)

    def snapshot(self, name: str, *, timeout_s: float | None = None) -> int | None:
        """Seal what is pending and wait until Iceberg has it; the current snapshot's id, None for a table that never had a file."""
        return take_snapshot(self.registry, self.commits, TableName.parse(name), trigger=Trigger.MANUAL, timeout_s=timeout_s)

    snapshots = on_registry(admin.list_snapshots)
    expire_snapshots = on_registry(admin.expire_snapshots)
    tag = on_registry(admin.tag_snapshot)
    untag = on_registry(admin.untag_snapshot)
    configure = on_registry(admin.configure_table)

    def compact(
        self, name: str, *, dry_run: bool = False, progress: Callable[[int, int], None] | None = None, **options: Unpack[CompactOptions]
    ) -> CompactionResult:
        """Make few files of a good size out of many small ones, with the same rows; the plan says why each group is or is not taken."""
        from lakebed.compaction import CompactionOptions, Control, compact

        asked, control = CompactionOptions(**options), Control(progress=progress)
        return compact(self.registry, self.storage, name, asked, engines=self._engines, control=control, dry_run=dry_run)

    rollback = on_halves(admin.roll_back_to)

    def _upkeep(self) -> Upkeep:
        from lakebed.service.service import Upkeep

        settings = self.settings
        return Upkeep(context=lambda: self.context, schedule=settings.schedule, queues_orphans=settings.sweep == "queue")

    @property
    def _engines(self) -> Engines:
        """What fits this machine is rewritten in process; Spark starts only for what does not."""
        from lakebed.pipeline.views.merge import engines_of

        return engines_of(self.context)

    # -- administration -----------------------------------------------------------------------

    list_partitions = on_registry(admin.list_partitions)
    list_files = on_registry(admin.list_files)
    list_view_sets = on_registry(admin.list_view_sets)
    list_incompatible_partitions = on_registry(admin.list_incompatible_partitions)
    list_administrators = on_registry(admin.list_administrators)
    set_administrators = on_registry(admin.set_administrators)
    retire_partition_by_metadata = on_registry(admin.retire_partition_by_metadata)
    retire_partitions = on_registry(admin.retire_partitions)
    retire_incompatible_partitions = on_registry(admin.retire_incompatible_partitions)
    retire_expired_partitions = on_registry(admin.retire_expired_partitions)

    def retire_partition_by_file(self, path: str) -> admin.Retirement:
        """Deprecated: use `retire_partition_by_metadata`, which finds empty partitions too."""
        return admin.retire_partition_by_file(self.registry, self.storage, path, stacklevel=3)

    delete_expired_temporary_files = on_halves(halves.delete_expired_temporary_files)
    sweep_orphans = on_halves(halves.sweep_orphans)
    list_left_out_files = on_registry(admin.list_left_out_files)
    forget_left_out_files = on_halves(admin.forget_left_out_files)
    recover = on_halves(admin.recover_operations)
    why = on_halves(admin.why)
    check = on_halves(halves.check)
    repair = on_halves(halves.repair)


def _reconnect(url: str | None, warehouse: str, options: Mapping[str, str] | None, metadata_mode: MetadataMode) -> Lake:
    """In another process, which leaves publishing to the first, and finds the password in its own environment."""
    url = None if url is None else restore_password(url)
    return connect(url, warehouse=warehouse, spark_options=options, metadata_mode=metadata_mode, service="off", create=False)
