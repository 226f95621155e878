"""The metadata orchestrator tracks the newest committed group of every table, for which a `sync` insert waits."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, assert_never

from lakebed.core.events import COMPONENT_SUBSCRIPTIONS, Component
from lakebed.core.rows import TableMetadata, Tables
from lakebed.registry.journal.changes import last_journal_number
from lakebed.registry.snapshots.waiting import find_committed, poll_group
from lakebed.registry.tables.lake_tables import find_row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.core.events import Event, RegistryTable
    from lakebed.registry.registry import Registry

_LOOK_S = 1.0  # events report at once; the registry is polled too, in case another process publishes


class MetadataOrchestrator:
    """The counters of every table as of its last event; threads wait here for a group."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._rows: dict[int, Tables] = {}
        self._changed = threading.Condition()
        self._waiting = 0

    def get_subscribed_tables(self) -> frozenset[RegistryTable]:
        return COMPONENT_SUBSCRIPTIONS[Component.METADATA_ORCHESTRATOR]

    def on_health(self) -> None:
        self._registry.query("SELECT 1")

    def on_refresh(self, table_id: int) -> int:
        with self._registry.read() as reader:
            mark, row = last_journal_number(reader, table_id), find_row(reader, table_id)
        if row is not None:
            self._remember(row)
        return mark

    def on_event(self, event: Event[Tables | TableMetadata]) -> None:
        match event.data:
            case Tables():
                self._remember(event.data)
            case TableMetadata():
                pass  # its effect on a commit is visible in the table's own row
            case unreachable:
                assert_never(unreachable)

    @property
    def waiting(self) -> int:
        """The number of threads of this process that wait for a commit."""
        return self._waiting

    def wait_for_group(self, table_id: int, group: int, *, timeout_s: float) -> int | None:
        """The snapshot that holds `group` or a later one; a typed timeout names the process that publishes."""
        with self._counted():
            return self._wait_for_group(table_id, group, timeout_s=timeout_s)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._changed:
            self._waiting += 1
        try:
            yield
        finally:
            with self._changed:
                self._waiting -= 1

    def _wait_for_group(self, table_id: int, group: int, *, timeout_s: float) -> int | None:
        seen: Tables | None = None

        def find() -> tuple[int, int | None]:
            nonlocal seen
            seen = self._rows.get(table_id)
            if seen is not None and seen.committed_group >= group:
                return seen.committed_group, seen.current_snapshot_id
            return find_committed(self._registry, table_id)

        def pause(left_s: float) -> None:
            with self._changed:
                self._changed.wait_for(partial(self._is_decided, table_id, group, seen), timeout=min(left_s, _LOOK_S))

        return poll_group(self._registry, table_id, group, timeout_s=timeout_s, find=find, pause=pause)

    def _is_decided(self, table_id: int, group: int, before: Tables | None) -> bool:
        """Whether it is committed, or the table's state has changed so that it may have stopped."""
        known = self._rows.get(table_id)
        return known is not None and (known.committed_group >= group or (before is not None and known.state != before.state))

    def _remember(self, row: Tables) -> None:
        with self._changed:
            self._rows[row.id] = row
            self._changed.notify_all()
