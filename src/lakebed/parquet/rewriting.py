"""Rewriting in this process: many files become few, read, written and read back at once, in memory that does not grow with them.

Three stages overlap: reading threads decode and sum up what they read, the caller's thread encodes and writes, and each finished
file is made durable, hashed and read back while the next one is written.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.core.compaction import count_outputs
from lakebed.parquet.capture import CapturedFile, capture
from lakebed.parquet.inspect import PYARROW_ERRORS
from lakebed.parquet.row_reading import PORTION_BYTES, WHOLE_BYTES, Portion, Reader, RowSum, Source, sum_file
from lakebed.parquet.shaping import list_leaf_paths
from lakebed.storage.faults import translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lakebed.parquet.inspect import Wanted
    from lakebed.parquet.shaping import Shape
    from lakebed.storage.access import Storage

ROW_GROUP_BYTES = 32 << 20  # of rows in memory
SORT_BYTES = 256 << 20
_SAMPLE_ROWS = 5_000
_ZSTD_LEVEL = 3
_CODECS = {"uncompressed": "none", "lz4_raw": "lz4"}  # as pyarrow calls them


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How rows become files: `new_path` names each, `sort_by` are physical names.

    Files of up to `sort_bytes` together are sorted as a whole, more in stretches of one output each. A file above `whole_bytes` is
    read in batches.
    """

    shape: Shape
    wanted: Wanted
    new_path: Callable[[], str]
    partition_path: str = ""
    target_bytes: int
    compression: str = "zstd"
    sort_by: tuple[str, ...] = ()
    sort_bytes: int = SORT_BYTES
    whole_bytes: int = WHOLE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """The new files, durable and captured; `before` was read from the old ones, `after` from the new ones."""

    files: tuple[CapturedFile, ...]
    before: RowSum
    after: RowSum


def rewrite_files(storage: Storage, sources: Sequence[Source], recipe: Recipe, *, cancelled: Callable[[], bool]) -> Rewritten | None:
    """The rows of all sources in files of about the target's size. None when it was cancelled: what is written so far is the caller's."""
    before, whole = RowSum(), sum(source.size_bytes for source in sources)
    portion_bytes = min(PORTION_BYTES, max(1, recipe.target_bytes // 8))
    reader = Reader(storage, recipe.shape, whole_bytes=recipe.whole_bytes, portion_bytes=portion_bytes)
    with reader, _Output(storage, recipe, whole) as output:
        for portion in _arrange(reader.read(sources), recipe, whole):
            if cancelled():
                return None
            before += portion.found
            output.add(portion)
        written = output.finish()
    return Rewritten(files=tuple(file for file, _ in written), before=before, after=sum((found for _, found in written), RowSum()))


# -- order ------------------------------------------------------------------------------------


def _arrange(portions: Iterable[Portion], recipe: Recipe, whole: int) -> Iterator[Portion]:
    """As they come, or sorted by what the table is sorted by: as a whole, or in stretches of about one file."""
    if not recipe.sort_by:
        yield from portions
        return
    stretch = whole if whole <= recipe.sort_bytes else recipe.target_bytes
    waiting: list[Portion] = []
    for portion in portions:
        waiting.append(portion)
        if sum(p.read_bytes for p in waiting) >= stretch:
            yield from _sorted(waiting, recipe.sort_by)
            waiting = []
    if waiting:
        yield from _sorted(waiting, recipe.sort_by)


def _sorted(portions: Sequence[Portion], sort_by: Sequence[str]) -> Iterator[Portion]:
    rows = pa.concat_tables([portion.rows for portion in portions]).combine_chunks()
    keys = _sort_keys(rows, sort_by)
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    read_bytes, found = sum(p.read_bytes for p in portions), sum((p.found for p in portions), RowSum())
    step = max(1, rows.num_rows * PORTION_BYTES // max(rows.nbytes, 1))
    for start in range(0, rows.num_rows, step):
        part = rows.take(order.slice(start, step))
        is_last = start + step >= rows.num_rows
        yield Portion(part, read_bytes * part.num_rows // rows.num_rows, found if is_last else RowSum(), ends_file=is_last)


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

    def add(self, portion: Portion) -> None:
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
        codec = _CODECS.get(recipe.compression, recipe.compression)
        with translated(self._path, doing="write"):
            if self._is_local:
                Path(self._path).parent.mkdir(parents=True, exist_ok=True)
            self._sink = pa.OSFile(self._path, "wb") if self._is_local else pa.BufferOutputStream()
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
        """Its directory is about to be deleted; what it failed of is told already."""
        with suppress(*PYARROW_ERRORS):
            self._writer.close()
        with suppress(*PYARROW_ERRORS):
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
