"""The one seam behind which files are rewritten: in this process, or by an engine that is handed in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lakebed.compaction.plan import LOCAL_BYTES
from lakebed.parquet.rewrite.reader import RowSum, Source
from lakebed.parquet.rewrite.rewriter import WriteOptions, rewrite_files
from lakebed.parquet.rewrite.target import TargetSchema
from lakebed.staging.partition import written_statistics_spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.compaction.plan import RunPlan
    from lakebed.parquet.capture import CapturedFile
    from lakebed.registry.files.operations import Operation
    from lakebed.storage.protocol import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteRequest:
    """A run to rewrite, and the operation whose directory the new files go to."""

    run: RunPlan
    operation: Operation
    directory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewriting:
    """New files, durable and captured. The sums over all rows, where the engine read them itself: `after` from the new files."""

    files: tuple[CapturedFile, ...]
    before: RowSum | None = None
    after: RowSum | None = None


class Engine(Protocol):
    """Makes of the files of a run fewer ones with the same rows, each of one partition path."""

    @property
    def name(self) -> str: ...

    def rewrite(self, request: RewriteRequest, *, cancelled: Callable[[], bool]) -> Rewriting | None:
        """None when it was cancelled. The directory is the operation's own: whatever is left there is swept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEngine:
    """Columnar, in this process, in bounded memory: no JVM, no job to schedule."""

    storage: Storage
    name: str = "local"

    def rewrite(self, request: RewriteRequest, *, cancelled: Callable[[], bool]) -> Rewriting | None:
        files: list[CapturedFile] = []
        before = after = RowSum()
        target = TargetSchema(request.run.table.schema)
        for path, own in request.run.by_path.items():
            sources = [Source(path=file.path, size_bytes=file.size_bytes) for file in own]
            done = rewrite_files(self.storage, sources, self._write_options(request, target, path, files), cancelled=cancelled)
            if done is None:
                return None
            files += done.files
            before, after = before + done.before, after + done.after
        return Rewriting(files=tuple(files), before=before, after=after)

    def _write_options(self, request: RewriteRequest, target: TargetSchema, partition_path: str, done: list[CapturedFile]) -> WriteOptions:
        numbers = iter(range(len(done), 1 << 31))
        table = request.run.table
        return WriteOptions(
            target=target,
            spec=written_statistics_spec(table),
            new_path=lambda: self.storage.paths.new_file(request.directory, next(numbers), "parquet"),
            partition_path=partition_path,
            target_bytes=request.run.target_bytes,
            compression=table.metadata.compression,
            sort_by=table.sort_columns,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """The engine in this process, and one for what is too much for it or beyond it, where there is one."""

    local: Engine
    spark: Engine | None = None
    local_bytes: int = LOCAL_BYTES

    def choose(self, run: RunPlan) -> Engine:
        if self.spark is not None and (run.needs_spark or run.rewriting_bytes > self.local_bytes):
            return self.spark
        return self.local
