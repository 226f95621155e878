"""Tables of any schema with rows of any values, as Arrow has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import strategies as st

from lakebed.core.schema.schema import walk
from lakebed.core.schema.types import Field, List, Map, Primitive, Struct
from lakebed.parquet.schema.arrow import to_arrow_nullable
from strategies import schemas, values_of

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

    from lakebed.core.schema.schema import Schema


def _is_storable(schema: Schema) -> bool:
    """Parquet has no values of no bytes."""
    return not any(isinstance(f.type, Primitive) and f.type.name == "fixed" and not f.type.length for f in walk(schema.fields))


def cells(field: Field) -> SearchStrategy[Any]:
    match field.type:
        case Struct(fields=fields):
            found: SearchStrategy[Any] = st.fixed_dictionaries({f.physical_name: cells(f) for f in fields})
        case List(element=element):
            found = st.lists(cells(element), max_size=3)
        case Map(key=key, value=value):
            found = st.lists(st.tuples(cells(key), cells(value)), max_size=3)
        case Primitive():
            found = values_of(field.type)
    return found if field.required else st.one_of(st.none(), found)


@st.composite
def tables(draw: DrawFn, *, max_rows: int = 8) -> tuple[Schema, pa.Table]:
    """A schema and some rows of it, under physical names with ids."""
    schema = draw(schemas(depth=2).filter(_is_storable))
    target = to_arrow_nullable(schema)
    rows = draw(st.integers(0, max_rows))
    columns = [draw(st.lists(cells(f), min_size=rows, max_size=rows)) for f in schema.fields]
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, target, strict=True)]
    return schema, pa.Table.from_arrays(arrays, schema=target)
