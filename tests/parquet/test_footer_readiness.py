from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from footer_samples import LONG, STRING, layout_of, meta_of, one_column, people, people_schema, tail_of, with_ids, write
from footer_trees import decode, encode, get, replace
from thrift.Thrift import TType

from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, List, Map, Primitive, Struct, Type
from lakebed.parquet.footer.framing import frame
from lakebed.parquet.inspect import parse
from lakebed.parquet.schema.problems import find_problems


def list_problems(metadata: pq.FileMetaData, schema: Schema, *, require_ids: bool) -> tuple[str, ...]:
    return tuple(map(str, find_problems(layout_of(metadata, schema), require_ids=require_ids)))


def problems(table: pa.Table, schema: Schema, *, require_ids: bool = True, **options: Any) -> tuple[str, ...]:
    return list_problems(parse(tail_of(write(table, **options))), schema, require_ids=require_ids)


def one(values: pa.Array) -> pa.Table:
    return with_ids(pa.table({"x": values}))


def with_schema_elements(table: pa.Table, change: Any) -> pq.FileMetaData:
    """The footer of `table` with its schema elements changed one by one."""
    tree = decode(meta_of(write(table, store_schema=False)))
    kind, elements = get(tree, 2)
    return parse(frame(encode(replace(tree, 2, (kind, [change(element) for element in elements])))))


def test_a_file_written_with_the_tables_schema_is_ready() -> None:
    assert problems(people(), people_schema()) == ()


def test_int96_is_refused_with_the_setting_that_helps() -> None:
    table = one(pa.array([1], pa.timestamp("us")))

    (problem,) = problems(table, one_column(Primitive(name="timestamp")), use_deprecated_int96_timestamps=True)

    assert "'x'" in problem
    assert "TIMESTAMP_MICROS" in problem


def test_nanoseconds_are_refused() -> None:
    (problem,) = problems(one(pa.array([1], pa.timestamp("ns"))), one_column(Primitive(name="timestamp")))

    assert "microseconds" in problem


def test_missing_ids_are_refused_unless_the_file_is_adopted_by_name() -> None:
    bare = pa.table({"id": [1], "name": ["a"]})

    refused = problems(bare, people_schema())

    assert [("'id'" in refused[0], "'name'" in refused[1])] == [(True, True)]
    assert len(refused) == 2
    assert problems(bare, people_schema(), require_ids=False) == ()


def test_one_missing_id_among_others_is_refused_either_way() -> None:
    table = pa.table(
        {"id": [1], "name": ["a"]},
        schema=pa.schema([pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"1"}), ("name", pa.string())]),
    )

    assert "no field id" in problems(table, people_schema())[0]
    assert "unknown" in problems(table, people_schema(), require_ids=False)[0]


def test_a_required_column_must_be_there() -> None:
    schema = Schema(fields=(*people_schema().fields, Field(field_id=3, name="day", type=LONG, required=True)))

    (problem,) = problems(people(), schema)

    assert problem.startswith("column 'day' is required and absent")


def test_an_optional_column_may_be_absent() -> None:
    schema = Schema(fields=(*people_schema().fields, Field(field_id=3, name="day", type=LONG)))

    assert problems(people(), schema) == ()


def test_a_column_that_the_table_does_not_know_is_refused() -> None:
    schema = Schema(fields=people_schema().fields[:1])

    (problem,) = problems(people(), schema)

    assert problem.startswith("column 'name' is unknown")


@pytest.mark.parametrize(
    ("stored", "kind"),
    [
        (pa.array([1], pa.int32()), "long"),
        (pa.array([1], pa.int8()), "int"),
        (pa.array([1], pa.uint16()), "int"),
        (pa.array([1.0], pa.float32()), "double"),
        (pa.array([Decimal("1.25")], pa.decimal128(5, 2)), "decimal(20,2)"),
        (pa.array([b"x" * 16], pa.binary(16)), "uuid"),
        (pa.array([b"x" * 16], pa.uuid()), "uuid"),
        (pa.array([b"xyz"], pa.binary(3)), "fixed[3]"),
        (pa.array([1], pa.timestamp("ms", "UTC")), "timestamptz"),
        (pa.array(["a"], pa.large_string()), "string"),
        (pa.array(["a"]).dictionary_encode(), "string"),
        (pa.array([True]), "boolean"),
    ],
    ids=str,
)
def test_what_reads_unchanged_is_allowed(stored: pa.Array, kind: str) -> None:
    assert problems(one(stored), one_column(Primitive.parse(kind))) == ()


@pytest.mark.parametrize(
    ("stored", "kind", "shown"),
    [
        (pa.array([1]), "int", "int64"),
        (pa.array([1.0]), "float", "double"),
        (pa.array([Decimal("1.25")], pa.decimal128(5, 2)), "decimal(4,2)", "decimal(5,2)"),
        (pa.array([Decimal("1.25")], pa.decimal128(5, 2)), "decimal(9,3)", "decimal(5,2)"),
        (pa.array([1], pa.uint32()), "long", "unsigned 32-bit integer"),
        (pa.array([1], pa.uint64()), "long", "unsigned 64-bit integer"),
        (pa.array([1], pa.time64("us")), "long", "time in micros"),
        (pa.array([b"x"]), "string", "byte array"),
        (pa.array(["x"]), "binary", "byte array (string)"),
        (pa.array([b"xy"], pa.binary(2)), "fixed[3]", "fixed byte array of 2 bytes"),
        (pa.array([1], pa.timestamp("us")), "timestamptz", "timestamp in micros without time zone"),
        (pa.array([1], pa.timestamp("us", "UTC")), "timestamp", "timestamp in micros with time zone"),
        (pa.array([1.0], pa.float16()), "float", "float16"),
        (pa.array([None], pa.null()), "int", "null"),
    ],
    ids=str,
)
def test_what_reads_otherwise_is_refused_with_both_types(stored: pa.Array, kind: str, shown: str) -> None:
    (problem,) = problems(one(stored), one_column(Primitive.parse(kind)))

    assert shown in problem
    assert f"cast it to {kind} before writing" in problem


def test_an_id_used_twice_is_refused() -> None:
    metadata = with_schema_elements(people(), lambda element: [(i, kind, 1 if i == 9 else value) for i, kind, value in element])

    found = list_problems(metadata, people_schema(), require_ids=True)

    assert found[0].startswith("field id 1 occurs 2 times")


def ids(field: pa.Field, number: int) -> pa.Field:
    return field.with_metadata({b"PARQUET:field_id": str(number).encode()})


def nested(kind: Type, arrow: pa.DataType, value: Any) -> tuple[str, ...]:
    schema = Schema(fields=(Field(field_id=1, name="x", type=kind),))
    return problems(pa.table({"x": pa.array([value], arrow)}, schema=pa.schema([ids(pa.field("x", arrow), 1)])), schema)


def test_nested_columns_with_all_their_ids_are_ready() -> None:
    element = Field(field_id=2, name="element", type=Struct(fields=(Field(field_id=3, name="a", type=LONG),)))
    arrow = pa.list_(ids(pa.field("element", pa.struct([ids(pa.field("a", pa.int64()), 3)])), 2))

    assert nested(List(element=element), arrow, [{"a": 1}]) == ()


def test_maps_with_all_their_ids_are_ready() -> None:
    key, value = Field(field_id=2, name="key", type=STRING, required=True), Field(field_id=3, name="value", type=LONG)
    arrow = pa.map_(ids(pa.field("key", pa.string(), nullable=False), 2), ids(pa.field("value", pa.int64()), 3))

    assert nested(Map(key=key, value=value), arrow, [("k", 1)]) == ()


def test_a_list_element_without_an_id_is_refused() -> None:
    (problem,) = nested(List(element=Field(field_id=2, name="element", type=LONG)), pa.list_(pa.int64()), [1])

    assert problem.startswith("column 'x.element' has no field id")


def test_a_list_element_with_another_id_is_unknown() -> None:
    arrow = pa.list_(ids(pa.field("element", pa.int64()), 9))

    assert "unknown" in nested(List(element=Field(field_id=2, name="element", type=LONG)), arrow, [1])[0]


def test_a_shape_that_differs_is_refused() -> None:
    wanted = List(element=Field(field_id=2, name="element", type=LONG))

    assert "not stored as a list" in nested(wanted, pa.int64(), 1)[0]
    assert "is nested, the table says long" in nested(LONG, pa.list_(ids(pa.field("element", pa.int64()), 2)), [1])[0]


def test_the_type_of_an_inner_column_is_checked() -> None:
    kind = Struct(fields=(Field(field_id=2, name="a", type=STRING),))

    (problem,) = nested(kind, pa.struct([ids(pa.field("a", pa.int64()), 2)]), {"a": 1})

    assert problem.startswith("column 'x.a' is stored as int64")


def test_names_from_a_file_cannot_forge_a_line_and_cannot_flood_the_message() -> None:
    table = pa.table({f"{n}\nERROR all is lost " + "x" * 1000: [1] for n in range(100)})

    found = problems(table, people_schema(), require_ids=False)

    assert len(found) == 21
    assert found[-1] == "and 80 more problems"
    assert not any("\n" in problem or len(problem) > 300 for problem in found)


def test_columns_annotated_only_the_old_way_are_understood() -> None:
    table = with_ids(pa.table({"x": pa.array([1], pa.timestamp("us", "UTC"))}))
    metadata = with_schema_elements(table, lambda element: [field for field in element if field[0] != 10])

    assert list_problems(metadata, one_column(Primitive(name="timestamptz")), require_ids=True) == ()


def test_a_list_of_two_levels_is_understood() -> None:
    repeated = [(1, TType.I32, 2), (3, TType.I32, 2), (4, TType.STRING, b"array"), (9, TType.I32, 2)]
    group = [(3, TType.I32, 1), (4, TType.STRING, b"x"), (5, TType.I32, 1), (6, TType.I32, 3), (9, TType.I32, 1)]
    root = [(4, TType.STRING, b"schema"), (5, TType.I32, 1)]
    tree = replace(decode(meta_of(write(one(pa.array([1])), store_schema=False))), 2, (TType.STRUCT, [root, group, repeated]))
    schema = Schema(fields=(Field(field_id=1, name="x", type=List(element=Field(field_id=2, name="element", type=LONG))),))

    metadata = parse(frame(encode(tree)))

    assert list_problems(metadata, schema, require_ids=True) == ()
