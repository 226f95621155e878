"""Rewrite one foreign file into the table's own shape, with columns whose value stands outside of the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.core.errors import LakebedError, RewriteMismatchError, UnreadableFileError
from lakebed.parquet.inspect import PYARROW_ERRORS
from lakebed.parquet.rewrite.reader import BATCH_BYTES, RowBatch, RowSum
from lakebed.parquet.rewrite.rewriter import write_batches
from lakebed.parquet.rewrite.row_hash import sum_rows
from lakebed.parquet.schema.calendar import find_old_rows, list_doubtful_int96

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lakebed.parquet.capture import CapturedFile
    from lakebed.parquet.rewrite.rewriter import WriteOptions
    from lakebed.storage.protocol import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRows:
    """An open file and what its path says: `constants` by physical name, each a value of the column's Arrow type."""

    path: str
    size_bytes: int
    opened: BinaryIO
    constants: Mapping[str, Any]


def rewrite_foreign(storage: Storage, rows: ForeignRows, options: WriteOptions) -> tuple[CapturedFile, ...]:
    """Durable, captured files with the same rows and the constants beside them; columns are matched by name.

    Raises a typed error when a column has no place in the table or a value does not fit its type.
    """
    try:
        done = write_batches(storage, _read(rows, options), options, whole=rows.size_bytes, cancelled=lambda: False)
    except LakebedError:
        raise
    except PYARROW_ERRORS as exc:
        raise UnreadableFileError(rows.path, reason=f"its rows cannot be rewritten ({str(exc)[:200]!a})") from exc
    assert done is not None  # noqa: S101 - there is no way to cancel
    if done.before != done.after:
        raise RewriteMismatchError(rows.path, expected=done.before.rows, found=done.after.rows, other_rows=True)
    return done.files


def _read(rows: ForeignRows, options: WriteOptions) -> Iterator[RowBatch]:
    # INT96 counts nanoseconds, and years beyond 2262 have none
    file = pq.ParquetFile(rows.opened, coerce_int96_timestamp_unit="us")
    count, raw = max(1, file.metadata.num_rows), max(1, sum(_size(file, n) for n in range(file.metadata.num_row_groups)))
    names = _find_names(rows, [f.name for f in file.schema_arrow], options)
    doubtful = list_doubtful_int96(file)
    for batch in file.iter_batches(batch_size=max(1, BATCH_BYTES * count // raw), use_threads=False):
        for number in doubtful:
            if (old := find_old_rows(batch.schema.field(number).name, batch.column(number))) is not None:
                raise UnreadableFileError(rows.path, reason=str(old))
        table = _enrich(pa.Table.from_batches([batch]).rename_columns(names), rows.constants, options.target.arrow_schema)
        fitted = options.target.fit(table)
        found = RowSum(rows=fitted.num_rows, hash=sum_rows(fitted, options.target.field_ids))
        yield RowBatch(fitted, rows.size_bytes * len(batch) // count, found)


def _size(file: Any, number: int) -> int:
    return int(file.metadata.row_group(number).total_byte_size)


def _find_names(rows: ForeignRows, found: list[str], options: WriteOptions) -> list[str]:
    """The table's name of each column of the file: a column without a place would be lost silently."""
    exact = {f.physical_name for f in options.target.schema.fields}
    folded = {name.lower(): name for name in exact}
    names = [name if name in exact else folded.get(name.lower(), "") for name in found]
    if lost := [name for name, known in zip(found, names, strict=True) if not known]:
        raise UnreadableFileError(rows.path, reason=f"column {lost[0]!a} is unknown to the table")
    if len(set(names)) != len(names):
        raise UnreadableFileError(rows.path, reason="two of its columns differ only in upper and lower case")
    return names


def _enrich(table: pa.Table, constants: Mapping[str, Any], target: pa.Schema) -> pa.Table:
    """Ids of another table are dropped: here a column is known by its name. The path's value wins over the file's, as in Spark."""
    plain = pa.schema([pa.field(f.name, f.type) for f in table.schema])
    table = pa.Table.from_arrays(table.columns, schema=plain)
    for name, value in constants.items():
        column = pa.repeat(pa.scalar(value, type=target.field(name).type), table.num_rows)
        place = table.schema.get_field_index(name)
        table = table.append_column(name, column) if place < 0 else table.set_column(place, name, column)
    return table
