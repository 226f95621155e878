"""Rewriting files: the one seam behind which a faster engine than Spark may stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.pipeline.frames import frame_of, stored_frame
from lakebed.pipeline.write import key_of, write_frame, write_physical
from lakebed.registry.plans import list_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from lakebed.parquet.capture import CapturedFile
    from lakebed.pipeline.context import Context
    from lakebed.pipeline.staging import Staging
    from lakebed.registry.lake_tables import LakeTable

TARGET_BYTES = 128 * 1024 * 1024
_ONE_TASK_BYTES = 64 * 1024 * 1024
_SHUFFLED_BYTES = 32 * 1024 * 1024


def rewrite(
    context: Context, work: Staging, table: LakeTable, paths: Sequence[str], *, size_bytes: int = 0, target_bytes: int = TARGET_BYTES
) -> list[CapturedFile]:
    """The same rows in fewer files of about `target_bytes`, per partition path; `size_bytes` is what the old files have.

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
    """Files of about `target_bytes`, where the writer does not deal rows out by partition path itself.

    Little data in many files is read by all cores and shuffled into one; much data is not worth a shuffle.
    """
    if key_of(table).transforms:
        return frame
    count = -(-size_bytes // target_bytes) or 1
    return frame.repartition(count) if size_bytes <= _SHUFFLED_BYTES else frame.coalesce(count)


def pack(frame: DataFrame, table: LakeTable, *, size_bytes: int) -> DataFrame:
    """About as few files as the rows need, when they were made from `size_bytes`: one task per source file would leave one file each."""
    if key_of(table).transforms:
        return frame
    return frame.coalesce(1) if size_bytes <= _ONE_TASK_BYTES else frame.hint("rebalance")
