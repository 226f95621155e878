"""The service as one JSON object: what it runs, its progress, and what comes next."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lakebed.core.times import from_micros

if TYPE_CHECKING:
    from lakebed.astha import AsthaStatus
    from lakebed.maintenance.runner import Runner


def describe_astha(status: AsthaStatus) -> dict[str, Any]:
    """Keys are the names of the status itself."""
    facts = asdict(status)
    facts["components"] = {str(one.pop("component")): {**one, "breaker": str(one["breaker"])} for one in facts["components"]}
    return facts


def describe_tasks(runner: Runner, *, now: int) -> dict[str, Any]:
    """Per task: when it runs, its results in this process, and when it last succeeded in any process."""
    facts: dict[str, Any] = {}
    for name, tally in runner.tallies().items():
        table = next((one for task, one in runner.schedule.items() if task == name), None)
        facts[name] = {
            "schedule": None if table is None else table.cron or "off",
            "next": None if table is None else _moment(table.find_next(now)),
            "last_success": _moment(tally.succeeded_at),
            "running": tally.running,
            "runs": tally.runs,
            "failures": tally.failures,
            "seconds": round(tally.seconds, 3),
            "error": tally.error,
            "result": dict(tally.result),
        }
    return facts


def _moment(micros: int | None) -> str | None:
    return None if micros is None else from_micros(micros).isoformat().replace("+00:00", "Z")
