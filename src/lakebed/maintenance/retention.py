"""Expires partitions by the retention of their table, views before their sources, and snapshots."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

from lakebed import admin
from lakebed.core.names import TableName
from lakebed.core.tables.snapshots import parse_retire_after
from lakebed.maintenance.reports import Report, isolated
from lakebed.registry.tables.lake_tables import list_tables, require_table
from lakebed.registry.tables.view_sets import list_definitions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakebed.maintenance.workplace import Workplace
    from lakebed.registry.tables.lake_tables import LakeTable


def retire_expired(place: Workplace) -> Report:
    """Tables that have a retention. Views come first: an expired slice must not look stale because its source is gone."""
    sums: Counter[str] = Counter()
    problems: list[str] = []
    for table in list_views_first(place):
        if place.cancelled():
            break
        with isolated(str(table.name), problems):
            if (after_us := parse_retire_after(table.metadata.properties)) is None:
                continue
            after = timedelta(microseconds=after_us)
            done = admin.retire_expired_partitions(place.registry, str(table.name), retention=after, dry_run=False, actor=place.actor)
            sums.update({"tables": 1, **done.totals()})
    return Report(result=dict(sums), problems=tuple(problems))


def expire_snapshots(place: Workplace) -> Report:
    """Requests expiry for every table, even without an event or a tick of the snapshotter; the updater carries it out."""
    requested = 0
    problems: list[str] = []
    for row in list_tables(place.registry):
        if place.cancelled():
            break
        name = TableName(row.database, row.name)
        with isolated(str(name), problems):
            requested += len(admin.expire_snapshots(place.registry, str(name), dry_run=False, actor=place.actor).snapshots)
    return Report(result={"wished": requested}, problems=tuple(problems))


def list_views_first(place: Workplace) -> list[LakeTable]:
    """Every table before the tables that it reads."""
    names = [TableName(row.database, row.name) for row in list_tables(place.registry)]
    with place.registry.read() as reader:
        reads = list_definitions(reader)
    return [require_table(place.registry, name) for name in order_readers_first(names, reads)]


def order_readers_first(names: Sequence[TableName], reads: Mapping[TableName, frozenset[TableName]]) -> list[TableName]:
    """Depth first, reversed; definitions have no cycles."""
    ordered: dict[TableName, None] = {}

    def visit(name: TableName) -> None:
        if name in ordered:
            return
        for other in sorted(reads.get(name, frozenset())):
            visit(other)
        ordered[name] = None

    for name in sorted(names):
        visit(name)
    known = set(names)
    return [name for name in reversed(ordered) if name in known]
