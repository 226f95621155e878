"""The one partition of a file, proven by its statistics alone.

Bounds enclose every value. Where a transform keeps the order, equal results for both bounds prove
that all rows share it; a bucket does not keep it, so there both bounds must be the same value.
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import TYPE_CHECKING

from lakebed.core.schema.types import Primitive
from lakebed.parquet.schema.problems import Problem
from lakebed.storage.partition_paths import encode_partition_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.core.files import ColumnStatistics
    from lakebed.core.schema.bounds import Value
    from lakebed.core.schema.transforms import Transform
    from lakebed.core.schema.types import Field

_SIGN_64, _SIGN_128 = 1 << 63, 1 << 127  # as core.bounds encodes
_WIDE = Context(prec=80)
_SPLIT = "write one file per partition value, or insert the rows through Lakebed"


def find_partition_path(
    columns: Sequence[ColumnStatistics], transforms: Sequence[tuple[Transform, Field]]
) -> tuple[str | None, tuple[Problem, ...]]:
    """The partition path that all rows share, or why there is none. Unpartitioned tables have the empty one."""
    known = {column.field_id: column for column in columns}
    found = [_find_value(transform, field, known.get(field.field_id)) for transform, field in transforms]
    problems = tuple(answer for answer in found if isinstance(answer, Problem))
    if problems:
        return None, problems
    values = [(transform.name, value) for (transform, _), value in zip(transforms, found, strict=True) if not isinstance(value, Problem)]
    return encode_partition_path(values), ()


def _find_value(transform: Transform, field: Field, column: ColumnStatistics | None) -> str | Problem | None:
    if column is None or (column.null_count is not None and column.null_count == column.value_count):
        return None  # absent columns read as NULL
    if column.null_count is None or column.lower is None or column.upper is None:
        message = f"column {field.name!a} has no statistics, so its partition {transform} cannot be proven"
        return Problem(kind="missing_statistics", column=field.name, message=message, fix="write it again with statistics")
    assert isinstance(field.type, Primitive)  # noqa: S101 - transforms take no others
    low, high = (decode_bound(field.type, bound) for bound in (column.lower, column.upper))
    first, last = transform.apply(low, field.type), transform.apply(high, field.type)
    if column.null_count:
        return _spans(field, transform, "NULL", str(last))
    if first != last:
        return _spans(field, transform, str(first), str(last))
    if transform.kind == "bucket" and low != high:
        message = f"column {field.name!a} holds several values, and bounds cannot prove that all are in one bucket of {transform}"
        return Problem(kind="spans_partitions", column=field.name, message=message, fix=_SPLIT)
    return first


def _spans(field: Field, transform: Transform, first: str, last: str) -> Problem:
    shown = " to ".join(text if len(text) <= 40 else text[:40] + "..." for text in (first, last))  # noqa: PLR2004 - enough to recognise it
    message = f"its rows span several partitions of {transform}: {shown!a}"
    return Problem(kind="spans_partitions", column=field.name, message=message, fix=_SPLIT)


def decode_bound(kind: Primitive, encoded: bytes) -> Value:
    """The value of a bound as `core.bounds` encodes it; a text or binary that was cut comes back cut."""
    match kind.name:
        case "boolean":
            return encoded == b"\x01"
        case "int" | "long" | "date" | "timestamp" | "timestamptz":
            return int.from_bytes(encoded, "big") - _SIGN_64
        case "decimal":
            return Decimal(int.from_bytes(encoded, "big") - _SIGN_128).scaleb(-kind.scale, _WIDE)
        case "string":
            return encoded.decode()
        case _:
            return encoded
