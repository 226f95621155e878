"""Carries out one run: rewrite, compare, swap. It succeeds as a whole or leaves nothing behind."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from lakebed.compaction.engines import RewriteRequest
from lakebed.core import fingerprints
from lakebed.core.errors import RewriteMismatchError
from lakebed.parquet.rewrite.reader import RowSum, Source, sum_files
from lakebed.parquet.rewrite.target import TargetSchema
from lakebed.registry.files.operations import DEFAULT_LEASE_US
from lakebed.registry.partitions.publish import publish_partition
from lakebed.registry.queries.small_files import COMPACT
from lakebed.registry.tables.view_sets import guard_files
from lakebed.staging.partition import partition_of
from lakebed.staging.write import staging

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakebed.compaction.engines import Engine, Rewriting
    from lakebed.compaction.plan import RunPlan
    from lakebed.core.times import TimeRange
    from lakebed.parquet.capture import CapturedFile
    from lakebed.registry.files.operations import Operation
    from lakebed.registry.partitions.publish import Published
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Transaction
    from lakebed.storage.protocol import Storage

COMBINE = "combine"  # the kind of a merge that changes rows, stored: never rename


class OnSwap(Protocol):
    """An addition to the transaction of a swap."""

    def __call__(self, tx: Transaction, /, *, swapped: SwappedRun) -> object:
        """Called in the transaction, before anything is published; it may raise."""


def never() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class SwappedRun:
    """The result of one run. Row counts differ only if partial results were combined; sizes are of the rewritten files."""

    instance: str
    insert_range: TimeRange
    partitions: int
    files_before: int
    files_after: int
    rows_before: int
    rows_after: int
    seconds: float
    engine: str = ""
    files_read: int = 0
    files_written: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


def swap(
    registry: Registry,
    storage: Storage,
    run: RunPlan,
    engine: Engine,
    *,
    kind: str = COMPACT,
    cancelled: Callable[[], bool] = never,
    lease_us: int = DEFAULT_LEASE_US,
    on_swap: OnSwap | None = None,
) -> SwappedRun | None:
    """Rewrite the small files, then swap. Raises a conflict, with nothing changed, if a partition or file of the run is gone.

    `on_swap` is part of the transaction that swaps. Returns None if cancelled, with nothing left behind. After an unknown outcome
    nothing is touched: recovery decides later.
    """
    began = time.monotonic()
    stored_kind = COMBINE if run.combines else kind
    with staging(
        registry, storage, run.table, kind=stored_kind, lease_us=lease_us, held_back=False
    ) as work:  # fewer files: allowed under back pressure
        written: Sequence[CapturedFile] = ()
        if run.rewriting:
            done = engine.rewrite(RewriteRequest(run=run, operation=work.operation, directory=work.directory), cancelled=cancelled)
            if done is None or cancelled():
                return None
            _require_same_rows(storage, run, done)
            written = done.files
        if written:
            storage.sync_tree(work.directory)
        swapped = _summarize(run, written, engine.name if run.rewriting else "", seconds=time.monotonic() - began)
        work.published = _publish(
            registry, run, work.operation, written, on_swap=None if on_swap is None else partial(on_swap, swapped=swapped)
        )
    return replace(swapped, seconds=time.monotonic() - began)


def _summarize(run: RunPlan, written: Sequence[CapturedFile], engine: str, *, seconds: float) -> SwappedRun:
    return SwappedRun(
        instance=run.wanted.instance,
        insert_range=run.wanted.insert_range,
        partitions=len(run.partitions),
        files_before=len(run.rewriting) + len(run.keeping),
        files_after=len(written) + len(run.keeping),
        rows_before=run.rows,
        rows_after=sum(c.file.row_count for c in written) + sum(f.row_count for f in run.keeping),
        seconds=seconds,
        engine=engine,
        files_read=len(run.rewriting),
        files_written=len(written),
        bytes_read=run.rewriting_bytes,
        bytes_written=sum(c.file.size_bytes for c in written),
    )


def _publish(
    registry: Registry,
    run: RunPlan,
    operation: Operation,
    written: Sequence[CapturedFile],
    *,
    on_swap: Callable[[Transaction], object] | None,
) -> Published:
    """The partitions to retire are compared by partition and by file, under the table's lock: a writer that changed one of them wins."""
    known = [partition.source_data_hash for partition in run.partitions if partition.source_data_hash is not None]
    partition = partition_of(
        run.table,
        written,
        instance=run.wanted.instance,
        insert_range=run.wanted.insert_range,
        fingerprint=fingerprints.add(partition.fingerprint for partition in run.partitions),
        rows_are_ours=True,
        source_data_hash=fingerprints.add(known) if len(known) == len(run.partitions) else None,
        lookup_hash=run.partitions[0].lookup_hash,
    )
    ids = [partition.partition_id for partition in run.partitions]
    require_unchanged = guard_files(run.table.name, partitions=ids, files=[f.file_id for f in (*run.rewriting, *run.keeping)])

    def guard(tx: Transaction) -> None:
        require_unchanged(tx)
        if on_swap is not None:
            on_swap(tx)

    keeping = frozenset(file.file_id for file in run.keeping)
    return publish_partition(registry, partition, operation, replacing=frozenset(ids), keeping=keeping, guard=guard)


# -- the same rows ----------------------------------------------------------------------------


def _require_same_rows(storage: Storage, run: RunPlan, done: Rewriting) -> None:
    """The row count per partition path must match the registry, and the rows the input; only combining changes rows."""
    if run.combines:
        return
    expected = Counter({path: sum(f.row_count for f in files) for path, files in run.by_path.items()})
    found: Counter[str] = Counter()
    for captured in done.files:
        found[captured.file.partition_path] += captured.file.row_count
    if expected != found:
        raise RewriteMismatchError(str(run.wanted), expected=expected.total(), found=found.total())
    target = TargetSchema(run.table.schema)
    before = done.before or sum_files(storage, [Source(path=f.path, size_bytes=f.size_bytes) for f in run.rewriting], target)
    after = done.after or sum_files(storage, [Source(path=c.file.path, size_bytes=c.file.size_bytes) for c in done.files], target)
    _require_equal(run, before, after)


def _require_equal(run: RunPlan, before: RowSum, after: RowSum) -> None:
    if before != after:
        raise RewriteMismatchError(str(run.wanted), expected=before.rows, found=after.rows, other_rows=before.rows == after.rows)
