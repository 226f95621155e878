"""Partitions as a change of their rows meets them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.core.times import TimeRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Reader

_HOLDERS = """SELECT id, view_instance_id, begin_insert_time, end_insert_time, schema_hash, min_event_time, max_event_time FROM partitions
WHERE table_id = :table_id AND id IN (SELECT partition_id FROM table_files WHERE file_path IN (:paths*) AND retired_seq IS NULL)
ORDER BY view_instance_id, begin_insert_time, id"""
_VISIBLE = "SELECT id FROM table_files WHERE id IN (:ids*) AND retired_seq IS NULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A live partition that holds some files."""

    partition_id: int
    instance: str
    insert_range: TimeRange
    schema_hash: str
    event_range: tuple[int, int] | None


def list_visible(reader: Registry | Reader, file_ids: Sequence[int]) -> frozenset[int]:
    """Those of the files that are neither retired nor gone."""
    return frozenset(row[0] for row in reader.query(_VISIBLE, {"ids": list(file_ids)})) if file_ids else frozenset()


def list_holders(reader: Reader, table_id: int, paths: Sequence[str]) -> list[Holder]:
    """The partitions that hold these files, in the order of their slices."""
    if not paths:
        return []
    return [
        Holder(
            partition_id=r[0],
            instance=r[1],
            insert_range=TimeRange(begin=r[2], end=r[3]),
            schema_hash=r[4],
            event_range=None if r[5] is None else (r[5], r[6]),
        )
        for r in reader.query(_HOLDERS, {"table_id": table_id, "paths": list(paths)})
    ]
