"""The interface for rewriting files: in this process, or by an engine that the caller passes in."""

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
    """A run to rewrite, and the operation whose directory receives the new files."""

    run: RunPlan
    operation: Operation
    directory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewriting:
    """New files, durable and captured; and the sums over all rows if the engine read them, `after` from the new files."""

    files: tuple[CapturedFile, ...]
    before: RowSum | None = None
    after: RowSum | None = None


class Engine(Protocol):
    """Rewrites the files of a run into fewer ones with the same rows, each of one partition path."""

    @property
    def name(self) -> str: ...

    def rewrite(self, request: RewriteRequest, *, cancelled: Callable[[], bool]) -> Rewriting | None:
        """None if it was cancelled. Leftovers in the operation's directory are swept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEngine:
    """Rewrites columnar data in this process, in bounded memory, without a JVM."""

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
    """The engine in this process, and optionally Spark for files that are too large or unsuitable for it."""

    local: Engine
    spark: Engine | None = None
    local_bytes: int = LOCAL_BYTES

    def choose(self, run: RunPlan) -> Engine:
        if self.spark is not None and (run.needs_spark or run.rewriting_bytes > self.local_bytes):
            return self.spark
        return self.local
