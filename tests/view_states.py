"""How many windows of a view set are fresh and how many are stale, over every instance of its source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.core.names import TableName
from lakebed.core.tables.windows import State, judge, list_windows
from lakebed.registry.tables.view_sets import (
    find_expired,
    hash_lookups,
    list_instances,
    list_partition_summaries,
    read_view,
    require_lake_table,
)

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry


def count_states(registry: Registry, name: str) -> tuple[int, int]:
    """Fresh and stale windows."""
    with registry.read() as reader:
        view = read_view(reader, TableName.parse(name))
        assert view is not None
        source = require_lake_table(reader, view.definition.over)
        lookup_hash = hash_lookups(reader, view.definition)
        states: list[State] = []
        for instance in sorted({*list_instances(reader, source.table_id), *list_instances(reader, view.table.table_id)}):
            windows = list_windows(
                view.definition.slice_us,
                source=list_partition_summaries(reader, source.table_id, instance=instance),
                view=list_partition_summaries(reader, view.table.table_id, instance=instance, hashes=[view.table.schema_hash]),
            )
            expired = find_expired(reader, view, source.table_id, instance)
            states += [judge(window, lookup_hash=lookup_hash, expired=expired) for window in windows]
        fresh = sum(state in {State.FRESH, State.KEPT} for state in states)
        return fresh, len(states) - fresh
