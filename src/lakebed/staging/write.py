"""The one open write: intent before the first byte, a directory of its own, a lease that is renewed, one publication or no trace."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakebed.core.errors import (
    ConflictError,
    LakebedError,
    OperationConflictError,
    OutcomeUnknownError,
    StorageUnavailableError,
)
from lakebed.core.ids import make_op_id
from lakebed.core.names import GLOBAL_INSTANCE
from lakebed.parquet.capture import CapturedFile, capture
from lakebed.registry.files.batches import list_unfinished
from lakebed.registry.files.operations import (
    DEFAULT_LEASE_US,
    Operation,
    find_operation,
    finish_rollback,
    open_operation,
    renew_operation,
    start_rollback,
)
from lakebed.registry.partitions.publish import Published, publish_partition
from lakebed.registry.partitions.retire import DEFAULT_GRACE_US
from lakebed.registry.snapshots.pressure import wait_for_room
from lakebed.staging.partition import partition_of, statistics_spec_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from lakebed.core.times import TimeRange
    from lakebed.registry.files.batches import Batch
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.storage.protocol import Storage

logger = logging.getLogger(__name__)

_SHOWN_CHARS = 1000
_TAKEN = ("rolling_back", "rolled_back")


@dataclass(slots=True)
class Staging:
    """One open write: files go below `directory`, and nothing is visible before `published` is set."""

    table: LakeTable
    operation: Operation
    path: str
    intent: Future[None] | None = None  # being written by another thread
    published: Published | None = None
    timings: dict[str, float] = field(default_factory=dict)  # seconds per stage
    _within: float = 0.0

    @property
    def directory(self) -> str:
        """Waits until the intent is written: no byte is written before it."""
        if self.intent is not None:
            with self.stage("intent"):
                self.intent.result()
            self.intent = None
        return self.path

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
def staging(  # noqa: PLR0913 - one keyword per choice
    registry: Registry,
    storage: Storage,
    table: LakeTable,
    *,
    kind: str = "insert",
    mode: str | None = None,
    batch: Batch | None = None,
    lease_us: int = DEFAULT_LEASE_US,
    ahead: bool = False,
    held_back: bool = True,
    began: float | None = None,
) -> Iterator[Staging]:
    """Write the intent, keep its lease alive, then let the caller write and publish.

    A block that raises, or never publishes, leaves no row and no file; while the registry is away its row stays, and recovery
    closes it. After an unknown outcome nothing is touched: recovery decides later. `batch` is registered once; an earlier try that
    is still open is taken back. `ahead`: the caller plans while another thread writes the intent; `directory` waits for it: a small
    insert has few milliseconds to spend. `held_back`: wait first while the table's queue for Iceberg is too long. The stage `intent`
    counts from `began` (`time.perf_counter`), where the caller did something before.
    """
    started = time.perf_counter() if began is None else began
    if batch is not None:
        _take_back(registry, storage, table, batch)
    require_warehouse(storage)
    op_id = new_op_id(registry)
    directory = storage.paths.operation_directory(table.table_id, table.name, op_id)
    storage.require_writable(directory)
    if held_back:
        wait_for_room(registry, table.table_id)
    operation = Operation(op_id=op_id, kind=kind, has_intent=True, staging_path=directory, mode=mode).with_batch(batch)
    intent: Future[None] = Future()
    work = Staging(table, operation, directory, intent if ahead else None)
    with (
        _undoing(registry, storage, work, intent),
        _intending(registry, work, intent, lease_us, ahead=ahead),
        registry.heartbeat.renewing(op_id, lease_us, lambda op_id, us: renew_operation(registry, op_id, lease_us=us)),
        naming_recovery(registry, op_id),
    ):
        work.timings["intent"] = time.perf_counter() - started
        yield work


@dataclass(slots=True)
class Writing:
    """One open write without Spark. Files go to `new_path()`s; nothing is visible before `publish`."""

    registry: Registry
    storage: Storage
    work: Staging
    paths: list[str] = field(default_factory=list)
    partition_paths: dict[str, str] = field(default_factory=dict)  # of files that are not in the empty one

    @property
    def table(self) -> LakeTable:
        return self.work.table

    @property
    def operation(self) -> Operation:
        return self.work.operation

    @property
    def directory(self) -> str:
        return self.work.directory

    @property
    def published(self) -> Published | None:
        return self.work.published

    @published.setter
    def published(self, done: Published) -> None:
        """For a caller that publishes its files in a transaction of its own."""
        self.work.published = done

    def new_path(self, extension: str = "parquet", *, partition_path: str = "") -> str:
        """A path in the operation's directory, which is there when this returns."""
        if not self.paths:
            self.storage.make_directory(self.directory)
        path = self.storage.paths.new_file(self.directory, len(self.paths), extension)
        self.paths.append(path)
        self.partition_paths[path] = partition_path
        return path

    def publish(
        self,
        *,
        insert_range: TimeRange | None = None,
        instance: str = GLOBAL_INSTANCE,
        replacing: AbstractSet[int] = frozenset(),
        keeping: AbstractSet[int] = frozenset(),
        grace_us: int = DEFAULT_GRACE_US,
    ) -> Published:
        """Make every file durable, capture its footer, and publish them all as one partition. No file: an empty partition."""
        with naming_recovery(self.registry, self.operation.op_id):
            captured = self._capture()
        partition = partition_of(self.table, captured, insert_range=insert_range, instance=instance)
        done = publish_partition(self.registry, partition, self.operation, replacing=replacing, keeping=keeping, grace_us=grace_us)
        self.published = done
        return done

    def _capture(self) -> list[CapturedFile]:
        if self.paths:
            self.storage.sync_tree(self.directory)
        return [
            capture(self.storage, path, self.table.schema, spec=statistics_spec_of(self.table), partition_path=self.partition_paths[path])
            for path in self.paths
        ]


@contextmanager
def open_writing(
    registry: Registry,
    storage: Storage,
    table: LakeTable,
    *,
    kind: str = "insert",
    lease_us: int = DEFAULT_LEASE_US,
    held_back: bool = True,
) -> Iterator[Writing]:
    """`staging` for a writer in this process, caller writes the files itself: a block that raises, or never publishes, leaves no row and no file."""
    with staging(registry, storage, table, kind=kind, lease_us=lease_us, held_back=held_back) as work:
        yield Writing(registry, storage, work)


@contextmanager
def naming_recovery(registry: Registry, op_id: str) -> Iterator[None]:
    """A block that fails because another process recovered the operation and deleted its files raises a conflict."""
    try:
        yield
    except (OutcomeUnknownError, ConflictError):
        raise
    except (LakebedError, OSError) as exc:
        found = None
        with suppress(LakebedError):
            found = find_operation(registry, op_id)
        if found is None or found.state not in _TAKEN:
            raise
        raise OperationConflictError(op_id, wanted="writing", found=found.state) from exc


def roll_back(registry: Registry, storage: Storage, table: LakeTable, op_id: str, directory: str, *, error: str) -> None:
    """Take the operation back first, so that no one can register it, then delete exactly its directory."""
    with registry.write([table.table_id]) as tx:
        start_rollback(tx, op_id, error=error, abandoned=True)
    storage.delete_tree(directory)
    with registry.write([table.table_id]) as tx:
        finish_rollback(tx, op_id)


def new_op_id(registry: Registry) -> str:
    return make_op_id(registry.host_now(), secrets.token_bytes(10))


def require_warehouse(storage: Storage) -> None:
    """Without its marker the directories would be created again, below an empty mount point."""
    if storage.find_marker() is None:
        message = f"the warehouse {storage.paths.root} has no marker: mount it, or restore the marker; nothing was written"
        raise StorageUnavailableError(message)


def _take_back(registry: Registry, storage: Storage, table: LakeTable, batch: Batch) -> None:
    """Undo an unfinished try of the same batch, whatever its lease says.

    The caller repeats the batch, so the other try is dead or a duplicate; once it is taken back it can never register.
    """
    if unfinished := list_unfinished(registry, table.table_id, batch):
        require_warehouse(storage)
    for op_id, directory in unfinished:
        with suppress(OperationConflictError):  # it finished meanwhile, which the publishing transaction will find
            roll_back(registry, storage, table, op_id, directory, error="repeated by a newer try of the same batch")


@contextmanager
def _intending(registry: Registry, work: Staging, intent: Future[None], lease_us: int, *, ahead: bool) -> Iterator[None]:
    """Write the intent, in a thread of its own if `ahead`; when the block ends without an error, it is written."""

    def write() -> None:
        try:
            open_operation(registry, work.table.name, work.operation, lease_us=lease_us)
        except BaseException as exc:  # noqa: BLE001 - raised again in the thread that waits for the intent
            intent.set_exception(exc)
        else:
            intent.set_result(None)

    if not ahead:
        write()
        intent.result()
        yield
        return
    thread = threading.Thread(target=write, name=f"lakebed-intent-{work.operation.op_id[-6:]}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    intent.result()


@contextmanager
def _undoing(registry: Registry, storage: Storage, work: Staging, intent: Future[None]) -> Iterator[None]:
    """Undo a block that raises or publishes nothing, but not after an unknown outcome of its own."""
    op_id = work.operation.op_id
    with registry.attempts.watching(op_id):
        try:
            yield
        except BaseException as exc:
            is_unknown = isinstance(exc, OutcomeUnknownError) and registry.attempts.may_be_committed(op_id)
            if not is_unknown and work.published is None and intent.done() and intent.exception() is None:
                _undo(registry, storage, work, error=f"{type(exc).__name__}: {exc}"[:_SHOWN_CHARS])
            raise
        if work.published is None:
            _undo(registry, storage, work, error="the writer published nothing")


def _undo(registry: Registry, storage: Storage, work: Staging, *, error: str) -> None:
    """The first error is the one to raise: what cannot be undone now, recovery undoes when the lease has ended."""
    try:
        roll_back(registry, storage, work.table, work.operation.op_id, work.path, error=error)
        storage.delete_tree(work.path)  # tasks of an aborted job end a little later than the job
    except ConflictError:
        pass  # interrupted behind its commit, or recovered by another: nothing is ours to undo
    except LakebedError as exc:
        _delete_unregistered(registry, storage, work)
        extra = {"action": "roll_back", "table": str(work.table.name), "op_id": work.operation.op_id, "reason": str(exc)}
        logger.warning("a failed write could not be undone yet; recovery will", extra=extra)


def _delete_unregistered(registry: Registry, storage: Storage, work: Staging) -> None:
    """The registry cannot be asked: only this process can register the operation, and it has never sent that commit, or was refused."""
    if registry.attempts.may_be_committed(work.operation.op_id):
        return
    with suppress(LakebedError):
        storage.delete_tree(work.path)
