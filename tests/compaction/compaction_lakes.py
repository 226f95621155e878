"""Tables of many small files, and their rows, independent of the writer."""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from builders import ORDERS, SCHEMA, arrow_rows, writing_path
from lakebed.core import fingerprints
from lakebed.core.partitions import NewPartition
from lakebed.parquet.capture import capture
from lakebed.registry.partitions.publish import publish_partition
from lakebed.registry.tables.lake_tables import require_table
from lakebed.staging.partition import statistics_spec_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.core.names import TableName
    from lakebed.lake import Lake
    from lakebed.registry.partitions.publish import Published

KIB = 1024


def make_orders(lake: Lake, **options: Any) -> None:
    lake.create_table(str(ORDERS), SCHEMA, event_time="ts", **options)


def insert_rows(lake: Lake, *tables: pa.Table, paths: Sequence[str] = (), name: TableName = ORDERS, instance: str = "global") -> Published:
    """One partition with a file per table; `paths` are their partition paths."""
    table = require_table(lake.registry, name)
    with lake.writing(str(name)) as work:
        captured = []
        for number, rows in enumerate(tables):
            path = writing_path(work.new_path())
            pq.write_table(rows, path, compression=table.metadata.compression)
            found = capture(lake.storage, path, table.schema, spec=statistics_spec_of(table))
            captured.append(replace(found, file=replace(found.file, partition_path=paths[number] if paths else "")))
        times = [c.event_range for c in captured if c.event_range is not None]
        partition = NewPartition(
            table=name,
            schema_hash=table.schema_hash,
            fingerprint=fingerprints.from_bytes(secrets.token_bytes(16)),
            files=tuple(c.file for c in captured),
            instance=instance,
            event_range=(min(low for low, _ in times), max(high for _, high in times)) if times else None,
        )
        done = work.published = publish_partition(lake.registry, partition, work.operation)
        return done


def fill(lake: Lake, count: int, *, rows: int = 20, instance: str = "global", start: int = 0) -> list[Published]:
    return [insert_rows(lake, arrow_rows(start + number, rows=rows), instance=instance) for number in range(count)]


def read_all(lake: Lake, name: TableName = ORDERS) -> Counter[str]:
    """The multiset of rows of all live files, each under the ids of its columns: no engine of ours takes part."""
    found: Counter[str] = Counter()
    for file in lake.files.list(str(name)):
        table = pq.ParquetFile(file.file_path).read()
        ids = [int(field.metadata[b"PARQUET:field_id"]) for field in table.schema]
        found.update(repr(sorted(zip(ids, row.values(), strict=True))) for row in table.to_pylist())
    return found


def live_paths(lake: Lake, name: TableName = ORDERS) -> set[str]:
    return {file.file_path for file in lake.files.list(str(name))}


def disk_paths(lake: Lake) -> set[str]:
    return {facts.path for facts in lake.storage.list_files(lake.storage.paths.root)}
