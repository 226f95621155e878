"""Snapshots for users: listing, tags, expiry, and the settings that control when they are made and expire."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Unpack

from lakebed.admin.audit import find_actor, write_down
from lakebed.core.errors import InvalidValueError, SnapshotNotFoundError, TagNotFoundError
from lakebed.core.names import TableName, require_name
from lakebed.core.results import Rows, single_result
from lakebed.core.suggestions import list_near
from lakebed.core.tables.settings import FREE, TableSettings, list_free, read_free_properties, read_settings
from lakebed.core.tables.snapshots import KeptSnapshot, parse_requests, parse_retention, plan_expiry
from lakebed.core.times import from_micros, read_age, to_micros
from lakebed.registry.maintenance.runs import add_run, finish_run
from lakebed.registry.snapshots.foreign import FOREIGN, read_refs
from lakebed.registry.snapshots.history import list_snapshots as list_kept
from lakebed.registry.snapshots.requests import change_locked, read_properties, request_expiry
from lakebed.registry.tables.lake_tables import require_table
from lakebed.registry.tables.versions import set_properties

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from lakebed.core.rows import TableSnapshots
    from lakebed.core.tables.snapshots import SnapshotRequests
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.transaction import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRow:
    """One snapshot of one table; `tags` are the names that keep it, branches and tags of other programs too.

    `trigger` names the cause: `insert`, `time`, `bytes`, `rows`, `files`, `manual`, `query`, or the kind of another change; `foreign`
    if another program committed it.
    """

    snapshot_id: int
    parent_id: int | None
    committed_at: datetime
    operation: str
    rows: int
    files: int
    added_files: int
    removed_files: int
    tags: str
    is_current: bool
    sequence_number: int
    group_no: int
    trigger: str
    expired_at: datetime | None


def list_snapshots(registry: Registry, table: str, *, expired: bool = False) -> Rows[SnapshotRow]:
    """The kept snapshots of a table, oldest first; on request also expired ones."""
    found = require_table(registry, TableName.parse(table))
    named = {**parse_requests(found.metadata.properties).tags, **read_refs(registry, found.table_id).refs}
    kept = list_kept(registry, found.table_id, expired=expired)
    return Rows(SnapshotRow, [_row(snapshot, found, named) for snapshot in kept])


def tag_snapshot(registry: Registry, table: str, tag: str, snapshot_id: int, *, actor: str | None = None) -> None:
    """Keep a snapshot under a name until `untag` removes it; the Iceberg table gets the ref with its next commit."""
    if snapshot_id is None:
        message = f"{table}: give the snapshot that the tag {tag!a} keeps; to remove the tag, use untag; nothing was changed"
        raise InvalidValueError(message)
    require_name("tag", tag)
    _change_tag(registry, table, tag, snapshot_id, actor=actor)


def untag_snapshot(registry: Registry, table: str, tag: str, *, actor: str | None = None) -> None:
    """Remove a tag: its snapshot expires by the table's retention, and the Iceberg table loses the ref with its next commit."""
    _change_tag(registry, table, tag, None, actor=actor)


def _change_tag(registry: Registry, table: str, tag: str, snapshot_id: int | None, *, actor: str | None) -> None:
    """None removes the tag."""
    if tag == "main":
        message = f"{table}: the name main is reserved for the table itself: choose another name"
        raise InvalidValueError(message)
    found = require_table(registry, TableName.parse(table))
    table_id, name = found.table_id, str(found.name)

    def body(tx: Transaction) -> None:
        tx.require(found.name)  # it may have been dropped meanwhile
        _require_own(tx, table_id, name, tag)
        if snapshot_id is None:
            _require_tagged(tx, table_id, name, tag)
        else:
            _require_kept(tx, table_id, name, snapshot_id)
        write_down(tx, "tag_snapshot", {"table": name, "tag": tag, "snapshot_id": snapshot_id}, actor=actor, table_id=table_id)
        change_locked(tx, table_id, lambda requested: _with_tag(requested, tag, snapshot_id))

    registry.transact(body, tables=[table_id])


def configure_table(registry: Registry, /, table: str, **changes: Unpack[TableSettings]) -> None:
    """Change settings of a table. They take effect without a restart; None removes a setting; an unknown setting is refused.

    `snapshot={"trigger": "time", "interval_s": 30}` sets when pending files become a snapshot, `retention={...}` which snapshots are
    kept, `retire_after="90d"` how long after their last event partitions are retired. Free properties go under
    `properties={"owner": "ann"}`.
    """
    settings = read_settings(table, changes)
    given = changes.get(FREE)
    free = {} if given is None else read_free_properties(table, given)
    found = require_table(registry, TableName.parse(table))

    def body(tx: Transaction) -> None:
        removed = dict.fromkeys(list_free(json.loads(read_properties(tx, found.table_id)))) if FREE in changes and given is None else {}
        write_down(tx, "configure_table", {"table": table, "settings": sorted(changes)}, actor=None, table_id=found.table_id)
        set_properties(tx, found.name, {**removed, **free, **settings})

    registry.transact(body, tables=[found.table_id])


def _with_tag(requested: SnapshotRequests, tag: str, snapshot_id: int | None) -> SnapshotRequests:
    tags = {name: kept for name, kept in requested.tags.items() if name != tag}
    if snapshot_id is None:
        return replace(requested, tags=tags)
    return replace(requested, tags={**tags, tag: snapshot_id}, expire=tuple(s for s in requested.expire if s != snapshot_id))


def _require_tagged(tx: Transaction, table_id: int, table: str, tag: str) -> None:
    known = parse_requests(read_properties(tx, table_id)).tags
    if tag not in known:
        raise TagNotFoundError(table, tag, near=list_near(tag, known))


def _require_own(tx: Transaction, table_id: int, table: str, tag: str) -> None:
    if tag in read_refs(tx, table_id).refs:
        message = f"{table}: another program wrote the ref {tag}: choose another name, or drop it there; nothing was changed"
        raise InvalidValueError(message)


def _require_kept(tx: Transaction, table_id: int, table: str, snapshot_id: int) -> None:
    kept = list_kept(tx, table_id)
    if snapshot_id not in {snapshot.snapshot_id for snapshot in kept}:
        newest = kept[-1] if kept else None
        at = "" if newest is None else str(from_micros(newest.timestamp_ms * 1000))
        raise SnapshotNotFoundError(table, snapshot_id, nearest=None if newest is None else newest.snapshot_id, at=at)


def _row(snapshot: TableSnapshots, table: LakeTable, named: Mapping[str, int]) -> SnapshotRow:
    summary = json.loads(snapshot.summary)
    return SnapshotRow(
        snapshot_id=snapshot.snapshot_id,
        parent_id=snapshot.parent_id,
        committed_at=from_micros(snapshot.timestamp_ms * 1000),
        operation=snapshot.operation,
        rows=int(summary.get("total-records", 0)),
        files=int(summary.get("total-data-files", 0)),
        added_files=int(summary.get("added-data-files", 0)),
        removed_files=int(summary.get("deleted-data-files", 0)),
        tags=", ".join(sorted(name for name, kept in named.items() if kept == snapshot.snapshot_id)),
        is_current=snapshot.snapshot_id == table.row.current_snapshot_id,
        sequence_number=snapshot.sequence_number,
        group_no=snapshot.group_no,
        trigger=snapshot.trigger,
        expired_at=snapshot.expired_at,
    )


EXPIRE = "expire_snapshots"  # stored, as a job: never rename


@single_result
@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """Requests to expire these snapshots. The table's next Iceberg commit removes them; files that only they referenced are deleted later."""

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
    """Expire the named snapshots, those older than an age, or (neither given) those that the table's retention no longer keeps.

    The current snapshot, tagged ones and those on branches of other programs stay: naming one is refused, a search by age skips them.
    """
    older_than = None if older_than is None else read_age(older_than, what="older_than")
    kept = list_snapshots(registry, table)
    pinned = read_refs(registry, require_table(registry, TableName.parse(table)).table_id).pinned
    going = _named(table, kept, snapshot_ids, pinned) if snapshot_ids else _found(registry, table, kept, older_than, pinned)
    chosen = Rows(SnapshotRow, (row for row in kept if row.snapshot_id in going))
    plan = Expiry(table=table, snapshots=chosen, kept=len(kept) - len(chosen), dry_run=dry_run)
    if dry_run or not chosen:
        return plan
    return replace(plan, run_id=_request(registry, table, [row.snapshot_id for row in chosen], actor=find_actor(actor)))


def _request(registry: Registry, table: str, going: list[int], *, actor: str) -> int:
    name = TableName.parse(table)
    table_id = require_table(registry, name).table_id

    def body(tx: Transaction) -> int:
        tx.require(name)  # it may have been dropped meanwhile
        run_id = add_run(tx, EXPIRE, actor=actor, plan={"table": table, "snapshots": going}, table_id=table_id)
        after = request_expiry(tx, table_id, going)
        finish_run(tx, run_id, state="done", result={"wished": sum(snapshot_id in after.expire for snapshot_id in going)})
        return run_id

    return registry.transact(body, tables=[table_id])


def _say_kept(row: SnapshotRow) -> str:
    if row.tags:
        return f"is kept by the tag {row.tags}: remove the tag first (`lakebed snapshots untag`, or the program that made it)"
    return "is on a branch of another program: drop the branch there first"


def _named(table: str, kept: Rows[SnapshotRow], wanted: Sequence[int], pinned: AbstractSet[int]) -> frozenset[int]:
    known = {row.snapshot_id: row for row in kept}
    for snapshot_id in wanted:
        row = known.get(snapshot_id)
        if row is None:
            newest = kept[-1] if kept else None
            at = "" if newest is None else str(newest.committed_at)
            raise SnapshotNotFoundError(table, snapshot_id, nearest=None if newest is None else newest.snapshot_id, at=at)
        if row.is_current or row.tags or snapshot_id in pinned:
            why = "is the current snapshot" if row.is_current else _say_kept(row)
            message = f"{table}: snapshot {snapshot_id} {why}; nothing was changed"
            raise InvalidValueError(message)
    return frozenset(wanted)


def _found(
    registry: Registry, table: str, kept: Rows[SnapshotRow], older_than: timedelta | None, pinned: AbstractSet[int]
) -> frozenset[int]:
    properties = require_table(registry, TableName.parse(table)).metadata.properties
    requested = parse_requests(properties)
    protected = {*requested.tags.values(), *requested.branches.values(), *pinned, *(row.snapshot_id for row in kept if row.is_current)}
    if older_than is not None:
        if older_than < timedelta(0):
            message = f"{table}: the age must not be negative, got {older_than}"
            raise InvalidValueError(message)
        cutoff = from_micros(registry.now()) - older_than
        return frozenset(row.snapshot_id for row in kept if row.committed_at < cutoff) - protected
    history = [KeptSnapshot(snapshot_id=row.snapshot_id, at=to_micros(row.committed_at), is_foreign=row.trigger == FOREIGN) for row in kept]
    return frozenset(plan_expiry(history, parse_retention(properties), now=registry.now(), protected=protected))
