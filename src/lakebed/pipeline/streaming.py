"""Structured Streaming into a table, exactly once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.core.errors import InvalidValueError
from lakebed.core.names import GLOBAL_INSTANCE, TableName
from lakebed.pipeline.insert import insert, require_plain_table
from lakebed.registry.lake_tables import require_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakebed.pipeline.context import Context
    from lakebed.pipeline.insert import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWriter:
    """Writes one batch of a stream. Spark Connect pickles it and calls it beside the server, where the lake is opened again."""

    context: Context
    table: TableName
    app_id: str
    mode: Mode
    instance: str
    evolve: bool

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        batch = (self.app_id, batch_id)
        insert(self.context, self.table, df, mode=self.mode, instance=self.instance, evolve=self.evolve, batch=batch)


def foreach_batch(
    context: Context,
    name: str | TableName,
    app_id: str,
    *,
    mode: Mode = "append",
    instance: str = GLOBAL_INSTANCE,
    evolve: bool = False,
) -> BatchWriter:
    """For `writeStream.foreachBatch`: each batch of the query is registered once, across restarts and replays.

    `app_id` names one checkpoint for life. A query that starts over with a new checkpoint counts its batches from 0 again and
    needs another `app_id`, or its first batches would be taken for replays.
    """
    table = name if isinstance(name, TableName) else TableName.parse(name)
    if not app_id:
        message = f"{table}: the app_id is empty; name the query, one name per checkpoint"
        raise InvalidValueError(message)
    require_plain_table(require_table(context.registry, table))
    return BatchWriter(context=context, table=table, app_id=app_id, mode=mode, instance=instance, evolve=evolve)
