"""What rows of another shape need of a table, and what the table becomes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from lakebed.core.errors import SchemaRefusedError
from lakebed.core.schema.evolution import evolve, require_fit
from lakebed.core.schema.schema import Schema, list_obstacles, walk
from lakebed.core.schema.types import Field, List, Map, Primitive, Struct, Type
from strategies import schemas

LONG, INT, TEXT = Primitive(name="long"), Primitive(name="int"), Primitive(name="string")


def fields(**columns: Type) -> tuple[Field, ...]:
    return tuple(Field(field_id=n, name=name, type=kind) for n, (name, kind) in enumerate(columns.items(), 1))


def shape(**columns: Type) -> Schema:
    """Ids of rows mean nothing, so they may as well repeat those of the table."""
    return Schema(fields=fields(**columns))


def test_every_difference_is_named_at_once() -> None:
    table = Schema(fields=(Field(field_id=1, name="id", type=LONG, required=True), Field(field_id=2, name="note", type=TEXT)))

    with pytest.raises(SchemaRefusedError) as refused:
        require_fit("shop.orders", table, shape(note=LONG, extra=INT))

    message = str(refused.value)
    assert "shop.orders cannot take these rows" in message
    assert "column 'id' (long) is required and missing" in message
    assert "column 'note' is long, the table says string" in message
    assert "column 'extra' (int) is not in the table" in message
    assert "int to long, float to double" in message


@pytest.mark.parametrize(
    ("rows", "table"), [("int", "long"), ("float", "double"), ("decimal(9,2)", "decimal(12,2)"), ("binary", "uuid"), ("binary", "fixed[3]")]
)
def test_allowed_promotions_fit(rows: str, table: str) -> None:
    require_fit("t", shape(c=Primitive.parse(table)), shape(C=Primitive.parse(rows)))


@pytest.mark.parametrize(
    ("rows", "table"),
    [("long", "int"), ("double", "float"), ("decimal(9,2)", "decimal(12,3)"), ("int", "string"), ("date", "timestamp"), ("int", "double")],
)
def test_everything_else_is_refused(rows: str, table: str) -> None:
    with pytest.raises(SchemaRefusedError, match=r"column 'c' is .*, the table says"):
        require_fit("t", shape(c=Primitive.parse(table)), shape(c=Primitive.parse(rows)))


def test_a_missing_optional_column_fits() -> None:
    require_fit("t", shape(a=LONG, b=TEXT), shape(a=LONG))


def test_new_columns_get_ids_that_no_version_had() -> None:
    first = Schema(fields=(*fields(id=LONG), Field(field_id=7, name="gone", type=TEXT)))
    table = shape(id=LONG)

    grown = evolve("t", table, shape(id=LONG, note=TEXT, place=Struct(fields=(Field(field_id=90, name="x", type=INT),))), history=[first])

    assert [(f.name, f.field_id) for f in walk(grown.fields)] == [("id", 1), ("note", 8), ("place", 9), ("x", 10)]
    assert not grown.fields[1].required


def test_a_dropped_name_comes_back_under_another_physical_name() -> None:
    first = Schema(fields=(*fields(id=LONG), Field(field_id=2, name="note", type=TEXT)))

    grown = evolve("t", shape(id=LONG), shape(id=LONG, note=LONG), history=[first])

    assert (grown.fields[1].name, grown.fields[1].physical_name, grown.fields[1].field_id) == ("note", "note_3", 3)


def test_nested_fields_grow_inside_structs_lists_and_maps() -> None:
    inner = Struct(fields=(Field(field_id=20, name="a", type=INT),))
    table = Schema(
        fields=(
            Field(field_id=1, name="s", type=inner),
            Field(field_id=2, name="l", type=List(element=Field(field_id=3, name="element", type=INT))),
            Field(
                field_id=4,
                name="m",
                type=Map(key=Field(field_id=5, name="key", type=TEXT, required=True), value=Field(field_id=6, name="value", type=INT)),
            ),
        )
    )
    rows = shape(
        s=Struct(fields=(Field(field_id=91, name="A", type=LONG), Field(field_id=92, name="b", type=TEXT))),
        l=List(element=Field(field_id=93, name="element", type=LONG)),
        m=Map(key=Field(field_id=94, name="key", type=TEXT, required=True), value=Field(field_id=95, name="value", type=LONG)),
    )

    grown = evolve("t", table, rows, history=[])

    by_id = grown.by_id
    assert (by_id[20].type, by_id[3].type, by_id[6].type) == (LONG, LONG, LONG)
    assert (by_id[21].name, by_id[21].type) == ("b", TEXT)
    assert list_obstacles(grown, table) == ()


def test_a_table_that_takes_the_rows_already_stays_itself() -> None:
    table = shape(a=LONG, b=TEXT)

    assert evolve("t", table, shape(a=INT), history=[table]) is table


def test_a_change_that_no_promotion_allows_is_refused_even_when_evolving() -> None:
    with pytest.raises(SchemaRefusedError, match="column 'a' is string, the table says long"):
        evolve("t", shape(a=LONG), shape(a=TEXT, b=TEXT), history=[])


@settings(max_examples=50)
@given(schemas(), schemas())
def test_an_evolved_table_reads_what_was_written_before(table: Schema, rows: Schema) -> None:
    try:
        grown = evolve("t", table, rows, history=[table])
    except SchemaRefusedError:
        return

    assert list_obstacles(grown, table) == ()
    assert {f.field_id: f.physical_name for f in walk(table.fields)}.items() <= {
        f.field_id: f.physical_name for f in walk(grown.fields)
    }.items()
