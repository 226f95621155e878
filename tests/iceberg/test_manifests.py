"""Manifests say of each file what its footer says, in a form that a generic Avro reader takes."""

from __future__ import annotations

import io
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.types import PrimitiveType

from builders import START
from ice import ROWS, IceLake, write_file
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, List, Primitive, Struct
from lakebed.iceberg.locations import from_uri
from lakebed.parquet.schema.arrow import to_arrow
from lakebed.staging.register import register_files

if TYPE_CHECKING:
    from lakebed.iceberg.manifests.avro import Entry

WIDE = Schema(
    fields=(
        Field(field_id=1, name="id", type=Primitive(name="int")),
        Field(field_id=2, name="ts", type=Primitive(name="timestamptz")),
        Field(field_id=3, name="price", type=Primitive(name="decimal", precision=20, scale=3)),
        Field(field_id=4, name="text", type=Primitive(name="string")),
        Field(field_id=5, name="blob", type=Primitive(name="binary")),
        Field(field_id=6, name="flag", type=Primitive(name="boolean")),
        Field(field_id=7, name="born", type=Primitive(name="date")),
        Field(field_id=8, name="local", type=Primitive(name="timestamp")),
        Field(field_id=9, name="ratio", type=Primitive(name="float")),
        Field(field_id=10, name="tags", type=List(element=Field(field_id=11, name="element", type=Primitive(name="string")))),
        Field(field_id=12, name="place", type=Struct(fields=(Field(field_id=13, name="zip", type=Primitive(name="long")),))),
    ),
)


def test_an_entry_says_what_the_footer_says(ice: IceLake) -> None:
    ice.create()
    ice.insert(3)

    (entry,) = ice.entries()

    data_file = entry["data_file"]
    path = from_uri(data_file["file_path"])
    footer = pq.ParquetFile(path).metadata
    assert data_file["record_count"] == footer.num_rows
    assert data_file["file_size_in_bytes"] == Path(path).stat().st_size
    assert data_file["split_offsets"] == [4]
    for number, field_id in enumerate((1, 2, 3, 4)):
        chunk = footer.row_group(0).column(number)
        assert _of(entry, "column_sizes", field_id) == chunk.total_compressed_size
        assert _of(entry, "value_counts", field_id) == chunk.num_values
        assert _of(entry, "null_value_counts", field_id) == chunk.statistics.null_count


def test_bounds_of_every_type_enclose_the_values(ice: IceLake) -> None:
    table = ice.create(schema=WIDE)
    path = write_file(ice.lake, table, pa.table(_wide_columns(), schema=to_arrow(WIDE)))
    register_files(ice.lake.registry, ice.lake.storage, table, [path])
    ice.seal()
    ice.advance()

    (entry,) = ice.entries()

    lower = {f: _read_bound(ice, f, _of(entry, "lower_bounds", f)) for f in (1, 3, 4, 5, 6, 7, 9, 13)}
    upper = {f: _read_bound(ice, f, _of(entry, "upper_bounds", f)) for f in (1, 3, 4, 5, 6, 7, 13)}
    assert (lower[1], upper[1]) == (-5, 7)
    assert (lower[3], upper[3]) == (Decimal("-12345678901234567.891"), Decimal("0.001"))
    assert (lower[4], upper[4]) == ("aaaaaaaaaaaaaaaa", "zzzzzzzzzzzzzzz{")
    assert (lower[5], upper[5]) == (b"\x00", b"\xfe" * 15 + b"\xff")
    assert (lower[6], upper[6]) == (False, True)
    assert (lower[7], upper[7]) == (-1, 20_000)
    assert lower[9] == -1.5
    assert (lower[13], upper[13]) == (1, 2)
    assert _of(entry, "null_value_counts", 13) == 0


def test_a_float_column_that_may_hide_nan_has_no_upper_bound(ice: IceLake) -> None:
    """The writer leaves NaN out of its statistics, so the true maximum is unknown; readers must not prune by it."""
    ice.create()
    ice.insert(1)

    (entry,) = ice.entries()

    assert _of(entry, "upper_bounds", 3) is None
    assert _of(entry, "nan_value_counts", 3) is None
    assert _of(entry, "lower_bounds", 3) is not None


def test_columns_in_lists_have_no_counts(ice: IceLake) -> None:
    table = ice.create(schema=WIDE)
    path = write_file(ice.lake, table, pa.table(_wide_columns(), schema=to_arrow(WIDE)))
    register_files(ice.lake.registry, ice.lake.storage, table, [path])
    ice.seal()
    ice.advance()

    assert _of(ice.entries()[0], "value_counts", 11) is None
    assert ice.static().scan().to_arrow().column("tags").to_pylist()[0] == ["x", "y"]


def test_a_generic_avro_reader_sees_field_ids_and_the_spec(ice: IceLake) -> None:
    ice.create(partition_by=("day(ts)",))
    ice.insert(1)
    (manifest,) = ice.manifests()

    reader = fastavro.reader(io.BytesIO(Path(from_uri(manifest.manifest_path)).read_bytes()))

    assert isinstance(reader.writer_schema, dict)
    assert {f["name"]: f["field-id"] for f in reader.writer_schema["fields"]} == {
        "status": 0, "snapshot_id": 1, "sequence_number": 3, "file_sequence_number": 4, "data_file": 2,
    }  # fmt: skip
    assert reader.metadata["format-version"] == "2"
    assert reader.metadata["content"] == "data"
    assert '"transform":"day"' in reader.metadata["partition-spec"]
    assert len(list(reader)) == 1


def test_the_manifest_list_counts_every_manifest_once(ice: IceLake) -> None:
    ice.create()
    first = ice.write(1)
    ice.write(2)
    ice.seal()
    ice.advance()
    ice.insert(3)
    ice.retire(first.partition_id)
    ice.advance()

    manifests = ice.manifests()

    paths = [manifest.manifest_path for manifest in manifests]
    assert len(set(paths)) == len(paths) == 2
    assert all(Path(from_uri(m.manifest_path)).stat().st_size == m.manifest_length for m in manifests)
    counts = sorted((m.added_files_count, m.existing_files_count, m.deleted_files_count) for m in manifests)
    assert counts == [(0, 1, 1), (1, 0, 0)]
    rows = sorted((m.added_rows_count, m.existing_rows_count, m.deleted_rows_count) for m in manifests)
    assert rows == [(0, ROWS, ROWS), (ROWS, 0, 0)]


def _read_bound(ice: IceLake, field_id: int, bound: bytes) -> Any:
    kind = ice.base().metadata.schema().find_type(field_id)
    assert isinstance(kind, PrimitiveType)
    return from_bytes(kind, bound)


def _of(entry: Entry, key: str, field_id: int) -> Any:
    return next((pair["value"] for pair in entry["data_file"][key] if pair["key"] == field_id), None)


def _wide_columns() -> list[list[Any]]:
    return [
        [-5, 7],
        [START, START + timedelta(seconds=1)],
        [Decimal("-12345678901234567.891"), Decimal("0.001")],
        ["a" * 40, "z" * 40],
        [b"\x00", b"\xfe" * 40],
        [True, False],
        [-1, 20_000],
        [START.replace(tzinfo=None), START.replace(tzinfo=None)],
        [-1.5, 2.5],
        [["x", "y"], []],
        [{"zip": 1}, {"zip": 2}],
    ]
