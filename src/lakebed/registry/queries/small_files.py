"""Queries of compaction: when slices were written last, where small files gather, which runs lost their process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lakebed.registry.files.operations import DEFAULT_LEASE_US

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebed.registry.backends.protocol import Queryable
    from lakebed.registry.transaction import Transaction

COMPACT = "compact"  # stored, as a job and as a kind of operation: never rename
_UPDATED = "SELECT id, updated FROM partitions WHERE id IN (:ids*)"
_SMALL = "SELECT partition_path, small_file_count FROM table_stats WHERE table_id = :table_id"
# JSON never has a group, so that only pending files are looked at
_JSON = """SELECT 1 FROM table_files
WHERE table_id = :table_id AND added_group IS NULL AND retired_seq IS NULL AND file_type <> 'parquet' LIMIT 1"""
_NAME = "SELECT database, name FROM tables WHERE id = :table_id AND dropped_at IS NULL"
# A live one has an open operation, or is between two of them for a moment
_DEAD = """UPDATE runs SET state = 'failed', result = :result, finished_at = :now
WHERE job = :job AND table_id = :table_id AND state = 'running' AND started_at < :before AND NOT EXISTS (
  SELECT 1 FROM operations o WHERE o.table_id = runs.table_id AND o.kind = :job AND o.state = 'writing' AND o.lease_until >= :now)"""


def list_updated(reader: Queryable, partition_ids: Iterable[int]) -> dict[int, int]:
    """When each partition was written, in microseconds."""
    return {row[0]: row[1] for row in reader.query(_UPDATED, {"ids": sorted(partition_ids)})}


def count_small_files(reader: Queryable, table_id: int) -> dict[str, int]:
    """Small files per partition path of the visible files."""
    return {row[0]: row[1] for row in reader.query(_SMALL, {"table_id": table_id})}


def has_json(reader: Queryable, table_id: int) -> bool:
    return bool(reader.query(_JSON, {"table_id": table_id}))


def find_name(reader: Queryable, table_id: int) -> tuple[str, str] | None:
    """Database and name of a table that was not dropped."""
    rows = reader.query(_NAME, {"table_id": table_id})
    return (rows[0][0], rows[0][1]) if rows else None


def close_dead_runs(tx: Transaction, table_id: int) -> None:
    """Record runs whose process ended in the middle as failed."""
    result = json.dumps({"error": "its process ended before it was done; nothing of the last swap was published"})
    params = {"job": COMPACT, "table_id": table_id, "result": result, "now": tx.now, "before": tx.now - DEFAULT_LEASE_US}
    tx.send(_DEAD, params)
