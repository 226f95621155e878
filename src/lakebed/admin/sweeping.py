"""Orphans: files that no table, queue, open operation or snapshot knows. They are queued, and deleted like retired files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING

from lakebed.admin.actors import find_actor
from lakebed.core.errors import InvalidValueError
from lakebed.core.orphans import Needed, Orphan
from lakebed.core.results import Rows
from lakebed.core.times import from_micros
from lakebed.registry.orphans import list_unknown
from lakebed.registry.retire import DEFAULT_GRACE_US
from lakebed.registry.runs import add_run, finish_run
from lakebed.registry.temporary_files import queue_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakebed.registry.engine import Registry
    from lakebed.registry.transaction import Transaction
    from lakebed.storage.access import FileFacts, Storage

LEAST_AGE = timedelta(hours=1)
DEFAULT_AGE = timedelta(days=1)
MAX_FILES = 10_000
_BATCH = 1000
_TABLE = re.compile(r"\w+/\w+-(\d{1,19})/", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What was found and, unless it was a preview, queued: deleted by the clean-up once the grace has passed, not before."""

    orphans: Rows[Orphan]
    dry_run: bool
    is_complete: bool  # False: there are more than the call may touch

    @property
    def size_bytes(self) -> int:
        return sum(orphan.size_bytes for orphan in self.orphans)


def sweep_orphans(
    registry: Registry,
    storage: Storage,
    *,
    find_needed: Callable[[], Needed],
    older_than: timedelta = DEFAULT_AGE,
    dry_run: bool = True,
    max_files: int = MAX_FILES,
    grace_s: float = DEFAULT_GRACE_US / 1e6,
    actor: str | None = None,
) -> Sweep:
    """Find files that nobody needs and, unless it is a preview, queue them for deletion.

    Files younger than `older_than` (an hour at least) are left alone: a commit writes its metadata before anything points to it.
    A file that is registered while it waits in the queue is kept.
    """
    if older_than < LEAST_AGE:
        message = f"older_than={older_than}: files of commits under way would look like orphans; give an hour at least"
        raise InvalidValueError(message)
    before = registry.now() - older_than // timedelta(microseconds=1)
    needed = find_needed()  # first: what a later commit gives up was needed a moment ago
    found = list(islice(_find(registry, storage, needed, before), max_files + 1))
    orphans = Rows(Orphan, found[:max_files])
    if not dry_run and orphans:
        _queue(registry, orphans, storage=storage, grace_us=int(grace_s * 1e6), actor=find_actor(actor))
    return Sweep(orphans=orphans, dry_run=dry_run, is_complete=len(found) <= max_files)


def _find(registry: Registry, storage: Storage, needed: Needed, before: int) -> Iterator[Orphan]:
    files = (f for f in storage.list_files(storage.paths.root) if f.modified_micros < before and not needed.holds(f.path))
    while batch := list(islice(files, _BATCH)):
        unknown = list_unknown(registry, [facts.path for facts in batch])
        yield from (_orphan(facts) for facts in batch if facts.path in unknown)


def _orphan(facts: FileFacts) -> Orphan:
    return Orphan(path=facts.path, size_bytes=facts.size_bytes, modified_at=from_micros(facts.modified_micros))


def _queue(registry: Registry, orphans: Rows[Orphan], *, storage: Storage, grace_us: int, actor: str) -> None:
    total = sum(orphan.size_bytes for orphan in orphans)

    def body(tx: Transaction) -> None:
        run = add_run(tx, "sweep_orphans", actor=actor, plan={"files": len(orphans), "bytes": total})
        for orphan in orphans:
            table_id = _table_of(storage, orphan.path)
            queue_files(tx, table_id, {orphan.path: orphan.size_bytes}, reason="orphan", grace_us=grace_us)
        finish_run(tx, run, state="done", result={"queued": len(orphans)})

    registry.transact(body, tables=[])


def _table_of(storage: Storage, path: str) -> int:
    """By its directory; 0 for a file that lies in no table's."""
    found = _TABLE.match(storage.paths.relative(path))
    return int(found[1]) if found else 0
