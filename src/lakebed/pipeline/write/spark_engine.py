"""Spark as an engine of compaction and merging, for files that are too large for one process, not Parquet, or must be combined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.compaction import Rewriting
from lakebed.core.tables.compaction import TARGET_BYTES
from lakebed.parquet.rewrite.reader import RowSum
from lakebed.parquet.rewrite.row_hash import RowSummer
from lakebed.pipeline.read.combine import combine_partials
from lakebed.pipeline.rows.scan import frame_of, stored_frame
from lakebed.pipeline.spark.errors import spark_translated
from lakebed.pipeline.spark.shipping import ship
from lakebed.pipeline.write.files import key_of, write_frame, write_physical
from lakebed.registry.queries.plans import list_json
from lakebed.staging.write import Staging

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from lakebed.compaction import RewriteRequest
    from lakebed.parquet.capture import CapturedFile
    from lakebed.pipeline.context import Context
    from lakebed.registry.tables.lake_tables import LakeTable

_ONE_TASK_BYTES = 64 * 1024 * 1024
_SHUFFLED_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Spark jobs on the session of the lake; a cancellation does not interrupt a running job, whose files are swept."""

    context: Context
    name: str = "spark"

    def rewrite(self, request: RewriteRequest, *, cancelled: Callable[[], bool]) -> Rewriting | None:
        if cancelled():
            return None
        run, work = request.run, Staging(request.run.table, request.operation, request.directory)
        paths = [file.path for file in run.rewriting]
        if run.combines:
            combined = combine_partials(self.context, run.table, frame_of(self.context, run.table.schema, paths))
            packed = into_files(combined, run.table, size_bytes=run.rewriting_bytes, target_bytes=run.target_bytes)
            return Rewriting(files=tuple(write_frame(self.context, work, run.table, packed)))
        has_json = any(file.file_type != "parquet" for file in run.rewriting)
        before = sum_frame(frame_of(self.context, run.table.schema, paths), run.table) if has_json else None
        written = merge_files(self.context, work, run.table, paths, size_bytes=run.rewriting_bytes, target_bytes=run.target_bytes)
        return Rewriting(files=tuple(written), before=before)


def sum_frame(frame: DataFrame, table: LakeTable) -> RowSum:
    """Row count and sum of files that only Spark can read."""
    summer = RowSummer([field.field_id for field in table.schema.fields])
    with spark_translated(f"summing up rows of {table.name}"):
        found = frame.mapInArrow(ship(summer), summer.answer).collect()
    return sum((RowSum(rows=row["rows"], hash=int(row["hash"])) for row in found), RowSum())


def merge_files(
    context: Context, work: Staging, table: LakeTable, paths: Sequence[str], *, size_bytes: int = 0, target_bytes: int = TARGET_BYTES
) -> list[CapturedFile]:
    """Write the same rows into fewer files of about `target_bytes`, per partition path; `size_bytes` is the size of the old files.

    The files were written under this very version of the table.
    """
    if list_json(context.registry, paths):
        return write_frame(
            context,
            work,
            table,
            into_files(frame_of(context, table.schema, paths), table, size_bytes=size_bytes, target_bytes=target_bytes),
        )
    stored = stored_frame(context, table.schema, paths)
    return write_physical(context, work, table, into_files(stored, table, size_bytes=size_bytes, target_bytes=target_bytes))


def into_files(frame: DataFrame, table: LakeTable, *, size_bytes: int, target_bytes: int = TARGET_BYTES) -> DataFrame:
    """Files of about `target_bytes`, if the writer does not distribute rows by partition path itself.

    Little data in many files is read by all cores and shuffled into one; for much data a shuffle does not pay.
    """
    if key_of(table).transforms:
        return frame
    count = -(-size_bytes // target_bytes) or 1
    return frame.repartition(count) if size_bytes <= _SHUFFLED_BYTES else frame.coalesce(count)


def pack(frame: DataFrame, table: LakeTable, *, size_bytes: int) -> DataFrame:
    """About as few files as the rows need if made from `size_bytes`: one task per source file would write one file each."""
    if key_of(table).transforms:
        return frame
    return frame.coalesce(1) if size_bytes <= _ONE_TASK_BYTES else frame.hint("rebalance")
