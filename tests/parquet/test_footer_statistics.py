from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from footer_samples import LONG, STRING, layout_of, meta_of, one_column, people, people_schema, tail_of, with_ids, write
from footer_trees import decode, encode, get, replace
from hypothesis import example, given
from hypothesis import strategies as st

from lakebed.core.schema.bounds import coordinate, lower_bound, upper_bound
from lakebed.core.schema.bounds import encode as encode_bound
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, List, Map, Primitive, Struct
from lakebed.parquet.footer.framing import frame
from lakebed.parquet.inspect import parse
from lakebed.parquet.statistics import FIRST_COLUMNS, summarize
from strategies import values_of

if TYPE_CHECKING:
    from lakebed.core.files import ColumnStatistics

DOUBLE, TIMESTAMP = Primitive(name="double"), Primitive(name="timestamp")
_ARROW = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "uuid": pa.binary(16),
    "binary": pa.binary(),
}
KINDS = [
    *(Primitive(name=name) for name in _ARROW),
    Primitive(name="fixed", length=70),
    *map(Primitive.parse, ("decimal(5,2)", "decimal(18,0)")),
]
WIDEST = Primitive.parse("decimal(38,10)")


def arrow_type(kind: Primitive) -> pa.DataType:
    if kind.name == "decimal":
        return pa.decimal128(kind.precision, kind.scale)
    return pa.binary(kind.length) if kind.name == "fixed" else _ARROW[kind.name]


def column_statistics(
    metadata: pq.FileMetaData,
    schema: Schema,
    *,
    indexed: frozenset[int] = frozenset(),
    always: frozenset[int] = frozenset(),
    first: int = FIRST_COLUMNS,
) -> tuple[ColumnStatistics, ...]:
    return summarize(metadata, layout_of(metadata, schema), indexed=indexed, always=always, first=first)


def compaction_statistics_spec(values: pa.Array, kind: Primitive, *, indexed: bool = False, **options: Any) -> ColumnStatistics:
    metadata = parse(tail_of(write(with_ids(pa.table({"x": values})), **options)))
    (found,) = column_statistics(metadata, one_column(kind), indexed=frozenset({1} if indexed else ()))
    return found


def assert_encloses(found: ColumnStatistics, kind: Primitive, values: list[Any]) -> None:
    for value in values:
        place = encode_bound(kind, value)
        assert found.lower is None or place is None or found.lower <= place
        assert found.upper is None or (place is not None and place <= found.upper), "NaN is above every number"


@pytest.mark.parametrize("kind", [*KINDS, WIDEST], ids=str)
@given(data=st.data())
def test_bounds_enclose_every_value(kind: Primitive, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | values_of(kind), min_size=1, max_size=8))

    found = compaction_statistics_spec(pa.array(values, arrow_type(kind)), kind, row_group_size=3)

    known = [value for value in values if value is not None]
    assert (found.null_count, found.value_count) == (len(values) - len(known), len(values))
    assert_encloses(found, kind, known)
    assert (found.lower is not None) == bool(known)


@given(st.lists(st.floats() | st.sampled_from([0.0, -0.0, math.nan]), min_size=1, max_size=8))
@example([math.nan])
@example([-0.0, 0.0, math.nan, math.inf])
@example([1.0, 2.0, 3.0, math.nan])
def test_float_bounds_enclose_every_value_with_nan_above_all(values: list[float]) -> None:
    found = compaction_statistics_spec(pa.array(values), DOUBLE, row_group_size=3)

    assert_encloses(found, DOUBLE, values)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=30), min_size=1, max_size=5))
@example(["\U0010ffff" * 100, "\ud7ff" * 100])
@example(["é" * 63 + "x"])
def test_long_texts_have_short_bounds_that_enclose_them(values: list[str]) -> None:
    found = compaction_statistics_spec(pa.array(values), STRING)

    assert_encloses(found, STRING, values)
    assert found.lower is not None
    assert len(found.lower) <= 64
    assert found.upper is None or len(found.upper) <= 68


def test_bounds_are_those_of_the_least_and_greatest_over_all_row_groups() -> None:
    found = compaction_statistics_spec(pa.array([5, None, -3, 9, 2, None]), LONG, row_group_size=2)

    assert (found.null_count, found.value_count) == (2, 6)
    assert (found.lower, found.upper) == (lower_bound(LONG, -3), upper_bound(LONG, 9))


def test_a_column_of_nulls_has_counts_and_no_bounds() -> None:
    found = compaction_statistics_spec(pa.array([None, None], pa.int64()), LONG)

    assert (found.null_count, found.value_count, found.lower, found.upper) == (2, 2, None, None)


def test_a_row_group_of_nulls_does_not_hide_the_bounds_of_the_others() -> None:
    found = compaction_statistics_spec(pa.array([None, None, 4, 7]), LONG, row_group_size=2)

    assert (found.lower, found.upper) == (lower_bound(LONG, 4), upper_bound(LONG, 7))


def test_a_row_group_without_statistics_leaves_the_column_without_bounds() -> None:
    meta = meta_of(write(with_ids(pa.table({"x": [1, 2, 3, 4]})), row_group_size=2))
    tree = decode(meta)
    kind, groups = get(tree, 4)
    chunk_kind, (chunk,) = get(groups[1], 1)
    bare = replace(chunk, 3, [field for field in get(chunk, 3) if field[0] != 12])
    broken = encode(replace(tree, 4, (kind, [groups[0], replace(groups[1], 1, (chunk_kind, [bare]))])))

    (found,) = column_statistics(parse(frame(broken)), one_column(LONG))

    assert (found.null_count, found.value_count, found.lower, found.upper) == (None, 4, None, None)


def test_a_file_without_statistics_still_counts_its_values() -> None:
    found = compaction_statistics_spec(pa.array([1, 2]), LONG, write_statistics=False)

    assert (found.value_count, found.null_count, found.lower, found.upper) == (2, None, None, None)


def test_the_upper_bound_of_floats_is_kept_where_the_writer_counts_nan() -> None:
    tree = decode(meta_of(write(with_ids(pa.table({"x": [1.0, 2.0]})))))
    by_spark = encode(replace(tree, 6, b"parquet-mr version 1.16.0 (build abc)"))

    (found,) = column_statistics(parse(frame(by_spark)), one_column(DOUBLE))

    assert (found.lower, found.upper) == (lower_bound(DOUBLE, 1.0), upper_bound(DOUBLE, 2.0))


def test_a_maximum_that_is_nan_is_not_a_bound() -> None:
    nan = b"\0\0\0\0\0\0\xf8\x7f"
    meta = meta_of(write(with_ids(pa.table({"x": [1.0, 2.0]})), store_schema=False)).replace(b"\0\0\0\0\0\0\0\x40", nan)
    by_spark = encode(replace(decode(meta), 6, b"parquet-mr version 1.16.0 (build abc)"))

    (found,) = column_statistics(parse(frame(by_spark)), one_column(DOUBLE))

    assert (found.lower, found.upper) == (lower_bound(DOUBLE, 1.0), None)


@pytest.mark.parametrize(("unit", "least", "greatest"), [("ms", -1000, 2000), ("us", -1, 2), ("ns", -1, 1)])
def test_times_of_any_unit_become_microseconds_that_enclose_them(unit: str, least: int, greatest: int) -> None:
    found = compaction_statistics_spec(pa.array([-1, 2], pa.timestamp(unit)), TIMESTAMP)

    assert (found.lower, found.upper) == (lower_bound(TIMESTAMP, least), upper_bound(TIMESTAMP, greatest))


def test_times_beyond_64_bits_of_microseconds_have_no_bounds() -> None:
    found = compaction_statistics_spec(pa.array([2**62], pa.timestamp("ms")), TIMESTAMP)

    assert (found.lower, found.upper) == (None, None)


def test_unsigned_numbers_have_no_bounds_of_signed_ones() -> None:
    wide = compaction_statistics_spec(pa.array([1, 2**63], pa.uint64()), LONG)
    small = compaction_statistics_spec(pa.array([1, 200], pa.uint8()), Primitive(name="int"))

    assert (wide.lower, wide.upper) == (None, None)
    assert small.upper == upper_bound(Primitive(name="int"), 200)


def test_a_column_of_another_type_has_counts_and_no_bounds() -> None:
    found = compaction_statistics_spec(pa.array([1, 2]), STRING)

    assert (found.null_count, found.lower, found.upper) == (0, None, None)


@pytest.mark.parametrize(
    ("stored", "kind", "value"),
    [
        (pa.array([7], pa.int32()), LONG, 7),
        (pa.array([1.5], pa.float32()), DOUBLE, 1.5),
        (pa.array([Decimal("1.25")], pa.decimal128(4, 2)), Primitive.parse("decimal(30,2)"), Decimal("1.25")),
        (pa.array([date(2026, 1, 2)]), Primitive(name="date"), date(2026, 1, 2)),
        (pa.array([datetime(2026, 1, 2, tzinfo=UTC)]), Primitive(name="timestamptz"), datetime(2026, 1, 2, tzinfo=UTC)),
    ],
    ids=["int to long", "float to double", "wider decimal", "date", "timestamptz"],
)
def test_promoted_columns_are_bounded_in_the_tables_type(stored: pa.Array, kind: Primitive, value: Any) -> None:
    found = compaction_statistics_spec(stored, kind)

    assert found.lower == lower_bound(kind, value)


def test_only_indexed_columns_have_coordinates() -> None:
    metadata = parse(tail_of(write(people())))

    first, second = column_statistics(metadata, people_schema(), indexed=frozenset({1}))

    assert (first.lower_coordinate, first.upper_coordinate) == (coordinate(LONG, 0), coordinate(LONG, 99))
    assert (second.lower_coordinate, second.upper_coordinate) == (None, None)


def test_a_coordinate_is_given_for_both_ends_or_for_none() -> None:
    found = compaction_statistics_spec(pa.array([1.0, 2.0]), DOUBLE, indexed=True)

    assert found.upper is None
    assert (found.lower_coordinate, found.upper_coordinate) == (None, None)


def test_the_first_columns_are_taken_and_those_that_are_always_wanted() -> None:
    table = with_ids(pa.table({f"c{n}": [n] for n in range(40)}))
    schema = Schema(fields=tuple(Field(field_id=n + 1, name=f"c{n}", type=LONG) for n in range(40)))
    metadata = parse(tail_of(write(table)))

    by_default = column_statistics(metadata, schema)
    chosen = column_statistics(metadata, schema, first=2, always=frozenset({40}), indexed=frozenset({39}))

    assert [column.field_id for column in by_default] == list(range(1, 33))
    assert [column.field_id for column in chosen] == [1, 2, 39, 40]


def test_columns_are_matched_by_id_whatever_they_are_called() -> None:
    metadata = parse(tail_of(write(people())))
    renamed = Schema(fields=(Field(field_id=2, name="id", type=STRING), Field(field_id=1, name="number", type=LONG)))

    found = column_statistics(metadata, renamed)

    assert [(column.field_id, column.lower) for column in found] == [(2, b"name 000"), (1, lower_bound(LONG, 0))]


def test_columns_without_ids_are_matched_by_physical_name() -> None:
    metadata = parse(tail_of(write(pa.table({"old": [3], "other": [4]}))))
    schema = Schema(
        fields=(Field(field_id=7, name="new", physical_name="old", type=LONG), Field(field_id=8, name="old", physical_name="x", type=LONG))
    )

    (found,) = column_statistics(metadata, schema)

    assert (found.field_id, found.lower) == (7, lower_bound(LONG, 3))


def nested_table() -> tuple[pa.Table, Schema]:
    table = pa.table(
        {
            "s": pa.array([{"a": 1, "b": "x"}, None]),
            "l": pa.array([[1, 2, 3], []]),
            "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        }
    )
    parts = Struct(fields=(Field(field_id=4, name="a", type=LONG), Field(field_id=5, name="b", type=STRING)))
    numbers = List(element=Field(field_id=6, name="element", type=LONG))
    pairs = Map(key=Field(field_id=7, name="key", type=STRING, required=True), value=Field(field_id=8, name="value", type=LONG))
    fields = (Field(field_id=1, name="s", type=parts), Field(field_id=2, name="l", type=numbers), Field(field_id=3, name="m", type=pairs))
    return table, Schema(fields=fields)


def test_leaves_of_structs_have_bounds_and_leaves_of_lists_and_maps_only_counts() -> None:
    table, schema = nested_table()

    found = {column.field_id: column for column in column_statistics(parse(tail_of(write(table))), schema)}

    assert found.keys() == {4, 5, 6, 7, 8}
    assert (found[4].lower, found[4].null_count, found[5].upper) == (lower_bound(LONG, 1), 1, b"x")
    assert [(found[n].lower, found[n].upper) for n in (6, 7, 8)] == [(None, None)] * 3
    assert found[6].value_count == 4


def test_two_schemas_of_one_file_are_not_confused() -> None:
    metadata = parse(tail_of(write(people())))
    other = Schema(fields=(Field(field_id=2, name="name", type=STRING),))

    assert [len(column_statistics(metadata, schema)) for schema in (people_schema(), other, people_schema())] == [2, 1, 2]
