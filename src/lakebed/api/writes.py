"""Calls that create tables and write rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakebed.admin import MAX_PARTITIONS
from lakebed.api.open_lake import OpenLake
from lakebed.api.schemas import schema_of
from lakebed.api.unknown_options import refuse_unknown_options
from lakebed.core.errors import InvalidValueError
from lakebed.core.names import GLOBAL_INSTANCE, TableName
from lakebed.registry.tables import lake_tables
from lakebed.staging import write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame

    from lakebed.api.schemas import AnySchema
    from lakebed.pipeline.change.delete import DeleteResult
    from lakebed.pipeline.context import MetadataMode
    from lakebed.pipeline.options import FileFormat
    from lakebed.pipeline.results import InsertResult
    from lakebed.pipeline.write.grouped import GroupedWriter
    from lakebed.pipeline.write.insert import Mode
    from lakebed.registry.tables.lake_tables import LakeTable


@refuse_unknown_options
class Writes(OpenLake):
    """Rows become visible with their files, statistics and footers in one registry transaction, or not at all."""

    def create_table(
        self,
        name: str,
        schema: AnySchema | None = None,
        *,
        like: DataFrame | None = None,
        event_time: str | None = None,
        partition_by: Sequence[str] = (),
        sort_by: Sequence[str] = (),
        index: Sequence[str] = (),
        properties: dict[str, Any] | None = None,
    ) -> LakeTable:
        """Create a plain table.

        Args:
            name: The new table, as `database.name`.
            schema: DDL text such as `"id BIGINT NOT NULL, tags ARRAY<STRING>"`, Spark's `StructType`, or an Arrow schema.
            like: A DataFrame whose schema the table gets, instead of `schema`.
            event_time: The column that says when a row happened; `begin` and `end` of reads refer to it.
            partition_by: Iceberg transforms such as `"day(ts)"`, `"bucket(16, user)"` or `"country"`.
            sort_by: The columns by which Spark sorts each file.
            index: Columns whose value ranges are indexed beside the event time, for fast planning.
            properties: Your own keys with any JSON value.

        """
        spec = lake_tables.TableSpec.of(
            TableName.parse(name), schema_of(name, schema, like), event_time=event_time, partition_by=partition_by, sort_by=sort_by,
            index=index, properties=properties,
        )  # fmt: skip
        return lake_tables.create_table(self.registry, spec)

    def insert(
        self,
        table: str,
        df: DataFrame,
        *,
        mode: Mode = "append",
        format: FileFormat = "parquet",  # noqa: A002 - as Spark calls it
        instance: str = GLOBAL_INSTANCE,
        evolve: bool = False,
        metadata_mode: MetadataMode | None = None,
        batch: tuple[str, int] | None = None,
    ) -> InsertResult:
        """Write the rows of a DataFrame and publish them in one registry transaction, or change nothing.

        Args:
            table: The table, as `database.name`.
            df: The rows; columns are matched by name.
            mode: `"append"`, `"overwrite"` (replaces the visible rows of the instance) or `"overwrite_partitions"` (replaces the
                partition paths that occur in `df`).
            format: `"parquet"`, or `"json"` for JSON lines: readable at once, in Iceberg when compaction has converted them to Parquet.
            instance: The instance that the rows belong to.
            evolve: Add the columns that the table lacks, in the same transaction.
            metadata_mode: `"async"` returns when the registry has the rows, `"sync"` when an Iceberg snapshot has them too; default
                the mode of the connection.
            batch: `(app_id, batch_id)`: a batch that is repeated is inserted once, and gets the first answer.

        """
        if format == "json":
            return self._insert_json(
                table, df, instance=instance, plain=(mode, evolve, metadata_mode, batch) == ("append", False, None, None)
            )
        if format != "parquet":
            message = f"format {format!a} is not known: use 'parquet' or 'json'"
            raise InvalidValueError(message)
        from lakebed.pipeline.write.insert import insert

        return insert(
            self._context, table, df, mode=mode, instance=instance, evolve=evolve, metadata_mode=metadata_mode, batch=batch
        )  # fmt: skip

    def _insert_json(self, table: str, df: DataFrame, *, instance: str, plain: bool) -> InsertResult:
        from lakebed.pipeline.write.json import insert_json

        if not plain:
            message = (
                f"{table}: JSON files can only be appended, without evolve, batch or metadata_mode: leave these out, or insert Parquet"
            )
            raise InvalidValueError(message)
        return insert_json(self._context, table, df, instance=instance)

    def writer(
        self,
        table: str,
        *,
        rotate_after: float = 60.0,
        rotate_bytes: int = 128 << 20,
        format: FileFormat = "parquet",  # noqa: A002 - as Spark calls it
        instance: str = GLOBAL_INSTANCE,
        on_rotate: Callable[[InsertResult], None] | None = None,
    ) -> GroupedWriter:
        """Group many small DataFrames: `with lake.writer("db.t") as w: w.write(df)` registers one batch per rotation.

        Args:
            table: The table, as `database.name`.
            rotate_after: Register what was written when it is this many seconds old.
            rotate_bytes: Register what was written when it is this large.
            format: `"parquet"` or `"json"`.
            instance: The instance that the rows belong to.
            on_rotate: Called with the result of every rotation.

        """
        from lakebed.pipeline.write.grouped import GroupedWriter

        return GroupedWriter(
            self._context,
            table,
            rotate_after=rotate_after,
            rotate_bytes=rotate_bytes,
            format=format,
            instance=instance,
            on_rotate=on_rotate,
        )

    def foreach_batch(
        self,
        table: str,
        app_id: str,
        *,
        mode: Mode = "append",
        instance: str = GLOBAL_INSTANCE,
        evolve: bool = False,
        checkpoint: str | None = None,
    ) -> Callable[[DataFrame, int], None]:
        """Return a function for `writeStream.foreachBatch(...)` that inserts each batch once, across restarts and replays.

        Args:
            table: The table, as `database.name`.
            app_id: A permanent name for this checkpoint. Batches of another checkpoint under the same name are refused.
            mode: As for `insert`.
            instance: The instance that the rows belong to.
            evolve: Add the columns that the table lacks.
            checkpoint: The query's `checkpointLocation`; needed over Spark Connect only.

        """
        from lakebed.pipeline.write.streaming import foreach_batch

        return foreach_batch(self._context, table, app_id, mode=mode, instance=instance, evolve=evolve, checkpoint=checkpoint)

    def writing(self, table: str) -> AbstractContextManager[write.Writing]:
        """Write files without Spark: `with lake.writing("db.t") as w:` write to `w.new_path()`, then call `w.publish()`.

        A block that raises, or does not publish, leaves no row and no file.

        Args:
            table: The table, as `database.name`.

        """
        found = lake_tables.require_table(self.registry, TableName.parse(table))
        return write.open_writing(self.registry, self.storage, found)

    def delete(
        self,
        table: str,
        where: str,
        *,
        dry_run: bool = False,
        instance: str | None = None,
        max_partitions: int = MAX_PARTITIONS,
        metadata_mode: MetadataMode | None = None,
        actor: str | None = None,
    ) -> DeleteResult:
        """Delete the rows for which a condition is true. Rows for which it is NULL stay.

        Args:
            table: The table, as `database.name`.
            where: A condition in Spark SQL.
            dry_run: Only count the rows.
            instance: The instance to delete from; default all of them.
            max_partitions: Refuse to touch more partitions than this.
            metadata_mode: As for `insert`.
            actor: Who is recorded in the audit log; default `user@host`.

        """
        from lakebed.pipeline.change.delete import delete

        return delete(
            self._context, table, where, dry_run=dry_run, instance=instance, max_partitions=max_partitions, metadata_mode=metadata_mode,
            actor=actor,
        )  # fmt: skip
