"""The circuit breaker of one component: closed -> open -> half-open -> closed or open; there are no other transitions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    failures: int = 5
    tables: int = 2
    within_s: float = 60.0
    bad_health: int = 3
    pause_s: float = 1.0
    pause_cap_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitBreaker:
    """Counts failures and timeouts since the last success: one failing or slow table among healthy ones never opens it."""

    policy: BreakerPolicy = field(default_factory=BreakerPolicy)
    state: BreakerState = BreakerState.CLOSED
    reason: str = ""
    failed: tuple[tuple[float, int], ...] = ()  # (when, table) of the last failures
    silent: frozenset[int] = frozenset()  # tables whose calls timed out since the component last answered
    bad_health: int = 0
    opened: int = 0  # consecutive openings without closing in between
    pause_ends: float = 0.0

    @property
    def allows(self) -> bool:
        """Whether calls may be made; half-open allows one."""
        return self.state is not BreakerState.OPEN

    def after_success(self) -> CircuitBreaker:
        """A call succeeded; for a half-open breaker that was the trial."""
        if self.state is BreakerState.HALF_OPEN:
            return replace(self, state=BreakerState.CLOSED, reason="", failed=(), silent=frozenset(), opened=0, bad_health=0)
        return replace(self, failed=(), silent=frozenset()) if self.failed or self.silent else self

    def after_progress(self) -> CircuitBreaker:
        """A call reported progress, or its answer came too late to count: the component is slow but alive."""
        return replace(self, silent=frozenset()) if self.silent else self

    def after_failure(self, table_id: int, now: float) -> CircuitBreaker:
        if self.state is BreakerState.HALF_OPEN:
            return _open(self, "the trial call failed", now)
        if self.state is BreakerState.OPEN:
            return self
        recent = (*(one for one in self.failed if now - one[0] <= self.policy.within_s), (now, table_id))
        counted = replace(self, failed=_thin(recent, self.policy))
        tables = len({table for _, table in recent})
        if len(recent) >= self.policy.failures and tables >= self.policy.tables:
            return _open(counted, f"{len(recent)} calls failed over {tables} tables", now)
        return counted

    def after_silence(self, table_id: int, now: float) -> CircuitBreaker:
        """A call timed out: a problem of its table, until a call of a second table times out too."""
        if self.state is BreakerState.OPEN:
            return self
        if self.state is BreakerState.HALF_OPEN:
            return _open(self, "the trial call was not answered in time", now)
        counted = replace(self, silent=self.silent | {table_id})
        if len(counted.silent) >= self.policy.tables:
            return _open(counted, f"calls of {len(counted.silent)} tables were not answered in time", now)
        return counted

    def after_health(self, *, well: bool, now: float) -> CircuitBreaker:
        """When the pause of an open breaker is over, a good health check allows the trial."""
        if well and self.state is BreakerState.OPEN and now >= self.pause_ends:
            return replace(self, state=BreakerState.HALF_OPEN, bad_health=0)
        if well:
            return replace(self, bad_health=0) if self.bad_health else self
        worse = replace(self, bad_health=self.bad_health + 1)
        if self.state is BreakerState.OPEN:
            return replace(worse, pause_ends=now + _pause_s(self)) if now >= self.pause_ends else worse
        if self.state is BreakerState.HALF_OPEN or worse.bad_health >= self.policy.bad_health:
            return _open(worse, f"{worse.bad_health} health checks failed in a row", now)
        return worse


def _open(breaker: CircuitBreaker, reason: str, now: float) -> CircuitBreaker:
    longer = replace(breaker, opened=breaker.opened + 1)
    return replace(longer, state=BreakerState.OPEN, reason=reason, failed=(), silent=frozenset(), pause_ends=now + _pause_s(longer))


def _pause_s(breaker: CircuitBreaker) -> float:
    return min(breaker.policy.pause_cap_s, breaker.policy.pause_s * 2.0 ** min(max(breaker.opened - 1, 0), 30))


def _thin(failed: tuple[tuple[float, int], ...], policy: BreakerPolicy) -> tuple[tuple[float, int], ...]:
    """The newest entries are enough to decide; a table that fails permanently must not make the list grow."""
    return failed[-policy.failures * policy.tables :]
