"""Runs: every maintenance job and every destructive call, with its plan, its result and who asked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.core.errors import RunNotFoundError
from lakebed.core.times import from_micros
from lakebed.registry.administrators import require_allowed

if TYPE_CHECKING:
    from datetime import datetime

    from lakebed.registry.engine import Registry
    from lakebed.registry.transaction import Reader, Transaction

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


def add_run(tx: Transaction, job: str, *, actor: str, plan: dict[str, Any], table_id: int | None = None, running: bool = True) -> int:
    """Write down what is about to happen, before it does. Whoever may not change the lake is refused here, whatever the call was."""
    require_allowed(tx, job, actor)
    sql = """INSERT INTO runs (job, table_id, state, plan, result, actor, requested_at, started_at)
VALUES (:job, :table_id, :state, :plan, '{}', :actor, :now, :started) RETURNING id"""
    state = "running" if running else "requested"
    params = {"job": job, "table_id": table_id, "state": state, "plan": json.dumps(plan, sort_keys=True), "actor": actor, "now": tx.now}
    return int(tx.query(sql, {**params, "started": tx.now if running else None})[0][0])


def finish_run(tx: Transaction, run_id: int, *, state: str, result: dict[str, Any]) -> None:
    """Close an open run; a run ends once."""
    sql = """UPDATE runs SET state = :state, result = :result, finished_at = :now
WHERE id = :id AND state IN ('requested', 'running')"""
    if not tx.run(sql, {"state": state, "result": json.dumps(result, sort_keys=True), "now": tx.now, "id": run_id}):
        message = f"there is no open run {run_id}: list the runs"
        raise RunNotFoundError(message)


def find_run(reader: Registry | Reader | Transaction, job: str, *, plan: dict[str, Any], state: str) -> int | None:
    """The newest run of this job with exactly this plan in this state."""
    sql = "SELECT max(id) FROM runs WHERE job = :job AND plan = :plan AND state = :state"
    found = reader.query(sql, {"job": job, "plan": json.dumps(plan, sort_keys=True), "state": state})[0][0]
    return None if found is None else int(found)


def has_done(reader: Registry | Reader | Transaction, job: str, *, plan: dict[str, Any]) -> bool:
    """Whether one of the newest runs of this job carried out this plan, for however many partitions."""
    ended = (run for run in list_runs(reader, job=job) if run.state == "done" and run.plan.get("partitions"))
    return any({key: run.plan.get(key) for key in plan} == plan for run in ended)


def list_runs(reader: Registry | Reader | Transaction, *, job: str | None = None, limit: int = 100) -> list[Run]:
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
