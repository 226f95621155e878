from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given

from lakebed.core.errors import SchemaRefusedError
from lakebed.core.schema.schema import MAX_DEPTH, MAX_FIELDS, Schema, hash_schema, list_obstacles, walk
from lakebed.core.schema.types import Field, List, Map, Primitive, Struct, can_promote
from strategies import primitives, schemas

if TYPE_CHECKING:
    from lakebed.core.schema.types import Type


def column(field_id: int, name: str, kind: str | Type = "long", *, required: bool = False) -> Field:
    return Field(field_id=field_id, name=name, type=Primitive.parse(kind) if isinstance(kind, str) else kind, required=required)


def table(*fields: Field) -> Schema:
    return Schema(fields=fields)


def nest(depth: int) -> Field:
    field = column(depth, "leaf")
    for level in range(depth - 1, 0, -1):
        field = column(level, "struct", Struct(fields=(field,)))
    return field


@given(schemas())
def test_a_schema_comes_back_from_its_json(schema: Schema) -> None:
    assert Schema.from_json(schema.to_json()) == schema


@given(primitives)
def test_a_type_comes_back_from_its_text(kind: Primitive) -> None:
    assert Primitive.parse(str(kind)) == kind


@pytest.mark.parametrize(
    "text", ["", "varchar", "decimal(39,0)", "decimal(0,0)", "decimal(5,6)", "fixed[-1]", "fixed[]", "Int", "int ", "decimal(\u0661,0)"]
)
def test_an_unknown_type_is_refused(text: str) -> None:
    with pytest.raises(SchemaRefusedError):
        Primitive.parse(text)


@given(schemas())
def test_a_schema_reads_what_it_wrote(schema: Schema) -> None:
    assert list_obstacles(schema, schema) == ()


@given(schemas())
def test_renaming_dropping_reordering_and_adding_optional_columns_is_allowed(schema: Schema) -> None:
    kept = [replace(field, name=f"new_{field.name}", required=False) for field in reversed(schema.fields)][: max(1, len(schema.fields) - 1)]

    later = table(*kept, column(10_000, "added"))

    assert list_obstacles(later, schema) == ()


PROMOTIONS = [
    ("int", "long"),
    ("float", "double"),
    ("decimal(9,2)", "decimal(18,2)"),
    ("decimal(9,2)", "decimal(9,2)"),
    ("fixed[4]", "fixed[4]"),
]
REFUSALS = [
    ("long", "int"), ("double", "float"), ("int", "double"), ("int", "string"), ("decimal(18,2)", "decimal(9,2)"), ("decimal(9,2)", "decimal(9,3)"),
    ("date", "timestamp"), ("timestamp", "timestamptz"), ("string", "binary"), ("fixed[4]", "fixed[8]"), ("int", "decimal(9,0)"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), PROMOTIONS)
def test_a_wider_type_reads_the_narrow_one_at_any_depth(old: str, new: str) -> None:
    narrow, wide = (List(element=column(2, "element", kind)) for kind in (old, new))

    assert list_obstacles(table(column(1, "a", new)), table(column(1, "a", old))) == ()
    assert list_obstacles(table(column(1, "a", wide)), table(column(1, "a", narrow))) == ()


@pytest.mark.parametrize(("old", "new"), REFUSALS)
def test_every_other_change_of_type_is_an_obstacle(old: str, new: str) -> None:
    assert list_obstacles(table(column(1, "a", new)), table(column(1, "a", old))) == (f"a changed from {old} to {new}",)


@given(primitives, primitives, primitives)
def test_promotion_is_transitive_and_goes_one_way(first: Primitive, second: Primitive, third: Primitive) -> None:
    if can_promote(first, second) and can_promote(second, third):
        assert can_promote(first, third)
    if can_promote(first, second) and can_promote(second, first):
        assert first == second


def test_a_required_column_is_an_obstacle_to_older_files() -> None:
    old = table(column(1, "a"))

    assert list_obstacles(table(column(1, "a", required=True)), old) == ("a was optional and is required now",)
    assert list_obstacles(table(column(1, "a"), column(2, "b", required=True)), old) == ("b was added as required",)
    assert list_obstacles(old, table(column(1, "a", required=True))) == ()


def test_a_dropped_and_added_column_of_the_same_name_is_another_column() -> None:
    assert list_obstacles(table(column(2, "a", "string")), table(column(1, "a", "long"))) == ()


def test_obstacles_are_found_inside_structs_lists_and_maps() -> None:
    def build(kind: str) -> Schema:
        key, value = column(5, "key", "string", required=True), column(6, "value", kind)
        return table(
            column(1, "s", Struct(fields=(column(2, "x", kind),))),
            column(3, "l", List(element=column(4, "element", kind))),
            column(7, "m", Map(key=key, value=value)),
        )

    assert [text.split()[0] for text in list_obstacles(build("int"), build("long"))] == ["x", "element", "value"]
    assert list_obstacles(table(column(1, "s", "int")), build("int")) == ("s changed from struct to int",)


def test_a_schema_may_be_so_deep_and_no_deeper() -> None:
    assert len(list(walk([nest(MAX_DEPTH)]))) == MAX_DEPTH
    for depth in (MAX_DEPTH + 1, 5_000):
        with pytest.raises(SchemaRefusedError, match="levels deep"):
            table(nest(depth))


def test_a_schema_has_a_maximum_number_of_fields() -> None:
    with pytest.raises(SchemaRefusedError, match=f"{MAX_FIELDS} fields"):
        table(*(column(n, f"c{n}") for n in range(MAX_FIELDS + 1)))


def test_a_schema_without_columns_is_refused() -> None:
    with pytest.raises(SchemaRefusedError, match="at least one column"):
        table()


def test_what_occurs_twice_is_refused_and_named() -> None:
    for first, second, what in (
        (column(1, "a"), column(1, "b"), "field id 1"),
        (column(1, "a"), column(2, "a"), "column name 'a'"),
        (column(1, "a"), Field(field_id=2, name="b", type=Primitive.parse("int"), physical_name="a"), "physical name 'a'"),
        (column(1, "a"), column(2, "s", Struct(fields=(column(1, "x"),))), "field id 1"),
    ):
        with pytest.raises(SchemaRefusedError, match=what):
            table(first, second)


def test_a_rename_keeps_the_physical_name() -> None:
    renamed = column(1, "a").renamed("b")

    assert (renamed.name, renamed.physical_name) == ("b", "a")
    assert Schema.from_json(table(renamed).to_json()).fields == (renamed,)


def test_a_missing_column_is_refused_with_the_ones_there_are() -> None:
    schema = table(column(1, "a"), column(2, "b"))

    assert schema.require("b").field_id == 2
    with pytest.raises(SchemaRefusedError, match="the columns are a, b"):
        schema.require("c")


@given(schemas(depth=1), schemas(depth=1))
def test_the_hash_names_schema_version_and_definition(left: Schema, right: Schema) -> None:
    assert (hash_schema(left, version=1) == hash_schema(right, version=1)) == (left == right)
    assert len({hash_schema(left, version=1), hash_schema(left, version=2), hash_schema(left, version=1, definition="SELECT 1")}) == 3


def test_a_stored_hash_never_changes() -> None:
    schema = table(column(1, "id", required=True), column(2, "amount", "decimal(9,2)"))

    assert hash_schema(schema, version=1, definition="SELECT 1") == "4d9a24756aa9a47b3ef0ddfa9a24ed67"
