"""Orphans: files that no table, queue, open operation or snapshot references. They are queued and deleted like retired files.

Files that an import or an adoption left out are recorded, and do not count as orphans until a person releases them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING

from lakebed.admin.audit import find_actor
from lakebed.admin.lists import MAX_LIMIT, find_id
from lakebed.core.errors import InvalidValueError, RegistryBehindError
from lakebed.core.files import Needed, Orphan, SkippedTable
from lakebed.core.results import Rows, single_result
from lakebed.core.times import from_micros, read_age
from lakebed.registry.files.deletion_queue import ORPHAN, queue_files
from lakebed.registry.files.known_paths import give_up_operations, list_unknown, list_unknown_operations
from lakebed.registry.files.left_out import LeftOutFile, drop_records, find_left_out, list_left_out
from lakebed.registry.maintenance.runs import add_run, finish_run
from lakebed.registry.partitions.retire import DEFAULT_GRACE_S
from lakebed.registry.tables.lake_tables import list_all_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Transaction
    from lakebed.storage.protocol import FileFacts, Storage

LEAST_AGE = timedelta(hours=1)
DEFAULT_AGE = timedelta(days=1)
MAX_FILES = 10_000
_BATCH = 1000
_TABLE = re.compile(r"\w+/\w+-(\d{1,19})/", re.ASCII)


@single_result
@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The orphans found and, unless it was a dry run, queued: the clean-up deletes them once the grace period has passed, not before."""

    orphans: Rows[Orphan]
    dry_run: bool
    newer: int  # operations of another history of this lake: while there are any, nothing is swept
    is_complete: bool  # False: there are more files than the call may touch
    skipped: tuple[SkippedTable, ...] = ()  # tables whose directories were skipped

    @property
    def size_bytes(self) -> int:
        return sum(orphan.size_bytes for orphan in self.orphans)


@single_result
@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """The files removed from the record, or in a dry run to be removed; they stay in place until a sweep deletes them."""

    files: Rows[LeftOutFile]
    dry_run: bool


def sweep_orphans(  # noqa: PLR0913 - one keyword per choice
    registry: Registry,
    storage: Storage,
    *,
    find_needed: Callable[[], Needed],
    older_than: timedelta | str = DEFAULT_AGE,
    dry_run: bool = True,
    max_files: int = MAX_FILES,
    grace_s: float = DEFAULT_GRACE_S,
    actor: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Sweep:
    """Find files that nothing references and, unless it is a dry run, queue them for deletion.

    A table to which another program committed is skipped until that commit is resolved, as is one whose metadata cannot be read.

    Files younger than `older_than` (at least an hour) are skipped: a commit writes its metadata before anything points to it.
    A file that is registered while it waits in the queue is kept. Files of operations that this registry does not know show that it was
    restored from an older backup: then nothing is swept until a person releases those files.
    """
    older_than = read_age(older_than, what="older_than")
    if older_than < LEAST_AGE:
        message = f"older_than={older_than} is too short: files of running commits would look like orphans; give at least an hour"
        raise InvalidValueError(message)
    before = registry.now() - older_than // timedelta(microseconds=1)
    needed = find_needed()  # read first: a file that a later commit releases still counts as needed
    seen = _with_progress(storage.list_files(storage.paths.root), progress or (lambda _: None))
    found = list(islice(_find(registry, seen, needed, before), max_files + 1))
    newer = list_newer(registry, storage, (orphan.path for orphan in found))
    if newer and not dry_run:
        raise RegistryBehindError(storage.paths.root, operations=len(newer), example=next(iter(newer.values())))
    orphans = Rows(Orphan, found[:max_files])
    if not dry_run and orphans:
        _queue(registry, orphans, storage=storage, grace_us=int(grace_s * 1e6), actor=find_actor(actor))
    is_complete = len(found) <= max_files
    return Sweep(orphans=orphans, dry_run=dry_run, newer=len(newer), is_complete=is_complete, skipped=needed.skipped)


def _with_progress(files: Iterable[FileFacts], progress: Callable[[int], None]) -> Iterator[FileFacts]:
    """The total is unknown until the last file has been listed."""
    for number, facts in enumerate(files, 1):
        yield facts
        if number % _BATCH == 0:
            progress(number)


def _find(registry: Registry, seen: Iterator[FileFacts], needed: Needed, before: int) -> Iterator[Orphan]:
    files = (facts for facts in seen if facts.modified_micros < before and not needed.holds(facts.path))
    while batch := list(islice(files, _BATCH)):
        unknown = list_unknown(registry, [facts.path for facts in batch])
        unknown -= find_left_out(registry, unknown)
        yield from (_orphan(facts) for facts in batch if facts.path in unknown)


def list_newer(registry: Registry, storage: Storage, paths: Iterable[str]) -> dict[str, str]:
    """Operations that wrote some of `paths` and are unknown to the registry, each with one of its files."""
    examples: dict[str, str] = {}
    for path in paths:
        directory = storage.paths.find_operation_directory(path)
        if directory is not None:
            examples.setdefault(directory.rpartition("/")[2], path)
    op_ids = list(examples)
    unknown = {
        op_id for start in range(0, len(op_ids), _BATCH) for op_id in list_unknown_operations(registry, op_ids[start : start + _BATCH])
    }
    return {op_id: path for op_id, path in examples.items() if op_id in unknown}


def give_up_newer_files(registry: Registry, storage: Storage, *, actor: str | None = None) -> int:
    """Declare this registry, restored from a backup, the lake's history: files of later operations may be swept. Return their number."""
    newer = list_newer(registry, storage, (facts.path for facts in storage.list_files(storage.paths.root)))
    known = {row.id for row in list_all_tables(registry)}
    table_ids = {op_id: _table_of(storage, path, known) for op_id, path in newer.items()}

    def body(tx: Transaction) -> int:
        run = add_run(tx, "give_up_newer", actor=find_actor(actor), plan={"operations": len(newer)})
        done = give_up_operations(tx, list(newer), table_ids)
        finish_run(tx, run, state="done", result={"given_up": done})
        return done

    return registry.transact(body, tables=[]) if newer else 0


def _orphan(facts: FileFacts) -> Orphan:
    return Orphan(path=facts.path, size_bytes=facts.size_bytes, modified_at=from_micros(facts.modified_micros))


def _queue(registry: Registry, orphans: Rows[Orphan], *, storage: Storage, grace_us: int, actor: str) -> None:
    total, known = sum(orphan.size_bytes for orphan in orphans), {row.id for row in list_all_tables(registry)}

    def body(tx: Transaction) -> None:
        run = add_run(tx, "sweep_orphans", actor=actor, plan={"files": len(orphans), "bytes": total})
        for orphan in orphans:
            table_id = _table_of(storage, orphan.path, known)
            queue_files(tx, table_id, {orphan.path: orphan.size_bytes}, reason=ORPHAN, grace_us=grace_us)
        finish_run(tx, run, state="done", result={"queued": len(orphans)})

    registry.transact(body, tables=[])


def _table_of(storage: Storage, path: str, known: AbstractSet[int]) -> int:
    """The table whose directory holds the file; 0 if it is in no known table's directory."""
    found = _TABLE.match(storage.paths.relative(path))
    return int(found[1]) if found and int(found[1]) in known else 0


def list_left_out_files(registry: Registry, table: str | None = None, *, after: str = "", limit: int = MAX_LIMIT) -> Rows[LeftOutFile]:
    """Files in the warehouse that an import or an adoption did not register, ordered by path.

    No check, sweep or repair treats them as orphans. Pass the last path as `after` for the next page.
    """
    return list_left_out(registry, table_id=find_id(registry, table) or 0, after=after, limit=limit)


def forget_left_out_files(
    registry: Registry, storage: Storage, paths: Sequence[str], *, dry_run: bool = True, actor: str | None = None
) -> Forgotten:
    """Remove files from the record of left-out files, so that a later sweep may delete them. A dry run unless `dry_run=False`."""
    wanted = {storage.canonical(path) for path in paths}
    files = [row for row in list_left_out(registry, limit=MAX_LIMIT) if row.file_path in wanted]
    if unknown := sorted(wanted - {row.file_path for row in files}):
        message = f"{unknown[0]} is not recorded as left out: `lakebed files left-out` lists the recorded files"
        raise InvalidValueError(message)

    def body(tx: Transaction) -> None:
        run = add_run(tx, "forget_left_out", actor=find_actor(actor), plan={"files": sorted(wanted)})
        finish_run(tx, run, state="done", result={"forgotten": drop_records(tx, sorted(wanted))})

    if files and not dry_run:
        registry.transact(body, tables=[])
    return Forgotten(files=Rows(LeftOutFile, files), dry_run=dry_run)
