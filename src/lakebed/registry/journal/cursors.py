"""Astha's own state: cursors, dead letters, parked lanes, incarnations. Written only by the holder of its lease."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.core.events import Component
from lakebed.core.times import from_micros
from lakebed.registry.journal.changes import Cursor, last_journal_numbers
from lakebed.registry.journal.leases import Lease, require_epoch
from lakebed.registry.key_values import delete_value, find_value, list_values, set_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from lakebed.registry.backends.protocol import Queryable
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Transaction

LaneKey = tuple[Component, int]
_PARKED = "parked/"  # stored: never rename
STOPPED = "foreign_commit/"  # stored: never rename
_INCARNATION = "incarnation"  # stored: never rename
_SAVE = """INSERT INTO subscriber_cursor (component, table_id, seq, epoch, needs_refresh, updated_at)
VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (component, table_id) DO UPDATE
SET seq = excluded.seq, epoch = excluded.epoch, needs_refresh = excluded.needs_refresh, updated_at = excluded.updated_at
WHERE subscriber_cursor.epoch <= excluded.epoch AND subscriber_cursor.seq <= excluded.seq"""
_ALL = "SELECT component, table_id, seq, epoch, needs_refresh FROM subscriber_cursor"
_LETTERS = """SELECT id, component, table_id, seq, attempts, error, at, resolved_at FROM dead_letter
WHERE (CAST(:table_id AS bigint) IS NULL OR table_id = :table_id) AND (:open_only = 0 OR resolved_at IS NULL)
ORDER BY id DESC LIMIT :limit"""
_RESOLVE = """UPDATE dead_letter SET resolved_at = :now WHERE component = :component AND table_id = :table_id AND resolved_at IS NULL"""
_HEAL = "UPDATE tables SET state = 'ok', last_modified = :now WHERE id = :table_id AND state = 'degraded'"
_DEGRADE = "UPDATE tables SET state = 'degraded', last_modified = :now WHERE id = :table_id AND state = 'ok'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far a lane has come; `needs_refresh` says that it cannot go on from there."""

    component: Component
    table_id: int
    seq: int
    epoch: int
    needs_refresh: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Undelivered:
    """A change that a component could not handle, or a refresh that failed (then the lane is parked)."""

    component: Component
    table_id: int
    seq: int
    attempts: int
    error: str
    parked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    letter_id: int
    component: Component
    table_id: int
    seq: int
    attempts: int
    error: str
    at: datetime
    resolved_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """A lane that waits for a user; `retry` once a user has requested another try."""

    seq: int
    error: str
    retry: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStates:
    """Where every lane stands, from one snapshot."""

    ends: dict[int, int]
    cursors: dict[LaneKey, Cursor]
    parked: dict[LaneKey, Parked]


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    lease: Lease
    refused: dict[LaneKey, Cursor]  # lanes that a newer epoch took over, as they stand now


def read_lane_states(registry: Registry) -> LaneStates:
    with registry.read() as reader:
        return LaneStates(ends=last_journal_numbers(reader), cursors=read_cursors(reader), parked=list_parked(reader))


def read_cursors(reader: Queryable) -> dict[LaneKey, Cursor]:
    """Every cursor that was ever saved; a lane without one has never started."""
    return {(Component(row[0]), row[1]): _cursor(row) for row in reader.query(_ALL)}


def save_progress(
    registry: Registry,
    lease: Lease,
    *,
    positions: Sequence[Position],
    drops: Sequence[Undelivered] = (),
    healed: Iterable[LaneKey] = (),
    ttl_us: int,
) -> Saved:
    """Renew the lease and write everything that was done under it, in one transaction; refused as a whole once the lease is lost.

    A dead letter is written with the cursor that goes past it or not at all.
    """
    healed = sorted(healed)
    table_ids = {drop.table_id for drop in drops if drop.parked} | {table_id for _, table_id in healed}
    with registry.write(sorted(table_ids)) as tx:
        require_epoch(tx, lease)
        tx.send("UPDATE leases SET expires_at = :until WHERE name = :name", {"until": tx.now + ttl_us, "name": lease.name})
        refused = _save_positions(tx, positions) if positions else {}
        _add_drops(tx, drops)
        for component, table_id in healed:
            _heal(tx, component, table_id)
        until = tx.now + ttl_us
    return Saved(lease=Lease(name=lease.name, owner=lease.owner, epoch=lease.epoch, expires_at=until), refused=refused)


def start_incarnation(registry: Registry, lease: Lease) -> int:
    """The number of this incarnation of Astha: it rises with each one, in any process."""
    with registry.write() as tx:
        require_epoch(tx, lease)
        number = int(find_value(tx, _INCARNATION) or 0) + 1
        set_value(tx, _INCARNATION, str(number))
    return number


def list_parked(reader: Queryable) -> dict[LaneKey, Parked]:
    return {_lane_of(lane): _parked(json.loads(value)) for lane, value in list_values(reader, _PARKED).items()}


def request_retry(registry: Registry, component: Component, table_id: int) -> bool:
    """Ask the process that runs Astha to resume the parked lane; False when it is not parked."""
    key = _key(component, table_id)
    with registry.write() as tx:
        parked = find_value(tx, key)
        if parked is not None:
            set_value(tx, key, json.dumps(json.loads(parked) | {"retry": True}, sort_keys=True))
    return parked is not None


def list_dead_letters(reader: Queryable, *, table_id: int | None = None, open_only: bool = False, limit: int = 100) -> list[DeadLetter]:
    """Newest first."""
    rows = reader.query(_LETTERS, {"table_id": table_id, "open_only": int(open_only), "limit": limit})
    return [_letter(row) for row in rows]


def list_purgeable(reader: Queryable, *, cap: int) -> list[int]:
    """Tables whose journal holds changes that no component needs, or a component too far behind to hold them any longer."""
    seqs: dict[int, list[int]] = {}
    for (_, table_id), cursor in read_cursors(reader).items():
        seqs.setdefault(table_id, []).append(-1 if cursor.needs_refresh else cursor.seq)
    found = []
    for table_id, last, purged in reader.query("SELECT table_id, last_seq, purged_seq FROM table_seq WHERE last_seq > purged_seq"):
        known = seqs.get(table_id, [])
        holding = [seq for seq in known if seq >= 0] + [0] * (len(Component) - len(known))
        if min(holding, default=last) > purged or last - min(holding, default=last) > cap:
            found.append(table_id)
    return found


def _save_positions(tx: Transaction, positions: Sequence[Position]) -> dict[LaneKey, Cursor]:
    ids = sorted({position.table_id for position in positions})
    ends = last_journal_numbers(tx, ids)
    rows = [
        (p.component.value, p.table_id, p.seq, p.epoch, int(p.needs_refresh), tx.now)
        for p in positions
        if p.seq <= ends.get(p.table_id, -1)  # a position beyond the journal's end is ignored
    ]
    if rows:
        tx.run_many(_SAVE, rows)
    found = {(Component(row[0]), row[1]): _cursor(row) for row in tx.query(f"{_ALL} WHERE table_id IN (:ids*)", {"ids": ids})}
    refused = {}
    for p in positions:
        stored = found.get((p.component, p.table_id)) or Cursor(component=p.component, seq=0, epoch=p.epoch, needs_refresh=True)
        if (stored.seq, stored.epoch, stored.needs_refresh) != (p.seq, p.epoch, p.needs_refresh):
            refused[p.component, p.table_id] = stored
    return refused


def _add_drops(tx: Transaction, drops: Sequence[Undelivered]) -> None:
    if drops:
        columns = ("component", "table_id", "seq", "attempts", "error", "at")
        tx.insert("dead_letter", columns, [(d.component.value, d.table_id, d.seq, d.attempts, d.error, tx.now) for d in drops])
    for drop in drops:
        if drop.parked:
            value = json.dumps({"error": drop.error, "retry": False, "seq": drop.seq}, sort_keys=True)
            set_value(tx, _key(drop.component, drop.table_id), value)
            tx.run(_DEGRADE, {"table_id": drop.table_id, "now": tx.modified_at(tx.tables[drop.table_id])})


def _heal(tx: Transaction, component: Component, table_id: int) -> None:
    """The table is healthy again when no other lane of it is parked, and no other program's commit stops it."""
    tx.run(_RESOLVE, {"component": component.value, "table_id": table_id, "now": tx.now})
    if not delete_value(tx, _key(component, table_id)):
        return
    stopped = find_value(tx, f"{STOPPED}{table_id}") is not None
    if not stopped and not any(other == table_id for _, other in list_parked(tx)):
        tx.run(_HEAL, {"table_id": table_id, "now": tx.modified_at(tx.tables[table_id])})


def _key(component: Component, table_id: int) -> str:
    return f"{_PARKED}{component.value}/{table_id}"


def _lane_of(key: str) -> LaneKey:
    component, table_id = key.split("/")
    return Component(component), int(table_id)


def _parked(stored: dict[str, Any]) -> Parked:
    return Parked(seq=stored["seq"], error=stored["error"], retry=stored["retry"])


def _cursor(row: tuple[Any, ...]) -> Cursor:
    return Cursor(component=Component(row[0]), seq=row[2], epoch=row[3], needs_refresh=bool(row[4]))


def _letter(row: tuple[Any, ...]) -> DeadLetter:
    return DeadLetter(
        letter_id=row[0],
        component=Component(row[1]),
        table_id=row[2],
        seq=row[3],
        attempts=row[4],
        error=row[5],
        at=from_micros(row[6]),
        resolved_at=None if row[7] is None else from_micros(row[7]),
    )
