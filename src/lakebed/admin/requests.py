"""Requests for work that the service carries out: one row in `runs` per distinct request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.admin.audit import find_actor
from lakebed.core.errors import InvalidValueError
from lakebed.core.names import GLOBAL_INSTANCE, TableName, require_instance
from lakebed.core.results import Rows
from lakebed.core.times import Time, TimeRange
from lakebed.registry.maintenance.runs import add_run, find_run
from lakebed.registry.tables.lake_tables import require_table
from lakebed.registry.tables.names import resolve_name

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.transaction import Transaction

# Stored as the job of a run: never rename
MATERIALIZE, REGENERATE = "materialize_partitions", "regenerate_partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedRun:
    """A run that the service will carry out."""

    run_id: int
    job: str
    view_set_name: str
    view_instance_id: str
    state: str


def request_materialization(
    registry: Registry,
    table: str,
    *,
    instance: str = GLOBAL_INSTANCE,
    insert_begin: Time | None = None,
    insert_end: Time | None = None,
    actor: str | None = None,
) -> Rows[RequestedRun]:
    """Request that stale slices of the range, or of the whole view set, be built. While a request waits, the same request returns its run."""
    return _request(registry, MATERIALIZE, table, instance=instance, wanted=TimeRange.maybe(insert_begin, insert_end), actor=actor)


def request_regeneration(
    registry: Registry,
    table: str,
    *,
    instance: str = GLOBAL_INSTANCE,
    insert_begin: Time | None = None,
    insert_end: Time | None = None,
    actor: str | None = None,
) -> Rows[RequestedRun]:
    """Request that the range be rebuilt, whether it is fresh or stale."""
    return _request(registry, REGENERATE, table, instance=instance, wanted=TimeRange.maybe(insert_begin, insert_end), actor=actor)


def _request(registry: Registry, job: str, table: str, *, instance: str, wanted: TimeRange | None, actor: str | None) -> Rows[RequestedRun]:
    view = _require_view_set(registry, resolve_name(registry, table))
    plan = {
        "view_set_name": str(view.name),
        "view_instance_id": require_instance(instance),
        "insert_begin": None if wanted is None else wanted.begin,
        "insert_end": None if wanted is None else wanted.end,
    }

    def body(tx: Transaction) -> int:  # under the table's lock, so that two simultaneous requests get one run
        waiting = find_run(tx, job, plan=plan, state="requested")
        return (
            waiting if waiting is not None else add_run(tx, job, actor=find_actor(actor), plan=plan, table_id=view.table_id, running=False)
        )

    run_id = registry.transact(body, tables=[view.table_id])
    row = RequestedRun(run_id=run_id, job=job, view_set_name=str(view.name), view_instance_id=instance, state="requested")
    return Rows(RequestedRun, [row])


def _require_view_set(registry: Registry, name: TableName) -> LakeTable:
    table = require_table(registry, name)
    if table.row.kind != "view_set":
        message = f"{name} is a plain table; only view sets can be materialized or regenerated"
        raise InvalidValueError(message)
    return table
