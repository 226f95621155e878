"""Captured files as one partition to publish: every writer builds its partition here."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from lakebed.core import fingerprints
from lakebed.core.partitions import NewPartition
from lakebed.parquet.inspect import StatisticsSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.core.times import TimeRange
    from lakebed.parquet.capture import CapturedFile
    from lakebed.registry.tables.lake_tables import LakeTable


def statistics_spec_of(table: LakeTable) -> StatisticsSpec:
    return StatisticsSpec(event_time=table.row.event_time_field, indexed=frozenset(table.indexed))


def partition_of(table: LakeTable, captured: Sequence[CapturedFile], *, insert_range: TimeRange | None, instance: str) -> NewPartition:
    known = [c.event_range for c in captured if c.event_range is not None]
    complete = len(known) == len(captured) and known
    return NewPartition(
        table=table.name,
        schema_hash=table.schema_hash,
        fingerprint=fingerprints.from_bytes(secrets.token_bytes(16)) if captured else fingerprints.ZERO,  # no rows change no view
        files=tuple(c.file for c in captured),
        instance=instance,
        insert_range=insert_range,
        event_range=(min(low for low, _ in known), max(high for _, high in known)) if complete else None,
    )
