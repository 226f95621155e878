"""Rewriting in this process: many files become few, read, written and read back at once, in memory that does not grow with them.

What becomes few files is decoded and summed up by threads that read ahead, while the caller's thread encodes and writes. What
becomes many is divided into shards, one for each where that comes out evenly; as many workers as there are lanes take one after the
other, and rows never change threads there. Either way a written file is synced by a thread that only waits for the disk, then hashed
and read back by a worker.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.core.tables.compaction import count_outputs
from lakebed.parquet.capture import CapturedFile, capture
from lakebed.parquet.inspect import PYARROW_ERRORS
from lakebed.parquet.rewrite.encoding import Packing, choose_packing
from lakebed.parquet.rewrite.reader import BATCH_BYTES, WHOLE_BYTES, RowBatch, RowReader, RowSum, Source, sum_file
from lakebed.storage.errors import translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lakebed.parquet.inspect import StatisticsSpec
    from lakebed.parquet.rewrite.target import TargetSchema
    from lakebed.storage.protocol import Storage

_Finishing: TypeAlias = "Future[tuple[Future[CapturedFile], Future[RowSum]]]"  # synced, then hashed and read back

ROW_GROUP_BYTES = 16 << 20  # of rows in memory, shared by the lanes
SORT_BYTES = 256 << 20
_LANES = 2  # shards that are written at once
_AHEAD = 2  # batches that are read while one is written, where there is one lane
_PROBE_ROWS = 100_000  # few rows pack worse than a whole row group: the number of files would be guessed too high
_LANE_OUTPUTS = 2  # of a lane, at the least: with one, a wrong guess of its size would show
_FINE_SOURCES = 8  # in one output, at the least: with fewer, shards of one output each would come out uneven


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How rows become files: `new_path` names each, `sort_by` are physical names.

    Files of up to `sort_bytes` together are sorted as a whole, more in stretches of one output each. A file above `whole_bytes` is
    read in batches.
    """

    target: TargetSchema
    spec: StatisticsSpec
    new_path: Callable[[], str]
    partition_path: str = ""
    target_bytes: int
    compression: str = "zstd"
    sort_by: tuple[str, ...] = ()
    sort_bytes: int = SORT_BYTES
    whole_bytes: int = WHOLE_BYTES
    row_group_bytes: int = ROW_GROUP_BYTES
    packing: Packing | None = None  # chosen by the first rows unless given
    planned: int = 0  # files, where their number was guessed before


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """The new files, durable and captured; `before` was read from the old ones, `after` from the new ones."""

    files: tuple[CapturedFile, ...]
    before: RowSum
    after: RowSum


def rewrite_files(storage: Storage, sources: Sequence[Source], options: WriteOptions, *, cancelled: Callable[[], bool]) -> Rewritten | None:
    """The rows of all sources in files of about the target's size. None when it was cancelled: what is written so far is the caller's."""
    shards = _plan_shards(storage, sources, options)
    stopped = threading.Event()
    with _RewritePool(storage, workers=_LANES if len(shards) > 1 else 1) as pool:
        try:
            work = partial(_rewrite_shard, storage, pool=pool, stops=lambda: stopped.is_set() or cancelled())
            written = [work(shards[0], ahead=_AHEAD)] if len(shards) == 1 else pool.carry_out(work, shards)
            done = [one for one in written if one is not None]
            return _add_up([one.result() for one in done]) if len(done) == len(shards) else None
        finally:
            stopped.set()  # a shard that failed takes the others along


def write_batches(
    storage: Storage, batches: Iterable[RowBatch], options: WriteOptions, *, whole: int, cancelled: Callable[[], bool]
) -> Rewritten | None:
    """The same for rows that the caller reads; `whole` is how many bytes of old files they stand for in all."""
    with _RewritePool(storage, workers=1) as pool:
        written = _write_shard(storage, batches, options, pool=pool, whole=whole, stops=cancelled)
        return None if written is None else written.result()


def _rewrite_shard(storage: Storage, shard: _Shard, *, pool: _RewritePool, ahead: int = 0, stops: Callable[[], bool]) -> _Written | None:
    options, whole = shard.options, sum(source.size_bytes for source in shard.sources)
    batch_bytes = min(BATCH_BYTES, max(1, options.target_bytes // 8))
    with RowReader(storage, options.target, whole_bytes=options.whole_bytes, batch_bytes=batch_bytes, ahead=ahead) as reader:
        return _write_shard(storage, reader.read(shard.sources), options, pool=pool, whole=whole, stops=stops)


def _write_shard(
    storage: Storage, batches: Iterable[RowBatch], options: WriteOptions, *, pool: _RewritePool, whole: int, stops: Callable[[], bool]
) -> _Written | None:
    before = RowSum()
    with _Output(storage, options, whole, pool) as output:
        for batch in _arrange(batches, options, whole):
            if stops():
                return None
            before += batch.found
            output.add(batch)
        return _Written(before, output.finish())


def _add_up(done: Sequence[Rewritten]) -> Rewritten:
    files = tuple(file for one in done for file in one.files)
    return Rewritten(files=files, before=sum((one.before for one in done), RowSum()), after=sum((one.after for one in done), RowSum()))


# -- shards -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Shard:
    sources: Sequence[Source]
    options: WriteOptions


@dataclass(frozen=True, slots=True)
class _Written:
    """A shard whose files are written, but not all finished."""

    before: RowSum
    files: Sequence[_Finishing]

    def result(self) -> Rewritten:
        found = [file.result() for file in self.files]
        files = tuple(captured.result() for captured, _ in found)
        return Rewritten(files=files, before=self.before, after=sum((own.result() for _, own in found), RowSum()))


def _plan_shards(storage: Storage, sources: Sequence[Source], options: WriteOptions) -> list[_Shard]:
    """The first rows decide how to store them all, and whether they become files enough for more than one lane."""
    whole, least = sum(source.size_bytes for source in sources), _LANES * _LANE_OUTPUTS
    if whole < least * options.target_bytes or (options.sort_by and whole <= options.sort_bytes):
        return [_Shard(sources, options)]
    with RowReader(storage, options.target, whole_bytes=options.whole_bytes, ahead=0) as reader:
        first = next(iter(reader.read(sources)))
    packing = choose_packing(first.rows, options.compression, sample_rows=_PROBE_ROWS)
    expected = packing.row_bytes * first.rows.num_rows * whole / max(1, first.read_bytes)
    outputs = count_outputs(expected, target_bytes=options.target_bytes)
    if outputs < least:
        return [_Shard(sources, replace(options, packing=packing))]
    is_fine = max(source.size_bytes for source in sources) * outputs * _FINE_SOURCES <= whole
    count = outputs if is_fine else _LANES
    lane = replace(options, packing=packing, row_group_bytes=options.row_group_bytes // _LANES)
    return _divide(sources, [replace(lane, planned=(outputs + n) // count) for n in range(count)])


def _divide(sources: Sequence[Source], options_of_shards: Sequence[WriteOptions]) -> list[_Shard]:
    """Neighbours stay together; a shard is as large as the files that it becomes are many."""
    whole, seen = max(1, sum(source.size_bytes for source in sources)), 0
    files = list(accumulate(options.planned for options in options_of_shards))
    shards: list[list[Source]] = [[] for _ in options_of_shards]
    for source in sources:
        shards[bisect_right(files, seen * files[-1] // whole)].append(source)
        seen += source.size_bytes
    return [_Shard(own, options) for own, options in zip(shards, options_of_shards, strict=True)]


class _RewritePool:
    """Few threads that write shards and finish files, in the order of their coming; and one that waits for the disk."""

    def __init__(self, storage: Storage, *, workers: int) -> None:
        self._storage, self._count = storage, workers
        self._workers = ThreadPoolExecutor(workers, thread_name_prefix="lakebed-rewrite")
        self._syncing = ThreadPoolExecutor(1, thread_name_prefix="lakebed-sync")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._syncing.shutdown(cancel_futures=True)
        self._workers.shutdown(cancel_futures=True)

    def carry_out(self, work: Callable[[_Shard], _Written | None], shards: Sequence[_Shard]) -> list[_Written | None]:
        """Never more shards than workers at once: files are finished in between, while their bytes are in the cache."""
        written: list[_Written | None] = [None] * len(shards)
        numbers, running = iter(range(len(shards))), dict[Future[_Written | None], int]()
        while True:
            running |= {self._workers.submit(work, shards[number]): number for number in islice(numbers, self._count - len(running))}
            if not running:
                return written
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                written[running.pop(future)] = future.result()

    def finish(self, path: str, options: WriteOptions) -> _Finishing:
        return self._syncing.submit(self._sync, path, options)

    def _sync(self, path: str, options: WriteOptions) -> tuple[Future[CapturedFile], Future[RowSum]]:
        self._storage.sync(path)
        look = partial(capture, spec=options.spec, partition_path=options.partition_path)
        summed = self._workers.submit(sum_file, self._storage, path, options.target)
        return self._workers.submit(look, self._storage, path, options.target.schema), summed


# -- order ------------------------------------------------------------------------------------


def _arrange(batches: Iterable[RowBatch], options: WriteOptions, whole: int) -> Iterator[RowBatch]:
    """As they come, or sorted by what the table is sorted by: as a whole, or in stretches of about one file."""
    if not options.sort_by:
        yield from batches
        return
    stretch = whole if whole <= options.sort_bytes else options.target_bytes
    waiting: list[RowBatch] = []
    for batch in batches:
        waiting.append(batch)
        if sum(p.read_bytes for p in waiting) >= stretch:
            yield from _sorted(waiting, options.sort_by)
            waiting = []
    if waiting:
        yield from _sorted(waiting, options.sort_by)


def _sorted(batches: Sequence[RowBatch], sort_by: Sequence[str]) -> Iterator[RowBatch]:
    rows = pa.concat_tables([batch.rows for batch in batches]).combine_chunks()
    keys = _sort_keys(rows, sort_by)
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    read_bytes, found = sum(p.read_bytes for p in batches), sum((p.found for p in batches), RowSum())
    step = max(1, rows.num_rows * BATCH_BYTES // max(rows.nbytes, 1))
    for start in range(0, rows.num_rows, step):
        part = rows.take(order.slice(start, step))
        is_last = start + step >= rows.num_rows
        yield RowBatch(part, read_bytes * part.num_rows // rows.num_rows, found if is_last else RowSum(), ends_file=is_last)


def _sort_keys(rows: pa.Table, sort_by: Sequence[str]) -> pa.Table:
    """NULL first and NaN last, as Spark sorts: said by keys of their own."""
    keys: list[pa.ChunkedArray] = []
    for name in sort_by:
        column = rows.column(name)
        keys.append(pc.is_valid(column).cast(pa.int8()))
        if pa.types.is_floating(column.type):
            keys.append(pc.is_nan(column).cast(pa.int8()))
        keys.append(column)
    return pa.table(keys, names=[str(n) for n in range(len(keys))])


# -- writing ----------------------------------------------------------------------------------


class _Output:
    """Rows into files, the next one opened when a file has its share of what all files are going to have together."""

    def __init__(self, storage: Storage, options: WriteOptions, whole: int, pool: _RewritePool) -> None:
        self._storage, self._options, self._whole, self._pool, self._packing = storage, options, whole, pool, options.packing
        self._row_group_bytes = min(options.row_group_bytes, max(1, options.target_bytes // 4))
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = self._taken = self._closed_bytes = 0
        self._file: _OpenFile | None = None
        self._finished: list[_Finishing] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.abandon()

    def add(self, batch: RowBatch) -> None:
        self._waiting.append(batch.rows)
        self._waiting_bytes += batch.rows.nbytes
        self._taken += batch.read_bytes
        if self._waiting_bytes >= self._row_group_bytes or batch.ends_file:
            self._write()
            if batch.ends_file or self._has_its_share():
                self._close()

    def finish(self) -> Sequence[_Finishing]:
        self._write()
        self._close()
        return self._finished

    def _write(self) -> None:
        rows = pa.concat_tables(self._waiting) if self._waiting else None
        self._waiting, self._waiting_bytes = [], 0
        if rows is None or not rows.num_rows:
            return
        if self._packing is None:
            self._packing = choose_packing(rows, self._options.compression)
        if self._file is None:
            self._file = _OpenFile(self._storage, self._options, self._packing)
        self._file.write(rows)

    def _has_its_share(self) -> bool:
        """Judged by what the rows so far have become: how well they compress together is not known before."""
        if self._file is None:
            return False
        written = self._closed_bytes + self._file.size_bytes
        expected = written * max(1.0, self._whole / max(self._taken, 1))
        left = count_outputs(expected, target_bytes=self._options.target_bytes, planned=self._options.planned) - len(self._finished)
        share = (expected - self._closed_bytes) / max(left, 1)
        return left > 1 and self._file.size_bytes + self._file.last_bytes / 2 >= share

    def _close(self) -> None:
        if self._file is None:
            return
        path = self._file.close()
        self._closed_bytes += self._file.size_bytes
        self._file = None
        self._finished.append(self._pool.finish(path, self._options))


class _OpenFile:
    def __init__(self, storage: Storage, options: WriteOptions, packing: Packing) -> None:
        self._storage, self._path = storage, options.new_path()
        self._is_local = storage.paths.warehouse.is_local
        with translated(self._path, doing="write"):
            if self._is_local:
                Path(self._path).parent.mkdir(parents=True, exist_ok=True)
            self._sink = pa.OSFile(self._path, "wb") if self._is_local else pa.BufferOutputStream()
            self._writer = pq.ParquetWriter(self._sink, options.target.arrow_schema, write_page_index=True, **packing.writer_options())
        self.size_bytes = self.last_bytes = 0

    def write(self, rows: pa.Table) -> None:
        with translated(self._path, doing="write"):
            self._writer.write_table(rows, row_group_size=rows.num_rows)
        size = int(self._sink.tell())
        self.last_bytes, self.size_bytes = size - self.size_bytes, size

    def close(self) -> str:
        with translated(self._path, doing="write"):
            self._writer.close()
            self.size_bytes = int(self._sink.tell())
            if self._is_local:
                self._sink.close()
        if not self._is_local:
            self._storage.create_exclusive(self._path, self._sink.getvalue().to_pybytes())
        return self._path

    def abandon(self) -> None:
        """Its directory is about to be deleted; its error is raised already."""
        with suppress(*PYARROW_ERRORS):
            self._writer.close()
        with suppress(*PYARROW_ERRORS):
            self._sink.close()
