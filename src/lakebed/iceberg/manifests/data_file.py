"""Iceberg data files from registry rows and stored footers: no data file is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.core.errors import InvalidValueError
from lakebed.core.progress import report_progress
from lakebed.iceberg.locations import to_uri
from lakebed.iceberg.types.values import lower_bound, upper_bound
from lakebed.parquet.footer.framing import find_meta
from lakebed.parquet.inspect import parse
from lakebed.parquet.statistics import measure_columns, split_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lakebed.core.rows import TableFiles
    from lakebed.core.schema.bounds import Value
    from lakebed.core.schema.types import Primitive
    from lakebed.iceberg.types.partitions import Partitioning
    from lakebed.parquet.schema.match import LayoutFinder
    from lakebed.parquet.statistics import ColumnMeasure

_DATA = 0
_PARQUET = "PARQUET"
DataFile = dict[str, Any]  # one `data_file` record of a manifest, as Avro takes it


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWriter:
    """Describes the files of one table under its serving schema."""

    layouts: LayoutFinder
    partitioning: Partitioning
    partition_names: tuple[str, ...]
    always: frozenset[int]  # columns measured wherever they stand: event time, partition sources, indexed ones

    def describe(self, row: TableFiles, footer: bytes, instance: str) -> DataFile:
        """One file, from its row and the tail that was captured when it was registered."""
        report_progress()
        metadata = parse(footer)
        measures = measure_columns(metadata, self.layouts.find(find_meta(footer)), always=self.always)
        values = self.partitioning.values(row.partition_path, instance)
        return {
            "content": _DATA,
            "file_path": to_uri(row.file_path),
            "file_format": _PARQUET,
            "partition": dict(zip(self.partition_names, values, strict=True)),
            "record_count": row.row_count,
            "file_size_in_bytes": row.file_size,
            "column_sizes": _pairs((m.field_id, m.size_bytes) for m in measures),
            "value_counts": _pairs((m.field_id, m.value_count) for m in measures),
            "null_value_counts": _pairs((m.field_id, m.null_count) for m in measures),
            "nan_value_counts": _pairs((m.field_id, 0) for m in measures if m.has_no_nan),
            "lower_bounds": _pairs((m.field_id, _bound(lower_bound, m, m.lower)) for m in measures),
            "upper_bounds": _pairs((m.field_id, _bound(upper_bound, m, m.upper)) for m in measures),
            "key_metadata": None,
            "split_offsets": split_offsets(metadata) or None,
            "equality_ids": None,
            "sort_order_id": None,
        }


def _pairs(items: Iterable[tuple[int, Any]]) -> list[dict[str, Any]]:
    """Avro has no maps with numbers as keys: Iceberg writes pairs; what is not proven is left out."""
    return [{"key": key, "value": value} for key, value in items if value is not None]


def _bound(encode: Callable[[Primitive, Value], bytes | None], measure: ColumnMeasure, value: Value | None) -> bytes | None:
    if value is None or value != value:  # noqa: PLR0124 - NaN is no bound
        return None
    try:
        return encode(measure.kind, value)
    except InvalidValueError:
        return None  # a value outside of its type: no bound is better than a wrong one
