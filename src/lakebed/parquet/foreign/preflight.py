"""Check files that others wrote before they are registered: the problems of each, and how to fix them.

Pure inspection: nothing is registered, copied or changed, and foreign footers are parsed in the isolated worker.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote

from lakebed.core.errors import LakebedError, UnreadableFileError
from lakebed.core.files import Verify
from lakebed.core.schema.schema import walk
from lakebed.core.schema.transforms import resolve_transforms
from lakebed.core.schema.types import Primitive
from lakebed.parquet.footer.framing import read_tail
from lakebed.parquet.foreign.partition_values import find_partition_path
from lakebed.parquet.foreign.sandbox import ForeignFile, Inspector, WorkerLimits
from lakebed.parquet.inspect import Inspection, StatisticsSpec
from lakebed.parquet.schema.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakebed.core.files import ColumnStatistics
    from lakebed.core.schema.schema import Schema
    from lakebed.core.schema.types import Field
    from lakebed.storage.protocol import FileFacts, Storage

_LIMITS = WorkerLimits()
_EVERY_COLUMN = 1 << 31
_EVENT_TIMES = frozenset({"timestamp", "timestamptz", "date"})
_REWRITE = "write it again with statistics (Spark and pyarrow do by default)"
_EMPTY = Problem(kind="empty", message="it has no rows", fix="leave it out: an empty partition needs no file")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileVerdict:
    """The verdict on one file. `problems` keep it out; `warnings` only make it slower to read."""

    path: str
    size_bytes: int = 0
    row_count: int = 0
    created_by: str = ""
    partition_path: str | None = None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


def check_files(  # noqa: PLR0913 - one keyword per choice
    storage: Storage,
    paths: Sequence[str],
    schema: Schema,
    partition_by: Sequence[str] = (),
    *,
    event_time: int | None = None,
    adopt: bool = False,
    verify: Verify = Verify.FOOTER,
    limits: WorkerLimits = _LIMITS,
    progress: Callable[[int, int], None] | None = None,
) -> list[FileVerdict]:
    """One verdict per path, in order. `adopt`: a file without any field ids is read by its column names. `verify` says how much is read."""
    resolve_transforms(schema, partition_by)  # a wrong request is refused before the first file is opened
    spec = StatisticsSpec(event_time=event_time, first=_EVERY_COLUMN, require_ids=not adopt)
    judge = partial(_judge, storage, schema=schema, partition_by=partition_by, event_time=event_time)
    verdicts: list[FileVerdict] = []
    with Inspector(schema, spec=spec, limits=limits, verify=verify) as inspector:
        for path in paths:
            looked = _look(storage, path)
            verdicts.append(judge(looked, _inspect(storage, inspector, looked)) if isinstance(looked, _Looked) else looked)
            if progress is not None:
                progress(len(verdicts), len(paths))
    return verdicts


def find_obstacles(
    path: str, columns: Sequence[ColumnStatistics], schema: Schema, partition_by: Sequence[str]
) -> tuple[str | None, tuple[Problem, ...]]:
    """The partition path that the file's statistics prove, and what keeps it from having one. `path` is relative to the warehouse."""
    hidden = tuple(_path_only(path, columns, schema))
    found, problems = find_partition_path(columns, resolve_transforms(schema, partition_by))
    lost = {problem.column for problem in hidden}
    return (None if hidden else found), (*hidden, *(problem for problem in problems if problem.column not in lost))


def list_path_fields(paths: Sequence[str], schema: Schema) -> frozenset[int]:
    """Columns of the table that any of the paths names: whether the files hold them must be looked up."""
    named = {name for path in paths for name in _segments(path)}
    return frozenset(leaf.field_id for field in schema.fields if _names(field) & named for leaf in _leaves(field))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    facts: FileFacts
    file: ForeignFile


def _look(storage: Storage, path: str) -> _Looked | FileVerdict:
    try:
        facts = storage.stat(path)
        tail = read_tail(partial(storage.read_range, facts.path), facts.size_bytes, path=facts.path)
    except LakebedError as exc:
        return FileVerdict(path=path, problems=(_unreadable(exc),))
    return _Looked(facts=facts, file=ForeignFile(path=facts.path, tail=tail, size_bytes=facts.size_bytes))


def _inspect(storage: Storage, inspector: Inspector, looked: _Looked) -> Inspection | LakebedError:
    return inspector.inspect(looked.file, read=partial(storage.read_range, looked.facts.path))


def _judge(
    storage: Storage,
    looked: _Looked,
    answer: Inspection | LakebedError,
    *,
    schema: Schema,
    partition_by: Sequence[str],
    event_time: int | None,
) -> FileVerdict:
    verdict = FileVerdict(path=looked.facts.path, size_bytes=looked.facts.size_bytes)
    if isinstance(answer, LakebedError):
        return replace(verdict, problems=(_unreadable(answer),))
    if not answer.footer.num_rows:
        return replace(verdict, created_by=answer.created_by, problems=(_EMPTY,))
    broken = {problem.column for problem in answer.problems if problem.column is not None}
    own = [replace(problem, column=None) for problem in answer.problems]  # stable output: their message names the column
    partition_path, obstacles = find_obstacles(storage.paths.relative(looked.facts.path), answer.columns, schema, partition_by)
    silent = [p for p in _silent(answer, schema, event_time, partition_by) if p.column not in broken]
    return replace(
        verdict,
        row_count=answer.footer.num_rows,
        created_by=answer.created_by,
        partition_path=partition_path,
        problems=(*own, *(p for p in obstacles if p.column not in broken), *(p for p in silent if p.is_needed)),
        warnings=tuple(p for p in silent if not p.is_needed),
    )


def _unreadable(error: LakebedError) -> Problem:
    column = error.column if isinstance(error, UnreadableFileError) else None
    return Problem(kind="unreadable", column=column, message=str(error), fix="write it again, below the warehouse")


def _path_only(path: str, columns: Sequence[ColumnStatistics], schema: Schema) -> Iterator[Problem]:
    """Hive and Spark leave partition columns out of the files: every other reader would see NULL."""
    there = {column.field_id for column in columns}
    segments = _segments(path)
    for field in schema.fields:
        if _names(field) & segments and not any(leaf.field_id in there for leaf in _leaves(field)):
            message = f"column {field.name!a} stands only in the path, not in the file"
            yield Problem(kind="path_only_column", column=field.name, message=message, fix="write the column into the file, too")


def _silent(answer: Inspection, schema: Schema, event_time: int | None, partition_by: Sequence[str]) -> Iterator[Problem]:
    """Columns whose range is not in the footer; columns of partition transforms have a check of their own."""
    sources = {field.field_id for _, field in resolve_transforms(schema, partition_by)}
    top = {field.field_id: field for field in schema.fields if isinstance(field.type, Primitive)}
    for column in answer.columns:
        field = top.get(column.field_id)
        if field is None or column.field_id in sources or column.value_count == column.null_count:
            continue
        if column.field_id == event_time and isinstance(field.type, Primitive) and field.type.name in _EVENT_TIMES:
            if answer.event_range is None:
                yield _missing(field, "the event time of its rows is unknown", is_needed=True)
        elif column.lower is None:
            yield _missing(field, "queries cannot skip the file by it", is_needed=False)


def _missing(field: Field, consequence: str, *, is_needed: bool) -> Problem:
    message = f"column {field.name!a} has no statistics, so {consequence}"
    return Problem(kind="missing_statistics", column=field.name, message=message, fix=_REWRITE, is_needed=is_needed)


def _segments(path: str) -> frozenset[str]:
    """Names of `name=value` directories."""
    return frozenset(unquote(segment.partition("=")[0]) for segment in path.split("/")[:-1] if "=" in segment)


def _names(field: Field) -> frozenset[str]:
    return frozenset({field.name, field.physical_name})


def _leaves(field: Field) -> Iterator[Field]:
    return (leaf for leaf in walk([field]) if isinstance(leaf.type, Primitive))
