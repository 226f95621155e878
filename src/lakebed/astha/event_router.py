"""Routes changes to components by the constant subscriptions, which never change at run time."""

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
    """The components that this process runs, and the tables each subscribes to. There are no subscriptions at run time."""

    def __init__(self, components: Mapping[Component, Subscriber[Any]]) -> None:
        """Every component must be known, have the four methods and subscribe to the tables of the constant."""
        if not components:
            message = "expected at least one component, got none"
            raise SubscriptionRefusedError(message)
        for component, subscriber in components.items():
            _require_subscriber(component, subscriber)
        self.subscribers: Mapping[Component, Subscriber[Any]] = MappingProxyType(dict(components))

    def is_for(self, component: Component, table: RegistryTable) -> bool:
        return component in ROUTES[table]


def _require_subscriber(component: object, subscriber: Subscriber[Any]) -> None:
    if not isinstance(component, Component):
        message = f"{component!r} is not a component of Lakebed; expected one of {', '.join(Component)}"
        raise SubscriptionRefusedError(message)
    missing = [name for name in _METHODS if not callable(getattr(subscriber, name, None))]
    if missing:
        message = f"{component} lacks {', '.join(missing)}: implement the four methods of Subscriber"
        raise SubscriptionRefusedError(message)
    wanted, said = COMPONENT_SUBSCRIPTIONS[component], subscriber.get_subscribed_tables()
    if said != wanted:
        message = f"get_subscribed_tables of {component} returned {_show(said)}, expected {_show(wanted)}: correct it"
        raise SubscriptionRefusedError(message)


def _show(tables: object) -> str:
    return ", ".join(sorted(map(str, tables))) if isinstance(tables, frozenset | set | tuple | list) else repr(tables)
