"""Parquet written inside Spark tasks by pyarrow, for what Spark's own writer cannot do: field ids in lists and maps.

This module is sent to the executors by value: it may use nothing but pyarrow, so that they need the warehouse and no Lakebed.
"""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

WRITTEN = "path string"  # what a task answers, one row per finished file
TARGET_BYTES = 128 << 20
ROW_GROUP_BYTES = 64 << 20
_ANSWER = pa.schema([("path", pa.string())])


class TaskWriter:
    """For `mapInArrow`: rows, sorted by the column `key` if one is named, go to files below `directory`, whose paths are the answer.

    `directory` exists, and each attempt of a task makes one of its own in it. So what a lost attempt left can be deleted with
    its directory, and once `directory` is gone an attempt that outlived its job finds no place for another file.
    """

    def __init__(
        self, directory: str, schema: pa.Schema, *, key: str | None, compression: str = "zstd", target_bytes: int = TARGET_BYTES
    ) -> None:
        self.directory, self.schema, self.key, self.compression, self.target_bytes = directory, schema, key, compression, target_bytes

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = f"{self.directory}/task-{uuid.uuid4().hex}"
        written: list[str] = []
        output: _Output | None = None
        for key, stretch in self._stretches(batches):
            if output is not None and (output.key != key or output.size_bytes >= self.target_bytes):
                output.close()
                output = None
            if output is None:
                folder = own if key is None else f"{own}/{self.key}={key}"
                _make_directories(own, folder)
                output = _Output(f"{folder}/part-{len(written):05d}.parquet", key, self.schema, self.compression)
                written.append(output.path)
            output.add(stretch)
        if output is not None:
            output.close()
        yield pa.RecordBatch.from_pydict({"path": written}, schema=_ANSWER)

    def _stretches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str | None, pa.Table]]:
        """Rows of one key that follow each other."""
        for batch in batches:
            rows, start = self._shape(batch), 0
            while start < batch.num_rows:
                key, length = self._next_run(batch, start)
                yield key, rows.slice(start, length)
                start += length

    def _next_run(self, batch: pa.RecordBatch, start: int) -> tuple[str | None, int]:
        if self.key is None:
            return None, batch.num_rows
        keys = batch.column(batch.schema.get_field_index(self.key)).slice(start)
        first = keys[0].as_py()
        end = pc.index(pc.not_equal(keys, first), value=True).as_py()
        return first, len(keys) if end < 0 else end

    def _shape(self, batch: pa.RecordBatch) -> pa.Table:
        columns = [relabel(batch.column(batch.schema.get_field_index(field.name)), field.type) for field in self.schema]
        return pa.Table.from_arrays(columns, schema=self.schema)


def relabel(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same values under a type with other names, ids and zones; a whole array as Spark sends it, without an offset.

    No cast: Spark sends nested arrays of no length without offsets, and pyarrow's casts read those (seen in 26: the worker dies).
    """
    if len(array) == 0:
        return pa.array([], type=kind)
    own = array.buffers()
    if pa.types.is_struct(kind):
        inner = [relabel(array.field(n), kind.field(n).type) for n in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, len(array), own[:1], array.null_count, children=inner)
    if pa.types.is_list(kind):
        return pa.Array.from_buffers(kind, len(array), own[:2], array.null_count, children=[relabel(array.values, kind.value_type)])
    if pa.types.is_map(kind):
        keys, items = relabel(array.keys, kind.key_type), relabel(array.items, kind.item_type)
        entries = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, len(array), own[:2], array.null_count, children=[entries])
    return array.cast(kind)


class _Output:
    """One open file, and the rows that wait for its next row group."""

    def __init__(self, path: str, key: str | None, schema: pa.Schema, compression: str) -> None:
        self.path, self.key = path, key
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self._sink = _create(path)
        self._writer = pq.ParquetWriter(self._sink, schema, compression=compression, store_schema=False, write_page_index=True)

    @property
    def size_bytes(self) -> int:
        return int(self._sink.tell())

    def add(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()
        self._sink.close()

    def _flush(self) -> None:
        if self._waiting:
            rows = pa.concat_tables(self._waiting)
            self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._waiting, self._waiting_bytes = [], 0


def _make_directories(*paths: str) -> None:
    """Never one above them."""
    for path in paths:
        if path.startswith("/"):
            with suppress(FileExistsError):
                os.mkdir(path)  # noqa: PTH102 - text in, text out


def _create(path: str) -> Any:
    """A new file, or a new object; pyarrow publishes no types."""
    if path.startswith("/"):
        return pa.PythonFile(open(path, "xb"), mode="w")  # noqa: PTH123 - closed by its owner
    store, name = fs.FileSystem.from_uri(path)
    return store.open_output_stream(name)
