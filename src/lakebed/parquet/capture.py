"""Capture a finished file's footer and statistics for the registry, in one look at the file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lakebed.core.errors import (
    CorruptionError,
    FileChangedError,
    FooterCorruptError,
    LakebedError,
    NotIcebergReadyError,
    UnreadableFileError,
)
from lakebed.core.files import ChecksumKind, NewFile, Verify
from lakebed.parquet.footer.framing import MAX_FOOTER_BYTES, read_tail
from lakebed.parquet.foreign.sandbox import ForeignFile, Inspector, WorkerLimits
from lakebed.parquet.inspect import DEFAULT, Inspection, StatisticsSpec, inspect

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakebed.core.schema.schema import Schema
    from lakebed.storage.protocol import FileFacts, Storage

_LIMITS = WorkerLimits()
_WHOLE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedFile:
    """A file ready to be published, with the range of its event times where it is known."""

    file: NewFile
    event_range: tuple[int, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """What one look at the file gave; `checksum` only when the look was at all of it."""

    facts: FileFacts
    tail: bytes
    checksum: str | None


def capture(storage: Storage, path: str, schema: Schema, *, spec: StatisticsSpec = DEFAULT, partition_path: str = "") -> CapturedFile:
    """Capture a file that this lake wrote itself; what could never become an Iceberg data file is refused here."""
    source = _look(storage, path)
    return _finish(storage, source, _inspect(source, schema, spec), partition_path)


def capture_written(
    storage: Storage, path: str, schema: Schema, *, spec: StatisticsSpec = DEFAULT, partition_path: str = ""
) -> CapturedFile | None:
    """`capture`, and None for a file without rows, which Spark writes when there are none at all."""
    source = _look(storage, path)
    inspection = _inspect(source, schema, spec)
    return _finish(storage, source, inspection, partition_path) if inspection.footer.num_rows else None


def capture_foreign(
    storage: Storage,
    paths: Sequence[str],
    schema: Schema,
    *,
    spec: StatisticsSpec = DEFAULT,
    partition_path: str = "",
    limits: WorkerLimits = _LIMITS,
    verify: Verify = Verify.FOOTER,
    progress: Callable[[int, int], None] | None = None,
) -> list[CapturedFile | LakebedError]:
    """Capture files that others wrote, parsed in a worker process that may crash; one answer per path, in order."""
    captured: list[CapturedFile | LakebedError] = []
    with Inspector(schema, spec=spec, limits=limits, verify=verify) as inspector:
        for path in paths:
            captured.append(_capture_one(storage, inspector, path, partition_path))
            if progress is not None:
                progress(len(captured), len(paths))
    return captured


def _inspect(source: _Source, schema: Schema, spec: StatisticsSpec) -> Inspection:
    try:
        return inspect(source.tail, schema, spec=spec, file_bytes=source.facts.size_bytes)
    except FooterCorruptError as exc:
        raise UnreadableFileError(source.facts.path, reason=str(exc), row_group=exc.row_group, column=exc.column) from exc
    except CorruptionError as exc:
        raise UnreadableFileError(source.facts.path, reason=str(exc)) from exc


def _capture_one(storage: Storage, inspector: Inspector, path: str, partition_path: str) -> CapturedFile | LakebedError:
    try:
        source = _look(storage, path)
    except LakebedError as exc:
        return exc
    file = ForeignFile(path=source.facts.path, tail=source.tail, size_bytes=source.facts.size_bytes)
    answer = inspector.inspect(file, read=partial(storage.read_range, file.path))  # raises only when no worker can be started
    if isinstance(answer, LakebedError):
        return answer
    try:
        return _finish(storage, source, answer, partition_path)
    except LakebedError as exc:
        return exc


def _look(storage: Storage, path: str) -> _Source:
    """Small files are read once, whole: hash and footer come from the same bytes."""
    facts = storage.stat(path)
    if not storage.paths.warehouse.is_local or facts.size_bytes > _WHOLE_BYTES:
        tail = read_tail(partial(storage.read_range, facts.path), facts.size_bytes, path=facts.path, limit=MAX_FOOTER_BYTES)
        return _Source(facts=facts, tail=tail, checksum=None)
    content = storage.read_range(facts.path, 0, facts.size_bytes + 1)
    if len(content) != facts.size_bytes:
        raise FileChangedError(facts.path, reason="its size changed while it was read")
    tail = read_tail(lambda offset, length: content[offset : offset + length], len(content), path=facts.path, limit=MAX_FOOTER_BYTES)
    return _Source(facts=facts, tail=tail, checksum=hashlib.sha256(content).hexdigest())


def _finish(storage: Storage, source: _Source, inspection: Inspection, partition_path: str) -> CapturedFile:
    path = source.facts.path
    if inspection.problems:
        raise NotIcebergReadyError(path, problems=tuple(map(str, inspection.problems)))
    local = storage.paths.warehouse.is_local
    file = NewFile(
        path=path,
        size_bytes=source.facts.size_bytes,
        row_count=inspection.footer.num_rows,
        checksum=_hash_whole(storage, source) if local else inspection.footer.checksum,
        checksum_kind=ChecksumKind.WHOLE_FILE if local else ChecksumKind.FOOTER,
        partition_path=partition_path,
        footer=inspection.footer,
        columns=inspection.columns,
    )
    return CapturedFile(file=file, event_range=inspection.event_range)


def _hash_whole(storage: Storage, source: _Source) -> str:
    if source.checksum is not None:
        return source.checksum
    checksum = storage.sha256(source.facts.path)
    if storage.stat(source.facts.path).size_bytes != source.facts.size_bytes:
        raise FileChangedError(source.facts.path, reason="its size changed while it was read")
    return checksum
