"""The snapshotter decides when pending files get their group and which snapshots expire. It never touches the catalog."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from lakebed.core.events import COMPONENT_SUBSCRIPTIONS, ChangeKind, Component
from lakebed.core.rows import TableFiles, TableMetadata, TableSnapshots
from lakebed.core.tables.snapshots import (
    KeptSnapshot,
    Pending,
    Retention,
    SnapshotPolicy,
    SnapshotRequests,
    Trigger,
    parse_requests,
    parse_retention,
    parse_snapshot_policy,
    plan_expiry,
)
from lakebed.core.times import to_micros
from lakebed.registry.journal.changes import last_journal_number
from lakebed.registry.snapshots.foreign import FOREIGN, read_refs
from lakebed.registry.snapshots.history import list_snapshots
from lakebed.registry.snapshots.requests import read_properties, request_expiry
from lakebed.registry.tables.groups import read_pending, seal_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.core.events import Event, RegistryTable
    from lakebed.registry.registry import Registry

PACE_S = 0.2  # between two seals of one table: more frequent inserts share a group and its commit
_PLAN_EVERY_US = 60 * 1_000_000  # expiry is planned at most once a minute: a request costs a registry transaction and an Iceberg commit
_LOOK_EVERY_S = 10.0
_NOTHING = Pending()


@dataclass(slots=True)
class _Table:
    """The state of one lake table in the snapshotter."""

    policy: SnapshotPolicy = field(default_factory=SnapshotPolicy)
    retention: Retention = field(default_factory=Retention)
    requested: SnapshotRequests = field(default_factory=SnapshotRequests)
    pending: Pending = _NOTHING
    sealed_upto: int = 0  # files of changes up to this number are sealed, independent of their event
    snapshots: dict[int, KeptSnapshot] = field(default_factory=dict)
    planned_at: int = 0
    sealed_at: float = -math.inf  # monotonic time
    lock: threading.RLock = field(default_factory=threading.RLock)  # events of one table come one by one, with ticks in between


class Snapshotter:
    """Seals by the table's own policy. `expires=False` keeps every snapshot: a process that only publishes never expires any."""

    def __init__(
        self, registry: Registry, *, expires: bool = True, pace_s: float = PACE_S, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._registry, self._expires, self._pace_s, self._monotonic = registry, expires, pace_s, monotonic
        self._looked_at = -math.inf
        self._tables: dict[int, _Table] = {}

    def get_subscribed_tables(self) -> frozenset[RegistryTable]:
        return COMPONENT_SUBSCRIPTIONS[Component.SNAPSHOTTER]

    def on_health(self) -> None:
        self._registry.query("SELECT 1")

    def on_refresh(self, table_id: int) -> int:
        """Read policy, pending files and kept snapshots from one snapshot of the registry; seal at once if due."""
        with self._registry.read() as reader:
            mark = last_journal_number(reader, table_id)
            properties = read_properties(reader, table_id)
            pending = read_pending(reader, table_id)
            kept = list_snapshots(reader, table_id)
        state = _Table(pending=pending, sealed_upto=0 if pending.files else mark)
        _configure(state, properties)
        state.snapshots = {s.snapshot_id: _kept(s) for s in kept}
        self._tables[table_id] = state
        self._seal_if_due(table_id, state)
        return mark

    def on_event(self, event: Event[TableMetadata | TableFiles | TableSnapshots]) -> None:
        state = self._tables.setdefault(event.table_id, _Table())
        with state.lock:
            match event.data:
                case TableMetadata(standing="serving", properties=properties):
                    _configure(state, properties)
                case TableMetadata():
                    pass  # not visible to readers yet, or no longer
                case TableFiles():
                    before = event.before if isinstance(event.before, TableFiles) else None
                    _count(state, event.operation, event.data, before, sequence=event.sequence)
                case TableSnapshots():
                    _remember(state, event.operation, event.data)
                    self._expire_if_due(event.table_id, state)
                case unreachable:
                    assert_never(unreachable)
            self._seal_if_due(event.table_id, state)

    def tick(self) -> None:
        """Work that becomes due by time: deferred seals, elapsed intervals, old snapshots."""
        looks = self._monotonic() - self._looked_at >= _LOOK_EVERY_S
        if looks:
            self._looked_at = self._monotonic()
        for table_id, state in list(self._tables.items()):
            self._seal_if_due(table_id, state)
            if looks:
                self._expire_if_due(table_id, state)

    def flush(self) -> bool:
        """Seal deferred groups now; whether there were any."""
        done = [self._seal_if_due(table_id, state, paced=False) for table_id, state in list(self._tables.items())]
        return any(done)

    def _seal_if_due(self, table_id: int, state: _Table, *, paced: bool = True) -> bool:
        with state.lock:
            if not state.pending.files or not state.policy.is_due(state.pending, now=self._now(state.policy)):
                return False
            if paced and self._monotonic() - state.sealed_at < self._pace_s:
                return False  # the next tick
            sealed = seal_table(self._registry, table_id, trigger=state.policy.trigger)
            state.sealed_at = self._monotonic()
            state.sealed_upto = max(state.sealed_upto, sealed.upto)
            state.pending = _NOTHING
            return sealed.group is not None

    def _now(self, policy: SnapshotPolicy) -> int:
        """The registry's clock, read only where time decides: on PostgreSQL that is a round trip."""
        return self._registry.now() if policy.trigger is Trigger.TIME else 0

    def _expire_if_due(self, table_id: int, state: _Table) -> None:
        if not self._expires:
            return
        now = self._registry.now()
        with state.lock:
            if 0 <= now - state.planned_at < _PLAN_EVERY_US:  # otherwise the clock was ahead and was set back
                return
            state.planned_at = now
            pinned = read_refs(self._registry, table_id).pinned
            protected = {*state.requested.tags.values(), *state.requested.branches.values(), *pinned}
            gone = plan_expiry(list(state.snapshots.values()), state.retention, now=now, protected=protected)
        if gone:
            self._registry.transact(lambda tx: request_expiry(tx, table_id, gone), tables=[table_id])


def _configure(state: _Table, properties: str) -> None:
    state.policy, state.retention = parse_snapshot_policy(properties), parse_retention(properties)
    state.requested = parse_requests(properties)


def _count(state: _Table, operation: ChangeKind, file: TableFiles, before: TableFiles | None, *, sequence: int) -> None:
    if file.file_type != "parquet" or sequence <= state.sealed_upto:
        return
    is_pending = operation is not ChangeKind.DELETE and _waits(file)
    was_pending = before is not None and _waits(before)
    if is_pending and not was_pending:
        since = state.pending.since if state.pending.files else to_micros(file.created_at)
        state.pending = _plus(state.pending, file, sign=1, since=since)
    elif was_pending and not is_pending:
        state.pending = _plus(state.pending, file, sign=-1, since=state.pending.since)


def _waits(file: TableFiles) -> bool:
    return file.added_group is None and file.retired_seq is None


def _plus(pending: Pending, file: TableFiles, *, sign: int, since: int) -> Pending:
    """Never negative: after our own seal, events arrive for files that are already subtracted."""
    files = max(0, pending.files + sign)
    if not files:
        return _NOTHING
    return Pending(
        files=files, rows=max(0, pending.rows + sign * file.row_count), bytes=max(0, pending.bytes + sign * file.file_size), since=since
    )


def _remember(state: _Table, operation: ChangeKind, snapshot: TableSnapshots) -> None:
    if operation is ChangeKind.DELETE or snapshot.expired_at is not None:
        state.snapshots.pop(snapshot.snapshot_id, None)
    else:
        state.snapshots[snapshot.snapshot_id] = _kept(snapshot)


def _kept(snapshot: TableSnapshots) -> KeptSnapshot:
    return KeptSnapshot(snapshot_id=snapshot.snapshot_id, at=snapshot.timestamp_ms * 1000, is_foreign=snapshot.trigger == FOREIGN)
