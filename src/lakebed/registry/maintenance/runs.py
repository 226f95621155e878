"""Runs: every maintenance job and every destructive call, with its plan, its result and its actor."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.core.errors import InvalidValueError, NotAllowedError, RunNotFoundError
from lakebed.core.times import from_micros
from lakebed.registry.key_values import find_fact, set_fact
from lakebed.registry.transaction import CommitProof

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from lakebed.registry.backends.protocol import Queryable
    from lakebed.registry.transaction import Transaction

PROCESS = "process"  # in the result of a run that is not closed, stored: never rename
_ADD = """INSERT INTO runs (job, table_id, state, plan, result, actor, requested_at, started_at)
VALUES (:job, :table_id, :state, :plan, :result, :actor, :now, :started) RETURNING id"""
_FINISH = """UPDATE runs SET state = :state, result = :result, finished_at = :now
WHERE id = :id AND state IN ('requested', 'running')"""
_CLOSE = "UPDATE runs SET state = 'failed', result = :result, finished_at = :now WHERE id = :id AND state = 'running' AND result = :opened"
_ADDED = "SELECT 1 FROM runs WHERE id = :id AND job = :job AND plan = :plan AND actor = :actor AND requested_at = :now"
_FINISHED = "SELECT 1 FROM runs WHERE id = :id AND state = :state AND result = :result AND finished_at = :now"
_COLUMNS = "id, job, table_id, state, plan, result, actor, requested_at, started_at, finished_at"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    run_id: int
    job: str
    table_id: int | None
    state: str
    plan: dict[str, Any]
    result: dict[str, Any]
    actor: str
    requested_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


def add_run(
    tx: Transaction,
    job: str,
    *,
    actor: str,
    plan: dict[str, Any],
    table_id: int | None = None,
    running: bool = True,
    process: str | None = None,
) -> int:
    """Record what is about to happen, before it does. Every call of an actor who may not change the lake is refused here.

    A run that outlives its transaction names its `process`, so that another can detect when it has ended.
    """
    require_allowed(tx, job, actor)
    params = {
        "job": job,
        "table_id": table_id,
        "state": "running" if running else "requested",
        "plan": json.dumps(plan, sort_keys=True),
        "result": "{}" if process is None else _opened_by(process),
        "actor": actor,
        "now": tx.now,
        "started": tx.now if running else None,
    }
    run_id = int(tx.query(_ADD, params)[0][0])
    tx.proof = CommitProof(
        run_id=run_id, sql=_ADDED, params={"id": run_id, **{name: params[name] for name in ("job", "plan", "actor", "now")}}
    )
    return run_id


def finish_run(tx: Transaction, run_id: int, *, state: str, result: dict[str, Any]) -> None:
    """Close an open run; a run ends once."""
    params = {"state": state, "result": json.dumps(result, sort_keys=True), "now": tx.now, "id": run_id}
    if not tx.run(_FINISH, params):
        message = f"there is no open run {run_id}: list the runs"
        raise RunNotFoundError(message)
    if tx.proof is None:  # else it was added in this very transaction
        tx.proof = CommitProof(run_id=run_id, sql=_FINISHED, params=params)


def close_if_still(tx: Transaction, run_id: int, *, process: str, result: dict[str, Any]) -> bool:
    """Close the run as failed if this process, or call of it, still has it open."""
    params = {"id": run_id, "opened": _opened_by(process), "result": json.dumps(result, sort_keys=True), "now": tx.now}
    return tx.run(_CLOSE, params) == 1


def _opened_by(process: str) -> str:
    return json.dumps({PROCESS: process})


def find_run(reader: Queryable, job: str, *, plan: dict[str, Any], state: str) -> int | None:
    """The newest run of this job with exactly this plan in this state."""
    sql = "SELECT max(id) FROM runs WHERE job = :job AND plan = :plan AND state = :state"
    found = reader.query(sql, {"job": job, "plan": json.dumps(plan, sort_keys=True), "state": state})[0][0]
    return None if found is None else int(found)


def has_done(reader: Queryable, job: str, *, plan: dict[str, Any]) -> bool:
    """Whether one of the newest runs of this job carried out this plan, for however many partitions."""
    ended = (run for run in list_runs(reader, job=job) if run.state == "done" and run.plan.get("partitions"))
    return any({key: run.plan.get(key) for key in plan} == plan for run in ended)


def list_runs(reader: Queryable, *, job: str | None = None, limit: int = 100) -> list[Run]:
    rows = reader.query(
        f"SELECT {_COLUMNS} FROM runs WHERE (CAST(:job AS text) IS NULL OR job = :job) ORDER BY id DESC LIMIT :limit",
        {"job": job, "limit": limit},
    )
    return [_run(row) for row in rows]


def _run(row: tuple[Any, ...]) -> Run:
    moments = [None if at is None else from_micros(at) for at in row[7:10]]
    assert moments[0] is not None  # noqa: S101 - the column is NOT NULL
    return Run(
        run_id=row[0],
        job=row[1],
        table_id=row[2],
        state=row[3],
        plan=json.loads(row[4]),
        result=json.loads(row[5]),
        actor=row[6],
        requested_at=moments[0],
        started_at=moments[1],
        finished_at=moments[2],
    )


_KEY = "administrators"  # stored: never rename
_THROUGH_SQL = "sql "  # the prefix by which SQL functions name the user of the session
# The service's own work, and rewriting that changes no row, need no administrator
_AUTOMATIC_JOBS = ("compact", "task/")
_SERVICE = "maintenance"


def read_administrators(reader: Queryable) -> tuple[str, ...]:
    """Empty: every actor may."""
    return tuple(json.loads(find_fact(reader, _KEY) or "[]"))


def write_administrators(tx: Transaction, actors: Iterable[str]) -> tuple[str, ...]:
    listed = tuple(sorted({actor.strip() for actor in actors}))
    if "" in listed:
        message = "an administrator has a name, such as ann@host"
        raise InvalidValueError(message)
    set_fact(tx, _KEY, json.dumps(listed))
    return listed


def require_allowed(tx: Transaction, job: str, actor: str) -> None:
    """The one check: every administrative change writes a run, and every run passes here before anything is changed."""
    if job.startswith(_AUTOMATIC_JOBS) or actor == _SERVICE:
        return
    allowed = read_administrators(tx)
    if allowed and actor.removeprefix(_THROUGH_SQL) not in allowed:
        raise NotAllowedError(job, actor=actor)
