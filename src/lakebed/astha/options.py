"""The limits of delivery, in one place. In seconds unless the name says otherwise."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import Protocol

from lakebed.astha.circuit_breaker import BreakerPolicy
from lakebed.astha.retry import RetryPolicy


class Time(Protocol):
    """The source of delays and deadlines."""

    def monotonic(self) -> float:
        """Monotonic seconds."""

    def draw(self) -> float:
        """A random number from [0, 1), for jitter."""


class SystemTime:
    """The clock of the host."""

    def monotonic(self) -> float:
        return time.monotonic()

    def draw(self) -> float:
        return random.random()  # noqa: S311 - jitter, not a secret


@dataclass(frozen=True, slots=True, kw_only=True)
class AsthaOptions:
    """How Astha delivers. The defaults are the contract; tests shorten them."""

    retry: RetryPolicy = field(default_factory=RetryPolicy)
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)
    workers: int = 4  # threads per component, started when there is work: a slow component delays no other
    page_events: int = 128  # a lane's turn ends with its page, so that lanes of one table stay in step and share pages
    turn_s: float = 0.1  # or after so long
    cached_tables: int = 64
    consume_timeout_s: float = 60.0
    refresh_timeout_s: float = 600.0  # a refresh may rebuild a whole table
    health_every_s: float = 5.0
    health_timeout_s: float = 5.0
    sweep_s: float = 1.0
    save_every_s: float = 1.0
    renew_every_s: float = 3.0
    lease_ttl_s: float = 10.0
    standby_s: float = 1.0
    purge_every_s: float = 60.0
    purge_cap: int = 100_000
    verify_every_s: float = 10.0
    tick_s: float = 0.1
    max_incarnations: int = 5
    incarnations_within_s: float = 600.0
    restart_base_s: float = 0.1
    restart_cap_s: float = 5.0
