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

_CHUNK = 64
_DELETERS = 8  # a deletion waits for the disk or the network, hardly for a processor


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
    with ThreadPoolExecutor(max_workers=_DELETERS, thread_name_prefix="lakebed-delete") as pool:
        cleaning = _Cleaning(registry=registry, storage=storage, pool=pool)
        for claim in itertools.takewhile(lambda claim: claim.files, claims):
            cleaning.finalize(progress)  # the claim before: its files were deleted while this one was made
            cleaning.submit(claim)
        cleaning.finalize(progress)
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


@dataclass(slots=True, kw_only=True)
class _Cleaning:
    """Storage deletes while the registry finalizes what is gone already, or claims more: both take about as long."""

    registry: Registry
    storage: Storage
    pool: ThreadPoolExecutor
    claim: Claim | None = None
    waiting: deque[Future[list[DeleteOutcome]]] = field(default_factory=deque)
    deleted: int = 0
    freed: int = 0
    failed: dict[str, str] = field(default_factory=dict)

    def submit(self, claim: Claim) -> None:
        paths = [file.path for file in claim.files]
        self.claim = claim
        self.waiting.extend(
            self.pool.submit(_delete, self.storage, paths[start : start + _CHUNK]) for start in range(0, len(paths), _CHUNK)
        )

    def finalize(self, progress: Callable[[int], None] | None) -> None:
        """Chunk after chunk in their order, all that are gone by now in one transaction."""
        while self.claim is not None and self.waiting:
            outcomes = self.waiting.popleft().result()
            while self.waiting and self.waiting[0].done():
                outcomes += self.waiting.popleft().result()
            self._finalize(self.claim, outcomes)
            if progress is not None:
                progress(self.deleted)

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
