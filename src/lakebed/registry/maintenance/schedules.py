"""The stored state of maintenance: the last window of each task, and requested work. Written only under Astha's lease."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.core.errors import RunNotFoundError
from lakebed.registry.journal.leases import Lease, require_epoch
from lakebed.registry.key_values import find_fact, find_value_since, list_values, set_value
from lakebed.registry.maintenance.runs import add_run, finish_run
from lakebed.registry.processes import make_owner

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakebed.registry.backends.protocol import Queryable
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Transaction

_PREFIX = "schedule/"  # stored: never rename
_JOB = "task/"  # stored, before the name of a task: never rename
_LEAD = "lead_wanted"  # stored: never rename
_KEPT_RUNS = 100  # of each task that ended well; failed ones stay
_CUT_OFF = """UPDATE runs SET state = 'failed', result = :result, finished_at = :now
WHERE state = 'running' AND job LIKE :prefix AND NOT id IN (:own*)"""
_FORGET = """DELETE FROM runs WHERE job = :job AND state = 'done' AND id < (
SELECT min(id) FROM (SELECT id FROM runs WHERE job = :job AND state = 'done' ORDER BY id DESC LIMIT :kept) AS newest)"""
_REQUESTED = "SELECT id, job, plan, result FROM runs WHERE state = 'requested' AND job IN (:jobs*) ORDER BY id"
_TAKE = "UPDATE runs SET state = 'running', result = :result, started_at = :now WHERE id = :id AND state = 'requested'"
_GIVE_BACK = """UPDATE runs SET state = 'requested', started_at = NULL
WHERE state = 'running' AND job IN (:jobs*) AND started_at IS NOT NULL AND NOT id IN (:own*)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptWindow:
    """The last window of a task that a run was begun for (or that it counts from), and how that ended."""

    window: int
    outcome: str
    tries: int
    succeeded_at: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedWork:
    run_id: int
    job: str
    plan: Mapping[str, Any]
    attempts: int  # how often it was begun before


def find_lake_id(reader: Queryable) -> str:
    """Of the warehouse that the registry is bound to; empty before it is."""
    return find_fact(reader, "warehouse_id") or ""


def read_windows(reader: Queryable) -> dict[str, KeptWindow]:
    """By the name of the task."""
    return {task: _window(json.loads(value)) for task, value in list_values(reader, _PREFIX).items()}


def set_windows(registry: Registry, lease: Lease, windows: Mapping[str, int]) -> None:
    """From where on tasks count that never ran."""
    with registry.write() as tx:
        require_epoch(tx, lease)
        for task, window in windows.items():
            _save(tx, task, KeptWindow(window=window, outcome="done", tries=0, succeeded_at=None))


def begin_window(registry: Registry, lease: Lease, task: str, *, window: int, tries: int, actor: str) -> int:
    """Write down that the task runs, before it does; refused once the lease is lost. The id of its run."""
    with registry.write() as tx:
        require_epoch(tx, lease)
        before = read_windows(tx).get(task)
        succeeded_at = None if before is None else before.succeeded_at
        _save(tx, task, KeptWindow(window=window, outcome="running", tries=tries, succeeded_at=succeeded_at))
        return add_run(tx, _JOB + task, actor=actor, plan={"window": window, "try": tries}, process=make_owner(_JOB + task))


def end_window(registry: Registry, task: str, run_id: int, *, failed: bool, result: dict[str, Any]) -> None:
    """A process that took over meanwhile has closed the run already: then nothing is changed."""
    with registry.write() as tx:
        try:
            finish_run(tx, run_id, state="failed" if failed else "done", result=result)
        except RunNotFoundError:
            return
        kept = read_windows(tx)[task]
        succeeded_at = kept.succeeded_at if failed else tx.now
        _save(tx, task, KeptWindow(window=kept.window, outcome="failed" if failed else "done", tries=kept.tries, succeeded_at=succeeded_at))
        tx.run(_FORGET, {"job": _JOB + task, "kept": _KEPT_RUNS})


def take_over(registry: Registry, lease: Lease, *, jobs: Sequence[str], own: Sequence[int] = ()) -> None:
    """Close the tasks that the previous service left running; requested work waits again."""
    kept = [*own, 0]
    with registry.write() as tx:
        require_epoch(tx, lease)
        result = json.dumps({"error": "the service ended in the middle of it"})
        tx.run(_CUT_OFF, {"result": result, "now": tx.now, "prefix": f"{_JOB}%", "own": kept})
        tx.run(_GIVE_BACK, {"jobs": list(jobs), "own": kept})


def list_requested(reader: Queryable, jobs: Sequence[str]) -> list[RequestedWork]:
    """Oldest first."""
    rows = reader.query(_REQUESTED, {"jobs": list(jobs)})
    return [
        RequestedWork(run_id=run_id, job=job, plan=json.loads(plan), attempts=int(json.loads(result).get("attempts", 0)))
        for run_id, job, plan, result in rows
    ]


def begin_requested(registry: Registry, lease: Lease, work: RequestedWork) -> bool:
    """Whether it is ours to carry out now."""
    with registry.write() as tx:
        require_epoch(tx, lease)
        result = json.dumps({"attempts": work.attempts + 1})
        return tx.run(_TAKE, {"id": work.run_id, "result": result, "now": tx.now}) == 1


def end_requested(registry: Registry, run_id: int, *, failed: bool, result: dict[str, Any]) -> None:
    with registry.write() as tx:
        try:
            finish_run(tx, run_id, state="failed" if failed else "done", result=result)
        except RunNotFoundError:
            return  # returned by the process that took over


def ask_for_lead(registry: Registry, owner: str) -> None:
    """A full service asks a process that only publishes to release the lease."""
    with registry.write() as tx:
        set_value(tx, _LEAD, owner)


def find_asker(reader: Queryable, *, within_us: int, now: int) -> str | None:
    """The service that requested the lead recently."""
    return find_value_since(reader, _LEAD, now - within_us)


def _save(tx: Transaction, task: str, kept: KeptWindow) -> None:
    value = {"window": kept.window, "outcome": kept.outcome, "tries": kept.tries, "succeeded_at": kept.succeeded_at}
    set_value(tx, _PREFIX + task, json.dumps(value, sort_keys=True))


def _window(stored: dict[str, Any]) -> KeptWindow:
    return KeptWindow(window=stored["window"], outcome=stored["outcome"], tries=stored["tries"], succeeded_at=stored.get("succeeded_at"))
