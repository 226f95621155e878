"""Clean-up and recovery tasks that need both the registry and the storage. Nothing here prints."""

from __future__ import annotations

import itertools
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakebed.core.errors import InvalidValueError
from lakebed.core.files import Needed
from lakebed.core.results import single_result
from lakebed.registry.files.deletion_queue import BATCH, ORPHAN, Claim, claim_expired, finalize_deleted, release_failed, release_needed
from lakebed.registry.files.operations import finish_rollback, list_expired_operations, take_expired
from lakebed.registry.maintenance.open_runs import close_ended_runs
from lakebed.registry.snapshots.foreign import list_tables_with_foreign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import DeleteOutcome, Storage

_CHUNK = 32
_DELETERS = 8  # a deletion waits for the disk or the network, not for a processor
_FIRST = 128  # files of the first claim: small, so that deletion starts before a whole batch is claimed


@single_result
@dataclass(frozen=True, slots=True, kw_only=True)
class CleanUp:
    """`deleted` counts files that were deleted together with their rows. `failed` maps each other file to the storage's reason; it stays queued.

    `kept` counts queued orphans that an Iceberg commit took into use meanwhile: they were removed from the queue.
    """

    deleted: int = 0
    bytes_freed: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    kept: int = 0


def delete_expired_temporary_files(
    registry: Registry,
    storage: Storage,
    *,
    find_needed: Callable[[], Needed] | None = None,
    batch_size: int = BATCH,
    max_batches: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> CleanUp:
    """Claim files, delete them outside any transaction and finalize, batch by batch. Any number of processes may run this at once.

    `find_needed` is called before the first orphan is deleted: no file row protects orphans, and a commit may have taken one into use.
    """
    if batch_size < 1 or (max_batches is not None and max_batches < 1):
        message = f"batch_size={batch_size} and max_batches={max_batches} must be positive"
        raise InvalidValueError(message)
    claims = (claim_expired(registry, limit=limit) for limit in _list_limits(batch_size, max_batches))
    with ThreadPoolExecutor(max_workers=_DELETERS, thread_name_prefix="lakebed-delete") as pool:
        cleaning = _Cleaning(registry=registry, storage=storage, pool=pool, progress=progress, find_needed=find_needed)
        for claim in itertools.takewhile(lambda claim: claim.files, claims):
            cleaning.take(claim)
        cleaning.finalize()
    return CleanUp(deleted=cleaning.deleted, bytes_freed=cleaning.freed, failed=cleaning.failed, kept=cleaning.kept)


def _list_limits(batch_size: int, max_batches: int | None) -> Iterator[int]:
    """The number of files of each claim; the first batch is split in two."""
    first = min(_FIRST, batch_size)
    others = itertools.repeat(batch_size) if max_batches is None else itertools.repeat(batch_size, max_batches - 1)
    return filter(None, itertools.chain((first, batch_size - first), others))


def recover_operations(registry: Registry, storage: Storage) -> list[str]:
    """Undo the operations of dead writers: claim the operation, delete its directory, close it. Return the ids of the undone operations.

    Runs whose process has certainly ended are closed as failed.
    """
    storage.clear_scratch()
    undone: list[str] = []
    close_ended_runs(registry)
    while expired := list_expired_operations(registry):
        before = len(undone)
        for operation in expired:
            with registry.write([operation.table_id]) as tx:
                taken = take_expired(tx, operation.op_id, error="the writer's lease expired")
            if taken is None:
                continue
            if taken.staging_path is not None:
                storage.delete_tree(taken.staging_path)
            with registry.write([operation.table_id]) as tx:
                finish_rollback(tx, operation.op_id)
            undone.append(operation.op_id)
        if len(undone) == before:
            break
    return undone


@dataclass(slots=True, kw_only=True)
class _Cleaning:
    """The storage deletes one claim while the registry finalizes the previous one and makes the next, so that deletion never waits."""

    registry: Registry
    storage: Storage
    pool: ThreadPoolExecutor
    progress: Callable[[int], None] | None
    find_needed: Callable[[], Needed] | None
    needed: Needed | None = None
    under_way: list[tuple[Claim, list[Future[list[DeleteOutcome]]]]] = field(default_factory=list)
    deleted: int = 0
    freed: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    kept: int = 0
    foreign: Needed | None = None

    def take(self, claim: Claim) -> None:
        claim = self._hold_back(self._without_needed(claim))
        paths = [file.path for file in claim.files]
        chunks = [self.pool.submit(_delete, self.storage, paths[start : start + _CHUNK]) for start in range(0, len(paths), _CHUNK)]
        self.finalize()
        self.under_way.append((claim, chunks))

    def _without_needed(self, claim: Claim) -> Claim:
        orphans = [file.path for file in claim.files if file.reason == ORPHAN]
        if self.find_needed is None or not orphans:
            return claim
        self.needed = self.needed or self.find_needed()
        needed = {path for path in orphans if self.needed.holds(path)}
        self.kept += release_needed(self.registry, claim, sorted(needed))
        return replace(claim, files=tuple(file for file in claim.files if file.path not in needed))

    def _hold_back(self, claim: Claim) -> Claim:
        """Leave out files that a kept snapshot of another program reaches; no group records that need. They stay queued."""
        if self.foreign is None:
            self.foreign = _find_foreign_files(self.registry, self.storage)
        needed = {file.path for file in claim.files if self.foreign.holds(file.path)}
        release_failed(self.registry, claim, sorted(needed))
        return replace(claim, files=tuple(file for file in claim.files if file.path not in needed)) if needed else claim

    def finalize(self) -> None:
        """Remove the rows of each claim in one transaction per claim."""
        while self.under_way:
            claim, chunks = self.under_way.pop()
            self._finalize(claim, [outcome for chunk in chunks for outcome in chunk.result()])
            if self.progress is not None:
                self.progress(self.deleted)

    def _finalize(self, claim: Claim, outcomes: list[DeleteOutcome]) -> None:
        gone = [outcome.path for outcome in outcomes if outcome.gone]
        finalized = finalize_deleted(self.registry, claim, gone)
        self.deleted += finalized
        if finalized == len(gone):
            sizes = {file.path: file.size_bytes for file in claim.files}
            self.freed += sum(sizes[path] for path in gone)
        refused = {outcome.path: outcome.reason for outcome in outcomes if not outcome.gone}
        release_failed(self.registry, claim, list(refused))
        self.failed |= refused


def _delete(storage: Storage, paths: list[str]) -> list[DeleteOutcome]:
    outcomes = storage.delete(paths)
    storage.remove_empty_directories([outcome.path for outcome in outcomes if outcome.gone])
    return outcomes


def _find_foreign_files(registry: Registry, storage: Storage) -> Needed:
    if not (table_ids := list_tables_with_foreign(registry)):
        return Needed()
    from lakebed.iceberg.upkeep.foreign import find_foreign_files  # noqa: PLC0415 - Iceberg's library is slow to load and rarely needed here

    return find_foreign_files(registry, storage, table_ids)
