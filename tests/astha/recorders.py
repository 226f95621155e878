"""Components that record their calls, and fail, hang or give false answers on request."""

from __future__ import annotations

import secrets
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lakebed.astha import Astha
from lakebed.astha.circuit_breaker import BreakerPolicy
from lakebed.astha.delivery.delivery import Delivery
from lakebed.astha.event_router import EventRouter
from lakebed.astha.journal_pages import JournalPages
from lakebed.astha.options import AsthaOptions
from lakebed.astha.retry import RetryPolicy
from lakebed.core.events import COMPONENT_SUBSCRIPTIONS, Component
from lakebed.registry.journal.changes import last_journal_numbers, read_changes
from lakebed.registry.journal.cursors import read_lane_states, save_progress
from lakebed.registry.journal.leases import acquire_lease

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from lakebed.astha.delivery.jobs import Job
    from lakebed.core.events import Event, RegistryTable, Subscriber
    from lakebed.core.rows import Row
    from lakebed.registry.journal.cursors import Saved
    from lakebed.registry.registry import Registry

UPDATER, SNAPSHOTTER = Component.ICEBERG_UPDATER, Component.SNAPSHOTTER
COMPACTOR, ORCHESTRATOR = Component.COMPACTOR, Component.METADATA_ORCHESTRATOR
PATIENCE_S = 20.0


FAST = AsthaOptions(  # the contract's figures, made short
    retry=RetryPolicy(base_s=0.0005, cap_s=0.002),
    breaker=BreakerPolicy(pause_s=0.02, pause_cap_s=0.1),
    consume_timeout_s=20.0,
    refresh_timeout_s=20.0,
    health_every_s=0.05,
    health_timeout_s=5.0,
    sweep_s=0.2,
    save_every_s=0.05,
    renew_every_s=0.5,
    lease_ttl_s=5.0,
    standby_s=0.02,
    verify_every_s=0.1,
    tick_s=0.01,
    restart_base_s=0.005,
    restart_cap_s=0.02,
)


class SickError(Exception):
    """Counts as transient."""


@dataclass
class Recorder:
    """Handles every event by writing it down. `before_event`, `before_refresh` and `before_health` may raise or wait."""

    component: Component
    registry: Registry
    seen: list[Event[Row]] = field(default_factory=list)
    calls: list[tuple[int, int]] = field(default_factory=list)
    refreshes: list[tuple[int, int]] = field(default_factory=list)
    health_checks: int = 0
    before_event: Callable[[Any], None] = lambda _: None
    before_refresh: Callable[[Any], None] = lambda _: None
    before_health: Callable[[], None] = lambda: None

    def on_event(self, event: Event[Row]) -> None:
        self.calls.append((event.table_id, event.sequence))
        self.before_event(event)
        self.seen.append(event)

    def on_health(self) -> None:
        self.health_checks += 1
        self.before_health()

    def on_refresh(self, table_id: int) -> int:
        self.calls.append((table_id, 0))
        self.before_refresh(table_id)
        mark = last_journal_numbers(self.registry)[table_id]
        self.refreshes.append((table_id, mark))
        return mark

    def get_subscribed_tables(self) -> frozenset[RegistryTable]:
        return COMPONENT_SUBSCRIPTIONS[self.component]

    def sequences(self, table_id: int = 1) -> list[int]:
        return [event.sequence for event in self.seen if event.table_id == table_id]


def recorders(registry: Registry, *components: Component) -> dict[Component, Recorder]:
    return {c: Recorder(component=c, registry=registry) for c in components or tuple(Component)}


def fail(error: BaseException | None = None) -> Callable[..., None]:
    """A hook that always raises."""

    def raise_it(*_: object) -> None:
        raise error or SickError("no luck today")

    return raise_it


def fail_on(*tables: int) -> Callable[[Any], None]:
    """A hook for events or refreshes that raises for these tables alone."""

    def raise_it(what: Any) -> None:
        table_id = what if isinstance(what, int) else what.table_id
        if table_id in tables:
            raise SickError(f"no luck with table {table_id}")

    return raise_it


def fail_times(times: int, error: BaseException | None = None) -> Callable[..., None]:
    left = [times]

    def raise_it(*_: object) -> None:
        if left[0] > 0:
            left[0] -= 1
            raise error or SickError("not yet")

    return raise_it


@dataclass
class Gate:
    """A hook that waits until it is opened."""

    opened: threading.Event = field(default_factory=threading.Event)
    entered: threading.Event = field(default_factory=threading.Event)

    def __call__(self, *_: object) -> None:
        self.entered.set()
        self.opened.wait(PATIENCE_S * 2)


def await_that(condition: Callable[[], Any], what: str = "the condition") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come true"
        time.sleep(0.002)


@contextmanager
def running(registry: Registry, components: Mapping[Component, Subscriber[Any]], *, owner: str = "me", **changed: Any) -> Iterator[Astha]:
    """An active Astha with short times, stopped at the end, which leaves no thread."""
    before = set(threading.enumerate())
    astha = Astha(registry, components, owner=owner, options=replace(FAST, **changed))
    astha.start()
    try:
        yield astha
    finally:
        astha.stop()
    assert {t for t in threading.enumerate() if t.name.startswith("astha") and t.is_alive()} <= before


@dataclass
class FixedTime:
    """Stands still; every draw of the jitter is the largest."""

    now: float = 1000.0
    jitter: float = 1.0

    def monotonic(self) -> float:
        return self.now

    def draw(self) -> float:
        return self.jitter


class CountedPages(JournalPages):
    """Pages that count the changes they read from the registry."""

    read_count = 0

    def _load(self, table_id: int, after: int) -> Sequence[Event[Row]]:
        events = super()._load(table_id, after)
        self.read_count += len(events)
        return events


class Stepper:
    """Delivery without a thread: the test decides when time passes, and everything that is due then happens."""

    def __init__(self, registry: Registry, components: Mapping[Component, Subscriber[Any]], options: AsthaOptions | None = None) -> None:
        self.registry, self.time = registry, FixedTime()
        self.options = options or AsthaOptions()
        self.pages = CountedPages(registry, page_events=self.options.page_events, tables=self.options.cached_tables)
        self.delivery = Delivery(EventRouter(components), self.pages, options=self.options, time=self.time)
        self.delivery.open(read_lane_states(registry))
        self.lease = acquire_lease(registry, "astha", owner=f"stepper-{secrets.token_hex(4)}", ttl_us=0)

    def take(self, component: Component) -> Job | None:
        with self.delivery.lock:
            return self.delivery.take(component, self.time.now)

    def settle(self) -> None:
        """Everything that may be called now is called."""
        self.delivery.see(last_journal_numbers(self.registry))
        while jobs := [job for c in self.delivery.subscribers if (job := self.take(c)) is not None]:
            for job in jobs:
                self.delivery.carry_out(job)

    def save(self) -> Saved:
        batch = self.delivery.collect()
        saved = save_progress(self.registry, self.lease, positions=batch.positions, drops=batch.drops, healed=batch.healed, ttl_us=0)
        self.delivery.note_saved(batch, saved)
        return saved

    def advance(self, seconds: float) -> None:
        self.time.now += seconds
        self.settle()


def started(registry: Registry, components: dict[Component, Recorder]) -> Stepper:
    """Past its bootstrap: what comes now comes as events."""
    stepper = Stepper(registry, components)
    stepper.settle()
    return stepper


def expected(registry: Registry, component: Component, table_id: int, *, after: int = 0) -> list[int]:
    changes = read_changes(registry, table_id, after=after, limit=100_000)
    return [e.sequence for e in changes if e.table in COMPONENT_SUBSCRIPTIONS[component]]
