"""Writing into a table: intent, files in a directory of their own, one transaction, or nothing at all."""

from __future__ import annotations

import json
import logging
import secrets
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypedDict

from lakebed.core import fingerprints
from lakebed.core.errors import (
    ConflictError,
    FileConflictError,
    LakebedError,
    NotIcebergReadyError,
    OperationConflictError,
    OutcomeUnknownError,
)
from lakebed.core.ids import make_op_id
from lakebed.core.names import GLOBAL_INSTANCE
from lakebed.core.partitions import NewPartition
from lakebed.core.transforms import resolve_transforms
from lakebed.parquet.capture import CapturedFile, capture, capture_foreign
from lakebed.parquet.inspect import Wanted
from lakebed.parquet.preflight import find_obstacles, list_path_fields
from lakebed.registry.operations import Operation, finish_rollback, open_operation, renew_operation, start_rollback
from lakebed.registry.orphans import list_swept
from lakebed.registry.publish import Published, publish_partition
from lakebed.registry.retire import DEFAULT_GRACE_US

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from lakebed.core.times import TimeRange
    from lakebed.registry.engine import Registry
    from lakebed.registry.lake_tables import LakeTable
    from lakebed.storage.access import Storage


logger = logging.getLogger(__name__)

_RENEWALS_PER_LEASE = 3


class RegisterOptions(TypedDict, total=False):
    """What `Lake.register_files` understands."""

    instance: str
    replacing: AbstractSet[int]
    batch: tuple[str, int] | None
    adopt: bool
    progress: Callable[[int, int], None] | None


@dataclass(slots=True)
class Writing:
    """One open write. Files go to `new_path()`s; nothing is visible before `publish`."""

    registry: Registry
    storage: Storage
    table: LakeTable
    operation: Operation
    directory: str
    paths: list[str] = field(default_factory=list)
    partition_paths: dict[str, str] = field(default_factory=dict)  # of files that do not lie in the empty one
    published: Published | None = None

    def new_path(self, extension: str = "parquet", *, partition_path: str = "") -> str:
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
        if self.paths:
            self.storage.sync_tree(self.directory)
        captured = [
            capture(self.storage, path, self.table.schema, wanted=wanted_of(self.table), partition_path=self.partition_paths[path])
            for path in self.paths
        ]
        partition = partition_of(self.table, captured, insert_range=insert_range, instance=instance)
        self.published = publish_partition(
            self.registry, partition, self.operation, replacing=replacing, keeping=keeping, grace_us=grace_us
        )
        return self.published


@contextmanager
def open_writing(registry: Registry, storage: Storage, table: LakeTable, *, kind: str = "insert") -> Iterator[Writing]:
    """Write the intent, then let the caller write. A block that raises, or never publishes, leaves no row and no file.

    The one exception is an unknown outcome: then nothing is touched, recovery decides later.
    """
    op_id = new_op_id(registry)
    directory = storage.paths.operation_directory(table.table_id, table.name, op_id)
    operation = Operation(op_id=op_id, kind=kind, has_intent=True, staging_path=directory)
    open_operation(registry, table.name, operation)
    writing = Writing(registry, storage, table, operation, directory)
    try:
        yield writing
    except OutcomeUnknownError:
        raise
    except BaseException as exc:
        if writing.published is None:
            with suppress(OperationConflictError):  # interrupted behind its commit, or recovered by another: nothing is ours to undo
                roll_back(registry, storage, table, op_id, directory, error=f"{type(exc).__name__}: {exc}")
        raise
    if writing.published is None:
        roll_back(registry, storage, table, op_id, directory, error="the writer published nothing")


def register_files(  # noqa: PLR0913 - one keyword per choice
    registry: Registry,
    storage: Storage,
    table: LakeTable,
    paths: Sequence[str],
    *,
    insert_range: TimeRange | None = None,
    instance: str = GLOBAL_INSTANCE,
    replacing: AbstractSet[int] = frozenset(),
    batch: tuple[str, int] | None = None,
    adopt: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Published:
    """Publish Parquet files that others wrote, where they lie in the warehouse; one bad file and nothing is registered.

    Each file's partition path is proven by its statistics; one that spans several is refused. `adopt` takes files
    without field ids by their column names. `batch` = (app_id, batch_id): the same batch twice is registered once.
    """
    if swept := list_swept(registry, [storage.canonical(path) for path in paths]):
        raise FileConflictError(swept[0], reason="a sweep queued it for deletion: copy it to another path and register that")
    partition_by = json.loads(table.metadata.partition_by)
    wanted = wanted_of_foreign(table, paths, partition_by, adopt=adopt)
    captured: list[CapturedFile] = []
    for answer in capture_foreign(storage, paths, table.schema, wanted=wanted, progress=progress):
        if isinstance(answer, LakebedError):
            raise answer
        captured.append(place_file(answer, table, partition_by, relative=storage.paths.relative(answer.file.path)))
    app_id, batch_id = batch or (None, None)
    operation = Operation(op_id=new_op_id(registry), kind="register", app_id=app_id, batch_id=batch_id)
    partition = partition_of(table, captured, insert_range=insert_range, instance=instance)
    return publish_partition(registry, partition, operation, replacing=replacing)


def wanted_of_foreign(table: LakeTable, paths: Sequence[str], partition_by: Sequence[str], *, adopt: bool) -> Wanted:
    sources = {field.field_id for _, field in resolve_transforms(table.schema, partition_by)}
    return replace(wanted_of(table), always=frozenset(sources) | list_path_fields(paths, table.schema), require_ids=not adopt)


def place_file(captured: CapturedFile, table: LakeTable, partition_by: Sequence[str], *, relative: str) -> CapturedFile:
    """The file with its partition path, or a refusal that says what to do."""
    partition_path, problems = find_obstacles(relative, captured.file.columns, table.schema, partition_by)
    told = [str(problem) for problem in problems]
    if table.row.event_time_field is not None and captured.event_range is None:
        told.append(f"its footer tells no event time of {table.name}: write it again with statistics, and with times in its rows")
    if told or partition_path is None:
        raise NotIcebergReadyError(captured.file.path, problems=tuple(told))
    return replace(captured, file=replace(captured.file, partition_path=partition_path))


def roll_back(registry: Registry, storage: Storage, table: LakeTable, op_id: str, directory: str, *, error: str) -> None:
    """Take the operation back first, so that nobody can register it, then delete exactly its directory."""
    with registry.write([table.table_id]) as tx:
        start_rollback(tx, op_id, error=error, abandoned=True)
    storage.delete_tree(directory)
    with registry.write([table.table_id]) as tx:
        finish_rollback(tx, op_id)


def new_op_id(registry: Registry) -> str:
    return make_op_id(registry.host_now(), secrets.token_bytes(10))


def wanted_of(table: LakeTable) -> Wanted:
    return Wanted(event_time=table.row.event_time_field, indexed=frozenset(table.indexed))


def partition_of(table: LakeTable, captured: Sequence[CapturedFile], *, insert_range: TimeRange | None, instance: str) -> NewPartition:
    known = [c.event_range for c in captured if c.event_range is not None]
    complete = len(known) == len(captured) and known
    return NewPartition(
        table=table.name,
        schema_hash=table.schema_hash,
        fingerprint=fingerprints.from_bytes(secrets.token_bytes(16)) if captured else fingerprints.ZERO,  # no rows change no view
        files=tuple(c.file for c in captured),
        instance=instance,
        insert_range=insert_range,
        event_range=(min(low for low, _ in known), max(high for _, high in known)) if complete else None,
    )


@contextmanager
def kept_alive(registry: Registry, op_id: str, lease_us: int, *, opened: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Renews the lease for as long as the block runs; a registry that is away is asked again, a lost operation is not.

    `opened` is called first, by the thread that renews: it writes the operation, or says that there is none to renew.
    """
    done = threading.Event()

    def beat() -> None:
        if not opened():
            return
        while not done.wait(lease_us / 1e6 / _RENEWALS_PER_LEASE):
            try:
                renew_operation(registry, op_id, lease_us=lease_us)
            except ConflictError:
                return
            except LakebedError as exc:
                logger.warning("a lease could not be renewed", extra={"action": "renew", "op_id": op_id, "reason": str(exc)})

    thread = threading.Thread(target=beat, name=f"lakebed-heartbeat-{op_id[-6:]}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
