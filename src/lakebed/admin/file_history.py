"""`why(file)`: every event of a file from intent to deletion, and why the file exists now or does not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.core.errors import FileMissingError, LakebedError
from lakebed.core.events import ChangeKind
from lakebed.core.results import Rows, single_result
from lakebed.core.rows import TableFiles
from lakebed.core.times import from_micros, show
from lakebed.registry.files import known_paths
from lakebed.registry.journal.changes import read_changes_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from lakebed.registry.files.known_paths import KnownFile
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Reader
    from lakebed.storage.protocol import Storage

_TABLE = re.compile(r"\w+/\w+-(\d{1,19})/", re.ASCII)
_OP_ID = re.compile(r"/data/([0-9a-f]{32})/", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEvent:
    """`source` names the record it was read from: operations, journal, table_snapshots, temporary_files, runs, leases or storage."""

    at: datetime | None
    what: str
    detail: str
    source: str


@single_result
@dataclass(frozen=True, slots=True, kw_only=True)
class FileHistory:
    """`state` is writing, live, retired, queued, deleted, orphan or unknown; `because` gives the reason in one sentence."""

    path: str
    table: str | None
    state: str
    because: str
    events: Rows[FileEvent]


def why(registry: Registry, storage: Storage, path: str) -> FileHistory:
    """The recorded events of a path, oldest first, from one snapshot of the registry. Nothing is changed."""
    canonical, now = storage.canonical(path), registry.now()
    there = _look(storage, canonical)
    with registry.read() as reader:
        known = known_paths.find_file(reader, canonical)
        found = _Found(reader=reader, path=canonical, relative=storage.paths.relative(canonical), known=known, now=now)
        events = sorted(found.events(), key=lambda event: (event.at is None, event.at.timestamp() if event.at else 0.0))
        state, because = found.state(is_there=there is not None, has_events=bool(events))
        table = found.table
    events.append(there or FileEvent(at=None, what="not there", detail="the storage has no such file", source="storage"))
    return FileHistory(path=canonical, table=table, state=state, because=because, events=Rows(FileEvent, events))


def _look(storage: Storage, path: str) -> FileEvent | None:
    try:
        facts = storage.stat(path)
    except FileMissingError:
        return None
    except LakebedError as exc:
        return FileEvent(at=None, what="in the way", detail=str(exc), source="storage")
    return FileEvent(at=from_micros(facts.modified_micros), what="there", detail=f"{facts.size_bytes} bytes", source="storage")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    reader: Reader
    path: str
    relative: str
    known: KnownFile | None
    now: int

    @property
    def table_id(self) -> int | None:
        if self.known is not None:
            return self.known.table_id
        named = _TABLE.match(self.relative)
        return int(named[1]) if named else None

    @property
    def table(self) -> str | None:
        return None if self.table_id is None else known_paths.find_table_name(self.reader, self.table_id)

    def events(self) -> Iterator[FileEvent]:
        yield from self._intent()
        journal = list(self._journal())
        journaled = {event.what for event in journal}
        yield from journal
        yield from (event for event in self._row() if event.what not in journaled)
        yield from self._snapshots()
        yield from self._queue()

    def _intent(self) -> Iterator[FileEvent]:
        named = _OP_ID.search(f"/{self.relative}")
        row = known_paths.find_intent(self.reader, named[1]) if named else None
        if row is None:
            return
        op_id, _, kind, state, created, updated, lease, error, app_id, batch_id = row
        batch = f", batch {batch_id} of {app_id}" if app_id is not None else ""
        yield _event(created, "intent", f"operation {op_id} ({kind}{batch}) was opened", "operations")
        if state == "writing":
            yield _event(updated, "writing", f"its lease runs until {show(lease)}", "operations")
        else:
            yield _event(updated, state, f"operation {op_id}{': ' + error if error else ''}", "operations")

    def _journal(self) -> Iterator[FileEvent]:
        if self.table_id is None:
            return
        for event in read_changes_of(self.reader, self.table_id, self.path):
            if isinstance(event.data, TableFiles) and event.data.file_path == self.path:
                before = event.before if isinstance(event.before, TableFiles) else None
                what, detail = _describe_change(event.operation, event.data, before)
                yield FileEvent(at=event.timestamp, what=what, detail=f"change {event.sequence}: {detail}", source="journal")

    def _row(self) -> Iterator[FileEvent]:
        """For files whose journal entries were purged: the facts that the row itself holds."""
        if self.known is None:
            return
        yield _event(self.known.created_at, "registered", f"number {self.known.added_seq}, {_slice(self.known)}", "table_files")
        if self.known.retired_seq is not None:
            yield _event(self.known.modified_at, "retired", f"number {self.known.retired_seq}", "table_files")

    def _snapshots(self) -> Iterator[FileEvent]:
        if self.known is None:
            return
        for group, what in ((self.known.added_group, "entered Iceberg"), (self.known.removed_group, "left Iceberg")):
            row = None if group is None else known_paths.find_snapshot_at(self.reader, self.known.table_id, group)
            if row is not None:
                expired = "" if row[4] is None else f", expired {show(row[4])}"
                yield _event(row[2] * 1000, what, f"snapshot {row[0]} ({row[3]}, group {row[1]}){expired}", "table_snapshots")

    def _queue(self) -> Iterator[FileEvent]:
        row = known_paths.find_queued(self.reader, self.path)
        if row is None:
            return
        table_id, at, expiration, reason, attempts, claimed = row
        for run_id, job, state, actor, started in known_paths.list_runs_at(self.reader, table_id, at):
            yield _event(started, "run", f"run {run_id}, {job} by {actor} ({state})", "runs")
        tried = f", {attempts} attempt(s) failed" if attempts else ""
        held = f", claimed until {show(claimed)}" if claimed is not None else ""
        yield _event(at, "queued", f"{reason}, may be deleted from {show(expiration)}{tried}{held}", "temporary_files")

    def state(self, *, is_there: bool, has_events: bool) -> tuple[str, str]:
        queued = known_paths.find_queued(self.reader, self.path)
        if self.known is not None and self.known.retired_seq is None:
            return "live", "readers see it" if is_there else "it is registered but missing from the storage: run `lakebed check`"
        if self.known is not None:
            return "retired", self._why_kept(queued)
        if queued is not None:
            return "queued", f"no file row names it ({queued[3]}); it may be deleted from {show(queued[2])}"
        return self._without_rows(is_there=is_there, has_events=has_events)

    def _without_rows(self, *, is_there: bool, has_events: bool) -> tuple[str, str]:
        named = _OP_ID.search(f"/{self.relative}")
        intent = known_paths.find_intent(self.reader, named[1]) if named else None
        if is_there and intent is not None and intent[3] in {"writing", "rolling_back"}:
            return "writing", "its operation is still open; no reader sees it"
        if is_there:
            return "orphan", "no row of the registry names it: `lakebed clean orphans` queues it for deletion once it is old enough"
        return (
            ("deleted", "it was registered and has been deleted")
            if has_events
            else ("unknown", "the lake has no record of this file: check the spelling")
        )

    def _why_kept(self, queued: tuple[object, ...] | None) -> str:
        known = self.known
        if known is None or known.retired_seq is None or queued is None:
            return "it is retired but not queued for deletion: run `lakebed repair` to queue it"
        reasons = []
        if int(str(queued[2])) > self.now:
            reasons.append(f"its grace period ends at {show(int(str(queued[2])))}")
        holders = known_paths.list_holders(self.reader, known.table_id, retired_seq=known.retired_seq, now=self.now)
        reasons += [f"{owner} reads it under the lease {name} until {show(until)}" for name, owner, until in holders]
        if known.added_group is not None and known.removed_group is not None:
            keeping = known_paths.count_keeping(self.reader, known.table_id, added=known.added_group, removed=known.removed_group)
            reasons += [f"{keeping} kept snapshot(s) reference it"] if keeping else []
        return (
            "it is kept because " + " and ".join(reasons)
            if reasons
            else "the next clean-up deletes it, once Iceberg no longer references it"
        )


def _event(at: int, what: str, detail: str, source: str) -> FileEvent:
    return FileEvent(at=from_micros(at), what=what, detail=detail, source=source)


def _slice(known: KnownFile) -> str:
    if known.begin is None or known.end is None:
        return f"partition {known.partition_id}"
    return f"partition {known.partition_id}, {known.instance} [{show(known.begin)}, {show(known.end)})"


def _describe_change(operation: ChangeKind, after: TableFiles, before: TableFiles | None) -> tuple[str, str]:
    match operation:
        case ChangeKind.INSERT:
            return "registered", f"{after.row_count} rows, {after.file_size} bytes"
        case ChangeKind.DELETE:
            return "deleted", "file row, footer and statistics were deleted with the object"
        case ChangeKind.UPDATE:
            return _describe_update(after, before)


def _describe_update(after: TableFiles, before: TableFiles | None) -> tuple[str, str]:
    if before is not None and before.retired_seq is None and after.retired_seq is not None:
        return "retired", f"number {after.retired_seq}"
    if before is not None and before.partition_id != after.partition_id:
        return "moved", f"from partition {before.partition_id} to {after.partition_id}"
    if before is not None and before.added_group is None and after.added_group is not None:
        return "sealed", f"into group {after.added_group}"
    return "changed", f"groups {after.added_group} to {after.removed_group}"
