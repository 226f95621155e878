"""Structured Streaming into a table, exactly once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.core.errors import InvalidValueError
from lakebed.core.names import GLOBAL_INSTANCE, TableName
from lakebed.pipeline.rows.scan import is_remote_session
from lakebed.pipeline.spark.errors import spark_translated
from lakebed.pipeline.write.insert import insert, require_plain_table
from lakebed.registry.files.batches import Batch
from lakebed.registry.tables.lake_tables import require_table
from lakebed.registry.tables.names import resolve_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakebed.pipeline.context import Context
    from lakebed.pipeline.write.insert import Mode

_QUERY_ID = "sql.streaming.queryId"  # a local property that Spark sets in the thread that runs a batch


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWriter:
    """Writes one batch of a stream. Spark Connect pickles it and calls it on the server, where the lake is opened again."""

    context: Context
    table: TableName
    app_id: str
    mode: Mode
    instance: str
    evolve: bool
    checkpoint: str | None = None

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        query_id = find_query_id(df.sparkSession, self.checkpoint)
        batch = Batch(app_id=self.app_id, batch_id=batch_id, is_streamed=True, query_id=query_id)
        insert(self.context, self.table, df, mode=self.mode, instance=self.instance, evolve=self.evolve, batch=batch)


def foreach_batch(
    context: Context,
    name: str | TableName,
    app_id: str,
    *,
    mode: Mode = "append",
    instance: str = GLOBAL_INSTANCE,
    evolve: bool = False,
    checkpoint: str | None = None,
) -> BatchWriter:
    """For `writeStream.foreachBatch`: each batch of the query is registered once, across restarts and replays.

    `app_id` names one checkpoint permanently. A query that restarts with a new checkpoint counts its batches from 0 again and
    needs another `app_id`; under the old one its batches are refused. Spark Connect does not report which query runs: there
    `checkpoint`, the query's `checkpointLocation`, identifies it.
    """
    table = resolve_name(context.registry, name)
    if not app_id:
        message = f"{table}: the app_id is empty; name the query, one name per checkpoint"
        raise InvalidValueError(message)
    require_plain_table(require_table(context.registry, table))
    return BatchWriter(
        context=context, table=table, app_id=app_id, mode=mode, instance=instance, evolve=evolve, checkpoint=checkpoint
    )  # fmt: skip


def find_query_id(spark: SparkSession, checkpoint: str | None) -> str | None:
    """The id of a query, which lasts as long as its checkpoint; None if neither Spark nor the caller gives it."""
    if not is_remote_session(spark) and (found := spark.sparkContext.getLocalProperty(_QUERY_ID)) is not None:
        return found
    return None if checkpoint is None else _read_query_id(spark, f"{checkpoint.rstrip('/')}/metadata")


def _read_query_id(spark: SparkSession, path: str) -> str:
    with spark_translated(f"reading the id of the query from {path}"):
        lines = [row[0] for row in spark.read.text(path, wholetext=True).collect()]
    try:
        return str(json.loads(lines[0])["id"])
    except (ValueError, LookupError, TypeError) as exc:
        message = f"{path} holds no query id: give the query's checkpointLocation as `checkpoint`"
        raise InvalidValueError(message) from exc
