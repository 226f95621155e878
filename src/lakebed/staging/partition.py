"""Captured files as one partition to publish: every writer builds its partition here."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakebed.core import fingerprints
from lakebed.core.names import GLOBAL_INSTANCE
from lakebed.core.partitions import NewPartition, join_event_ranges
from lakebed.core.schema.types import Primitive
from lakebed.parquet.inspect import StatisticsSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.core.partitions import EventRange
    from lakebed.core.times import TimeRange
    from lakebed.parquet.capture import CapturedFile
    from lakebed.registry.tables.lake_tables import LakeTable

_TIMES = frozenset({"date", "timestamp", "timestamptz"})


def statistics_spec_of(table: LakeTable) -> StatisticsSpec:
    return StatisticsSpec(event_time=table.row.event_time_field, indexed=frozenset(table.indexed))


def written_statistics_spec(table: LakeTable) -> StatisticsSpec:
    """For rows that we write: statistics are kept of partition columns wherever they are, and of times, whose range is judged."""
    times = (f.field_id for f in table.schema.fields if isinstance(f.type, Primitive) and f.type.name in _TIMES)
    sources = (f.field_id for _, f in table.transforms)
    return replace(statistics_spec_of(table), always=frozenset((*times, *sources)))


def partition_of(  # noqa: PLR0913 - what else a partition says of itself
    table: LakeTable,
    captured: Sequence[CapturedFile],
    *,
    insert_range: TimeRange | None = None,
    instance: str = GLOBAL_INSTANCE,
    schema_hash: str | None = None,
    fingerprint: str | None = None,
    source_data_hash: str | None = None,
    lookup_hash: str | None = None,
    rows_are_ours: bool = False,
    event_range: EventRange | None = None,
) -> NewPartition:
    """The files as one partition of the table's version, or of `schema_hash`; no file makes an empty one.

    Without a `fingerprint` it gets a new one. A file without event times: where `rows_are_ours` all of its rows are NULL there, so the others
    give the range; of a file that others wrote nothing is known, so there is none. `event_range` stands where the files give none.
    """
    found = join_event_ranges(one.event_range for one in captured)
    if not rows_are_ours and any(one.event_range is None for one in captured):
        found = None
    return NewPartition(
        table=table.name,
        schema_hash=schema_hash or table.schema_hash,
        fingerprint=fingerprint or fingerprints.make_fingerprint(has_rows=bool(captured)),
        files=tuple(one.file for one in captured),
        instance=instance,
        insert_range=insert_range,
        event_range=(found or event_range) if captured else None,
        source_data_hash=source_data_hash,
        lookup_hash=lookup_hash,
    )
