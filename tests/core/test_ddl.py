"""Columns as DDL text."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.core.errors import SchemaRefusedError
from lakebed.core.schema.ddl import parse_columns
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, List, Map, Primitive, Struct

T = "shop.orders"


def types_of(text: str) -> list[str]:
    return [str(field.type) for field in parse_columns(text, table=T).fields]


def test_every_ordinary_type_is_read() -> None:
    text = """a BOOLEAN, b TINYINT, c smallint, d INT, e Integer, f BIGINT, g long, h FLOAT, i REAL, j DOUBLE, k DATE, l TIMESTAMP,
    m TIMESTAMP_NTZ, n TIMESTAMP_LTZ, o STRING, p BINARY, q DECIMAL, r DECIMAL(12), s DEC(12, 4), t NUMERIC(38,38), u VARCHAR(10), v CHAR(3)"""
    assert types_of(text) == [
        "boolean", "int", "int", "int", "int", "long", "long", "float", "float", "double", "date", "timestamptz", "timestamp", "timestamptz",
        "string", "binary", "decimal(10,0)", "decimal(12,0)", "decimal(12,4)", "decimal(38,38)", "string", "string",
    ]  # fmt: skip


def test_nested_columns_have_ids_in_the_order_of_the_text_parents_first() -> None:
    found = parse_columns("id BIGINT NOT NULL, lines ARRAY<STRUCT<sku: STRING, n INT NOT NULL>>, prices MAP<STRING, DECIMAL(9,2)>", table=T)

    string, whole = Primitive(name="string"), Primitive(name="int")
    line = Struct(fields=(Field(field_id=4, name="sku", type=string), Field(field_id=5, name="n", type=whole, required=True)))
    price = Field(field_id=8, name="value", type=Primitive(name="decimal", precision=9, scale=2))
    assert found == Schema(
        fields=(
            Field(field_id=1, name="id", type=Primitive(name="long"), required=True),
            Field(field_id=2, name="lines", type=List(element=Field(field_id=3, name="element", type=line))),
            Field(
                field_id=6,
                name="prices",
                type=Map(key=Field(field_id=7, name="key", type=string, required=True), value=price),
            ),
        )
    )


def test_quotes_comments_and_null_are_understood() -> None:
    text = "`a ``b``, c` INT COMMENT 'it''s, (a) <note>' NOT NULL, -- the second\n comment STRING NULL COMMENT \"x\", type INT NOT NULL COMMENT 'y'"
    found = parse_columns(text, table=T).fields
    assert [(field.name, field.required) for field in found] == [("a `b`, c", True), ("comment", False), ("type", True)]


WRONG = [
    ("", "at the end, character 1: expected the name of a column"),
    ("id", "at the end, character 3: expected a type"),
    ("id BIGNT", "at character 4, 'BIGNT': expected a type; did you mean bigint or int?"),
    ("id BIGINT x STRING", "at character 11, 'x STRING': expected a comma or the end"),
    ("id BIGINT,", "at the end, character 11"),
    ("id BIGINT, , x INT", "at character 12"),
    ("id BIGINT NOT x", "expected NULL after NOT"),
    ("id INTERVAL DAY", "at character 4"),
    ("id VOID", "expected a type, one of boolean"),
    ("id DECIMAL(39, 2)", "a decimal has 1 to 38 digits"),
    ("id DECIMAL(5, 6)", "a decimal has 1 to 38 digits"),
    ("id DECIMAL(x)", "at character 12, 'x)': expected a number"),
    ("id ARRAY", 'expected "<"'),
    ("id ARRAY<INT", 'at the end, character 13: expected ">"'),
    ("id MAP<INT>", "at character 11, '>': expected \",\""),
    ("id STRUCT<>", "expected the name of a column"),
    ("id INT COMMENT x", "at character 16, 'x': expected the comment in quotes"),
    ("id INT DEFAULT 3", "at character 8, 'DEFAULT 3'"),
    ("id INT; DROP TABLE x", "at character 7, '; DROP TABLE x'"),
    ("`id INT", "at character 1"),
    ("id INT, ID STRING", "occurs twice"),
    ("lakebed__x INT", "are kept for Lakebed"),
    ("a " + "ARRAY<" * 40 + "INT" + ">" * 40, "32 levels deep"),
]


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_what_cannot_be_read_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(SchemaRefusedError) as refused:
        parse_columns(text, table=T)
    assert said in str(refused.value)


@given(st.text(alphabet="ab1 <>(),:`'\"\\-\nNOTintdecimalarraymapstructnull", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(SchemaRefusedError):
        parse_columns(text, table=T)


@given(st.lists(st.sampled_from(["INT", "ARRAY<MAP<STRING, INT>>", "STRUCT<a INT NOT NULL, b: DATE>"]), min_size=1, max_size=9))
def test_ids_are_unique_at_every_depth(types: list[str]) -> None:
    schema = parse_columns(", ".join(f"c{n} {kind}" for n, kind in enumerate(types)), table=T)
    assert sorted(schema.by_id) == list(range(1, len(schema.by_id) + 1))
