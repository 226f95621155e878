"""What there is: typed rows, the same columns on both databases, the schema right when there is nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

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


class PartitionOptions(TypedDict, total=False):
    """What `list_partitions` understands."""

    instance: str | None
    schema_hash: str | None
    begin: Time | None
    end: Time | None
    insert_begin: Time | None
    insert_end: Time | None
    after: int
    limit: int


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
    """One row per partition that overlaps the ranges, in the order of insert time; `after` the last partition id gives the next page."""
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
    """One row per live file, in the order they were added; on request those too that wait for their deletion."""
    return listing.list_files(registry, find_id(registry, table), retired=retired, after=_page(after), limit=_page(limit))


def list_view_sets(registry: Registry) -> Rows[listing.ViewSetRow]:
    """One row per view set, with its serving version and the staged one, if there is one."""
    return listing.list_view_sets(registry)


def list_incompatible_partitions(registry: Registry, table: str | None = None) -> Rows[IncompatibleRow]:
    """One row per partition that no reader can see any more, empty ones too, and why."""
    return list_incompatible(registry, find_id(registry, table))


def find_id(registry: Registry, table: str | None) -> int | None:
    return None if table is None else require_table(registry, TableName.parse(table)).table_id


def _ends(begin: Time | None, end: Time | None) -> tuple[int | None, int | None]:
    if begin is not None and end is not None:
        both = TimeRange.of(begin, end)
        return both.begin, both.end
    return (None if begin is None else to_micros(begin), None if end is None else to_micros(end))


def _require_position(registry: Registry, after: int) -> tuple[int, int] | None:
    """Where a page goes on. A partition that was retired since has no place any more, and a guess would skip or repeat rows."""
    if after == 0:
        return None
    if (begin := listing.find_begin(registry, after)) is None:
        hint = "it was retired after the page was read; go on with insert_begin, the begin of the page's last partition"
        raise PartitionNotFoundError(f"after={after}", hint=hint)
    return begin, after


def _page(number: int) -> int:
    if not 0 <= number <= MAX_LIMIT:
        message = f"a page has a position and a length from 0 on, not {number}"
        raise InvalidValueError(message)
    return number
