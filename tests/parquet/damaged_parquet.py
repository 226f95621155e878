"""Whole Parquet files with one thing wrong: an offset or size in the footer, or bytes of a page."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from footer_samples import framed, meta_of, tail_of, write
from footer_trees import GROUP_COLUMNS, ROW_GROUPS, Tree, decode, encode, get, read_first, replace
from thrift.Thrift import TType

CHUNK_META = 3
VALUES, SIZE, DATA, DICTIONARY, BLOOM = 5, 7, 9, 11, 14  # of ColumnMetaData
OFFSET_INDEX, OFFSET_INDEX_LENGTH, COLUMN_INDEX = 4, 5, 6  # of ColumnChunk
GROUP_SIZE = 6
FAR, MAX = 10**12, 2**63 - 1
RUBBISH = b"\xff" * 8

# What is wrong, and the words that say so; made to the second column of the second row group
FOOTERS: dict[str, tuple[Any, str]] = {
    "data behind the file": (lambda c: _meta(c, {DATA: FAR}), "data pages"),
    "data before the file": (lambda c: _meta(c, {DATA: -5, DICTIONARY: 0}), "data pages"),
    "data in the magic": (lambda c: _meta(c, {DATA: 2, DICTIONARY: 0}), "data pages"),
    "dictionary behind its data": (lambda c: _meta(c, {DICTIONARY: get(get(c, CHUNK_META), DATA) + 10}), "dictionary page"),
    "dictionary in the magic": (lambda c: _meta(c, {DICTIONARY: 3}), "pages begin at byte 3"),
    "negative size": (lambda c: _meta(c, {SIZE: -1}), "bytes of the chunk|with -1 bytes"),
    "no size": (lambda c: _meta(c, {SIZE: 0, DICTIONARY: 0}), "with 0 bytes"),
    "size beyond the file": (lambda c: _meta(c, {SIZE: FAR}), f"with {FAR} bytes"),
    "size beyond counting": (lambda c: _meta(c, {SIZE: MAX}), f"with {MAX} bytes"),
    "size that ends before the data": (lambda c: _meta(c, {SIZE: 1, DATA: get(get(c, CHUNK_META), DATA) + 200}), "behind the 1 bytes"),
    "values": (lambda c: _meta(c, {VALUES: 7}), "counts 7 values"),
    "pages of another column": (lambda c: _meta(c, {DATA: 40, DICTIONARY: 5}), "overlap"),
    "offset index behind the file": (lambda c: replace(c, OFFSET_INDEX, FAR), "offset index"),
    "offset index of negative length": (lambda c: replace(c, OFFSET_INDEX_LENGTH, -3), "offset index"),
    "column index before the file": (lambda c: replace(c, COLUMN_INDEX, -1), "column index"),
    "Bloom filter behind the file": (lambda c: _meta(c, {BLOOM: FAR}), "Bloom filter"),
}  # fmt: skip


def sample(table: pa.Table, **options: Any) -> bytes:
    """Two row groups, each column with a dictionary and page indexes."""
    rows = -(-table.num_rows // 2)
    return write(table, row_group_size=rows, write_page_index=True, store_schema=False, **options)


def with_footer(file: bytes, name: str) -> bytes:
    return _with_meta(file, _change_group(decode(meta_of(file)), partial(_change_column, change=FOOTERS[name][0])))


def with_group_size(file: bytes, size: int) -> bytes:
    return _with_meta(file, _change_group(decode(meta_of(file)), lambda group: replace(group, GROUP_SIZE, size)))


def with_chunk(file: bytes, changes: dict[int, int]) -> bytes:
    """The same columns with other numbers in the metadata of one chunk."""
    return _with_meta(file, _change_group(decode(meta_of(file)), partial(_change_column, change=lambda c: _meta(c, changes))))


def with_page(file: bytes, *, part: str, page: str, row_group: int = 1, column: int = 1) -> bytes:
    """Rubbish over the header or the body of the first data page or of the dictionary page."""
    chunk = pq.read_metadata(pa.BufferReader(file)).row_group(row_group).column(column)
    start = chunk.dictionary_page_offset if page == "dictionary" else chunk.data_page_offset
    place = start if part == "header" else start + read_first(file[start:])[1]
    return file[:place] + RUBBISH + file[place + len(RUBBISH) :]


def _with_meta(file: bytes, tree: Tree) -> bytes:
    return file[: -len(tail_of(file))] + framed(encode(tree))


def _change_group(tree: Tree, change: Any) -> Tree:
    kind, groups = get(tree, ROW_GROUPS)
    return replace(tree, ROW_GROUPS, (kind, [*groups[:1], change(groups[1]), *groups[2:]]))


def _change_column(group: Tree, change: Any) -> Tree:
    kind, chunks = get(group, GROUP_COLUMNS)
    return replace(group, GROUP_COLUMNS, (kind, [chunks[0], change(chunks[1]), *chunks[2:]]))


def _meta(chunk: Tree, changes: dict[int, int]) -> Tree:
    """Fields that are not there yet are put where their id belongs."""
    meta = [field for field in get(chunk, CHUNK_META) if field[0] not in changes]
    added = [(field_id, TType.I64, value) for field_id, value in changes.items()]
    return replace(chunk, CHUNK_META, sorted([*meta, *added], key=lambda field: field[0]))
