"""Rewriting in this process: many files become few, read, written and read back at once, in memory that does not grow with them.

Three stages overlap: reading threads decode and sum up what they read, the caller's thread encodes and writes, and each finished
file is made durable, hashed and read back while the next one is written.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.core.compaction import count_outputs
from lakebed.core.errors import FileChangedError
from lakebed.parquet.capture import CapturedFile, capture
from lakebed.parquet.inspect import PYARROW_ERRORS, Wanted
from lakebed.parquet.row_hash import MODULUS, add_column, sum_rows, total
from lakebed.parquet.shaping import Shape, list_leaf_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lakebed.storage.access import Storage

ROW_GROUP_BYTES = 32 << 20  # of rows in memory
SORT_BYTES = 256 << 20  # of files: what is sorted as a whole; more goes in stretches of one output each
_WHOLE_BYTES = 16 << 20  # a larger file is read in batches
_PORTION_BYTES, _PORTION_FILES = 8 << 20, 32
_AHEAD = 2  # portions that are read while one is written
_SAMPLE_ROWS = 20_000
_ZSTD_LEVEL = 3
_CODECS = {"uncompressed": "none", "lz4_raw": "lz4"}  # as pyarrow calls them


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A registered file to read."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSum:
    """How many rows, and their sum whatever their order."""

    rows: int = 0
    hash: int = 0

    def __add__(self, other: RowSum) -> RowSum:
        return RowSum(rows=self.rows + other.rows, hash=(self.hash + other.hash) % MODULUS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How rows become files: `new_path` names each, `sort_by` are physical names."""

    shape: Shape
    wanted: Wanted
    new_path: Callable[[], str]
    partition_path: str = ""
    target_bytes: int
    compression: str = "zstd"
    sort_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """The new files, durable and captured; `before` was read from the old ones, `after` from the new ones."""

    files: tuple[CapturedFile, ...]
    before: RowSum
    after: RowSum


@dataclass(frozen=True, slots=True)
class _Portion:
    rows: pa.Table
    read_bytes: int  # how much of the old files it stands for
    found: RowSum = field(default_factory=RowSum)
    ends_file: bool = False


def rewrite_files(storage: Storage, sources: Sequence[Source], recipe: Recipe, *, cancelled: Callable[[], bool]) -> Rewritten | None:
    """The rows of all sources in files of about the target's size. None when it was cancelled: what is written so far is the caller's."""
    before = RowSum()
    whole = sum(source.size_bytes for source in sources)
    with ThreadPoolExecutor(_AHEAD, thread_name_prefix="lakebed-read") as readers, _Output(storage, recipe, whole) as output:
        for portion in _arrange(_read_ahead(readers, storage, sources, recipe.shape), recipe, whole):
            if cancelled():
                return None
            before += portion.found
            output.add(portion)
        written = output.finish()
    return Rewritten(files=tuple(file for file, _ in written), before=before, after=sum((found for _, found in written), RowSum()))


def sum_file(storage: Storage, path: str, shape: Shape) -> RowSum:
    """Rows and sum of a file in this shape, a column at a time."""
    with storage.open_input(path) as opened:
        reader = pq.ParquetReader()
        reader.open(opened)
        return sum((_sum_row_group(reader, n, shape) for n in range(reader.metadata.num_row_groups)), RowSum())


def sum_files(storage: Storage, sources: Sequence[Source], shape: Shape) -> RowSum:
    """Rows and sum of files that anybody wrote."""
    found = RowSum()
    with ThreadPoolExecutor(_AHEAD, thread_name_prefix="lakebed-read") as readers:
        for portion in _read_ahead(readers, storage, sources, shape):
            found += portion.found
    return found


# -- reading ----------------------------------------------------------------------------------


def _read_ahead(readers: ThreadPoolExecutor, storage: Storage, sources: Sequence[Source], shape: Shape) -> Iterator[_Portion]:
    """The rows of all sources in their order, a few portions ahead of whoever takes them."""
    waiting: deque[Future[_Portion]] = deque()
    for batch in _batches(sources):
        if batch[0].size_bytes > _WHOLE_BYTES:
            while waiting:
                yield waiting.popleft().result()
            yield from _read_large(storage, batch[0], shape)
            continue
        waiting.append(readers.submit(_read_portion, storage, batch, shape))
        if len(waiting) > _AHEAD:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _batches(sources: Sequence[Source]) -> Iterator[list[Source]]:
    """Small files together, large ones alone."""
    batch: list[Source] = []
    size = 0
    for source in sources:
        if batch and (size + source.size_bytes > _PORTION_BYTES or len(batch) == _PORTION_FILES):
            yield batch
            batch, size = [], 0
        batch.append(source)
        size += source.size_bytes
    if batch:
        yield batch


def _read_portion(storage: Storage, sources: Sequence[Source], shape: Shape) -> _Portion:
    tables = [_read_whole(storage, source, shape) for source in sources]
    rows = tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()
    return _Portion(rows, sum(source.size_bytes for source in sources), _sum(rows, shape))


def _read_whole(storage: Storage, source: Source, shape: Shape) -> pa.Table:
    content = storage.read_range(source.path, 0, source.size_bytes + 1)
    if len(content) != source.size_bytes:
        raise FileChangedError(source.path, reason=f"it has another size than the {source.size_bytes} bytes it was registered with")
    reader = pq.ParquetReader()
    try:
        reader.open(pa.BufferReader(content))
        return shape.fit(reader.read_all(use_threads=False))
    except PYARROW_ERRORS as exc:
        raise FileChangedError(source.path, reason=f"it cannot be read any more: {exc}") from exc


def _read_large(storage: Storage, source: Source, shape: Shape) -> Iterator[_Portion]:
    with storage.open_input(source.path) as opened:
        file = pq.ParquetFile(opened)
        count = max(1, file.metadata.num_rows)
        raw = sum(file.metadata.row_group(n).total_byte_size for n in range(file.metadata.num_row_groups))
        for batch in file.iter_batches(batch_size=max(1024, _PORTION_BYTES * count // max(raw, 1)), use_threads=False):
            rows = shape.fit(pa.Table.from_batches([batch]))
            yield _Portion(rows, source.size_bytes * len(batch) // count, _sum(rows, shape))


def _sum(rows: pa.Table, shape: Shape) -> RowSum:
    return RowSum(rows=rows.num_rows, hash=sum_rows(rows, shape.field_ids))


def _sum_row_group(reader: Any, number: int, shape: Shape) -> RowSum:
    count = reader.metadata.row_group(number).num_rows
    rows = np.zeros(count, dtype=np.uint64)
    for leaves, field_id in zip(shape.leaves, shape.field_ids, strict=True):
        start = 0
        for chunk in reader.read_row_group(number, column_indices=list(leaves), use_threads=False).column(0).chunks:
            add_column(rows[start : start + len(chunk)], chunk, field_id)
            start += len(chunk)
    return RowSum(rows=count, hash=total(rows))


# -- order ------------------------------------------------------------------------------------


def _arrange(portions: Iterable[_Portion], recipe: Recipe, whole: int) -> Iterator[_Portion]:
    """As they come, or sorted by what the table is sorted by: as a whole, or in stretches of about one file."""
    if not recipe.sort_by:
        yield from portions
        return
    stretch = whole if whole <= SORT_BYTES else recipe.target_bytes
    waiting: list[_Portion] = []
    for portion in portions:
        waiting.append(portion)
        if sum(p.read_bytes for p in waiting) >= stretch:
            yield from _sorted(waiting, recipe.sort_by)
            waiting = []
    if waiting:
        yield from _sorted(waiting, recipe.sort_by)


def _sorted(portions: Sequence[_Portion], sort_by: Sequence[str]) -> Iterator[_Portion]:
    rows = pa.concat_tables([portion.rows for portion in portions]).combine_chunks()
    keys = _sort_keys(rows, sort_by)
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names], null_placement="at_start")
    read_bytes, found = sum(p.read_bytes for p in portions), sum((p.found for p in portions), RowSum())
    step = max(1, rows.num_rows * _PORTION_BYTES // max(rows.nbytes, 1))
    for start in range(0, rows.num_rows, step):
        part = rows.take(order.slice(start, step))
        is_last = start + step >= rows.num_rows
        yield _Portion(part, read_bytes * part.num_rows // rows.num_rows, found if is_last else RowSum(), ends_file=is_last)


def _sort_keys(rows: pa.Table, sort_by: Sequence[str]) -> pa.Table:
    """NULL first and NaN last, as Spark sorts."""
    keys: list[pa.ChunkedArray] = []
    for name in sort_by:
        column = rows.column(name)
        if pa.types.is_floating(column.type):
            keys.append(pc.is_nan(column))
        keys.append(column)
    return pa.table(keys, names=[str(n) for n in range(len(keys))])


# -- writing ----------------------------------------------------------------------------------


class _Output:
    """Rows into files, the next one opened when a file has its share of what all files are going to have together."""

    def __init__(self, storage: Storage, recipe: Recipe, whole: int) -> None:
        self._storage, self._recipe, self._whole = storage, recipe, whole
        self._row_group_bytes = min(ROW_GROUP_BYTES, max(1, recipe.target_bytes // 4))
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = self._taken = self._closed_bytes = 0
        self._file: _OpenFile | None = None
        self._dictionaries: list[str] | None = None
        self._finished: list[Future[tuple[CapturedFile, RowSum]]] = []
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="lakebed-finish")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.abandon()
        self._pool.shutdown(cancel_futures=True)

    def add(self, portion: _Portion) -> None:
        self._waiting.append(portion.rows)
        self._waiting_bytes += portion.rows.nbytes
        self._taken += portion.read_bytes
        if self._waiting_bytes >= self._row_group_bytes or portion.ends_file:
            self._write()
            if portion.ends_file or self._has_its_share():
                self._close()

    def finish(self) -> list[tuple[CapturedFile, RowSum]]:
        self._write()
        self._close()
        return [future.result() for future in self._finished]

    def _write(self) -> None:
        rows = pa.concat_tables(self._waiting) if self._waiting else None
        self._waiting, self._waiting_bytes = [], 0
        if rows is None or not rows.num_rows:
            return
        if self._dictionaries is None:
            self._dictionaries = choose_dictionaries(rows)
        if self._file is None:
            self._file = _OpenFile(self._storage, self._recipe, self._dictionaries)
        self._file.write(rows)

    def _has_its_share(self) -> bool:
        """Judged by what the rows so far have become: nobody knows before how well they pack together."""
        if self._file is None:
            return False
        written = self._closed_bytes + self._file.size_bytes
        expected = written * max(1.0, self._whole / max(self._taken, 1))
        left = count_outputs(expected, target_bytes=self._recipe.target_bytes) - len(self._finished)
        share = (expected - self._closed_bytes) / max(left, 1)
        return left > 1 and self._file.size_bytes + self._file.last_bytes / 2 >= share

    def _close(self) -> None:
        if self._file is None:
            return
        path = self._file.close()
        self._closed_bytes += self._file.size_bytes
        self._file = None
        self._finished.append(self._pool.submit(_finish_file, self._storage, self._recipe, path))


class _OpenFile:
    def __init__(self, storage: Storage, recipe: Recipe, dictionaries: Sequence[str]) -> None:
        self._storage, self._path = storage, recipe.new_path()
        self._is_local = storage.paths.warehouse.is_local
        if self._is_local:
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
        self._sink = pa.OSFile(self._path, "wb") if self._is_local else pa.BufferOutputStream()
        codec = _CODECS.get(recipe.compression, recipe.compression)
        self._writer = pq.ParquetWriter(
            self._sink,
            recipe.shape.target,
            compression=codec,
            compression_level=_ZSTD_LEVEL if codec == "zstd" else None,
            use_dictionary=list(dictionaries) or False,
            write_page_index=True,
            store_schema=False,
            store_decimal_as_integer=True,
        )
        self.size_bytes = self.last_bytes = 0

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        size = int(self._sink.tell())
        self.last_bytes, self.size_bytes = size - self.size_bytes, size

    def close(self) -> str:
        self._writer.close()
        self.size_bytes = int(self._sink.tell())
        if self._is_local:
            self._sink.close()
        else:
            self._storage.create_exclusive(self._path, self._sink.getvalue().to_pybytes())
        return self._path

    def abandon(self) -> None:
        """Its directory is about to be deleted."""
        self._writer.close()
        self._sink.close()


def _finish_file(storage: Storage, recipe: Recipe, path: str) -> tuple[CapturedFile, RowSum]:
    if storage.paths.warehouse.is_local:
        storage.sync(path)
    captured = capture(storage, path, recipe.shape.schema, wanted=recipe.wanted, partition_path=recipe.partition_path)
    return captured, sum_file(storage, captured.file.path, recipe.shape)


def choose_dictionaries(rows: pa.Table) -> list[str]:
    """Columns whose values repeat, judged by a sample: trying a dictionary on values that do not is most of the work of writing them."""
    sample = rows.slice(0, _SAMPLE_ROWS)
    return [leaf for f in rows.schema if _repeats(sample.column(f.name)) for leaf in list_leaf_paths(f)]


def _repeats(column: pa.ChunkedArray) -> bool:
    if pa.types.is_nested(column.type):
        return True
    distinct: int = pc.count_distinct(column, mode="only_valid").as_py()
    return distinct * 2 <= len(column)
