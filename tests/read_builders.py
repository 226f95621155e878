"""Tables with real Parquet files for tests of reading: written with pyarrow, no Spark job."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from builders import insert_hours, writing_path
from lakebed.core.files import FileType, NewFile
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, Primitive
from lakebed.parquet.capture import capture
from lakebed.parquet.schema.arrow import to_arrow
from lakebed.registry.partitions.publish import publish_partition
from lakebed.registry.tables.lake_tables import TableSpec, create_table
from lakebed.registry.tables.versions import evolve_schema
from lakebed.staging.partition import partition_of, statistics_spec_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakebed.core.names import TableName
    from lakebed.lake import Lake
    from lakebed.registry.partitions.publish import Published
    from lakebed.registry.tables.lake_tables import LakeTable

START = datetime(2026, 1, 1, tzinfo=UTC)
EVENTS = Schema(
    fields=(
        Field(field_id=1, name="id", type=Primitive(name="long")),
        Field(field_id=2, name="ts", type=Primitive(name="timestamptz")),
        Field(field_id=3, name="name", type=Primitive(name="string")),
    ),
)
Rows = dict[str, list[Any]]


def make_events(lake: Lake, name: TableName, *, schema: Schema = EVENTS, event_time: str | None = "ts", **options: Any) -> LakeTable:
    return create_table(lake.registry, TableSpec(name=name, schema=schema, event_time=event_time, **options))


def write_rows(
    lake: Lake,
    name: TableName,
    *files: Rows,
    paths: Mapping[int, str] | None = None,
    replacing: frozenset[int] = frozenset(),
    instance: str = "global",
    hours: tuple[int, int] | None = None,
) -> Published:
    """One partition with one file per dict of columns; `paths` gives a file its partition path."""
    table = lake.table(str(name))
    with lake.writing(str(name)) as writing:
        captured = []
        for number, rows in enumerate(files):
            path = writing_path(writing.new_path())
            schema = to_arrow(Schema(fields=tuple(f for f in table.schema.fields if f.name in rows)))
            pq.write_table(pa.table([rows[f.name] for f in table.schema.fields if f.name in rows], schema=schema), path)
            captured.append(
                capture(lake.storage, path, table.schema, spec=statistics_spec_of(table), partition_path=(paths or {}).get(number, ""))
            )
        partition = partition_of(table, captured, insert_range=None if hours is None else insert_hours(*hours), instance=instance)
        writing.published = publish_partition(lake.registry, partition, writing.operation, replacing=replacing)
    assert writing.published is not None
    return writing.published


def write_json(lake: Lake, name: TableName, lines: Sequence[Mapping[str, Any]]) -> Published:
    """A tracked JSON file."""
    table = lake.table(str(name))
    with lake.writing(str(name)) as writing:
        path = writing_path(writing.new_path("json"))
        Path(path).write_text("".join(json.dumps(line) + "\n" for line in lines))
        file = NewFile(
            path=path,
            size_bytes=Path(path).stat().st_size,
            row_count=len(lines),
            checksum=lake.storage.sha256(path),
            file_type=FileType.JSON,
        )
        partition = replace(partition_of(table, [], insert_range=None, instance="global"), files=(file,), event_range=(0, 1))
        writing.published = publish_partition(lake.registry, partition, writing.operation)
    assert writing.published is not None
    return writing.published


def day_rows(day: int, count: int = 4) -> Rows:
    """`count` rows spread over one day after START: ids `day*100 ...`."""
    moments = [START + timedelta(days=day, hours=i * 24 / count) for i in range(count)]
    return {"id": [day * 100 + i for i in range(count)], "ts": moments, "name": [f"n{day}-{i}" for i in range(count)]}


def evolve(lake: Lake, name: TableName, *fields: Field) -> None:
    lake.registry.transact(lambda tx: evolve_schema(tx, name, Schema(fields=fields)), tables=[name])
