"""Clean-up and recovery: what needs registry and storage together. Nothing here prints."""

from __future__ import annotations

import itertools
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakebed.registry.operations import finish_rollback, list_expired_operations, take_expired
from lakebed.registry.temporary_files import BATCH, claim_expired, finalize_deleted, release_failed

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.registry.engine import Registry
    from lakebed.registry.temporary_files import Claim
    from lakebed.storage.access import DeleteOutcome, Storage

_CHUNK = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanUp:
    """`deleted` counts files whose rows are gone too; `failed` maps the others to the storage's reason, they stay queued."""

    deleted: int = 0
    bytes_freed: int = 0
    failed: dict[str, str] = field(default_factory=dict)


def delete_expired_temporary_files(
    registry: Registry,
    storage: Storage,
    *,
    batch_size: int = BATCH,
    max_batches: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> CleanUp:
    """Claim, delete outside any transaction, finalize; batch by batch, beside any number of other processes."""
    batches = itertools.count() if max_batches is None else range(max_batches)
    claims = (claim_expired(registry, limit=batch_size) for _ in batches)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="lakebed-delete") as pool:
        cleaning = _Cleaning(registry=registry, storage=storage, pool=pool)
        for claim in itertools.takewhile(lambda claim: claim.files, claims):
            cleaning.submit(claim)
            is_long = len(claim.files) > _CHUNK  # then its last chunk is deleted while the next claim is made
            cleaning.finalize(leave=int(is_long), progress=progress)
        cleaning.finalize(leave=0, progress=progress)
    return CleanUp(deleted=cleaning.deleted, bytes_freed=cleaning.freed, failed=cleaning.failed)


def recover_operations(registry: Registry, storage: Storage) -> list[str]:
    """Undo what dead writers left: take the operation first, then its directory, then close it; the ids undone."""
    undone: list[str] = []
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chunk:
    """Some files of one claim, on their way out of the storage."""

    claim: Claim
    sizes: dict[str, int]
    is_last: bool
    outcomes: Future[list[DeleteOutcome]]


@dataclass(slots=True, kw_only=True)
class _Cleaning:
    """Storage deletes the next chunk while the registry finalizes the last one, or claims more: both take about as long."""

    registry: Registry
    storage: Storage
    pool: ThreadPoolExecutor
    waiting: deque[_Chunk] = field(default_factory=deque)
    deleted: int = 0
    freed: int = 0
    failed: dict[str, str] = field(default_factory=dict)

    def submit(self, claim: Claim) -> None:
        for start in range(0, len(claim.files), _CHUNK):
            sizes = {f.path: f.size_bytes for f in claim.files[start : start + _CHUNK]}
            outcomes = self.pool.submit(_delete, self.storage, list(sizes))
            self.waiting.append(_Chunk(claim=claim, sizes=sizes, is_last=start + _CHUNK >= len(claim.files), outcomes=outcomes))

    def finalize(self, *, leave: int, progress: Callable[[int], None] | None) -> None:
        """All but the last `leave` chunks, in their order."""
        while len(self.waiting) > leave:
            chunk = self.waiting.popleft()
            self._finalize(chunk)
            if chunk.is_last and progress is not None:
                progress(self.deleted)

    def _finalize(self, chunk: _Chunk) -> None:
        outcomes = chunk.outcomes.result()
        gone = [outcome.path for outcome in outcomes if outcome.gone]
        finalized = finalize_deleted(self.registry, chunk.claim, gone)
        self.deleted += finalized
        self.freed += sum(chunk.sizes[path] for path in gone) if finalized == len(gone) else 0
        refused = {outcome.path: outcome.reason for outcome in outcomes if not outcome.gone}
        release_failed(self.registry, chunk.claim, list(refused))
        self.failed |= refused


def _delete(storage: Storage, paths: list[str]) -> list[DeleteOutcome]:
    outcomes = storage.delete(paths)
    storage.remove_empty_directories([outcome.path for outcome in outcomes if outcome.gone])
    return outcomes
