from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from lakebed.core.errors import InvalidValueError
from lakebed.core.names import TableName
from lakebed.core.schema.evolution import align_schema, is_same_shape, loosen
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, List, Map, Primitive, Struct
from lakebed.core.tables.view_sets import Definition, find_definition, merge_window_of, require_fitting
from lakebed.core.times import DAY_US, parse_duration

ORDERS = TableName("shop", "orders")
# As registries hold it, inside the version's properties: a change of these bytes would change the hashes of all view sets
STORED = (
    '{"combine":"SELECT day, sum(n) AS n FROM partials GROUP BY 1","event_time":"day","lookups":"track","over":"shop.orders",'
    '"partial":false,"reads":["shop.prices"],"slice_us":3600000000,"sql":"SELECT 1"}'
)


def test_a_stored_definition_still_decodes_to_the_same_bytes() -> None:
    definition = Definition.from_json(STORED)

    assert definition.to_json() == STORED
    assert definition.inputs == (ORDERS, TableName("shop", "prices"))


def test_the_definition_is_found_among_properties_and_plain_tables_have_none() -> None:
    assert find_definition('{"indexed": []}') is None
    assert find_definition('{"definition": "SELECT 1"}') is None
    stored = Definition.from_json(STORED)
    assert find_definition(json.dumps({"definition": STORED, "indexed": []})) == stored


@pytest.mark.parametrize(
    ("given", "micros"),
    [
        ("1h", 3600 * 10**6),
        ("15m", 900 * 10**6),
        ("1d", DAY_US),
        ("10us", 1 * 10),
        ("250ms", 250_000),
        ("30 s", 30 * 10**6),
        (7, 7),
        (timedelta(days=7), 7 * DAY_US),
    ],
)
def test_a_duration_is_a_whole_number_of_microseconds(given: str | int | timedelta, micros: int) -> None:
    assert parse_duration(given) == micros


@pytest.mark.parametrize(
    "given", ["", "1", "h", "-1h", "0h", "1.5h", "1h30m", "1H", "\u0661h", 0, -5, True, timedelta(0), timedelta(seconds=-1), 1.5, None]
)
def test_only_a_positive_whole_number_of_microseconds_is_accepted(given: object) -> None:
    with pytest.raises(InvalidValueError, match="positive whole number of microseconds"):
        parse_duration(given)  # type: ignore[arg-type] # people pass anything


@pytest.mark.parametrize("slice_us", [1, 2, 5, 10, 20, 30])
def test_a_slice_fits_that_divides_or_is_a_multiple_of_the_merge_window(slice_us: int) -> None:
    require_fitting(slice_us, window_us=10, source=ORDERS)


@pytest.mark.parametrize("slice_us", [3, 4, 7, 15, 25])
def test_a_slice_that_does_not_fit_the_merge_window_is_refused(slice_us: int) -> None:
    with pytest.raises(InvalidValueError, match=r"does not fit the merge window of shop\.orders \(10us\)"):
        require_fitting(slice_us, window_us=10, source=ORDERS)


def test_the_merge_window_is_a_day_unless_the_table_says_otherwise() -> None:
    assert merge_window_of({}) == DAY_US
    assert merge_window_of({"merge_window_us": 10}) == 10


@pytest.mark.parametrize("given", [0, -1, "1d", 1.5, True, None])
def test_a_merge_window_that_is_not_a_positive_number_is_refused(given: object) -> None:
    with pytest.raises(InvalidValueError, match="merge_window_us"):
        merge_window_of({"merge_window_us": given})


def test_unknown_ways_to_treat_lookups_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="'ignore' or 'track'"):
        Definition(sql="SELECT 1", over=ORDERS, slice_us=1, lookups="maybe")  # type: ignore[arg-type]


def field(field_id: int, name: str, kind: str, *, physical_name: str = "") -> Field:
    return Field(field_id=field_id, name=name, type=Primitive.parse(kind), physical_name=physical_name)


def test_columns_of_a_new_definition_keep_the_ids_of_those_that_can_still_be_read() -> None:
    first = Schema(fields=(field(1, "ts", "timestamptz"), field(2, "n", "int"), field(3, "note", "string")))
    second = Schema(fields=(field(1, "note", "long"), field(2, "n", "long"), field(3, "ts", "timestamptz"), field(4, "more", "string")))

    aligned = align_schema(second, [first])

    assert [(f.field_id, f.name, str(f.type), f.physical_name) for f in aligned.fields] == [
        (4, "note", "long", "note_4"),
        (2, "n", "long", "n"),
        (1, "ts", "timestamptz", "ts"),
        (5, "more", "string", "more"),
    ]


def test_a_column_that_was_dropped_and_comes_back_is_the_same_column_and_ids_are_never_reused() -> None:
    versions = [
        Schema(fields=(field(1, "a", "long"), field(2, "b", "long"))),
        Schema(fields=(field(1, "a", "long"), field(3, "c", "long"))),
    ]

    aligned = align_schema(Schema(fields=(field(1, "b", "long"), field(2, "d", "long"))), versions)

    assert [(f.field_id, f.name) for f in aligned.fields] == [(2, "b"), (4, "d")]


def test_a_struct_keeps_its_ids_only_when_nothing_in_it_changed() -> None:
    def with_child(kind: str, start: int) -> Schema:
        child = Struct(fields=(field(start + 1, "x", kind),))
        return Schema(fields=(Field(field_id=start, name="s", type=child), field(start + 2, "m", "long")))

    same = align_schema(with_child("long", 11), [with_child("long", 1)])
    other = align_schema(with_child("string", 11), [with_child("long", 1)])

    assert same == with_child("long", 1)
    assert sorted(other.by_id) == [3, 4, 5]
    assert is_same_shape(with_child("long", 1), with_child("long", 50))
    assert not is_same_shape(with_child("long", 1), with_child("string", 1))


def test_loosening_makes_every_field_optional_but_the_keys_of_maps() -> None:
    required = replace(field(1, "x", "long"), required=True)
    key, value = replace(field(3, "key", "string"), required=True), replace(field(4, "value", "long"), required=True)
    tree = Schema(
        fields=(
            Field(field_id=2, name="m", type=Map(key=key, value=value), required=True),
            Field(field_id=5, name="l", type=List(element=replace(required, field_id=6)), required=True),
            Field(field_id=7, name="s", type=Struct(fields=(required,)), required=True),
        )
    )

    assert {f.name for f in loosen(tree).by_id.values() if f.required} == {"key"}
