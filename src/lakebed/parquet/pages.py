"""Decode every page of a file to prove that it can be read; no row is kept.

For files that others wrote only inside the worker: what damaged pages make pyarrow do is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from lakebed.parquet.footer.framing import find_meta
from lakebed.parquet.inspect import PYARROW_ERRORS, TRUSTED, ParseLimits, is_out_of_memory, parse
from lakebed.parquet.schema.match import walk_nodes
from lakebed.parquet.schema.tree import decode_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

_BUFFER_BYTES = 4 << 20
_BATCH_BYTES = 8 << 20
_BATCH_ROWS = 4096  # few: a dictionary may hold one large value for all of them
_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """The first column chunk that cannot be decoded; `row_group` is None where only the file as a whole shows it."""

    row_group: int | None
    column: str
    reason: str

    def __str__(self) -> str:
        where = f"column {self.column!a}" if self.row_group is None else f"column {self.column!a}, row group {self.row_group}"
        return f"{where}: {self.reason}"


def find_damage(source: Any, tail: bytes, *, limits: ParseLimits = TRUSTED) -> Damage | None:
    """Decode all pages of `source`, a seekable file whose footer is `tail`; checksums of pages are compared where there are any.

    None when every column gives as many rows as the footer counts. Raises MemoryError when memory ran out.
    """
    metadata = parse(tail, limits=limits)
    reader = pq.ParquetReader()
    reader.open(source, metadata=metadata, pre_buffer=False, buffer_size=_BUFFER_BYTES, page_checksum_verification=True)
    for name, columns in _columns(tail):
        for column in columns:
            if (reason := _scan(reader, column)) is not None:
                path = metadata.row_group(0).column(column).path_in_schema
                return Damage(row_group=_find_row_group(reader, columns), column=path, reason=reason)
        for number in range(metadata.num_row_groups):
            if (reason := _decode(reader, number, columns)) is not None:
                return Damage(row_group=number, column=name, reason=reason)
    return None


def _columns(tail: bytes) -> Iterator[tuple[str, list[int]]]:
    """The columns at the top, each with the numbers of its column chunks."""
    for node in decode_schema(find_meta(tail)).children:
        yield node.name, [leaf.column for leaf in walk_nodes((node,)) if leaf.column >= 0]


def _scan(reader: Any, column: int) -> str | None:
    """Every value of a column chunk, up to the last page: the other way of reading stops at the last row."""
    try:
        found = reader.scan_contents([column], batch_size=_BATCH_ROWS)
    except PYARROW_ERRORS as exc:
        return _describe(exc)
    rows = reader.metadata.num_rows
    return None if found == rows else f"its pages hold {found} rows, the footer counts {rows}"


def _decode(reader: Any, number: int, columns: list[int]) -> str | None:
    """A column at the top as readers get it, nested values put together."""
    group = reader.metadata.row_group(number)
    size = sum(group.column(column).total_uncompressed_size for column in columns)
    batch = max(1, min(_BATCH_ROWS, _BATCH_BYTES * group.num_rows // max(size, 1)))
    try:
        found = sum(len(rows) for rows in reader.iter_batches(batch, [number], column_indices=columns, use_threads=False))
    except PYARROW_ERRORS as exc:
        return _describe(exc)
    return None if found == group.num_rows else f"its pages hold {found} rows, the row group counts {group.num_rows}"


def _find_row_group(reader: Any, columns: list[int]) -> int | None:
    groups = range(reader.metadata.num_row_groups)
    return 0 if len(groups) == 1 else next((number for number in groups if _decode(reader, number, columns) is not None), None)


def _describe(exc: BaseException) -> str:
    if is_out_of_memory(exc):
        raise MemoryError from exc
    return f"{str(exc)[:_SHOWN_CHARS]!a}"
