"""Clean-up and recovery: what needs registry and storage together. Nothing here prints."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakebed.registry.operations import finish_rollback, list_expired_operations, start_rollback
from lakebed.registry.temporary_files import BATCH, claim_expired, finalize_deleted, release_failed

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.registry.engine import Registry
    from lakebed.registry.temporary_files import Claim
    from lakebed.storage.access import Storage


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
    deleted, freed, batches = 0, 0, 0
    failed: dict[str, str] = {}
    while max_batches is None or batches < max_batches:
        claim = claim_expired(registry, limit=batch_size)
        if not claim.files:
            break
        done, bytes_freed = _delete_claimed(registry, storage, claim, failed)
        deleted, freed, batches = deleted + done, freed + bytes_freed, batches + 1
        if progress is not None:
            progress(deleted)
    return CleanUp(deleted=deleted, bytes_freed=freed, failed=failed)


def recover_operations(registry: Registry, storage: Storage) -> list[str]:
    """Undo what dead writers left: take the operation first, then its directory, then close it; the ids undone."""
    undone: list[str] = []
    for operation in list_expired_operations(registry):
        with registry.write([operation.table_id]) as tx:
            taken = start_rollback(tx, operation.op_id, error="the writer's lease expired")
        if taken.staging_path is not None:
            storage.delete_tree(taken.staging_path)
        with registry.write([operation.table_id]) as tx:
            finish_rollback(tx, operation.op_id)
        undone.append(operation.op_id)
    return undone


def _delete_claimed(registry: Registry, storage: Storage, claim: Claim, failed: dict[str, str]) -> tuple[int, int]:
    outcomes = storage.delete([f.path for f in claim.files])
    gone = [outcome.path for outcome in outcomes if outcome.gone]
    storage.remove_empty_directories(gone)
    done = finalize_deleted(registry, claim, gone)
    kept = {outcome.path: outcome.reason for outcome in outcomes if not outcome.gone}
    if kept:
        release_failed(registry, claim, list(kept))
        failed.update(kept)
    sizes = {f.path: f.size_bytes for f in claim.files}
    return done, sum(sizes[path] for path in gone) if done == len(gone) else 0
