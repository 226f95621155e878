"""Finds the files of a run that cannot be rewritten: missing, changed, or with pages that cannot be decoded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lakebed.core.errors import FileChangedError, FileDamagedError, FileMissingError, LakebedError, UnavailableError, UnreadableFileError
from lakebed.core.files import Verify
from lakebed.parquet.footer.framing import read_tail
from lakebed.parquet.foreign.sandbox import ForeignFile, Inspector
from lakebed.parquet.inspect import StatisticsSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.compaction.plan import RunPlan
    from lakebed.registry.tables.view_sets import LiveFile
    from lakebed.storage.protocol import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedFile:
    """A file that compaction leaves unchanged, and why; `row_group` and `column` are set if pages are damaged."""

    file_id: int
    path: str
    reason: str
    code: str
    row_group: int | None = None
    column: str | None = None


def find_damaged(storage: Storage, run: RunPlan) -> tuple[DamagedFile, ...]:
    """Decode every Parquet file that the run rewrites, in the isolated worker, and return those that cannot be read.

    All are checked, so that the next attempt fails on no other file. Raises UnavailableError if the storage does not answer.
    """
    with Inspector(run.table.schema, spec=StatisticsSpec(first=0, require_ids=False), verify=Verify.PAGES) as inspector:
        return tuple(_find_all(storage, inspector, run))


def _find_all(storage: Storage, inspector: Inspector, run: RunPlan) -> Iterator[DamagedFile]:
    for file in run.rewriting:
        error = _examine(storage, inspector, file) if file.file_type == "parquet" else None
        if isinstance(error, UnavailableError):
            raise error
        if error is not None:
            yield _describe(file, error)


def _examine(storage: Storage, inspector: Inspector, file: LiveFile) -> LakebedError | None:
    read = partial(storage.read_range, file.path)
    try:
        found = storage.stat(file.path).size_bytes
        if found != file.size_bytes:
            return FileChangedError(file.path, reason=f"it has {found} bytes, but was registered with {file.size_bytes}")
        tail = read_tail(read, found, path=file.path)
    except UnreadableFileError as exc:
        return FileChangedError(file.path, reason=exc.reason)
    except LakebedError as exc:
        return exc
    answer = inspector.inspect(ForeignFile(path=file.path, tail=tail, size_bytes=found), read=read)
    if isinstance(answer, UnreadableFileError):
        reason = answer.reason.removeprefix("it cannot be decoded: ")
        return FileDamagedError(file.path, reason=reason, row_group=answer.row_group, column=answer.column)
    # a file that exceeds the worker's memory is not known to be damaged
    return answer if isinstance(answer, UnavailableError | FileChangedError | FileMissingError) else None


def _describe(file: LiveFile, error: LakebedError) -> DamagedFile:
    where = (error.row_group, error.column) if isinstance(error, FileDamagedError) else (None, None)
    return DamagedFile(file_id=file.file_id, path=file.path, reason=str(error), code=error.code, row_group=where[0], column=where[1])
