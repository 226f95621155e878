"""Grouped writing: many small DataFrames, one registered batch per rotation."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from lakebed.core.errors import InvalidValueError
from lakebed.core.names import GLOBAL_INSTANCE, TableName, require_instance
from lakebed.pipeline.results import InsertResult, result_of
from lakebed.pipeline.write.files import publish_files, write_frame
from lakebed.pipeline.write.insert import require_plain_table
from lakebed.pipeline.write.json import write_json
from lakebed.registry.tables.lake_tables import require_table
from lakebed.registry.tables.names import resolve_name
from lakebed.staging.write import Staging, staging
from lakebed.storage.paths import below

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import TracebackType

    from pyspark.sql import DataFrame

    from lakebed.parquet.capture import CapturedFile
    from lakebed.pipeline.context import Context
    from lakebed.pipeline.options import FileFormat
    from lakebed.registry.tables.lake_tables import LakeTable

logger = logging.getLogger(__name__)

DEFAULT_ROTATE_S = 60.0
DEFAULT_ROTATE_BYTES = 128 << 20
_WRITERS: dict[str, Callable[[Context, Staging, LakeTable, DataFrame], list[CapturedFile]]] = {"parquet": write_frame, "json": write_json}


@dataclass(slots=True)
class _Group:
    """One open operation and the files that wait in it."""

    opened: AbstractContextManager[Staging]
    work: Staging
    due_at: float
    captured: list[CapturedFile] = field(default_factory=list)
    writes: int = 0
    has_leftovers: bool = False

    @property
    def size_bytes(self) -> int:
        return sum(c.file.size_bytes for c in self.captured)


class GroupedWriter:
    """Files are written at once and become visible together when the group is `rotate_after` seconds old or has `rotate_bytes` bytes.

    Until then they belong to an open operation: a process that dies loses the rows since the last rotation, and leaves nothing behind.
    `format="json"` writes JSON files, which become Parquet at the next compaction.
    Leaving a `with` block rotates; leaving it by an error discards. `on_rotate` is called with every registered group.
    """

    def __init__(
        self,
        context: Context,
        name: str | TableName,
        *,
        rotate_after: float = DEFAULT_ROTATE_S,
        rotate_bytes: int = DEFAULT_ROTATE_BYTES,
        format: FileFormat = "parquet",  # noqa: A002 - as Spark calls it
        instance: str = GLOBAL_INSTANCE,
        on_rotate: Callable[[InsertResult], None] | None = None,
    ) -> None:
        if rotate_after <= 0 or rotate_bytes <= 0:
            message = f"rotate_after={rotate_after} and rotate_bytes={rotate_bytes} must both be positive"
            raise InvalidValueError(message)
        if format not in _WRITERS:
            message = f"format {format!a} is not known: use one of {', '.join(_WRITERS)}"
            raise InvalidValueError(message)
        self._write_files = _WRITERS[format]
        self._context, self._name = context, resolve_name(context.registry, name)
        self._rotate_after, self._rotate_bytes = rotate_after, rotate_bytes
        self._instance, self._on_rotate = require_instance(instance), on_rotate
        require_plain_table(require_table(context.registry, self._name))
        self._changed = threading.Condition(threading.RLock())
        self._group: _Group | None = None
        self._failure: Exception | None = None
        self._is_closed = False
        self._timer: threading.Thread | None = None  # since the first group

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def write(self, df: DataFrame) -> InsertResult | None:
        """Write `df` into the open group. Return the registered group if this filled it. A failure loses only the rows of `df`."""
        with self._changed:
            self._require_open()
            group = self._group or self._open()
            self._write_into(group, df)
            self._changed.notify_all()
            return self.rotate() if group.size_bytes >= self._rotate_bytes else None

    def rotate(self) -> InsertResult | None:
        """Register the open group as one partition; None if it is empty."""
        with self._changed:
            self._raise_failure()
            group, self._group = self._group, None
            if group is None:
                return None
            result = self._register(group)
        if self._on_rotate is not None:
            self._on_rotate(result)
        return result

    def close(self) -> InsertResult | None:
        """Rotate for the last time and end all threads."""
        try:
            return None if self._is_closed else self.rotate()
        finally:
            self._stop()

    def discard(self) -> None:
        """Discard the open group: none of its rows and files stay."""
        self._stop()
        with self._changed:
            group, self._group = self._group, None
            if group is not None:
                group.opened.__exit__(None, None, None)

    def _open(self) -> _Group:
        table = require_table(self._context.registry, self._name)
        opened = staging(self._context.registry, self._context.storage, table, mode="append", ahead=True)
        work = opened.__enter__()
        try:
            _ = work.directory  # a group without an intent could take no rows, and would never be replaced
        except BaseException as exc:
            opened.__exit__(type(exc), exc, exc.__traceback__)
            raise
        self._group = _Group(opened, work, time.monotonic() + self._rotate_after)
        if self._timer is None:
            self._timer = threading.Thread(target=self._watch, name=f"lakebed-writer-{self._name}", daemon=True)
            self._timer.start()
        return self._group

    def _write_into(self, group: _Group, df: DataFrame) -> None:
        group.writes += 1
        directory = below(group.work.directory, f"{group.writes:05d}")
        part = Staging(group.work.table, group.work.operation, directory, timings=group.work.timings)
        try:
            group.captured += self._write_files(self._context, part, part.table, df)
        except BaseException:
            group.has_leftovers = True
            self._sweep(group, part.directory)
            raise

    def _sweep(self, group: _Group, directory: str) -> None:
        """Delete files of failed writes; tasks of a failed job end a little later than the job."""
        storage = self._context.storage
        known = {c.file.path for c in group.captured}
        left = [facts.path for facts in storage.list_files(directory) if facts.path not in known]
        storage.delete(left)
        storage.remove_empty_directories([*left, below(directory, "none")])

    def _register(self, group: _Group) -> InsertResult:
        work = group.work
        try:
            if group.has_leftovers:
                self._sweep(group, work.directory)
            published = publish_files(self._context, work, work.table, group.captured, instance=self._instance)
        except BaseException as exc:
            group.opened.__exit__(type(exc), exc, exc.__traceback__)
            raise
        group.opened.__exit__(None, None, None)
        return result_of(self._context, work, self._name, published, group.captured)

    def _watch(self) -> None:
        """Rotates a group that is due, even without a call."""
        with self._changed:
            while not self._is_closed:
                left = None if self._group is None else self._group.due_at - time.monotonic()
                if left is None or left > 0:
                    self._changed.wait(left)
                    continue
                try:
                    self.rotate()
                except Exception as exc:  # noqa: BLE001 - raised to the next caller, who can act
                    logger.warning(
                        "a group could not be registered", extra={"action": "rotate", "table": str(self._name), "reason": str(exc)}
                    )
                    self._failure = exc

    def _stop(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._timer is not None and threading.current_thread() is not self._timer:
            self._timer.join()

    def _require_open(self) -> None:
        self._raise_failure()
        if self._is_closed:
            message = f"the writer of {self._name} is closed: open another"
            raise InvalidValueError(message)

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
