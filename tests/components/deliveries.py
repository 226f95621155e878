"""Hands a component its events one by one, in order, as Astha would: no threads, so that a test decides what comes when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakebed.core.events import COMPONENT_SUBSCRIPTIONS, Component, Event
from lakebed.registry.journal.changes import read_changes

if TYPE_CHECKING:
    from lakebed.core.events import Subscriber
    from lakebed.core.rows import Row
    from lakebed.registry.registry import Registry


class Delivery:
    """One component's lane through one table."""

    def __init__(self, registry: Registry, component: Subscriber[Any], name: Component, table_id: int) -> None:
        self._registry, self._component, self._name, self._table_id = registry, component, name, table_id
        self.position = component.on_refresh(table_id)

    def deliver(self) -> int:
        """Everything there is, and what handling it brings about; how many events that were."""
        handled = 0
        while changes := read_changes(self._registry, self._table_id, after=self.position):
            for event in changes:
                handled += self._hand_over(event)
                self.position = event.sequence
        return handled

    def _hand_over(self, event: Event[Row]) -> int:
        if event.table not in COMPONENT_SUBSCRIPTIONS[self._name]:
            return 0
        self._component.on_event(event)
        return 1
