"""Whether what a footer points to is inside its file: the pages of every column chunk, and the indexes behind them.

Writers differ in what they leave at zero or get wrong without harm (polars writes a chunk's `file_offset` past the end of the
file, and no reader asks for it): only what no reader could follow is refused here.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from lakebed.core.errors import FooterCorruptError
from lakebed.parquet.footer.framing import MAGIC
from lakebed.parquet.footer.upgrade import Pointer

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.parquet as pq

    from lakebed.parquet.footer.upgrade import Pointers

_FIRST = len(MAGIC)
# parquet-mr up to 1.2.8 leaves the header of the dictionary page out of a chunk's size
_UNCOUNTED = 100
_SHOWN_CHARS = 100


class _Span(NamedTuple):
    start: int
    end: int
    row_group: int
    column: int


def require_placed(metadata: pq.FileMetaData, flat: frozenset[int], *, end: int) -> None:
    """Refuse column chunks that begin or end outside of the pages, which end at byte `end`, overlap, or miscount their values.

    `flat` are the numbers of the columns that do not repeat: those have one value per row, nulls included.
    """
    ordered = sorted(span for group in range(metadata.num_row_groups) for span in _spans_of(metadata, group, flat, end))
    for before, after in pairwise(ordered):
        if after.start < before.end:
            other = f"column {_name(metadata, before.row_group, before.column)!a}, row group {before.row_group}"
            raise _refuse(metadata, after.row_group, after.column, f"its pages at byte {after.start} overlap those of {other}")


def require_pointers(metadata: pq.FileMetaData, pointers: Pointers, *, end: int) -> None:
    """Refuse indexes and Bloom filters outside of the file, and row groups that claim more than it has.

    An index without a length is not there. By the size that a row group claims Spark chooses the task that reads it: with a wrong
    one no task does.
    """
    for what, row_group, column, offset, length in (*pointers.indexes, *_bloom_filters(metadata)):
        if length and (offset < _FIRST or length < 0 or offset + length > end):
            raise _refuse(metadata, row_group, column, f"its {what} at byte {offset} with {length} bytes is {_outside(end)}")
    for row_group, size in pointers.group_sizes.items():
        if not 0 <= size <= end:
            raise _refuse(metadata, row_group, None, f"it claims {size} bytes, the file has {end} in front of its footer")


def _bloom_filters(metadata: pq.FileMetaData) -> Iterator[Pointer]:
    """Old writers do not say how long they are."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for column in range(group.num_columns):
            chunk = group.column(column)
            if (offset := chunk.bloom_filter_offset) is not None and offset > 0:
                yield Pointer("Bloom filter", number, column, offset, 1 if chunk.bloom_filter_length is None else chunk.bloom_filter_length)


def _spans_of(metadata: pq.FileMetaData, number: int, flat: frozenset[int], end: int) -> Iterator[_Span]:
    group = metadata.row_group(number)
    rows = group.num_rows
    for column in range(group.num_columns):
        chunk = group.column(column)
        values, size = chunk.num_values, chunk.total_compressed_size
        if column in flat and values != rows:
            raise _refuse(metadata, number, column, f"it counts {values} values, its row group {rows} rows")
        if values or size:
            start = _start_of(metadata, number, column, chunk, end)
            if size <= 0 or start + size > end:
                raise _refuse(metadata, number, column, f"its pages at byte {start} with {size} bytes are {_outside(end)}")
            yield _Span(start, start + size, number, column)


def _start_of(metadata: pq.FileMetaData, number: int, column: int, chunk: pq.ColumnChunkMetaData, end: int) -> int:
    """Where the first page of a chunk begins; an offset of zero or less says that there is no such page."""
    data, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset
    start: int = data if dictionary is None or dictionary <= 0 else dictionary
    if chunk.num_values == 0:
        return max(start, _FIRST)  # pyarrow leaves the offset of the data at zero where there is none
    if data < _FIRST or data >= end or start < _FIRST:
        raise _refuse(metadata, number, column, f"its pages begin at byte {min(start, data)}, its data pages at {data}: {_outside(end)}")
    if start > data:
        raise _refuse(metadata, number, column, f"its dictionary page at byte {start} begins behind its data pages at byte {data}")
    if data >= start + chunk.total_compressed_size + _UNCOUNTED:
        size = chunk.total_compressed_size
        raise _refuse(metadata, number, column, f"its data pages begin at byte {data}, behind the {size} bytes of the chunk at {start}")
    return start


def _outside(end: int) -> str:
    return f"outside of bytes {_FIRST} to {end}, where the file has its pages"


def _refuse(metadata: pq.FileMetaData, row_group: int, column: int | None, reason: str) -> FooterCorruptError:
    if column is None:
        return FooterCorruptError(f"row group {row_group}: {reason}", row_group=row_group)
    name = _name(metadata, row_group, column)
    return FooterCorruptError(f"column {name!a}, row group {row_group}: {reason}", row_group=row_group, column=name)


def _name(metadata: pq.FileMetaData, row_group: int, column: int) -> str:
    """It comes from the file: a person needs its first characters."""
    text = str(metadata.row_group(row_group).column(column).path_in_schema)
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."
