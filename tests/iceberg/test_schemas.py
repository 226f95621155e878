"""Schemas evolve with their ids: none is ever used twice, names are today's, and old files are still understood."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import assume, given

from builders import ORDERS, insert_hours, promote, stage
from ice import INT, ROWS, SHOP, STRING, IceLake, shop_rows, write_file
from lakebed.core.schema.schema import Schema, walk
from lakebed.core.schema.types import Field, List, Map, Primitive, Struct
from lakebed.iceberg.metadata.metadata import NAME_MAPPING
from lakebed.iceberg.types.schemas import find_last_column_id, name_mapping, to_iceberg
from lakebed.registry.tables.lake_tables import LakeTable, require_table
from lakebed.registry.tables.versions import list_versions
from lakebed.staging.register import register_files
from strategies import schemas


@given(schemas())
def test_every_id_name_and_requirement_is_kept(schema: Schema) -> None:
    assume(Primitive(name="fixed", length=0) not in [field.type for field in walk(schema.fields)])  # PyIceberg takes it for nothing

    made = to_iceberg(schema, schema_id=3, with_instance=False)

    for field in walk(schema.fields):
        found = made.find_field(field.field_id)
        assert (found.field_id, found.required) == (field.field_id, field.required)
    assert made.column_names is not None
    assert [f.name for f in made.fields] == [f.name for f in schema.fields]
    assert find_last_column_id([schema], with_instance=False) == made.highest_field_id


def test_a_renamed_column_keeps_its_id_and_its_rows(ice: IceLake) -> None:
    ice.create()
    ice.insert(1)
    ice.evolve(lambda fields: [replace(f, name="nation") if f.name == "country" else f for f in fields])

    done = ice.advance()

    assert done.snapshot_id is None  # only metadata changed
    ice.insert(2)
    read = ice.static().scan().to_arrow()
    assert read["nation"].to_pylist() == ["DE"] * (2 * ROWS)
    assert ice.static().schema().find_field("nation").field_id == 4


def test_an_added_column_is_null_in_old_files(ice: IceLake) -> None:
    ice.create()
    ice.insert(1)
    ice.evolve(lambda fields: [*fields, Field(field_id=5, name="note", type=STRING)])
    ice.insert(2)

    notes = ice.static().scan().to_arrow().sort_by("id")["note"].to_pylist()

    assert notes == [None] * ROWS + ["note 2"] * ROWS


def test_a_dropped_and_added_again_column_never_sees_the_old_values(ice: IceLake) -> None:
    ice.create()
    ice.insert(1)
    ice.evolve(lambda fields: [f for f in fields if f.name != "country"])
    ice.advance()
    ice.evolve(lambda fields: [*fields, Field(field_id=5, name="country", type=STRING, physical_name="country_5")])
    ice.insert(2)

    assert ice.static().scan().to_arrow()["country"].to_pylist() == [None] * (2 * ROWS)
    assert ice.base().metadata.last_column_id == 5
    assert [schema.schema_id for schema in ice.base().metadata.schemas] == [0, 1, 2]


def test_columns_swap_names_without_swapping_values(ice: IceLake) -> None:
    schema = Schema(fields=(*SHOP.fields, Field(field_id=5, name="note", type=STRING)))
    ice.create(schema=schema)
    ice.insert(1)
    swap = {"country": "note", "note": "country"}
    ice.evolve(lambda fields: [replace(f, name=swap.get(f.name, f.name)) for f in fields])
    ice.advance()

    read = ice.static().scan().to_arrow()

    assert (set(read["note"].to_pylist()), set(read["country"].to_pylist())) == ({"DE"}, {"note 1"})


def test_promoted_columns_read_old_files_and_prune_by_their_bounds(ice: IceLake) -> None:
    narrow = Schema(fields=tuple(replace(f, type=INT) if f.name == "id" else f for f in SHOP.fields))
    ice.create(schema=narrow)
    ice.insert(1)
    ice.evolve(lambda fields: [replace(f, type=Primitive(name="long")) if f.name == "id" else f for f in fields])
    ice.insert(3_000_000)

    assert ice.static().scan(row_filter="id >= 2000000000").to_arrow().num_rows == ROWS
    assert ice.static().scan(row_filter="id < 1005").to_arrow().num_rows == 5
    assert len(list(ice.static().scan(row_filter="id < 1005").plan_files())) == 1


def test_reordered_columns_are_read_by_id(ice: IceLake) -> None:
    ice.create()
    ice.insert(1)
    ice.evolve(lambda fields: list(reversed(fields)))
    ice.insert(2)

    assert ice.static().scan().to_arrow().column_names == ["country", "amount", "ts", "id"]
    assert ice.static().scan(row_filter="id = 1003").to_arrow()["amount"].to_pylist() == [4.0]


def test_a_schema_that_comes_back_is_the_schema_that_it_was(ice: IceLake) -> None:
    ice.create()
    ice.insert(1)
    for name in ("nation", "country"):
        ice.evolve(lambda fields, name=name: [replace(f, name=name) if f.field_id == 4 else f for f in fields])  # type: ignore[misc]
        ice.advance()

    assert (len(ice.base().metadata.schemas), ice.base().metadata.current_schema_id) == (2, 0)


def test_files_without_ids_are_read_by_their_physical_names(ice: IceLake) -> None:
    table = ice.create()
    plain = pa.table(dict(zip(SHOP_NAMES, shop_rows(SHOP, 5).columns, strict=True)))
    path = write_file(ice.lake, table, plain)
    register_files(ice.lake.registry, ice.lake.storage, table, [path], adopt=True)
    ice.seal()
    ice.advance()
    ice.evolve(lambda fields: [replace(f, name="nation") if f.name == "country" else f for f in fields])
    ice.advance()

    assert pq.read_schema(path).field("id").metadata is None
    assert ice.static().scan().to_arrow()["nation"].to_pylist() == ["DE"] * ROWS
    mapping = json.loads(ice.base().metadata.properties[NAME_MAPPING])
    assert {entry["field-id"]: entry["names"] for entry in mapping}[4] == ["country"]
    assert next(pair["value"] for pair in ice.entries()[0]["data_file"]["lower_bounds"] if pair["key"] == 4) == b"DE"


def test_the_name_mapping_covers_nested_columns() -> None:
    schema = Schema(
        fields=(
            Field(field_id=1, name="a", physical_name="was_a", type=Struct(fields=(Field(field_id=2, name="b", type=INT),))),
            Field(field_id=3, name="l", type=List(element=Field(field_id=4, name="element", type=INT))),
            Field(field_id=5, name="m", type=Map(key=Field(field_id=6, name="key", type=STRING, required=True), value=Field(field_id=7, name="value", type=INT))),
        )
    )  # fmt: skip

    assert json.loads(name_mapping(schema)) == [
        {"field-id": 1, "names": ["was_a"], "fields": [{"field-id": 2, "names": ["b"]}]},
        {"field-id": 3, "names": ["l"], "fields": [{"field-id": 4, "names": ["element"]}]},
        {"field-id": 5, "names": ["m"], "fields": [{"field-id": 6, "names": ["key"]}, {"field-id": 7, "names": ["value"]}]},
    ]


def test_promoting_a_view_set_switches_schema_and_files_in_one_snapshot(ice: IceLake) -> None:
    ice.create(kind="view_set")
    ice.insert(1)
    staged = stage(ice.lake.registry, ORDERS)
    assert ice.committer.advance(ice.table_id()) is None
    table = _version(ice, staged)
    path = write_file(ice.lake, table, shop_rows(table.schema, 9))
    register_files(ice.lake.registry, ice.lake.storage, table, [path], insert_range=insert_hours(50, 51))
    promote(ice.lake.registry, staged, ORDERS)

    done = ice.advance()

    assert (done.added, done.removed, done.operation) == (1, 1, "overwrite")
    assert ice.static().scan().to_arrow().column_names == ["id", "ts", "amount"]
    assert ice.static().scan().to_arrow()["id"].to_pylist() == list(range(9000, 9000 + ROWS))
    ice.require_true()


def _version(ice: IceLake, schema_hash: str) -> LakeTable:
    """The table as it will be once that version serves."""
    table = require_table(ice.lake.registry, ORDERS)
    with ice.lake.registry.read() as reader:
        metadata = next(v for v in list_versions(reader, table.table_id) if v.schema_hash == schema_hash)
    return replace(table, metadata=metadata, schema=Schema.from_json(metadata.schema))


SHOP_NAMES = tuple(f.name for f in SHOP.fields)
