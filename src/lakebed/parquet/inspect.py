"""Read everything that the registry keeps of one Parquet file, from its tail alone.

In process only for files we wrote: statistics of a crafted footer abort the interpreter (see isolation).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.core.errors import FooterCorruptError, FooterRowsError
from lakebed.core.files import ColumnStatistics, Footer
from lakebed.core.schema.types import Primitive
from lakebed.core.times import DAY_US
from lakebed.parquet.footer.framing import find_meta
from lakebed.parquet.footer.placement import require_placed, require_pointers
from lakebed.parquet.schema.calendar import MARK, find_old_times
from lakebed.parquet.schema.match import find_layout
from lakebed.parquet.schema.problems import describe_nulls, find_problems
from lakebed.parquet.statistics import FIRST_COLUMNS, count_nulls, find_range, summarize

if TYPE_CHECKING:
    from lakebed.core.schema.schema import Schema
    from lakebed.parquet.footer.upgrade import Pointers
    from lakebed.parquet.schema.match import Layout
    from lakebed.parquet.schema.problems import Problem

# What pyarrow has been seen to raise for bytes that are not a footer: OSError, ArrowInvalid (a ValueError),
# UnicodeDecodeError, OverflowError, IndexError and Arrow's own.
PYARROW_ERRORS = (ArithmeticError, LookupError, OSError, RuntimeError, TypeError, ValueError, pa.ArrowException)
_LATE_ERRORS = (OSError, UnicodeDecodeError, pa.ArrowException)  # what it decodes only when asked
_NO_MEMORY = "std::bad_alloc"  # thrift reports it like any other error
_SHOWN_CHARS = 200
_MAX_INT64 = (1 << 63) - 1
UNKNOWN_BYTES = _MAX_INT64  # the size of a file of which only the tail is known


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseLimits:
    """How much thrift may ask for; pyarrow refuses more before it allocates."""

    string_bytes: int = 8 << 20
    container_items: int = 20_000


TRUSTED = ParseLimits(string_bytes=1 << 30, container_items=10_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsSpec:
    """What to take from a footer; columns are named by field id."""

    event_time: int | None = None
    indexed: frozenset[int] = field(default=frozenset())
    always: frozenset[int] = field(default=frozenset())
    first: int = FIRST_COLUMNS
    require_ids: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """`event_range` is inclusive, in UTC microseconds; None when the file does not have it."""

    footer: Footer
    columns: tuple[ColumnStatistics, ...]
    problems: tuple[Problem, ...]
    created_by: str
    row_groups: int
    event_range: tuple[int, int] | None


DEFAULT = StatisticsSpec()


def parse(tail: bytes, *, limits: ParseLimits = TRUSTED) -> pq.FileMetaData:
    """The tail as pyarrow sees it; any error of pyarrow's is a FooterCorruptError, except when memory ran out."""
    reader = pq.ParquetReader()  # ParquetFile would also index every column path, which takes longer than parsing
    try:
        reader.open(
            pa.BufferReader(tail),
            thrift_string_size_limit=limits.string_bytes,
            thrift_container_size_limit=limits.container_items,
        )
    except MemoryError:
        raise
    except PYARROW_ERRORS as exc:
        if is_out_of_memory(exc):
            raise MemoryError from exc
        raise _unparsable(exc) from exc
    return reader.metadata


def is_out_of_memory(exc: BaseException) -> bool:
    return isinstance(exc, MemoryError) or _NO_MEMORY in str(exc)


def inspect(
    tail: bytes,
    schema: Schema,
    *,
    spec: StatisticsSpec = DEFAULT,
    limits: ParseLimits = TRUSTED,
    file_bytes: int = UNKNOWN_BYTES,
    pointers: Pointers | None = None,
) -> Inspection:
    """Footer, statistics and obstacles of a file of ours; nothing but the tail is read.

    With `file_bytes`, the size of the file, every column chunk is proven to be inside it, and what `pointers` name.
    """
    metadata = parse(tail, limits=limits)
    try:
        found = _examine(metadata, tail, schema, spec, file_bytes)
        if pointers is not None:
            require_pointers(metadata, pointers, end=file_bytes - len(tail))
    except _LATE_ERRORS as exc:
        raise _unparsable(exc) from exc
    return found


def is_in_old_calendar(tail: bytes) -> bool:
    """Whether Spark marked this file as counted in the old calendar; the same word inside of rows means nothing."""
    return MARK in tail and MARK in (parse(tail).metadata or {})


def _examine(metadata: pq.FileMetaData, tail: bytes, schema: Schema, spec: StatisticsSpec, file_bytes: int) -> Inspection:
    rows = _require_rows(metadata)
    layout = find_layout(metadata, schema, meta=find_meta(tail))
    require_placed(metadata, layout.flat, end=file_bytes - len(tail))
    always = spec.always if spec.event_time is None else spec.always | {spec.event_time}
    columns = summarize(metadata, layout, indexed=spec.indexed, always=always, first=spec.first)
    return Inspection(
        footer=Footer(tail=tail, num_rows=rows, checksum=hashlib.sha256(tail).hexdigest()),
        columns=columns,
        problems=(
            *find_problems(layout, require_ids=spec.require_ids),
            *_null_problems(metadata, layout, columns),
            *find_old_times(metadata),
        ),
        created_by=metadata.created_by[:_SHOWN_CHARS],
        row_groups=metadata.num_row_groups,
        event_range=None if spec.event_time is None else _event_range(metadata, layout, spec.event_time),
    )


def _unparsable(exc: BaseException) -> FooterCorruptError:
    return FooterCorruptError(f"the footer cannot be parsed: {str(exc)[:_SHOWN_CHARS]!a}")


def _require_rows(metadata: pq.FileMetaData) -> int:
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    if any(group.num_columns != metadata.num_columns for group in groups):
        message = "the footer has a row group without all the columns"
        raise FooterCorruptError(message)
    rows: int = sum(group.num_rows for group in groups)
    if rows != metadata.num_rows:
        raise FooterRowsError(footer_rows=rows, registry_rows=metadata.num_rows, source="its file level")
    return rows


def _null_problems(metadata: pq.FileMetaData, layout: Layout, columns: tuple[ColumnStatistics, ...]) -> tuple[Problem, ...]:
    if not layout.required:
        return ()
    known = {column.field_id: column.null_count for column in columns}
    counts = ((leaf.field_id, known[leaf.field_id] if leaf.field_id in known else count_nulls(metadata, leaf)) for leaf in layout.required)
    return tuple(describe_nulls(layout.schema.by_id[field_id], nulls) for field_id, nulls in counts if nulls)


def _event_range(metadata: pq.FileMetaData, layout: Layout, field_id: int) -> tuple[int, int] | None:
    low, high = find_range(metadata, layout, field_id)
    kind = layout.schema.by_id[field_id].type
    factor = {"timestamp": 1, "timestamptz": 1, "date": DAY_US}.get(kind.name) if isinstance(kind, Primitive) else None
    if factor is None or not isinstance(low, int) or not isinstance(high, int):
        return None
    low, high = low * factor, high * factor
    return (low, high) if -_MAX_INT64 <= low <= high <= _MAX_INT64 else None
