"""The rows of files, read ahead in batches, and summed up on the way."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.core.errors import FileChangedError, FileDamagedError
from lakebed.parquet.footer.framing import read_tail
from lakebed.parquet.inspect import PYARROW_ERRORS
from lakebed.parquet.pages import Damage, find_damage
from lakebed.parquet.rewrite.row_hash import MODULUS, add_column, sum_rows, total

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakebed.parquet.rewrite.target import TargetSchema
    from lakebed.storage.protocol import Storage

WHOLE_BYTES = 16 << 20  # a larger file is read in batches
BATCH_BYTES = 4 << 20
_BATCH_FILES = 32
_CHUNK_ROWS = 4096


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


@dataclass(frozen=True, slots=True)
class RowBatch:
    rows: pa.Table
    read_bytes: int  # how much of the old files it stands for
    found: RowSum = field(default_factory=RowSum)
    ends_file: bool = False


def sum_file(storage: Storage, path: str, target: TargetSchema) -> RowSum:
    """Rows and sum of a file in this shape, a column at a time."""
    with storage.open_input(path) as opened, _opened_natively(opened) as source:
        reader = pq.ParquetReader()
        reader.open(source, pre_buffer=False)  # reading ahead by other threads costs more than it saves
        return sum((_sum_row_group(reader, n, target) for n in range(reader.metadata.num_row_groups)), RowSum())


@contextmanager
def _opened_natively(opened: BinaryIO) -> Iterator[Any]:
    """The same file for pyarrow to read by itself, where there is a way: through a Python file every read asks for the interpreter."""
    try:
        source = pa.OSFile(f"/dev/fd/{opened.fileno()}")
    except (AttributeError, *PYARROW_ERRORS):
        yield opened
        return
    with source:
        yield source


def sum_files(storage: Storage, sources: Sequence[Source], target: TargetSchema) -> RowSum:
    """Rows and sum of files of any writer."""
    with RowReader(storage, target) as reader:
        return sum((batch.found for batch in reader.read(sources)), RowSum())


class RowReader:
    """The rows of many files in their order, decoded up to `ahead` batches ahead of the consumer, by as many threads.

    Bytes are read by the consumer's thread: short calls in many threads would wait for each other.
    """

    def __init__(
        self, storage: Storage, target: TargetSchema, *, whole_bytes: int = WHOLE_BYTES, batch_bytes: int = BATCH_BYTES, ahead: int = 2
    ) -> None:
        self._storage, self._target, self._whole_bytes, self._batch_bytes, self._ahead = storage, target, whole_bytes, batch_bytes, ahead
        self._pool = ThreadPoolExecutor(max(1, ahead), thread_name_prefix="lakebed-read")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def read(self, sources: Sequence[Source]) -> Iterator[RowBatch]:
        waiting: deque[Future[RowBatch]] = deque()
        for batch in self._batches(sources):
            if batch[0].size_bytes > self._whole_bytes:
                while waiting:
                    yield waiting.popleft().result()
                yield from _read_large(self._storage, batch[0], self._target, self._batch_bytes)
                continue
            contents = _read_bytes(self._storage, batch)
            if not self._ahead:
                yield _decode_batch(batch, contents, self._target)
                continue
            waiting.append(self._pool.submit(_decode_batch, batch, list(contents), self._target))
            if len(waiting) > self._ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _batches(self, sources: Sequence[Source]) -> Iterator[list[Source]]:
        """Small files together, large ones alone."""
        batch: list[Source] = []
        size = 0
        for source in sources:
            if batch and (size + source.size_bytes > min(self._batch_bytes, self._whole_bytes) or len(batch) == _BATCH_FILES):
                yield batch
                batch, size = [], 0
            batch.append(source)
            size += source.size_bytes
        if batch:
            yield batch


def _decode_batch(sources: Sequence[Source], contents: Iterable[bytes], target: TargetSchema) -> RowBatch:
    tables = [_decode(source, content) for source, content in zip(sources, contents, strict=True)]
    rows = _join([target.fit(table) for table in _join_alike(tables)])
    if rows.num_rows < _CHUNK_ROWS * len(sources):
        rows = rows.combine_chunks()  # every step behind costs something per chunk
    return RowBatch(rows, sum(source.size_bytes for source in sources), _sum(rows, target))


def _read_bytes(storage: Storage, sources: Sequence[Source]) -> Iterator[bytes]:
    contents = storage.read_files((source.path, source.size_bytes + 1) for source in sources)
    for source, content in zip(sources, contents, strict=True):
        _require_size(source, len(content))
        yield content


def _decode(source: Source, content: bytes) -> pa.Table:
    reader = pq.ParquetReader()
    with _opening(source):
        reader.open(pa.BufferReader(content), pre_buffer=False)
    with _decoding(source, pa.BufferReader(content)):
        return reader.read_all(use_threads=False)


def _join_alike(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Neighbours of one schema as one table: bringing each into shape by itself would cost as much as reading it."""
    alike: list[pa.Table] = []
    for table in tables:
        if alike and not table.schema.equals(alike[0].schema, check_metadata=True):
            yield _join(alike)
            alike = []
        alike.append(table)
    yield _join(alike)


def _join(tables: Sequence[pa.Table]) -> pa.Table:
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)


def _read_large(storage: Storage, source: Source, target: TargetSchema, batch_bytes: int) -> Iterator[RowBatch]:
    _require_size(source, storage.stat(source.path).size_bytes)
    with storage.open_input(source.path) as opened:
        with _opening(source):
            file = pq.ParquetFile(opened)
        yield from _read_batches(source, opened, file, target, batch_bytes)


def _read_batches(source: Source, opened: BinaryIO, file: pq.ParquetFile, target: TargetSchema, batch_bytes: int) -> Iterator[RowBatch]:
    with _decoding(source, opened):
        count = max(1, file.metadata.num_rows)
        raw = sum(file.metadata.row_group(n).total_byte_size for n in range(file.metadata.num_row_groups))
        for batch in file.iter_batches(batch_size=max(1, batch_bytes * count // max(raw, 1)), use_threads=False):
            rows = target.fit(pa.Table.from_batches([batch]))
            yield RowBatch(rows, source.size_bytes * len(batch) // count, _sum(rows, target))


def _require_size(source: Source, found: int) -> None:
    if found != source.size_bytes:
        raise FileChangedError(source.path, reason=f"it has another size than the {source.size_bytes} bytes it was registered with")


@contextmanager
def _opening(source: Source) -> Iterator[None]:
    """The footer could be read when the file was registered."""
    try:
        yield
    except PYARROW_ERRORS as exc:
        raise FileChangedError(source.path, reason=f"its footer cannot be read any more: {exc}") from exc


@contextmanager
def _decoding(source: Source, opened: Any) -> Iterator[None]:
    """Pages are not read when a file is registered: they may have been damaged since then, or before."""
    try:
        yield
    except PYARROW_ERRORS as exc:
        damage = _locate(opened, source)
        if damage is None:
            raise FileDamagedError(source.path, reason=str(exc)) from exc
        raise FileDamagedError(source.path, reason=str(damage), row_group=damage.row_group, column=damage.column) from exc


def _locate(opened: Any, source: Source) -> Damage | None:
    def read_range(offset: int, length: int) -> bytes:
        opened.seek(offset)
        return bytes(opened.read(length))

    return find_damage(opened, read_tail(read_range, source.size_bytes, path=source.path))


def _sum(rows: pa.Table, target: TargetSchema) -> RowSum:
    return RowSum(rows=rows.num_rows, hash=sum_rows(rows, target.field_ids))


def _sum_row_group(reader: Any, number: int, target: TargetSchema) -> RowSum:
    count = reader.metadata.row_group(number).num_rows
    rows = np.zeros(count, dtype=np.uint64)
    for leaves, field_id in zip(target.leaves, target.field_ids, strict=True):
        start = 0
        for chunk in reader.read_row_group(number, column_indices=list(leaves), use_threads=False).column(0).chunks:
            add_column(rows[start : start + len(chunk)], chunk, field_id)
            start += len(chunk)
    return RowSum(rows=count, hash=total(rows))
