"""Directories as others leave them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

    from lakebed.lake import Lake

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def rows(first: int = 0, count: int = 10, **columns: Any) -> pa.Table:
    """`id`, `ts` and `name`, without any field id; `columns` beside them."""
    ids = list(range(first, first + count))
    moments = pa.array([NOON + timedelta(seconds=i) for i in ids], type=pa.timestamp("us", tz="UTC"))
    return pa.table({"id": pa.array(ids, pa.int64()), "ts": moments, "name": [f"n{i}" for i in ids], **columns})


def put(path: Path, table: pa.Table, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return path


def read_all(lake: Lake, name: str) -> list[dict[str, Any]]:
    """What the registered files hold, by field id and name mapping of the table, without Spark."""
    table = lake.table(name)
    found: list[dict[str, Any]] = []
    for file in lake.files.list(name):
        stored = pq.ParquetFile(file.file_path).read().to_pylist()
        found += [{f.name: row.get(f.physical_name) for f in table.schema.fields} for row in stored]
    return sorted(found, key=lambda row: row["id"])


def hows(adoption: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for file in adoption.files:
        counts[file.how] = counts.get(file.how, 0) + 1
    return counts
