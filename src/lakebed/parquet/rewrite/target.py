"""Bring the rows of any file of a table into one shape, so that files of different writers can be merged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.parquet.schema.arrow import to_arrow_nullable

if TYPE_CHECKING:
    from lakebed.core.schema.schema import Schema

_ID = b"PARQUET:field_id"


@dataclass(slots=True)
class TargetSchema:
    """The columns of one version of a table, under physical names and with ids."""

    schema: Schema
    arrow_schema: pa.Schema = field(init=False)
    field_ids: tuple[int, ...] = field(init=False)
    leaves: tuple[range, ...] = field(init=False)  # per column, which leaves of a file in this shape are its own
    _last: tuple[pa.Schema, tuple[int | None, ...]] | None = None

    def __post_init__(self) -> None:
        self.arrow_schema = to_arrow_nullable(self.schema)
        self.field_ids = tuple(f.field_id for f in self.schema.fields)
        counts = [_count_leaves(f.type) for f in self.arrow_schema]
        self.leaves = tuple(range(sum(counts[:n]), sum(counts[: n + 1])) for n in range(len(counts)))

    def fit(self, table: pa.Table) -> pa.Table:
        """The same rows in this shape; a column that the file lacks is NULL."""
        columns = [
            pa.nulls(table.num_rows, wanted.type) if place is None else _fit(table.column(place), wanted.type)
            for wanted, place in zip(self.arrow_schema, self._places(table.schema), strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self.arrow_schema)

    def _places(self, found: pa.Schema) -> tuple[int | None, ...]:
        """Where the file has each column: by id where it has ids, else by physical name. Files of one table mostly agree."""
        last = self._last
        if last is not None and found.equals(last[0], check_metadata=True):
            return last[1]
        ids = {int(f.metadata[_ID]): n for n, f in enumerate(found) if f.metadata and _ID in f.metadata}
        names = {f.name: n for n, f in enumerate(found)}
        places = tuple(ids.get(f.field_id) if ids else names.get(f.physical_name) for f in self.schema.fields)
        self._last = (found, places)
        return places


def _fit(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if column.type.equals(wanted):
        return column
    if isinstance(column.type, pa.ExtensionType):
        return _fit(pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type), wanted)
    return column.cast(wanted)


def _count_leaves(kind: pa.DataType) -> int:
    return sum(_count_leaves(kind.field(n).type) for n in range(kind.num_fields)) if kind.num_fields else 1


def list_leaf_paths(kind: pa.Field, above: str = "") -> list[str]:
    """The leaves of a column as Parquet names them."""
    path = f"{above}{kind.name}"
    if pa.types.is_struct(kind.type):
        return [leaf for n in range(kind.type.num_fields) for leaf in list_leaf_paths(kind.type.field(n), f"{path}.")]
    if pa.types.is_list(kind.type):
        return list_leaf_paths(kind.type.value_field.with_name("element"), f"{path}.list.")
    if pa.types.is_map(kind.type):
        pair = (kind.type.key_field.with_name("key"), kind.type.item_field.with_name("value"))
        return [leaf for part in pair for leaf in list_leaf_paths(part, f"{path}.key_value.")]
    return [path]
