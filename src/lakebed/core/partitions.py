"""Slices of a table and what a writer offers for one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakebed.core.errors import InvalidValueError
from lakebed.core.names import GLOBAL_INSTANCE, require_instance

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebed.core.files import NewFile
    from lakebed.core.names import TableName
    from lakebed.core.times import TimeRange

EventRange = tuple[int, int]  # closed: the smallest and the largest event time, in microseconds

PARTITION_FORMAT = 2  # footers as raw tails; 1 = bare FileMetaData
SMALL_FILE_BYTES = 32 * 1024 * 1024  # below this a file counts as small in table_stats


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One slice of one table and instance, as people name it."""

    table: TableName
    instance: str
    insert_range: TimeRange

    def __str__(self) -> str:
        return f"{self.table}/{self.instance} {self.insert_range}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPartition:
    """A partition to publish. Without `insert_range` the registry allocates the next free slot of the table.

    `event_range` is closed: the smallest and the largest event time of the rows, in microseconds.
    """

    table: TableName
    schema_hash: str
    fingerprint: str
    files: tuple[NewFile, ...] = field(default=())
    instance: str = GLOBAL_INSTANCE
    insert_range: TimeRange | None = None
    event_range: EventRange | None = None
    source_data_hash: str | None = None
    lookup_hash: str | None = None

    def __post_init__(self) -> None:
        require_instance(self.instance)
        if self.event_range is not None:
            if self.event_range[0] > self.event_range[1]:
                message = f"{self.table}: the event range ends before it begins"
                raise InvalidValueError(message)
            if not self.files:
                message = f"{self.table}: an empty partition has no event range"
                raise InvalidValueError(message)
        if len({f.path for f in self.files}) != len(self.files):
            message = f"{self.table}: the same path is offered twice in one partition"
            raise InvalidValueError(message)

    @property
    def num_rows(self) -> int:
        return sum(f.row_count for f in self.files)


def join_event_ranges(ranges: Iterable[EventRange | None]) -> EventRange | None:
    """From the first event time to the last; unknown ranges are ignored."""
    known = [one for one in ranges if one is not None]
    return (min(low for low, _ in known), max(high for _, high in known)) if known else None
