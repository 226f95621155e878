"""Writes a DataFrame into the files of one operation: Spark writes them; the driver makes them durable, hashes them and reads footers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from lakebed.core.errors import InvalidValueError, NotIcebergReadyError, SchemaRefusedError, SessionRefusedError, StorageUnavailableError
from lakebed.core.names import GLOBAL_INSTANCE
from lakebed.parquet.capture import CapturedFile, capture_written
from lakebed.parquet.footer.field_ids import give_ids
from lakebed.parquet.inspect import is_in_old_calendar
from lakebed.parquet.rewrite.task_writer import WRITTEN, TaskWriter
from lakebed.parquet.schema.arrow import to_arrow_nullable
from lakebed.pipeline.rows.constraints import require_times
from lakebed.pipeline.rows.partition_key import KEY, KeyPlan, gather_by_key
from lakebed.pipeline.rows.projection import is_in_shape, select_physical
from lakebed.pipeline.rows.scan import is_remote_session
from lakebed.pipeline.rows.types import needs_own_writer, quote, select_stored
from lakebed.pipeline.spark.errors import spark_translated
from lakebed.pipeline.spark.interrupts import interruptible
from lakebed.pipeline.spark.shipping import ship
from lakebed.registry.partitions.publish import publish_partition
from lakebed.staging.partition import partition_of, written_statistics_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from pyspark.sql import DataFrame, SparkSession

    from lakebed.core.names import TableName
    from lakebed.core.times import TimeRange
    from lakebed.parquet.inspect import StatisticsSpec
    from lakebed.pipeline.context import Context
    from lakebed.registry.partitions.publish import Published, RetireAlso
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.transaction import Transaction
    from lakebed.staging.write import Staging
    from lakebed.storage.protocol import FileFacts, Storage

_runs_here: WeakKeyDictionary[SparkSession, bool] = WeakKeyDictionary()
_WORKERS = 8
_LITTLE_BYTES = 1 << 20
_OPTIONS = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}  # no _SUCCESS: it would be an unregistered file
# no checksum file beside each file: the registry has a better one. A cached file system would be the session's
_LOCAL_OPTIONS = {"fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem", "fs.file.impl.disable.cache": "true"}
# otherwise times are written as INT96 or in a calendar that no other engine uses
_NEEDED = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}


def write_frame(context: Context, work: Staging, table: LakeTable, df: DataFrame) -> list[CapturedFile]:
    """Write the rows of `df` as files of the operation: durable, hashed, footers and statistics read, partition paths set.

    Columns are matched by name. Rows that do not fit the table are refused, by their schema or at the first row that breaks a rule.
    Without rows there is no file.
    """

    def arranged(key: KeyPlan) -> _ArrangedRows:
        if _can_name_columns(context, df.sparkSession) and not needs_own_writer(table.schema) and is_in_shape(df, table.schema):
            return _ArrangedRows(arrange(df, table, key), {f.physical_name: f.field_id for f in table.schema.fields})
        return _ArrangedRows(prepare(df, table, key))

    return _write(context, work, table, df.sparkSession, arranged)


def write_physical(context: Context, work: Staging, table: LakeTable, written: DataFrame) -> list[CapturedFile]:
    """`write_frame` for rows that already have physical names and were checked: those of the table's own files."""
    return _write(
        context, work, table, written.sparkSession, lambda key: _ArrangedRows(arrange(select_stored(written, table.schema), table, key))
    )


@dataclass(frozen=True, slots=True)
class _ArrangedRows:
    """Rows as they go into files; `ids` are the field ids that the files get when they are written."""

    frame: DataFrame
    ids: Mapping[str, int] = field(default_factory=dict)


def _write(
    context: Context, work: Staging, table: LakeTable, spark: SparkSession, arranged: Callable[[KeyPlan], _ArrangedRows]
) -> list[CapturedFile]:
    key = key_of(table)
    with spark_translated(f"writing rows into {table.name}"), interruptible(), work.stage("spark"):
        prepared = arranged(key)
        committed: frozenset[str] | None = None
        if needs_own_writer(table.schema):
            committed = _write_own(context, work, table, prepared.frame, key)
        else:
            _write_native(work, table, prepared.frame, key)
    try:
        return _finalize_files(context.storage, work, table, key, committed, prepared.ids)
    except NotIcebergReadyError as exc:
        require_settings(spark)
        message = f"{table.name} cannot take these rows: {'; '.join(exc.problems)}"
        raise SchemaRefusedError(message) from exc


def prepare(df: DataFrame, table: LakeTable, key: KeyPlan, *, has_statistics: bool = True) -> DataFrame:
    """The rows as they go into files: checked, under physical names with ids, sorted, with their key if any."""
    return arrange(select_physical(df, table.schema, name=str(table.name), has_statistics=has_statistics), table, key)


def arrange(written: DataFrame, table: LakeTable, key: KeyPlan) -> DataFrame:
    sort_by = [quote(column) for column in table.sort_columns]
    if not key.transforms:
        return written.sortWithinPartitions(*sort_by) if sort_by else written
    keyed = gather_by_key(key.add_to(written))
    # Spark's own writer sorts by the key itself, and faster
    return keyed.sortWithinPartitions(KEY, *sort_by) if sort_by or needs_own_writer(table.schema) else keyed


def publish_files(  # noqa: PLR0913 - one call for the whole transaction
    context: Context,
    work: Staging,
    table: LakeTable,
    captured: Sequence[CapturedFile],
    *,
    instance: str = GLOBAL_INSTANCE,
    insert_range: TimeRange | None = None,
    replacing: AbstractSet[int] = frozenset(),
    retire_also: RetireAlso | None = None,
    source_data_hash: str | None = None,
    lookup_hash: str | None = None,
    inputs: Sequence[TableName] = (),
    guard: Callable[[Transaction], None] | None = None,
) -> Published:
    """Publish the files as one partition, in the transaction that also registers the operation; without files it is empty."""
    with work.stage("registry"):
        require_event_times(table, captured)
        partition = partition_of(
            table,
            captured,
            instance=instance,
            insert_range=insert_range,
            source_data_hash=source_data_hash,
            lookup_hash=lookup_hash,
            rows_are_ours=True,
        )
        work.published = publish_partition(
            context.registry, partition, work.operation, replacing=replacing, retire_also=retire_also, inputs=inputs, guard=guard
        )  # fmt: skip
    return work.published


def key_of(table: LakeTable) -> KeyPlan:
    return KeyPlan(transforms=table.transforms)


def require_event_times(table: LakeTable, captured: Sequence[CapturedFile]) -> None:
    if not captured or table.row.event_time_field is None or any(one.event_range is not None for one in captured):
        return
    name = table.schema.by_id[table.row.event_time_field].name
    message = f"{table.name}: the event time {name} is NULL in every row, so no reader could find them: fill it before writing"
    raise InvalidValueError(message)


def require_settings(spark: SparkSession) -> None:
    """Called when a file is wrong: a check before every write would cost more than reading its footer."""
    with spark_translated("checking the Spark session"):
        wrong = [f"{key}={wanted}" for key, wanted in _NEEDED.items() if (spark.conf.get(key) or "").upper() != wanted]
    if wrong:
        message = f"this Spark session would write times that other engines misread: set {', '.join(wrong)} on it"
        raise SessionRefusedError(message)


def spark_location(path: str) -> str:
    """A canonical path as a URI of Spark's file systems."""
    return f"file://{path}" if path.startswith("/") else "s3a" + path.removeprefix("s3")


def _write_native(work: Staging, table: LakeTable, df: DataFrame, key: KeyPlan) -> None:
    """Spark's committer moves only the files of committed attempts here."""
    place = spark_location(work.directory)
    options = _OPTIONS | _LOCAL_OPTIONS if place.startswith("file:") else _OPTIONS
    writer = df.write.options(compression=table.metadata.compression, **options)
    if key.transforms:
        writer = writer.partitionBy(KEY)
    writer.parquet(place)


def _write_own(context: Context, work: Staging, table: LakeTable, df: DataFrame, key: KeyPlan) -> frozenset[str]:
    """The files of committed attempts: each task's result reaches the driver once."""
    if context.storage.paths.warehouse.is_local:
        Path(work.directory).mkdir(parents=True)
    task = TaskWriter(
        work.directory,
        to_arrow_nullable(table.schema),
        key=KEY if key.transforms else None,
        compression=table.metadata.compression,
    )
    rows = df.mapInArrow(ship(task), WRITTEN).collect()
    return frozenset(context.storage.canonical(row["path"]) for row in rows)


def _finalize_files(
    storage: Storage, work: Staging, table: LakeTable, key: KeyPlan, committed: frozenset[str] | None, ids: Mapping[str, int]
) -> list[CapturedFile]:
    with work.stage("sync"):
        files, leftovers = _sort_out(storage, work.directory, committed)
        _delete(storage, leftovers)
        for file in files if ids else ():  # sequential: these are short calls, for which threads do not pay
            give_ids(storage, file.path, ids)
    examine = partial(_capture, storage, table, written_statistics_spec(table), key)
    with work.stage("capture"):
        captured = _examine_and_sync(storage, work.directory, files, examine)
    _delete(storage, [file.path for file, found in zip(files, captured, strict=True) if found is None])
    return [found for found in captured if found is not None]


def _can_name_columns(context: Context, spark: SparkSession) -> bool:
    """Whether this process may change the files: those of remote executors may belong to another user."""
    if spark not in _runs_here:
        _runs_here[spark] = not is_remote_session(spark) and (spark.conf.get("spark.master", "") or "").startswith("local")
    return _runs_here[spark] and context.storage.paths.warehouse.is_local


def _examine_and_sync(
    storage: Storage, directory: str, files: Sequence[FileFacts], examine: Callable[[str], CapturedFile | None]
) -> list[CapturedFile | None]:
    """Flush and read at the same time, because the disk is slower than reading back new files; for little data without threads."""
    if not files:
        return []
    is_little = sum(file.size_bytes for file in files) <= _LITTLE_BYTES
    with ThreadPoolExecutor(1 if is_little else min(_WORKERS, 1 + len(files)), thread_name_prefix="lakebed-capture") as pool:
        synced = pool.submit(storage.sync_tree, directory)
        captured = list((map if is_little else pool.map)(examine, (file.path for file in files)))
        synced.result()
    return captured


def _sort_out(storage: Storage, directory: str, committed: frozenset[str] | None) -> tuple[list[FileFacts], list[str]]:
    """The data files and the others: checksums of Hadoop's local file system, files of failed attempts."""
    listed = sorted(storage.list_files(directory), key=attrgetter("path"))
    is_data = committed.__contains__ if committed is not None else _is_spark_file
    return [facts for facts in listed if is_data(facts.path)], [facts.path for facts in listed if not is_data(facts.path)]


def _is_spark_file(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.startswith("part-") and name.endswith(".parquet") and "/_temporary/" not in path


def _delete(storage: Storage, paths: Sequence[str]) -> None:
    """A file that cannot be deleted fails the write: it would remain unknown to the registry."""
    if not paths:
        return
    failed = [outcome for outcome in storage.delete(paths) if not outcome.gone]
    if failed:
        message = f"{len(failed)} leftover file(s) of the write cannot be deleted, first {failed[0].path!a}: {failed[0].reason}"
        raise StorageUnavailableError(message)


def _capture(storage: Storage, table: LakeTable, spec: StatisticsSpec, key: KeyPlan, path: str) -> CapturedFile | None:
    partition_path = key.partition_path(path.split("/")[-2]) if key.transforms else ""
    found = capture_written(storage, path, table.schema, spec=spec, partition_path=partition_path)
    if found is not None:
        require_times(str(table.name), table.schema, found.file.columns)
        if found.file.footer is not None and is_in_old_calendar(found.file.footer.tail):
            raise NotIcebergReadyError(path, problems=("its times use Spark's legacy calendar",))
    return found
