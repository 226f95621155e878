"""Listings as typed rows: the same columns on both databases, also when there are no rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.core.errors import InvalidValueError, PartitionNotFoundError
from lakebed.core.names import TableName, require_instance
from lakebed.core.times import Time, TimeRange, to_micros
from lakebed.registry.queries import listing
from lakebed.registry.queries.listing import IncompatibleRow, list_incompatible
from lakebed.registry.tables.lake_tables import require_table

if TYPE_CHECKING:
    from lakebed.core.results import Rows
    from lakebed.registry.registry import Registry

MAX_LIMIT = (1 << 63) - 1


def list_partitions(  # noqa: PLR0913 - one keyword per filter
    registry: Registry,
    table: str | None = None,
    *,
    instance: str | None = None,
    schema_hash: str | None = None,
    begin: Time | None = None,
    end: Time | None = None,
    insert_begin: Time | None = None,
    insert_end: Time | None = None,
    after: int = 0,
    limit: int = MAX_LIMIT,
) -> Rows[listing.PartitionRow]:
    """One row per partition that overlaps the ranges, ordered by insert time; pass the last partition id as `after` for the next page."""
    event_low, event_high = _ends(begin, end)
    insert_low, insert_high = _ends(insert_begin, insert_end)
    wanted = listing.PartitionFilter(
        table_id=find_id(registry, table),
        instance=None if instance is None else require_instance(instance),
        schema_hash=schema_hash,
        begin=event_low,
        end=event_high,
        insert_begin=insert_low,
        insert_end=insert_high,
    )
    return listing.find_partitions(registry, wanted, after=_require_position(registry, _page(after)), limit=_page(limit))


def list_files(
    registry: Registry, table: str | None = None, *, retired: bool = False, after: int = 0, limit: int = MAX_LIMIT
) -> Rows[listing.FileRow]:
    """One row per live file, in the order the files were added; on request also files that wait for deletion."""
    return listing.list_files(registry, find_id(registry, table), retired=retired, after=_page(after), limit=_page(limit))


def list_view_sets(registry: Registry) -> Rows[listing.ViewSetRow]:
    """One row per view set, with its serving version and its staged version, if any."""
    return listing.list_view_sets(registry)


def list_incompatible_partitions(registry: Registry, table: str | None = None) -> Rows[IncompatibleRow]:
    """One row per partition that no reader can see any more, including empty ones, with the reason."""
    return list_incompatible(registry, find_id(registry, table))


def find_id(registry: Registry, table: str | None) -> int | None:
    return None if table is None else require_table(registry, TableName.parse(table)).table_id


def _ends(begin: Time | None, end: Time | None) -> tuple[int | None, int | None]:
    if begin is not None and end is not None:
        both = TimeRange.of(begin, end)
        return both.begin, both.end
    return (None if begin is None else to_micros(begin), None if end is None else to_micros(end))


def _require_position(registry: Registry, after: int) -> tuple[int, int] | None:
    """The position of the next page. A partition retired meanwhile has no position any more, and a guess would skip or repeat rows."""
    if after == 0:
        return None
    if (begin := listing.find_begin(registry, after)) is None:
        hint = "it was retired after the page was read; continue with insert_begin, the begin of the page's last partition"
        raise PartitionNotFoundError(f"after={after}", hint=hint)
    return begin, after


def _page(number: int) -> int:
    if not 0 <= number <= MAX_LIMIT:
        message = f"page position and length must not be negative, got {number}"
        raise InvalidValueError(message)
    return number
