"""Clean-up and recovery: what needs registry and storage together. Nothing here prints."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
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


def _delete_claimed(registry: Registry, storage: Storage, claim: Claim, failed: dict[str, str]) -> tuple[int, int]:
    """Storage deletes the next chunk while the registry finalizes the last one: both take about as long."""
    paths = [f.path for f in claim.files]
    chunks = [paths[start : start + _CHUNK] for start in range(0, len(paths), _CHUNK)]
    sizes = {f.path: f.size_bytes for f in claim.files}
    done, freed = 0, 0
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="lakebed-delete") as pool:
        pending = [pool.submit(_delete, storage, chunk) for chunk in chunks]
        for outcomes in (future.result() for future in pending):
            gone = [outcome.path for outcome in outcomes if outcome.gone]
            finalized = finalize_deleted(registry, claim, gone)
            done += finalized
            freed += sum(sizes[path] for path in gone) if finalized == len(gone) else 0
            failed.update({outcome.path: outcome.reason for outcome in outcomes if not outcome.gone})
    release_failed(registry, claim, [path for path in paths if path in failed])
    return done, freed


def _delete(storage: Storage, paths: list[str]) -> list[DeleteOutcome]:
    outcomes = storage.delete(paths)
    storage.remove_empty_directories([outcome.path for outcome in outcomes if outcome.gone])
    return outcomes
