"""Merging: a run of adjacent partitions becomes one, in one swap that wins whole or changes nothing."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakebed.core import fingerprints
from lakebed.core.errors import InvalidValueError, LakebedError, RewriteMismatchError
from lakebed.core.names import GLOBAL_INSTANCE, TableName, require_instance
from lakebed.core.partitions import Slice
from lakebed.core.slices import find_runs, span
from lakebed.core.times import MAX_MICROS, MIN_MICROS, TimeRange, to_micros
from lakebed.core.view_sets import parse_duration
from lakebed.pipeline.combine import combine_partials, find_combine
from lakebed.pipeline.frames import frame_of
from lakebed.pipeline.rewrite import TARGET_BYTES, into_files, rewrite
from lakebed.pipeline.staging import staging
from lakebed.pipeline.write import publish_files, write_frame
from lakebed.registry.lake_tables import READABLE, list_versions
from lakebed.registry.view_sets import (
    guard_files,
    list_instances,
    list_live_files,
    list_pieces,
    merge_window,
    require_lake_table,
    version_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime, timedelta

    from lakebed.core.slices import Piece
    from lakebed.parquet.capture import CapturedFile
    from lakebed.pipeline.context import Context
    from lakebed.pipeline.staging import Staging
    from lakebed.registry.lake_tables import LakeTable
    from lakebed.registry.transaction import Reader
    from lakebed.registry.view_sets import LiveFile

_GOOD_SHARE = 2  # a file of at least half the target is good enough to stay


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRun:
    """Partitions that become one: `rewriting` are its small files, `keeping` those that only change their partition."""

    table: LakeTable
    wanted: Slice
    pieces: tuple[Piece, ...] = field(repr=False)
    rewriting: tuple[LiveFile, ...] = field(repr=False)
    keeping: tuple[LiveFile, ...] = field(repr=False)
    combines: bool = False
    target_bytes: int = TARGET_BYTES

    @property
    def rows(self) -> int:
        return sum(piece.num_rows for piece in self.pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedRun:
    """What a merge made of one run. Rows differ only where partial results were combined."""

    instance: str
    insert_range: TimeRange
    partitions: int
    files_before: int
    files_after: int
    rows_before: int
    rows_after: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """The runs that were merged; nothing to do leaves none."""

    table: str
    runs: tuple[MergedRun, ...]
    seconds: float

    @property
    def partitions_before(self) -> int:
        return sum(run.partitions for run in self.runs)

    @property
    def files_before(self) -> int:
        return sum(run.files_before for run in self.runs)

    @property
    def files_after(self) -> int:
        return sum(run.files_after for run in self.runs)


def merge(
    context: Context,
    name: str,
    *,
    insert_begin: datetime | None = None,
    insert_end: datetime | None = None,
    instance: str | None = GLOBAL_INSTANCE,
    window: str | int | timedelta | None = None,
    target_bytes: int = TARGET_BYTES,
    progress: Callable[[int, int], None] | None = None,
) -> MergeResult:
    """Merge every run of adjacent partitions, inside the table's merge window or a shorter `window`.

    Views over the table stay fresh. A run whose partitions changed meanwhile conflicts and stays as it was; the
    others are merged first, then the first error is raised.
    """
    began = time.monotonic()
    done: list[MergedRun] = []
    errors: list[LakebedError] = []
    with context.lease.reading():
        runs = plan_merge(
            context, name, inserts=_range(insert_begin, insert_end), instance=instance, window=window, target_bytes=target_bytes
        )
        for run in runs:
            try:
                done.append(carry_out_merge(context, run))
            except LakebedError as exc:
                errors.append(exc)
            if progress is not None:
                progress(len(done) + len(errors), len(runs))
    if errors:
        raise errors[0]
    return MergeResult(table=name, runs=tuple(done), seconds=time.monotonic() - began)


def plan_merge(
    context: Context,
    name: str,
    *,
    inserts: TimeRange | None = None,
    instance: str | None = GLOBAL_INSTANCE,
    window: str | int | timedelta | None = None,
    target_bytes: int = TARGET_BYTES,
) -> list[MergeRun]:
    """The runs that are worth merging, from one snapshot; the process's reader lease keeps their files."""
    table = TableName.parse(name)
    if target_bytes <= 0:
        message = f"target_bytes={target_bytes}: a file has a positive size"
        raise InvalidValueError(message)
    context.lease.hold([context.registry.require_table_id(table)])
    with context.registry.read() as reader:
        found = require_lake_table(reader, table)
        window_us = _window(found, window)
        instances = [require_instance(instance)] if instance is not None else list_instances(reader, found.table_id)
        runs = [run for one in instances for run in _runs(reader, found, one, window_us=window_us, inserts=inserts)]
        files = _files(reader, [piece for _, pieces in runs for piece in pieces])
        versions = {v.schema_hash: version_of(found, v) for v in list_versions(reader, found.table_id) if v.standing in READABLE}
    planned = [_plan_run(versions[run[0].schema_hash], one, run, files, target_bytes=target_bytes) for one, run in runs]
    return [run for run in planned if len(run.pieces) > 1 or run.rewriting]


def carry_out_merge(context: Context, run: MergeRun) -> MergedRun:
    """Rewrite what is small, then swap. Raises a conflict, with nothing changed, when a partition or file of the run is gone."""
    began = time.monotonic()
    known = [piece.source_data_hash for piece in run.pieces if piece.source_data_hash is not None]
    with staging(context, run.table, kind="merge") as work:
        captured = _rewrite(context, work, run) if run.rewriting else []
        publish_files(
            context,
            work,
            run.table,
            captured,
            instance=run.wanted.instance,
            insert_range=run.wanted.insert_range,
            replacing=frozenset(piece.partition_id for piece in run.pieces),
            keeping=frozenset(file.file_id for file in run.keeping),
            fingerprint=fingerprints.add(piece.fingerprint for piece in run.pieces),
            source_data_hash=fingerprints.add(known) if len(known) == len(run.pieces) else None,
            lookup_hash=run.pieces[0].lookup_hash,
            guard=guard_files(
                run.table.name,
                partitions=[piece.partition_id for piece in run.pieces],
                files=[file.file_id for file in (*run.rewriting, *run.keeping)],
            ),
        )
    return MergedRun(
        instance=run.wanted.instance,
        insert_range=run.wanted.insert_range,
        partitions=len(run.pieces),
        files_before=len(run.rewriting) + len(run.keeping),
        files_after=len(captured) + len(run.keeping),
        rows_before=run.rows,
        rows_after=sum(c.file.row_count for c in captured) + sum(f.row_count for f in run.keeping),
        seconds=time.monotonic() - began,
    )


def _rewrite(context: Context, work: Staging, run: MergeRun) -> list[CapturedFile]:
    paths = [file.path for file in run.rewriting]
    size = sum(file.size_bytes for file in run.rewriting)
    if run.combines:
        combined = combine_partials(context, run.table, frame_of(context, run.table.schema, paths))
        return write_frame(context, work, run.table, into_files(combined, run.table, size_bytes=size, target_bytes=run.target_bytes))
    captured = rewrite(context, work, run.table, paths, size_bytes=size, target_bytes=run.target_bytes)
    expected, found = sum(file.row_count for file in run.rewriting), sum(c.file.row_count for c in captured)
    if expected != found:
        raise RewriteMismatchError(str(run.wanted), expected=expected, found=found)
    return captured


def _window(table: LakeTable, given: str | int | timedelta | None) -> int:
    whole = merge_window(table)
    if given is None:
        return whole
    shorter = parse_duration(given, what="window")
    if whole % shorter:
        message = f"{table.name}: a window of {shorter} us does not divide the table's merge window of {whole} us"
        raise InvalidValueError(message)
    return shorter


def _runs(
    reader: Reader, table: LakeTable, instance: str, *, window_us: int, inserts: TimeRange | None
) -> Iterator[tuple[str, tuple[Piece, ...]]]:
    pieces = list_pieces(reader, table.table_id, instance=instance)
    for run in find_runs(pieces, window_us=window_us, touching=table.row.kind == "view_set"):
        chosen = tuple(piece for piece in run if inserts is None or inserts.contains(piece.insert_range))
        if chosen:
            yield instance, chosen


def _files(reader: Reader, pieces: Sequence[Piece]) -> dict[int, list[LiveFile]]:
    files: dict[int, list[LiveFile]] = defaultdict(list)
    for file in list_live_files(reader, [piece.partition_id for piece in pieces if piece.num_rows]):
        files[file.partition_id].append(file)
    return files


def _plan_run(table: LakeTable, instance: str, run: tuple[Piece, ...], files: dict[int, list[LiveFile]], *, target_bytes: int) -> MergeRun:
    every = [file for piece in run for file in files.get(piece.partition_id, ())]
    combines = len(run) > 1 and find_combine(table) is not None
    small = every if combines else choose_small(every, target_bytes=target_bytes)
    ids = {file.file_id for file in small}
    return MergeRun(
        table=table,
        wanted=Slice(table=table.name, instance=instance, insert_range=span(run)),
        pieces=run,
        rewriting=tuple(small),
        keeping=tuple(file for file in every if file.file_id not in ids),
        combines=combines,
        target_bytes=target_bytes,
    )


def choose_small(files: Sequence[LiveFile], *, target_bytes: int) -> list[LiveFile]:
    """Files worth rewriting: two or more small ones of a partition path, and whatever is no Parquet."""
    by_path: dict[str, list[LiveFile]] = defaultdict(list)
    for file in files:
        if file.size_bytes < target_bytes // _GOOD_SHARE or file.file_type != "parquet":
            by_path[file.partition_path].append(file)
    return [file for small in by_path.values() for file in small if len(small) > 1 or file.file_type != "parquet"]


def _range(begin: datetime | None, end: datetime | None) -> TimeRange | None:
    if begin is None and end is None:
        return None
    return TimeRange(begin=MIN_MICROS if begin is None else to_micros(begin), end=MAX_MICROS if end is None else to_micros(end))
