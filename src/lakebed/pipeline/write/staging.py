"""An open write of Spark's: its intent is written while the rows are planned, and a batch that is repeated replaces its earlier try."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from lakebed.core.errors import OperationConflictError
from lakebed.registry.files.batches import Batch
from lakebed.registry.files.operations import DEFAULT_LEASE_US
from lakebed.staging.write import Staging, require_warehouse, roll_back
from lakebed.staging.write import staging as open_write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.pipeline.context import Context
    from lakebed.registry.tables.lake_tables import LakeTable

__all__ = ["Staging", "staging", "take_over"]


@contextmanager
def staging(
    context: Context,
    table: LakeTable,
    *,
    kind: str = "insert",
    mode: str | None = None,
    batch: tuple[str, int] | Batch | None = None,
    lease_us: int = DEFAULT_LEASE_US,
    began: float | None = None,
    held_back: bool = True,
) -> Iterator[Staging]:
    """An open write (`lakebed.staging`). `batch` is registered once; an earlier try that is still open is taken back.

    The stage `intent` counts from `began` (`time.perf_counter`), where the caller did something before.
    """
    started = time.perf_counter() if began is None else began
    if (own := Batch.of(batch)) is not None:
        take_over(context, table, own)
    # a small insert has few milliseconds to spend: the rows are planned while the intent is written
    opened = open_write(
        context.registry, context.storage, table, kind=kind, mode=mode, batch=own, lease_us=lease_us, ahead=True, held_back=held_back
    )  # fmt: skip
    with opened as work:
        work.timings["intent"] = time.perf_counter() - started
        yield work


def take_over(context: Context, table: LakeTable, batch: Batch) -> None:
    """Undo an unfinished try of the same batch, whatever its lease says.

    The caller repeats the batch, so the other try is dead or a double of it; once it is taken back it can never register.
    """
    rows = context.registry.query(
        "SELECT op_id, staging_path FROM operations WHERE table_id = :t AND app_id = :a AND batch_id = :b "
        "AND state IN ('writing', 'rolling_back') AND state <> 'rolled_back'",
        {"t": table.table_id, "a": batch.app_id, "b": batch.batch_id},
    )
    if rows:
        require_warehouse(context.storage)
    for op_id, directory in rows:
        with suppress(OperationConflictError):  # it finished meanwhile, which the publishing transaction will find
            roll_back(context.registry, context.storage, table, op_id, directory, error="repeated by a newer try of the same batch")
