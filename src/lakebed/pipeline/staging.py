"""An operation while it writes: the intent before the first byte, a lease that is renewed, and nothing left when it fails."""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from lakebed.core.errors import ConflictError, LakebedError, OperationConflictError, OutcomeUnknownError, StorageUnavailableError
from lakebed.registry.operations import DEFAULT_LEASE_US, Operation, open_operation
from lakebed.writing import kept_alive, new_op_id, roll_back

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.pipeline.context import Context
    from lakebed.registry.lake_tables import LakeTable
    from lakebed.registry.operations import OperationRow
    from lakebed.registry.publish import Published

logger = logging.getLogger(__name__)

_SHOWN_CHARS = 1000


@dataclass(slots=True)
class Staging:
    """One open write: files go below `directory`, and nothing is visible before `published` is set."""

    table: LakeTable
    operation: Operation
    place: str
    intent: Future[OperationRow] | None = None  # being written by another thread
    published: Published | None = None
    timings: dict[str, float] = field(default_factory=dict)  # seconds per stage
    _within: float = 0.0

    @property
    def directory(self) -> str:
        """Whoever asks where to write waits for the intent: there is no byte before it."""
        if self.intent is not None:
            with self.stage("intent"):
                self.intent.result()
            self.intent = None
        return self.place

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Of a stage within another, only the inner one counts the time."""
        started, outer, self._within = time.perf_counter(), self._within, 0.0
        try:
            yield
        finally:
            taken = time.perf_counter() - started
            self.timings[name] = self.timings.get(name, 0.0) + taken - self._within
            self._within = outer + taken


@contextmanager
def staging(
    context: Context,
    table: LakeTable,
    *,
    kind: str = "insert",
    mode: str | None = None,
    batch: tuple[str, int] | None = None,
    lease_us: int = DEFAULT_LEASE_US,
    began: float | None = None,
) -> Iterator[Staging]:
    """Write the intent, keep its lease alive, then let the caller write and publish.

    A block that raises, or never publishes, leaves no row and no file. After an unknown outcome nothing is touched:
    recovery decides later. `batch` = (app_id, batch_id) is registered once; an earlier try that is still open is taken back.
    The stage `intent` counts from `began` (`time.perf_counter`), where the caller did something before.
    """
    started = time.perf_counter() if began is None else began
    _require_warehouse(context)
    op_id = new_op_id(context.registry)
    directory = context.storage.paths.operation_directory(table.table_id, table.name, op_id)
    app_id, batch_id = batch or (None, None)
    operation = Operation(
        op_id=op_id, kind=kind, has_intent=True, staging_path=directory, mode=mode, app_id=app_id, batch_id=batch_id
    )  # fmt: skip
    if batch is not None:
        take_over(context, table, batch)
    intent: Future[OperationRow] = Future()
    work = Staging(table, operation, directory, intent, timings={"intent": time.perf_counter() - started})
    try:
        # the rows are planned while the intent is written: a small insert has few milliseconds to spend
        with kept_alive(context.registry, op_id, lease_us, opened=partial(_write_intent, context, work, intent, lease_us)):
            yield work
    except OutcomeUnknownError:
        raise
    except BaseException as exc:
        if work.published is None and intent.exception() is None:
            _undo(context, work, error=f"{type(exc).__name__}: {exc}"[:_SHOWN_CHARS])
        raise
    if work.published is None:
        intent.result()
        _undo(context, work, error="the writer published nothing")


def _write_intent(context: Context, work: Staging, intent: Future[OperationRow], lease_us: int) -> bool:
    try:
        intent.set_result(open_operation(context.registry, work.table.name, work.operation, lease_us=lease_us))
    except BaseException as exc:  # noqa: BLE001 - whoever asks for the directory is told
        intent.set_exception(exc)
        return False
    return True


def take_over(context: Context, table: LakeTable, batch: tuple[str, int]) -> None:
    """Undo an unfinished try of the same batch, whatever its lease says.

    The caller repeats the batch, so the other try is dead or a double of it; once it is taken back it can never register.
    """
    rows = context.registry.query(
        "SELECT op_id, staging_path FROM operations WHERE table_id = :t AND app_id = :a AND batch_id = :b AND state IN ('writing', 'rolling_back')",
        {"t": table.table_id, "a": batch[0], "b": batch[1]},
    )
    for op_id, directory in rows:
        with suppress(OperationConflictError):  # it finished meanwhile, which the publishing transaction will find
            roll_back(context.registry, context.storage, table, op_id, directory, error="repeated by a newer try of the same batch")


def _require_warehouse(context: Context) -> None:
    """Spark would make the directories anew, below an empty mount point."""
    if context.storage.find_marker() is None:
        message = f"the warehouse {context.storage.paths.root} has no marker: mount it, or restore the marker; nothing was written"
        raise StorageUnavailableError(message)


def _undo(context: Context, work: Staging, *, error: str) -> None:
    """The first error is the one to tell: what cannot be undone now, recovery undoes when the lease has ended."""
    try:
        roll_back(context.registry, context.storage, work.table, work.operation.op_id, work.place, error=error)
        context.storage.delete_tree(work.place)  # tasks of an aborted job end a little later than the job
    except ConflictError:
        pass  # interrupted behind its commit, or recovered by another: nothing is ours to undo
    except LakebedError as exc:
        extra = {"action": "roll_back", "table": str(work.table.name), "op_id": work.operation.op_id, "reason": str(exc)}
        logger.warning("a failed write could not be undone yet; recovery will", extra=extra)
