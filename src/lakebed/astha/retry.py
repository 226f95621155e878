"""Whether and when a failed call is retried: a value, decided without a clock."""

from __future__ import annotations

from dataclasses import dataclass

from lakebed.core.errors import CorruptionError, RefusedError

_MAX_DOUBLINGS = 60  # far beyond any cap; prevents an overflow of the power


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    permanent: bool


Decision = Again | GiveUp


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Exponential with full jitter: any delay from 0 to base * 2^n, capped, so that retries do not coincide."""

    max_calls: int = 30
    base_s: float = 0.05
    cap_s: float = 5.0

    def decide(self, error: BaseException, *, calls: int, draw: float) -> Decision:
        """After `calls` failed calls, with `draw` from [0, 1)."""
        if is_permanent(error):
            return GiveUp(permanent=True)
        if calls >= self.max_calls:
            return GiveUp(permanent=False)
        return Again(delay_s=draw * self.limit_s(calls))

    def limit_s(self, calls: int) -> float:
        return min(self.cap_s, self.base_s * 2.0 ** min(calls - 1, _MAX_DOUBLINGS))


def is_permanent(error: BaseException) -> bool:
    """The same call would fail in the same way; it needs a changed request or a person."""
    return isinstance(error, RefusedError | CorruptionError)
