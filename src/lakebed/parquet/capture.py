"""Taking a finished file's footer and statistics: what the registry needs to know of it, and nothing twice."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lakebed.core.errors import CorruptionError, FileChangedError, LakebedError, NotIcebergReadyError, UnreadableFileError
from lakebed.core.files import ChecksumKind, NewFile
from lakebed.parquet.inspect import DEFAULT, Inspection, Wanted, inspect
from lakebed.parquet.isolation import ForeignFile, WorkerLimits, inspect_isolated
from lakebed.parquet.tail import MAX_FOOTER_BYTES, read_tail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.core.schema import Schema
    from lakebed.storage.access import FileFacts, Storage

_LIMITS = WorkerLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedFile:
    """A file ready to be published, with the range of its event times where it tells them."""

    file: NewFile
    event_range: tuple[int, int] | None


def capture(storage: Storage, path: str, schema: Schema, *, wanted: Wanted = DEFAULT, partition_path: str = "") -> CapturedFile:
    """Capture a file that this lake wrote itself; what could never become an Iceberg data file is refused here."""
    facts, tail = _read(storage, path)
    try:
        inspection = inspect(tail, schema, wanted=wanted)
    except CorruptionError as exc:
        raise UnreadableFileError(facts.path, reason=str(exc)) from exc
    return _finish(storage, facts, inspection, partition_path)


def capture_foreign(
    storage: Storage,
    paths: Sequence[str],
    schema: Schema,
    *,
    wanted: Wanted = DEFAULT,
    partition_path: str = "",
    limits: WorkerLimits = _LIMITS,
) -> list[CapturedFile | LakebedError]:
    """Capture files that others wrote, parsed in a worker that may die of them; one answer per path, in order."""
    read: list[tuple[FileFacts, bytes] | LakebedError] = [_try_read(storage, path) for path in paths]
    items = [ForeignFile(path=found[0].path, tail=found[1]) for found in read if not isinstance(found, LakebedError)]
    answers = iter(inspect_isolated(items, schema, wanted=wanted, limits=limits))
    return [
        found if isinstance(found, LakebedError) else _settle(storage, found[0], next(answers), partition_path)
        for found in read
    ]  # fmt: skip


def _settle(storage: Storage, facts: FileFacts, answer: Inspection | LakebedError, partition_path: str) -> CapturedFile | LakebedError:
    if isinstance(answer, LakebedError):
        return answer
    try:
        return _finish(storage, facts, answer, partition_path)
    except LakebedError as exc:
        return exc


def _try_read(storage: Storage, path: str) -> tuple[FileFacts, bytes] | LakebedError:
    try:
        return _read(storage, path)
    except LakebedError as exc:
        return exc


def _read(storage: Storage, path: str) -> tuple[FileFacts, bytes]:
    facts = storage.stat(path)
    return facts, read_tail(partial(storage.read_range, facts.path), facts.size_bytes, path=facts.path, limit=MAX_FOOTER_BYTES)


def _finish(storage: Storage, facts: FileFacts, inspection: Inspection, partition_path: str) -> CapturedFile:
    if inspection.problems:
        raise NotIcebergReadyError(facts.path, problems=inspection.problems)
    local = storage.paths.warehouse.is_local
    checksum = storage.sha256(facts.path) if local else inspection.footer.checksum
    if storage.stat(facts.path).size_bytes != facts.size_bytes:
        raise FileChangedError(facts.path, reason="its size changed while it was read")
    file = NewFile(
        path=facts.path,
        size_bytes=facts.size_bytes,
        row_count=inspection.footer.num_rows,
        checksum=checksum,
        checksum_kind=ChecksumKind.WHOLE_FILE if local else ChecksumKind.FOOTER,
        partition_path=partition_path,
        footer=inspection.footer,
        columns=inspection.columns,
    )
    return CapturedFile(file=file, event_range=inspection.event_range)
