"""When a component is asked for its health, and when silence is an answer."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Of one component. A check that hangs counts as failed at its timeout, and again every interval while it hangs."""

    every_s: float
    timeout_s: float
    due: float
    asked_at: float | None = None
    well: bool = True
    problem: str = ""

    def must_ask(self, now: float) -> bool:
        return self.asked_at is None and now >= self.due

    def is_silent(self, now: float) -> bool:
        return self.asked_at is not None and now >= self.due

    def asked(self, now: float) -> Health:
        return replace(self, asked_at=now, due=now + self.timeout_s)

    def answered(self, now: float, problem: str = "") -> Health:
        return replace(self, asked_at=None, well=not problem, problem=problem, due=now + self.every_s)

    def silent(self, now: float) -> Health:
        """Still asked: nobody else is sent while one waits for an answer."""
        return replace(self, well=False, problem="the health check does not answer", due=now + self.every_s)

    def sooner(self, when: float) -> Health:
        """An open breaker waits for the next check: it comes when the pause ends."""
        return replace(self, due=min(self.due, when)) if self.asked_at is None else self
