"""Which component hears of which table: looked up in a constant, never searched, never changed."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lakebed.core.errors import SubscriptionRefusedError
from lakebed.core.events import COMPONENT_SUBSCRIPTIONS, Component, RegistryTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakebed.core.events import Subscriber

ROUTES: Mapping[RegistryTable, frozenset[Component]] = MappingProxyType(
    {table: frozenset(c for c, tables in COMPONENT_SUBSCRIPTIONS.items() if table in tables) for table in RegistryTable}
)
_METHODS = ("on_event", "on_health", "on_refresh", "get_subscribed_tables")


class EventRouter:
    """The components that this process runs, and what each of them hears of. Nothing subscribes at run time."""

    def __init__(self, components: Mapping[Component, Subscriber[Any]]) -> None:
        """Every component is a known one, has the four methods, and subscribes to what the constant says."""
        if not components:
            message = "no component was given: there is nobody to deliver to"
            raise SubscriptionRefusedError(message)
        for component, subscriber in components.items():
            _require_subscriber(component, subscriber)
        self.subscribers: Mapping[Component, Subscriber[Any]] = MappingProxyType(dict(components))

    def is_for(self, component: Component, table: RegistryTable) -> bool:
        return component in ROUTES[table]


def _require_subscriber(component: object, subscriber: Subscriber[Any]) -> None:
    if not isinstance(component, Component):
        message = f"{component!r} is no component of Lakebed; these are: {', '.join(Component)}"
        raise SubscriptionRefusedError(message)
    missing = [name for name in _METHODS if not callable(getattr(subscriber, name, None))]
    if missing:
        message = f"{component} lacks {', '.join(missing)}: implement the four methods of Subscriber"
        raise SubscriptionRefusedError(message)
    wanted, said = COMPONENT_SUBSCRIPTIONS[component], subscriber.get_subscribed_tables()
    if said != wanted:
        message = f"{component} says it subscribes to {_show(said)}, the constant says {_show(wanted)}: correct get_subscribed_tables"
        raise SubscriptionRefusedError(message)


def _show(tables: object) -> str:
    return ", ".join(sorted(map(str, tables))) if isinstance(tables, frozenset | set | tuple | list) else repr(tables)
