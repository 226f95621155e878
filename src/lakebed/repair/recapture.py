"""Reads footers and statistics again from files that still match their registration exactly."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from lakebed.core.errors import FileChangedError, InvalidValueError, LakebedError
from lakebed.core.partitions import join_event_ranges
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.transforms import resolve_transforms
from lakebed.parquet.capture import CapturedFile, capture_foreign
from lakebed.parquet.inspect import StatisticsSpec
from lakebed.registry.repair.captures import Registered, find_registered, forget_statistics, replace_capture
from lakebed.registry.repair.rows import list_live_files, set_event_range
from lakebed.registry.tables.lake_tables import decode_settings, read_indexed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import Storage

Captured = tuple[Registered, CapturedFile | LakebedError | None]  # None: not Parquet, so there is nothing to capture


def recapture_files(registry: Registry, storage: Storage, paths: Sequence[str]) -> tuple[int, list[LakebedError]]:
    """Repair footers and statistics of registered files. Return how many were repaired, and why the others were not."""
    repaired, refused = 0, []
    for registered, captured in capture_registered(registry, storage, paths):
        if isinstance(captured, LakebedError):
            refused.append(captured)
            continue
        with registry.write([registered.table_id]) as tx:
            if captured is None:
                forget_statistics(tx, registered)
            else:
                replace_capture(tx, registered, captured.file)
        repaired += 1
    return repaired, refused


def reread_event_ranges(registry: Registry, storage: Storage, partition_ids: Sequence[int]) -> tuple[int, list[LakebedError]]:
    """Read event ranges of partitions again from the footers of their live files; JSON files have none."""
    repaired, refused = 0, []
    for partition_id in partition_ids:
        try:
            table_id, found = _event_range(registry, storage, partition_id)
        except LakebedError as exc:
            refused.append(exc)
            continue
        with registry.write([table_id]) as tx:
            set_event_range(tx, partition_id, found)
        repaired += 1
    return repaired, refused


def _event_range(registry: Registry, storage: Storage, partition_id: int) -> tuple[int, tuple[int, int] | None]:
    paths = [path for path, _ in list_live_files(registry, partition_id)]
    captured = list(capture_registered(registry, storage, paths))
    if not captured:
        message = f"partition {partition_id} has no live file to read its event range from: retire it"
        raise InvalidValueError(message)
    ranges: list[tuple[int, int]] = []
    for registered, answer in captured:
        if isinstance(answer, LakebedError):
            raise answer
        if registered.event_time_field is None:
            return registered.table_id, None
        if answer is None or answer.event_range is None:
            message = f"{registered.path} has no event time: retire its partition and write the rows again"
            raise InvalidValueError(message)
        ranges.append(answer.event_range)
    return captured[0][0].table_id, join_event_ranges(ranges)


def capture_registered(registry: Registry, storage: Storage, paths: Sequence[str]) -> Iterator[Captured]:
    """The present footers of the files, parsed in a disposable process; a file that differs from its registration is an error."""
    found = find_registered(registry, paths)
    yield from ((file, None) for file in found if file.file_type != "parquet")
    parquet = [file for file in found if file.file_type == "parquet"]
    for _, group in groupby(parquet, key=lambda file: (file.table_id, file.schema_hash)):
        files = list(group)
        schema = Schema.from_json(files[0].schema)
        answers = capture_foreign(storage, [file.path for file in files], schema, spec=_statistics_spec(registry, files[0], schema))
        yield from ((file, _compare(file, answer)) for file, answer in zip(files, answers, strict=True))


def _statistics_spec(registry: Registry, file: Registered, schema: Schema) -> StatisticsSpec:
    with registry.read() as reader:
        indexed = read_indexed(reader, file.table_id)
    sources = {field.field_id for _, field in resolve_transforms(schema, decode_settings(file.partition_by))}
    known = frozenset(indexed) & schema.by_id.keys()
    return StatisticsSpec(event_time=file.event_time_field, indexed=known, always=frozenset(sources), require_ids=False)


def _compare(file: Registered, answer: CapturedFile | LakebedError) -> CapturedFile | LakebedError:
    if isinstance(answer, LakebedError):
        return answer
    new = answer.file
    if (new.size_bytes, new.row_count) != (file.size_bytes, file.row_count):
        difference = f"it has {new.row_count} rows in {new.size_bytes} bytes, but was registered with {file.row_count} in {file.size_bytes}"
        return FileChangedError(file.path, reason=difference)
    footer = new.footer.checksum if new.footer is not None else ""
    if file.checksum not in {new.checksum, footer} and file.checksum_kind != "none":
        return FileChangedError(file.path, reason="its content does not match its checksum")
    return answer
