"""`insert`: publishes the rows of a DataFrame as one partition of a plain table, or changes nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal, get_args

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from lakebed.core.errors import InvalidValueError, OperationConflictError
from lakebed.core.names import GLOBAL_INSTANCE, TableName, require_instance
from lakebed.core.schema.evolution import evolve as widen
from lakebed.core.schema.schema import Schema
from lakebed.pipeline.context import MetadataMode
from lakebed.pipeline.results import InsertResult, result_of
from lakebed.pipeline.rows.projection import select_physical
from lakebed.pipeline.rows.types import from_spark
from lakebed.pipeline.spark.errors import spark_translated
from lakebed.pipeline.spark.interrupts import interruptible
from lakebed.pipeline.write.files import publish_files, write_frame
from lakebed.registry.backends.constraints import ConstraintRefusedError
from lakebed.registry.files.batches import Batch, adopt_query, find_registered
from lakebed.registry.journal.changes import last_journal_number
from lakebed.registry.partitions.publish import Published
from lakebed.registry.partitions.replace import list_visible_partitions, retire_in_paths
from lakebed.registry.tables.lake_tables import require_table
from lakebed.registry.tables.names import resolve_name
from lakebed.registry.tables.versions import list_versions, plan_evolution
from lakebed.staging.write import staging

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakebed.parquet.capture import CapturedFile
    from lakebed.pipeline.context import Context
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.transaction import Transaction

Mode = Literal["append", "overwrite", "overwrite_partitions"]

_ROWS = "SELECT COALESCE(sum(row_count), 0) FROM table_files WHERE id >= :first AND id < :beyond"


def insert(
    context: Context,
    name: str | TableName,
    df: DataFrame,
    *,
    mode: Mode = "append",
    instance: str = GLOBAL_INSTANCE,
    evolve: bool = False,
    metadata_mode: MetadataMode | None = None,
    batch: tuple[str, int] | Batch | None = None,
) -> InsertResult:
    """Write `df` and publish it in one registry transaction; after any failure rows, files and counters are unchanged.

    `append` adds a partition. `overwrite` replaces the visible partitions of the instance, and `overwrite_partitions` the files
    of the partition paths that occur in `df`; both replace the state at the start of the insert, and conflict if it has changed.
    `evolve` adds the columns that the table lacks, in the same transaction. `batch` = (app_id, batch_id) is inserted once: repeated,
    it runs no Spark job and gets the first answer. `metadata_mode` "async" returns when the registry has the rows, "sync" when a
    snapshot has them too; the connection's mode unless given.
    """
    began = time.perf_counter()
    table = require_table(context.registry, resolve_name(context.registry, name))
    wanted, batch = metadata_mode or context.metadata_mode, Batch.of(batch)
    _require_arguments(table, df, mode=mode, metadata_mode=wanted, instance=instance, batch=batch)
    done = find_batch(context, table, batch)
    if done is None:
        done = _insert(context, table, df, mode=mode, instance=instance, evolve=evolve, batch=batch, began=began)
    return done.wait() if wanted == "sync" else done


def _insert(
    context: Context, table: LakeTable, df: DataFrame, *, mode: Mode, instance: str, evolve: bool, batch: Batch | None, began: float
) -> InsertResult:
    table, guard = _evolved(context.registry, table, df) if evolve else (table, None)
    replacing = list_visible_partitions(context.registry, table.table_id, instance=instance) if mode == "overwrite" else frozenset()
    since = last_journal_number(context.registry, table.table_id) if mode == "overwrite_partitions" else 0
    try:
        with staging(context.registry, context.storage, table, mode=mode, batch=batch, ahead=True, began=began) as work:
            captured = write_frame(context, work, table, df)
            retire_also = retire_in_paths(_paths(captured), since=since, instance=instance) if mode == "overwrite_partitions" else None
            published = publish_files(
                context, work, table, captured, instance=instance, replacing=replacing, retire_also=retire_also, guard=guard
            )  # fmt: skip
    except ConstraintRefusedError as exc:
        return _first_answer(context, table, batch, exc)
    return result_of(context, work, table.name, published, captured)


def try_insert(context: Context, name: str, df: DataFrame, *, mode: Mode, instance: str, evolve: bool) -> int:
    """Read and check every row as `insert` would, and count them; nothing is written.

    What only finished files show, such as an event time that is NULL in every row, is not found here.
    """
    table = require_table(context.registry, resolve_name(context.registry, name))
    _require_arguments(table, df, mode=mode, metadata_mode=context.metadata_mode, instance=instance, batch=None)
    if evolve:
        table, _ = _evolved(context.registry, table, df)
    counted = Observation()
    with spark_translated(f"reading rows for {table.name}"), interruptible():
        rows = select_physical(df, table.schema, name=str(table.name), has_statistics=False).observe(counted, F.count("*").alias("rows"))
        rows.write.format("noop").mode("overwrite").save()
    return int(counted.get.get("rows", 0))


def schema_like(df: DataFrame) -> Schema:
    """The schema of a new table for rows like these."""
    _require_frame(df)
    with spark_translated("reading the columns of the DataFrame"):
        return from_spark(df.schema)


def find_batch(context: Context, table: LakeTable, batch: Batch | None) -> InsertResult | None:
    """The first answer to a batch that is already registered; a batch of another checkpoint is refused."""
    if batch is None:
        return None
    found = find_registered(context.registry, table.name, table.table_id, batch)
    if found is None:
        return None
    if found.query_id is None and batch.query_id is not None:
        context.registry.transact(lambda tx: adopt_query(tx, found, batch), tables=[])
    published = Published.from_json(found.result)
    files = published.file_ids
    ((count,),) = context.registry.query(_ROWS, {"first": files.start, "beyond": files.stop})
    return InsertResult(
        op_id=found.op_id, table=table.name, partition_id=published.partition_id, files=published.file_count, rows=int(count),
        group=published.group, journal_number=published.journal_number, is_replay=True, table_id=table.table_id, file_ids=files,
        commits=context.commits,
    )  # fmt: skip


def _first_answer(context: Context, table: LakeTable, batch: Batch | None, cause: ConstraintRefusedError) -> InsertResult:
    """Two attempts of one batch run at once: the registry accepts one of them."""
    if batch is None:
        raise cause
    if (done := find_batch(context, table, batch)) is not None:
        return done
    raise OperationConflictError(
        f"of batch {batch.batch_id} of {batch.app_id}", wanted="free", found="being written by another process"
    ) from cause


def _paths(captured: Sequence[CapturedFile]) -> set[str]:
    return {c.file.partition_path for c in captured}


def _evolved(registry: Registry, table: LakeTable, df: DataFrame) -> tuple[LakeTable, Callable[[Transaction], None] | None]:
    """The table as of publishing, and the change of it in the publishing transaction."""
    with registry.read() as reader:
        versions = list_versions(reader, table.table_id)
    rows = schema_like(df)
    grown = widen(str(table.name), table.schema, rows, history=[Schema.from_json(v.schema) for v in versions])
    if grown == table.schema:
        return table, None
    return plan_evolution(table, grown, versions=versions)


def _require_arguments(
    table: LakeTable, df: DataFrame, *, mode: str, metadata_mode: str, instance: str, batch: Batch | None
) -> None:  # fmt: skip
    _require_frame(df)
    require_instance(instance)
    for what, value, known in (("mode", mode, get_args(Mode)), ("metadata_mode", metadata_mode, get_args(MetadataMode))):
        if value not in known:
            message = f"{what} {value!a} is not known: use one of {', '.join(known)}"
            raise InvalidValueError(message)
    if batch is not None and not batch.app_id:
        message = f"batch {batch.batch_id} has no app_id: name the application that counts its batches"
        raise InvalidValueError(message)
    require_plain_table(table)
    if mode == "overwrite_partitions" and not table.partition_by:
        message = f"{table.name} has no partition transforms: use mode='overwrite' to replace its rows"
        raise InvalidValueError(message)


def require_plain_table(table: LakeTable) -> None:
    if table.row.kind != "table":
        message = f"{table.name} is a view set: its rows come from its definition; materialize it, or insert into its source"
        raise InvalidValueError(message)


def _require_frame(df: DataFrame) -> None:
    if not isinstance(df, DataFrame):
        message = f"a {type(df).__name__} cannot be written: give a Spark DataFrame (`lake.spark.createDataFrame(...)`)"
        raise InvalidValueError(message)
