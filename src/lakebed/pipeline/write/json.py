"""JSON files, one object per line: written by Spark or registered in place, tracked and readable like others.

They have no footer and no column statistics, so reading never prunes them, and they enter no Iceberg snapshot before they
are converted to Parquet. Keys are the physical names of the columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the conventional name

from lakebed.core.errors import InvalidValueError, UnreadableFileError
from lakebed.core.files import ChecksumKind, FileType, NewFile
from lakebed.core.names import GLOBAL_INSTANCE, TableName
from lakebed.core.schema.types import Primitive
from lakebed.core.times import DAY_US
from lakebed.parquet.capture import CapturedFile
from lakebed.pipeline.results import InsertResult, result_of
from lakebed.pipeline.rows.partition_key import KEY, micros_sql
from lakebed.pipeline.rows.scan import FILE
from lakebed.pipeline.rows.types import quote, to_spark_nullable
from lakebed.pipeline.spark.errors import spark_translated
from lakebed.pipeline.write.files import key_of, prepare, publish_files, require_event_times, spark_location
from lakebed.pipeline.write.insert import require_plain_table
from lakebed.registry.files.operations import Operation
from lakebed.registry.partitions.publish import publish_partition
from lakebed.registry.snapshots.pressure import wait_for_room
from lakebed.registry.tables.lake_tables import require_table
from lakebed.registry.tables.names import resolve_name
from lakebed.staging.partition import partition_of
from lakebed.staging.write import new_op_id, staging

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, Row

    from lakebed.pipeline.context import Context
    from lakebed.registry.partitions.publish import Published
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.staging.write import Staging

_WRITTEN = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",  # the default keeps only milliseconds
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
_READ = {"mode": "FAILFAST", "timeZone": "UTC", "recursiveFileLookup": "true"}


def insert_json(context: Context, name: str | TableName, df: DataFrame, *, instance: str = GLOBAL_INSTANCE) -> InsertResult:
    """`insert` in append mode, as JSON files, each of one partition path."""
    table = _require_table(context, name)
    with staging(context.registry, context.storage, table, mode="append", ahead=True) as work:
        captured = write_json(context, work, table, df)
        published = publish_files(context, work, table, captured, instance=instance)
    return result_of(context, work, table.name, published, captured)


def write_json(context: Context, work: Staging, table: LakeTable, df: DataFrame) -> list[CapturedFile]:
    """`write_frame` for JSON files: durable, hashed, read back once, partition paths set. Without rows there is no file."""
    key = key_of(table)
    with spark_translated(f"writing JSON into {table.name}"), work.stage("spark"):
        writer = prepare(df, table, key, has_statistics=False).write.options(**_WRITTEN)
        (writer.partitionBy(KEY) if key.transforms else writer).json(spark_location(work.directory))
    with work.stage("capture"):
        return _finalize_files(context, work, table)


def register_json_files(
    context: Context, name: str | TableName, paths: Sequence[str], *, instance: str = GLOBAL_INSTANCE, batch: tuple[str, int] | None = None
) -> Published:
    """Publish JSON files that other programs wrote into the warehouse. If one line does not fit the table, nothing is registered.

    Each file must hold rows of one partition only.
    """
    table = _require_table(context, name)
    wait_for_room(context.registry, table.table_id)
    found = [context.storage.stat(path).path for path in paths]
    captured = _capture(context, table, found)
    if missing := set(found) - {c.file.path for c in captured}:
        raise UnreadableFileError(min(missing), reason="it holds no row")
    app_id, batch_id = batch or (None, None)
    operation = Operation(op_id=new_op_id(context.registry), kind="register", app_id=app_id, batch_id=batch_id)
    require_event_times(table, captured)
    partition = partition_of(table, captured, instance=instance, rows_are_ours=True)
    return publish_partition(context.registry, partition, operation)


def _require_table(context: Context, name: str | TableName) -> LakeTable:
    table = require_table(context.registry, resolve_name(context.registry, name))
    require_plain_table(table)
    return table


def _finalize_files(context: Context, work: Staging, table: LakeTable) -> list[CapturedFile]:
    """Delete files without rows and checksums of Hadoop's local file system; make the others durable."""
    storage = context.storage
    listed = [facts.path for facts in storage.list_files(work.directory)]
    captured = _capture(context, table, [path for path in listed if path.endswith(".json") and "/_temporary/" not in path])
    storage.delete(sorted(set(listed) - {c.file.path for c in captured}))
    if captured:
        storage.sync_tree(work.directory)
    return captured


def _capture(context: Context, table: LakeTable, paths: Sequence[str]) -> list[CapturedFile]:
    """Spark reads every field of every line, as a query does; unreadable ones are refused here."""
    if not paths:
        return []
    locations, key = [spark_location(path) for path in paths], key_of(table)
    with spark_translated(f"reading JSON files for {table.name}"):
        lines = context.spark.read.schema(to_spark_nullable(table.schema, physical=True)).options(**_READ).json(locations)
        every = F.max(F.length(F.to_json(F.struct(*(F.col(quote(name)) for name in lines.columns)))))
        low, high = _event_columns(table)
        named = lines.select("*", F.col("_metadata.file_path").alias(FILE))
        keyed = key.add_to(named) if key.transforms else named.withColumn(KEY, F.lit(""))
        rows = keyed.groupBy(FILE).agg(F.count("*"), F.min(low), F.max(high), F.min(KEY), F.max(KEY), every).collect()
    return [_captured(context, table, row) for row in rows]


def _event_columns(table: LakeTable) -> tuple[Column, Column]:
    if table.row.event_time_field is None:
        return F.lit(None), F.lit(None)
    field = table.schema.by_id[table.row.event_time_field]
    column = quote(field.physical_name)
    kind = field.type
    assert isinstance(kind, Primitive)  # noqa: S101 - `create_table` accepts no other event time
    micros = F.expr(f"unix_date({column}) * {DAY_US}L" if kind.name == "date" else micros_sql(column, kind))
    return micros, micros


def _captured(context: Context, table: LakeTable, row: Row) -> CapturedFile:
    path, rows, low, high, first_key, last_key, _ = row
    path = context.storage.canonical(path)
    facts = context.storage.stat(path)
    file = NewFile(
        path=path,
        size_bytes=facts.size_bytes,
        row_count=rows,
        checksum=context.storage.sha256(path),
        checksum_kind=ChecksumKind.WHOLE_FILE,
        file_type=FileType.JSON,
        partition_path=_partition_path(table, path, first_key, last_key),
        is_compressed=False,
    )
    return CapturedFile(file=file, event_range=None if low is None or high is None else (low, high))


def _partition_path(table: LakeTable, path: str, first_key: str, last_key: str) -> str:
    key = key_of(table)
    if first_key != last_key:
        names = ", ".join(transform.name for transform, _ in key.transforms)
        message = f"{path} holds rows of several partitions of {table.name} ({names}): write one file per partition, or insert the rows"
        raise InvalidValueError(message)
    return key.partition_path(f"{KEY}={first_key}") if key.transforms else ""
