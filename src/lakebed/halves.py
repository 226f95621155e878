"""What needs both halves of a lake, registry and warehouse, and no Spark; heavy libraries are imported by the call that needs them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeGuard, Unpack

import pyarrow as pa

from lakebed import admin
from lakebed.core.errors import InvalidValueError
from lakebed.core.names import TableName
from lakebed.core.schema.ddl import parse_columns
from lakebed.core.schema.schema import Schema
from lakebed.core.times import Time, TimeRange
from lakebed.parquet.schema.arrow import from_arrow
from lakebed.registry.tables.lake_tables import require_table
from lakebed.staging import register, write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from datetime import timedelta

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from lakebed.adopt import Adoption, AdoptOptions
    from lakebed.check import CheckReport
    from lakebed.core.files import Needed
    from lakebed.legacy import ImportOptions, LegacyImport
    from lakebed.registry.partitions.publish import Published
    from lakebed.registry.registry import Registry
    from lakebed.repair import RepairOptions, RepairResult
    from lakebed.staging.register import RegisterOptions
    from lakebed.staging.write import Writing
    from lakebed.storage.protocol import Storage

    AnySchema: TypeAlias = Schema | pa.Schema | StructType | str


def schema_of(name: str, schema: AnySchema | None, like: DataFrame | None) -> Schema:
    """Of a new table: given, as Arrow's, Spark's or DDL text (ids in the order of the columns), or that of a DataFrame."""
    if (schema is None) == (like is None):
        message = f"{name}: give either a schema or `like`, a DataFrame"
        raise InvalidValueError(message)
    if like is not None:
        from lakebed.pipeline.write.insert import schema_like

        return schema_like(like)
    match schema:
        case Schema():
            return schema
        case str():
            return parse_columns(schema, table=name)
        case pa.Schema():
            return from_arrow(schema)
        case _ if _is_sparks(schema):
            from lakebed.pipeline.rows.types import from_spark

            return from_spark(schema)
        case _:
            message = f"{name}: {type(schema).__name__} is no schema: give DDL text such as 'id BIGINT, x STRING', a StructType, or an Arrow schema"
            raise InvalidValueError(message)


def _is_sparks(schema: object) -> TypeGuard[StructType]:
    """Told without importing Spark."""
    kind = type(schema)
    return kind.__module__.startswith("pyspark.") and kind.__name__ == "StructType"


def open_writing(registry: Registry, storage: Storage, name: str) -> AbstractContextManager[Writing]:
    """Without Spark: `with lake.writing("db.t") as w:` write files to `w.new_path()`, then `w.publish()`."""
    return write.open_writing(registry, storage, require_table(registry, TableName.parse(name)))


def register_files(
    registry: Registry,
    storage: Storage,
    name: str,
    paths: Sequence[str],
    *,
    insert_begin: Time | None = None,
    insert_end: Time | None = None,
    **options: Unpack[RegisterOptions],
) -> Published:
    """Publish Parquet files that others wrote into the warehouse, parsed in a disposable process."""
    wanted = TimeRange.maybe(insert_begin, insert_end)
    table = require_table(registry, TableName.parse(name))
    return register.register_files(registry, storage, table, paths, insert_range=wanted, **options)


def drop_table(
    registry: Registry, storage: Storage, name: str, *, dry_run: bool = True, **options: Unpack[admin.DropOptions]
) -> admin.Drop:  # fmt: skip
    """Hide the table from every reader and engine and retire all it holds; the name is free at once, its files go after their grace."""
    from lakebed.iceberg.upkeep.dropping import forget_table

    done = admin.drop_table(registry, name, dry_run=dry_run, **options)
    if not dry_run:
        forget_table(registry, storage, TableName.parse(done.table), done.table_id)
    return done


def adopt(registry: Registry, storage: Storage, directory: str, table: str, **options: Unpack[AdoptOptions]) -> Adoption:
    """Make a table of a directory of Parquet, or add its files to one; run again, it adds what is new. `dry_run=True` says how."""
    from lakebed.adopt import AdoptRequest
    from lakebed.adopt import adopt as take

    return take(registry, storage, table, directory, AdoptRequest(**options))


def import_legacy(registry: Registry, storage: Storage, url: str, **options: Unpack[ImportOptions]) -> LegacyImport:
    """Take over an older lake from its PostgreSQL registry; a dry run unless `dry_run=False`. Killed anywhere, a second run finishes."""
    from lakebed.legacy import ImportRequest
    from lakebed.legacy import import_legacy as take

    return take(registry, storage, url, ImportRequest(**options))


def repair(registry: Registry, storage: Storage, table: str | None = None, **options: Unpack[RepairOptions]) -> RepairResult:
    """Mend what `check` finds, as far as a program can; with `how` one Iceberg table. A preview unless `dry_run=False`."""
    from lakebed.repair import repair as mend

    return mend(registry, storage, table, **options)


def sweep_orphans(
    registry: Registry,
    storage: Storage,
    *,
    older_than: timedelta | str = admin.DEFAULT_AGE,
    dry_run: bool = True,
    progress: Callable[[int], None] | None = None,
) -> admin.Sweep:
    """Find files that no table, queue, open operation or snapshot knows; unless it is a preview, queue them for deletion."""
    needed = partial(_find_needed, registry, storage)
    return admin.sweep_orphans(registry, storage, find_needed=needed, older_than=older_than, dry_run=dry_run, progress=progress)


def delete_expired_temporary_files(
    registry: Registry,
    storage: Storage,
    *,
    batch_size: int = 1000,
    max_batches: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> admin.CleanUp:
    """Delete files that are past their grace and under no lease, batch by batch, beside any number of other processes."""
    needed = partial(_find_needed, registry, storage)
    return admin.delete_expired_temporary_files(
        registry, storage, find_needed=needed, batch_size=batch_size, max_batches=max_batches, progress=progress
    )


def _find_needed(registry: Registry, storage: Storage) -> Needed:
    from lakebed.iceberg.upkeep.reachable import find_needed  # only an orphan in the queue brings Iceberg's library

    return find_needed(registry, storage)


def check(registry: Registry, storage: Storage, *, deep: bool = False, pages: bool = False) -> CheckReport:
    """The independent checker: registry, files, footers and journal against each other."""
    from lakebed.check import check as compare

    return compare(registry, storage, deep=deep, pages=pages)
