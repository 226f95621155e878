"""Subscriptions are a constant: compared literally, looked up in constant time, refused when a component says otherwise."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, cast

import pytest
from recorders import COMPACTOR, ORCHESTRATOR, SNAPSHOTTER, UPDATER, Recorder, recorders

from lakebed.astha import Astha
from lakebed.astha.event_router import ROUTES, EventRouter
from lakebed.core.errors import SubscriptionRefusedError
from lakebed.core.events import COMPONENT_SUBSCRIPTIONS, Component, RegistryTable

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry


def test_the_subscriptions_are_these() -> None:
    assert {c.value: {t.value for t in tables} for c, tables in COMPONENT_SUBSCRIPTIONS.items()} == {
        "iceberg_updater": {"table_metadata", "table_files"},
        "compactor": {"table_files", "table_stats"},
        "snapshotter": {"table_metadata", "table_files", "table_snapshots"},
        "metadata_orchestrator": {"tables", "table_metadata"},
    }


@pytest.mark.parametrize("table", RegistryTable)
@pytest.mark.parametrize("component", Component)
def test_a_change_goes_only_to_subscribed_components(registry: Registry, component: Component, table: RegistryTable) -> None:
    router = EventRouter(recorders(registry, *Component))

    assert router.is_for(component, table) == (table in COMPONENT_SUBSCRIPTIONS[component])


def test_every_monitored_table_has_a_subscriber() -> None:
    assert all(ROUTES[table] for table in RegistryTable)


def test_subscriptions_cannot_change_at_run_time() -> None:
    names = [name for name, _ in inspect.getmembers(Astha)]

    assert not [name for name in names if "register" in name or "subscribe" in name]
    with pytest.raises(TypeError):
        cast("Any", ROUTES)[RegistryTable.TABLES] = frozenset()


def test_a_subset_of_the_components_is_enough(registry: Registry) -> None:
    assert set(EventRouter(recorders(registry, UPDATER, ORCHESTRATOR)).subscribers) == {UPDATER, ORCHESTRATOR}


def test_a_component_that_subscribes_to_something_else_is_refused(registry: Registry) -> None:
    wrong = Recorder(component=SNAPSHOTTER, registry=registry)

    with pytest.raises(
        SubscriptionRefusedError, match="get_subscribed_tables of compactor returned table_files, table_metadata, table_snapshots"
    ):
        Astha(registry, {COMPACTOR: wrong}, owner="me")


def test_a_component_without_the_four_methods_is_refused(registry: Registry) -> None:
    with pytest.raises(SubscriptionRefusedError, match="lacks on_event, on_health, on_refresh, get_subscribed_tables"):
        Astha(registry, {UPDATER: cast("Any", object())}, owner="me")


def test_an_unknown_component_is_refused(registry: Registry) -> None:
    unknown = cast("Any", {"auditor": Recorder(component=UPDATER, registry=registry)})

    with pytest.raises(SubscriptionRefusedError, match="'auditor' is not a component of Lakebed"):
        Astha(registry, unknown, owner="me")


def test_delivery_without_components_is_refused(registry: Registry) -> None:
    with pytest.raises(SubscriptionRefusedError, match="expected at least one component"):
        Astha(registry, {}, owner="me")
