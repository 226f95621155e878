"""Field ids written into a finished file: the ids are there, every reader sees the same rows, and nothing else changed."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.core.errors import FooterCorruptError
from lakebed.parquet.footer.field_ids import add_ids
from lakebed.parquet.footer.framing import find_meta, frame
from lakebed.parquet.schema.tree import decode_schema

VALUES = [
    pa.array([1, None], pa.int32()), pa.array([1, 2], pa.int64()), pa.array([1.5, None], pa.float64()), pa.array([True, False]),
    pa.array(["x", None]), pa.array([b"x", b"y"]), pa.array([Decimal("1.25"), None], pa.decimal128(10, 2)),
    pa.array([dt.date(2026, 1, 1), None]), pa.array([0, 1], pa.timestamp("us", tz="UTC")), pa.array([0, 1], pa.timestamp("us")),
    pa.array([b"1234", b"5678"], pa.binary(4)),
]  # fmt: skip


def written(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def renamed(content: bytes, ids: dict[str, int]) -> bytes:
    meta = find_meta(content)
    return content[: -len(frame(meta))] + frame(add_ids(meta, ids))


def ids_of(content: bytes) -> dict[str, int | None]:
    return {node.name: node.field_id for node in decode_schema(find_meta(content)).children}


NAMED = st.tuples(st.text(min_size=1, max_size=20), st.sampled_from(VALUES))


@given(st.lists(NAMED, min_size=1, max_size=40, unique_by=lambda column: column[0]), st.data())
def test_ids_are_given_and_nothing_else_is_changed(columns: list[tuple[str, pa.Array]], data: st.DataObject) -> None:
    table = pa.table(dict(columns))
    content = written(table)
    ids = {name: data.draw(st.integers(1, (1 << 31) - 1)) for name, _ in columns}

    named = renamed(content, ids)

    assert ids_of(named) == ids
    before, after = pq.ParquetFile(io.BytesIO(content)), pq.ParquetFile(io.BytesIO(named))
    assert after.read().equals(before.read())
    assert after.metadata.row_group(0).to_dict() == before.metadata.row_group(0).to_dict()
    assert after.metadata.metadata == before.metadata.metadata
    assert [f.metadata for f in after.schema_arrow] == [{b"PARQUET:field_id": str(ids[name]).encode()} for name, _ in columns]


def test_a_column_that_has_an_id_or_columns_of_its_own_is_refused() -> None:
    with_id = pa.schema([pa.field("a", pa.int64(), metadata={b"PARQUET:field_id": b"7"})])
    nested = pa.table({"a": [{"b": 1}]})

    for table in (pa.table({"a": [1]}, schema=with_id), nested):
        with pytest.raises(FooterCorruptError, match="has an id already, or columns of its own"):
            add_ids(find_meta(written(table)), {"a": 1})
    with pytest.raises(FooterCorruptError, match="not a column of the table"):
        add_ids(find_meta(written(pa.table({"a": [1]}))), {"b": 1})


def test_metadata_that_ends_anywhere_is_refused() -> None:
    meta = find_meta(written(pa.table({"a": [1], "b": ["x"]})))

    for length in range(len(meta)):
        with pytest.raises(FooterCorruptError):
            add_ids(meta[:length], {"a": 1, "b": 2})
