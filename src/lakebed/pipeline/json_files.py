"""JSON files, one object per line: written by Spark or registered as they lie, tracked and readable like any other.

They have no footer and no column statistics, so reading never prunes them, and they enter no Iceberg snapshot before they
have become Parquet. Keys are the physical names of the columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from lakebed.core.errors import InvalidValueError, UnreadableFileError
from lakebed.core.files import ChecksumKind, FileType, NewFile
from lakebed.core.names import GLOBAL_INSTANCE, TableName
from lakebed.core.types import Primitive
from lakebed.parquet.capture import CapturedFile
from lakebed.pipeline.columns import quote, to_spark_nullable
from lakebed.pipeline.faults import spark_translated
from lakebed.pipeline.insert import require_plain_table
from lakebed.pipeline.inserted import InsertResult, result_of
from lakebed.pipeline.keys import micros_sql
from lakebed.pipeline.staging import staging
from lakebed.pipeline.write import key_of, new_partition, prepare, publish_files, spark_location
from lakebed.registry.lake_tables import require_table
from lakebed.registry.operations import Operation
from lakebed.registry.pressure import wait_for_room
from lakebed.registry.publish import publish_partition
from lakebed.staging import new_op_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from lakebed.pipeline.context import Context
    from lakebed.pipeline.staging import Staging
    from lakebed.registry.lake_tables import LakeTable
    from lakebed.registry.publish import Published

_WRITTEN = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",  # the default keeps milliseconds only
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
_READ = {"mode": "FAILFAST", "timeZone": "UTC", "recursiveFileLookup": "true"}
_DAY_US = 86_400_000_000


def insert_json(context: Context, name: str | TableName, df: DataFrame, *, instance: str = GLOBAL_INSTANCE) -> InsertResult:
    """`insert` in append mode, as JSON files. The table has no partition transforms: a JSON file could not be split by them later."""
    table = _require_table(context, name)
    with staging(context, table, mode="append") as work:
        with spark_translated(f"writing JSON into {table.name}"), work.stage("spark"):
            prepare(df, table, key_of(table), has_statistics=False).write.options(**_WRITTEN).json(spark_location(work.directory))
        with work.stage("capture"):
            captured = _take(context, work, table)
        published = publish_files(context, work, table, captured, instance=instance)
    return result_of(context, work, table.name, published, captured)


def register_json_files(
    context: Context, name: str | TableName, paths: Sequence[str], *, instance: str = GLOBAL_INSTANCE, batch: tuple[str, int] | None = None
) -> Published:
    """Publish JSON files that others wrote into the warehouse; one line that does not fit the table and nothing is registered."""
    table = _require_table(context, name)
    wait_for_room(context.registry, table.table_id)
    found = [context.storage.stat(path).path for path in paths]
    captured = _capture(context, table, found)
    if missing := set(found) - {c.file.path for c in captured}:
        raise UnreadableFileError(min(missing), reason="it holds no row")
    app_id, batch_id = batch or (None, None)
    operation = Operation(op_id=new_op_id(context.registry), kind="register", app_id=app_id, batch_id=batch_id)
    return publish_partition(context.registry, new_partition(table, captured, instance=instance), operation)


def _require_table(context: Context, name: str | TableName) -> LakeTable:
    table = require_table(context.registry, name if isinstance(name, TableName) else TableName.parse(name))
    require_plain_table(table)
    if key_of(table).transforms:
        message = f"{table.name} is partitioned: JSON files belong into a table without partition transforms; insert the rows instead"
        raise InvalidValueError(message)
    return table


def _take(context: Context, work: Staging, table: LakeTable) -> list[CapturedFile]:
    """Files without rows and checksums of Hadoop's local file system go; the rest is durable afterwards."""
    storage = context.storage
    listed = [facts.path for facts in storage.list_files(work.directory)]
    captured = _capture(context, table, [path for path in listed if path.endswith(".json") and "/_temporary/" not in path])
    storage.delete(sorted(set(listed) - {c.file.path for c in captured}))
    if captured:
        storage.sync_tree(work.directory)
    return captured


def _capture(context: Context, table: LakeTable, paths: Sequence[str]) -> list[CapturedFile]:
    """Spark reads every field of every line, as a query will: what it cannot read is refused here."""
    if not paths:
        return []
    locations = [spark_location(path) for path in paths]
    with spark_translated(f"reading JSON files for {table.name}"):
        lines = context.spark.read.schema(to_spark_nullable(table.schema, physical=True)).options(**_READ).json(locations)
        every = F.max(F.length(F.to_json(F.struct(*(F.col(quote(name)) for name in lines.columns)))))
        low, high = _event_columns(table)
        rows = lines.groupBy(F.col("_metadata.file_path").alias("p")).agg(F.count("*"), F.min(low), F.max(high), every).collect()
    return [_captured(context, context.storage.canonical(row[0]), rows=row[1], low=row[2], high=row[3]) for row in rows]


def _event_columns(table: LakeTable) -> tuple[Column, Column]:
    if table.row.event_time_field is None:
        return F.lit(None), F.lit(None)
    field = table.schema.by_id[table.row.event_time_field]
    column = quote(field.physical_name)
    kind = field.type
    assert isinstance(kind, Primitive)  # noqa: S101 - `create_table` takes no other event time
    micros = F.expr(f"unix_date({column}) * {_DAY_US}L" if kind.name == "date" else micros_sql(column, kind))
    return micros, micros


def _captured(context: Context, path: str, *, rows: int, low: int | None, high: int | None) -> CapturedFile:
    facts = context.storage.stat(path)
    file = NewFile(
        path=path,
        size_bytes=facts.size_bytes,
        row_count=rows,
        checksum=context.storage.sha256(path),
        checksum_kind=ChecksumKind.WHOLE_FILE,
        file_type=FileType.JSON,
        is_compressed=False,
    )
    return CapturedFile(file=file, event_range=None if low is None or high is None else (low, high))
