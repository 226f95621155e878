"""Snapshots that may go: by the table's own retention, by age, or by name. What is decided here the updater carries out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from lakebed.admin.audit import find_actor
from lakebed.admin.snapshots import SnapshotRow, list_snapshots
from lakebed.core.errors import InvalidValueError, SnapshotNotFoundError
from lakebed.core.names import TableName
from lakebed.core.results import Rows
from lakebed.core.tables.snapshots import KeptSnapshot, parse_retention, plan_expiry
from lakebed.core.tables.view_sets import read_age
from lakebed.core.times import from_micros, to_micros
from lakebed.core.wishes import parse_wishes
from lakebed.registry.maintenance.runs import add_run, finish_run
from lakebed.registry.snapshots.foreign import FOREIGN, read_refs
from lakebed.registry.snapshots.requests import request_expiry
from lakebed.registry.tables.lake_tables import require_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Transaction

EXPIRE = "expire_snapshots"  # stored, as a job: never rename


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """The snapshots that are wished away. They go with the table's next Iceberg commit, files that only they held after that."""

    table: str
    snapshots: Rows[SnapshotRow]
    kept: int
    dry_run: bool
    run_id: int | None = None


def expire_snapshots(
    registry: Registry,
    table: str,
    *,
    snapshot_ids: Sequence[int] = (),
    older_than: timedelta | str | None = None,
    dry_run: bool = True,
    actor: str | None = None,
) -> Expiry:
    """Expire the named snapshots, those older than an age, or (neither given) what the table's retention gives up.

    The current snapshot, tagged ones and what branches of other programs hold stay: named, they are refused; found by age, they are passed over.
    """
    older_than = None if older_than is None else read_age(older_than, what="older_than")
    kept = list_snapshots(registry, table)
    pinned = read_refs(registry, require_table(registry, TableName.parse(table)).table_id).pinned
    going = _named(table, kept, snapshot_ids, pinned) if snapshot_ids else _found(registry, table, kept, older_than, pinned)
    chosen = Rows(SnapshotRow, (row for row in kept if row.snapshot_id in going))
    plan = Expiry(table=table, snapshots=chosen, kept=len(kept) - len(chosen), dry_run=dry_run)
    if dry_run or not chosen:
        return plan
    return replace(plan, run_id=_wish(registry, table, [row.snapshot_id for row in chosen], actor=find_actor(actor)))


def _wish(registry: Registry, table: str, going: list[int], *, actor: str) -> int:
    name = TableName.parse(table)
    table_id = require_table(registry, name).table_id

    def body(tx: Transaction) -> int:
        tx.require(name)  # it may have been dropped since
        run_id = add_run(tx, EXPIRE, actor=actor, plan={"table": table, "snapshots": going}, table_id=table_id)
        after = request_expiry(tx, table_id, going)
        finish_run(tx, run_id, state="done", result={"wished": sum(snapshot_id in after.expire for snapshot_id in going)})
        return run_id

    return registry.transact(body, tables=[table_id])


def _say_kept(row: SnapshotRow) -> str:
    if row.tags:
        return f"is kept by the tag {row.tags}: take the tag off first (`lakebed snapshots untag`, or the program that made it)"
    return "belongs to a branch of another program: drop the branch there first"


def _named(table: str, kept: Rows[SnapshotRow], wanted: Sequence[int], pinned: AbstractSet[int]) -> frozenset[int]:
    known = {row.snapshot_id: row for row in kept}
    for snapshot_id in wanted:
        row = known.get(snapshot_id)
        if row is None:
            newest = kept[-1] if kept else None
            at = "" if newest is None else str(newest.committed_at)
            raise SnapshotNotFoundError(table, snapshot_id, nearest=None if newest is None else newest.snapshot_id, at=at)
        if row.is_current or row.tags or snapshot_id in pinned:
            why = "is the current one" if row.is_current else _say_kept(row)
            message = f"{table}: snapshot {snapshot_id} {why}; nothing was changed"
            raise InvalidValueError(message)
    return frozenset(wanted)


def _found(
    registry: Registry, table: str, kept: Rows[SnapshotRow], older_than: timedelta | None, pinned: AbstractSet[int]
) -> frozenset[int]:
    properties = require_table(registry, TableName.parse(table)).metadata.properties
    wishes = parse_wishes(properties)
    protected = {*wishes.tags.values(), *wishes.branches.values(), *pinned, *(row.snapshot_id for row in kept if row.is_current)}
    if older_than is not None:
        if older_than < timedelta(0):
            message = f"{table}: an age is not negative, {older_than} is"
            raise InvalidValueError(message)
        cutoff = from_micros(registry.now()) - older_than
        return frozenset(row.snapshot_id for row in kept if row.committed_at < cutoff) - protected
    history = [KeptSnapshot(snapshot_id=row.snapshot_id, at=to_micros(row.committed_at), is_foreign=row.trigger == FOREIGN) for row in kept]
    return frozenset(plan_expiry(history, parse_retention(properties), now=registry.now(), protected=protected))
