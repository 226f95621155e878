"""Rewriting where files are objects: written whole, read by ranges, the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.parquet.inspect import StatisticsSpec
from lakebed.parquet.rewrite.reader import Source
from lakebed.parquet.rewrite.rewriter import WriteOptions, rewrite_files
from lakebed.parquet.rewrite.target import TargetSchema
from lakebed.parquet.schema.arrow import from_arrow, to_arrow

if TYPE_CHECKING:
    from lakebed.storage.protocol import Storage

pytest_plugins = ["storage_fixtures"]

SCHEMA = from_arrow(pa.schema([("id", pa.int64()), ("name", pa.string())]))


def test_small_files_become_one_on_every_kind_of_storage(storage: Storage, operation: str) -> None:
    sources = []
    for number in range(5):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table([[number], [f"n{number}"]], schema=to_arrow(SCHEMA)), sink)
        path, content = storage.paths.new_file(operation, number, "parquet"), sink.getvalue().to_pybytes()
        storage.create_exclusive(path, content)
        sources.append(Source(path=path, size_bytes=len(content)))
    options = WriteOptions(
        target=TargetSchema(SCHEMA), spec=StatisticsSpec(), new_path=lambda: storage.paths.new_file(operation, 99, "parquet"), target_bytes=1 << 20
    )  # fmt: skip

    done = rewrite_files(storage, sources, options, cancelled=lambda: False)

    assert done is not None
    (captured,) = done.files
    with storage.open_input(captured.file.path) as opened:
        assert pq.read_table(opened).column("id").to_pylist() == [0, 1, 2, 3, 4]
    assert done.before == done.after
