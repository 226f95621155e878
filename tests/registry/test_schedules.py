"""What maintenance remembers in the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.registry.maintenance.schedules import ask_for_lead, find_asker

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry
    from lakebed.testing import FixedClock


def asker(registry: Registry, *, within_us: int) -> str | None:
    return find_asker(registry, within_us=within_us, now=registry.now())


def test_who_asked_last_for_the_lead_is_known_for_a_while(timed_registry: Registry, clock: FixedClock) -> None:
    assert asker(timed_registry, within_us=5_000_000) is None

    ask_for_lead(timed_registry, "one")
    ask_for_lead(timed_registry, "another")
    clock.advance(seconds=4)

    assert asker(timed_registry, within_us=5_000_000) == "another"
    assert asker(timed_registry, within_us=4_000_000) is None
