"""Column statistics of a parsed footer, as pruning and manifests need them.

Reading statistics of a crafted footer can abort the interpreter: only for files we wrote, or
inside the worker.
"""

from __future__ import annotations

import math
import re
from decimal import InvalidOperation
from typing import TYPE_CHECKING, Any, NamedTuple

from lakebed.core.errors import InvalidValueError
from lakebed.core.files import ColumnStatistics
from lakebed.core.schema.bounds import coordinate, lower_bound, upper_bound

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow.parquet as pq

    from lakebed.core.schema.bounds import Value
    from lakebed.core.schema.types import Primitive
    from lakebed.parquet.schema.match import Layout, Leaf
    from lakebed.parquet.schema.types import Convert

    Range = tuple[Value | None, Value | None]

FIRST_COLUMNS = 32
_FLOATS = frozenset({"float", "double"})
# These writers count NaN as the greatest number, as Spark does, so a maximum that is a number proves that there is
# no NaN. Others leave NaN out of the statistics, and then the true maximum is unknown.
_COUNTS_NAN = re.compile(r"parquet-mr version 1\.1[0-6]\.", re.ASCII)
_NO_RANGE: Range = (None, None)
_NO_VALUE = (InvalidValueError, InvalidOperation, OverflowError, TypeError, UnicodeDecodeError)


def summarize(
    metadata: pq.FileMetaData, layout: Layout, *, indexed: frozenset[int], always: frozenset[int], first: int
) -> tuple[ColumnStatistics, ...]:
    """Counts and bounds over all row groups, for the table's `first` leaf columns and those of `always` and `indexed`.

    A bound that cannot be proven is None: bounds enclose every value, with NaN above all numbers.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    counts_nan = _counts_nan(metadata)
    return tuple(
        _summarize_leaf(leaf, groups, is_indexed=leaf.field_id in indexed, counts_nan=counts_nan)
        for leaf in layout.leaves
        if leaf.rank < first or leaf.field_id in always or leaf.field_id in indexed
    )


def find_range(metadata: pq.FileMetaData, layout: Layout, field_id: int) -> Range:
    """Least and greatest value of one column; None where an end cannot be proven."""
    leaf = next((leaf for leaf in layout.leaves if leaf.field_id == field_id), None)
    if leaf is None:
        return _NO_RANGE
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return _range(leaf, _gather(leaf.column, groups), counts_nan=_counts_nan(metadata))


def count_nulls(metadata: pq.FileMetaData, leaf: Leaf) -> int | None:
    return _gather(leaf.column, [metadata.row_group(number) for number in range(metadata.num_row_groups)]).nulls


class ColumnMeasure(NamedTuple):
    """One column of a file as an Iceberg manifest describes it: values, not yet encoded; None where nothing is proven."""

    field_id: int
    kind: Primitive
    size_bytes: int
    value_count: int
    null_count: int | None
    lower: Value | None
    upper: Value | None
    has_no_nan: bool


def measure_columns(
    metadata: pq.FileMetaData, layout: Layout, *, always: frozenset[int] = frozenset(), first: int = FIRST_COLUMNS
) -> tuple[ColumnMeasure, ...]:
    """The same columns and the same proofs as `summarize`, with sizes; bounds are values of the table's type.

    Columns in lists and maps are left out: their counts are of elements, and planners do not use them.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    counts_nan = _counts_nan(metadata)
    leaves = (leaf for leaf in layout.leaves if not leaf.repeats)
    return tuple(_measure_leaf(leaf, groups, counts_nan=counts_nan) for leaf in leaves if leaf.rank < first or leaf.field_id in always)


def split_offsets(metadata: pq.FileMetaData) -> list[int]:
    """Where the row groups begin, rising: where a reader may divide the file."""
    if metadata.num_columns == 0:
        return []
    return sorted(_chunk_start(metadata.row_group(number).column(0)) for number in range(metadata.num_row_groups))


def _chunk_start(chunk: pq.ColumnChunkMetaData) -> int:
    dictionary, pages = chunk.dictionary_page_offset, chunk.data_page_offset
    return int(pages if dictionary is None or dictionary <= 0 else min(dictionary, pages))


def _measure_leaf(leaf: Leaf, groups: list[pq.RowGroupMetaData], *, counts_nan: bool) -> ColumnMeasure:
    gathered = _gather(leaf.column, groups)
    lower, upper = _range(leaf, gathered, counts_nan=counts_nan)
    has_no_nan = leaf.kind.name in _FLOATS and upper is not None and upper == upper  # noqa: PLR0124 - NaN alone differs from itself
    return ColumnMeasure(leaf.field_id, leaf.kind, gathered.size_bytes, gathered.values, gathered.nulls, lower, upper, has_no_nan)


def _summarize_leaf(leaf: Leaf, groups: list[pq.RowGroupMetaData], *, is_indexed: bool, counts_nan: bool) -> ColumnStatistics:
    gathered = _gather(leaf.column, groups)
    lower, upper = _range(leaf, gathered, counts_nan=counts_nan)
    low, high = (lower, upper) if is_indexed and upper is not None else _NO_RANGE
    return ColumnStatistics(
        field_id=leaf.field_id,
        null_count=gathered.nulls,
        value_count=gathered.values,
        lower=None if lower is None else _bound(lower_bound, leaf.kind, lower),
        upper=None if upper is None else _bound(upper_bound, leaf.kind, upper),
        lower_coordinate=None if low is None else coordinate(leaf.kind, low),
        upper_coordinate=None if high is None else coordinate(leaf.kind, high),
    )


class _Gathered(NamedTuple):
    """A column over all row groups, raw; without minima and maxima if a group with values has none."""

    values: int
    nulls: int | None
    least: list[Any]
    greatest: list[Any]
    size_bytes: int


def _gather(column: int, groups: list[pq.RowGroupMetaData]) -> _Gathered:
    values = size = 0
    nulls: int | None = 0
    least: list[Any] = []
    greatest: list[Any] = []
    is_complete = True
    for group in groups:
        chunk = group.column(column)
        statistics = chunk.statistics
        values += (count := chunk.num_values)
        size += chunk.total_compressed_size
        found = None if statistics is None else statistics.null_count
        nulls = None if nulls is None or found is None else nulls + found
        if statistics is not None and statistics.has_min_max:
            least.append(statistics.min_raw)
            greatest.append(statistics.max_raw)
        elif found != count and count:
            is_complete = False
    return _Gathered(values, nulls, least, greatest, size) if is_complete else _Gathered(values, nulls, [], [], size)


def _counts_nan(metadata: pq.FileMetaData) -> bool:
    return _COUNTS_NAN.match(metadata.created_by) is not None


def _range(leaf: Leaf, gathered: _Gathered, *, counts_nan: bool) -> Range:
    """Both ends as values of the table's type."""
    if leaf.conversion is None or not gathered.least:
        return _NO_RANGE
    lower = _pick(min, gathered.least, leaf.conversion.lower)
    hides_nan = leaf.kind.name in _FLOATS and not counts_nan
    return lower, None if hides_nan else _pick(max, gathered.greatest, leaf.conversion.upper)


def _pick(best: Callable[[list[Any]], Value], raws: list[Any], convert: Convert | None) -> Value | None:
    try:
        values = raws if convert is None else [convert(raw) for raw in raws]
    except _NO_VALUE:
        return None
    chosen = best(values) if len(values) > 1 else values[0]
    # NaN compares with nothing, so one among several could hide behind any of them.
    return None if isinstance(chosen, float) and any(map(math.isnan, values)) else chosen


def _bound(encode: Callable[[Primitive, Value], bytes | None], kind: Primitive, value: Value) -> bytes | None:
    try:
        return encode(kind, value)
    except _NO_VALUE:
        return None  # a value outside of its type: no bound is better than a wrong one
