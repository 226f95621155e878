"""The Iceberg updater: on events, the committer brings Iceberg up to date."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, assert_never

from lakebed.core.events import COMPONENT_SUBSCRIPTIONS, Component
from lakebed.core.rows import TableFiles, TableMetadata
from lakebed.registry.journal.changes import last_journal_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.core.events import Event, RegistryTable
    from lakebed.iceberg.commit.committer import Committer
    from lakebed.iceberg.commit.results import Advanced
    from lakebed.registry.registry import Registry


class IcebergUpdater:
    """Makes one snapshot up to the newest sealed group for any number of events; events it has passed cost nothing."""

    def __init__(self, registry: Registry, committer: Committer, *, on_commit: Callable[[float], None] = lambda _: None) -> None:
        """`on_commit` receives the duration of each commit in seconds."""
        self._registry, self._committer, self._on_commit = registry, committer, on_commit
        self._reached: dict[int, int] = {}
        self._guard = threading.Lock()

    def get_subscribed_tables(self) -> frozenset[RegistryTable]:
        return COMPONENT_SUBSCRIPTIONS[Component.ICEBERG_UPDATER]

    def on_health(self) -> None:
        self._committer.catalog.ping()

    def on_refresh(self, table_id: int) -> int:
        """The mark is read first: later changes are delivered again, without effect."""
        mark = last_journal_number(self._registry, table_id)
        self._timed(self._committer.refresh, table_id)
        return mark

    def on_event(self, event: Event[TableFiles | TableMetadata]) -> None:
        match event.data:
            case TableFiles(added_group=None):
                pass  # pending: the snapshotter decides when to seal
            case TableFiles():
                self._advance(event.table_id, max(event.data.added_group or 0, event.data.removed_group or 0))
            case TableMetadata(standing="serving"):
                self._timed(self._committer.advance, event.table_id)  # a schema, a tag and a file travel together
            case TableMetadata():
                pass  # a staged or formerly serving version changes nothing in Iceberg
            case unreachable:
                assert_never(unreachable)

    def _advance(self, table_id: int, group: int) -> None:
        if group <= self._reached.get(table_id, -1):
            return
        done = self._timed(self._committer.advance, table_id)
        with self._guard:
            self._reached[table_id] = max(self._reached.get(table_id, -1), group if done is None else done.group)

    def _timed(self, commit: Callable[[int], Advanced | None], table_id: int) -> Advanced | None:
        began = time.monotonic()
        done = commit(table_id)
        if done is not None:
            self._on_commit(time.monotonic() - began)
        return done
