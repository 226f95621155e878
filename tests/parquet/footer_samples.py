"""Real Parquet files to take footers from."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from footer_trees import KEY_VALUES, Tree, decode, drop, encode
from thrift.Thrift import TType

from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, Primitive
from lakebed.parquet.footer.framing import find_meta
from lakebed.parquet.schema.match import Layout, find_layout

LONG, STRING = Primitive(name="long"), Primitive(name="string")


def write(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def tail_of(file: bytes) -> bytes:
    return file[-8 - int.from_bytes(file[-8:-4], "little") :]


def meta_of(file: bytes) -> bytes:
    return tail_of(file)[:-8]


def layout_of(metadata: pq.FileMetaData, schema: Schema) -> Layout:
    written = io.BytesIO()
    metadata.write_metadata_file(written)
    return find_layout(metadata, schema, meta=find_meta(written.getvalue()))


def framed(meta: bytes) -> bytes:
    return meta + len(meta).to_bytes(4, "little") + b"PAR1"


def pyarrow_view(meta: bytes) -> dict[str, Any]:
    """All that pyarrow says of a footer, without its length and without the statistics objects' identity."""
    metadata = pq.ParquetFile(pa.BufferReader(framed(meta))).metadata
    view: dict[str, Any] = metadata.to_dict()
    del view["serialized_size"]
    return view | {"schema": str(metadata.schema).partition("\n")[2], "keys": metadata.metadata}


def with_ids(table: pa.Table) -> pa.Table:
    fields = [field.with_metadata({b"PARQUET:field_id": str(number).encode()}) for number, field in enumerate(table.schema, 1)]
    return table.cast(pa.schema(fields))


def people(rows: int = 100) -> pa.Table:
    return with_ids(pa.table({"id": pa.array(range(rows)), "name": [f"name {n:03}" for n in range(rows)]}))


def people_schema() -> Schema:
    return Schema(fields=(Field(field_id=1, name="id", type=LONG), Field(field_id=2, name="name", type=STRING)))


def one_column(kind: Primitive, *, required: bool = False) -> Schema:
    return Schema(fields=(Field(field_id=1, name="x", type=kind, required=required),))


def padded(meta: bytes, size: int) -> bytes:
    """The metadata brought to exactly `size` bytes by its key-value pairs."""
    bare = drop(decode(meta), KEY_VALUES)
    for fill in range(size):
        for spare in (0, 1):  # a length that needs one byte more must not leave a gap
            grown = _with_keys(bare, size - len(meta) - fill, spare)
            if len(grown) == size:
                return grown
    message = f"no padding gives {size} bytes"
    raise AssertionError(message)


def _with_keys(bare: Tree, fill: int, spare: int) -> bytes:
    pairs = [[(1, TType.STRING, b"pad" + b"!" * spare), (2, TType.STRING, b"x" * max(fill, 0))]]
    keys = (KEY_VALUES, TType.LIST, (TType.STRUCT, pairs))
    return encode(sorted([*bare, keys], key=lambda field: field[0]))
