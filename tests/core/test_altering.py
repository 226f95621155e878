"""Changes of columns: what they give, what they refuse, and that nothing written before loses its meaning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.core.errors import SchemaRefusedError
from lakebed.core.schema.altering import AddColumn, Change, DropColumn, MakeOptional, RenameColumn, WidenColumn, alter, list_needed
from lakebed.core.schema.schema import Schema, list_obstacles, walk
from lakebed.core.schema.types import Field, List, Map, Primitive, Struct
from strategies import schemas

INT, LONG, STRING = Primitive(name="int"), Primitive(name="long"), Primitive(name="string")
SHOP = Schema(
    fields=(
        Field(field_id=1, name="id", type=INT, required=True),
        Field(field_id=2, name="ts", type=Primitive(name="timestamptz")),
        Field(field_id=3, name="address", type=Struct(fields=(Field(field_id=4, name="street", type=STRING, required=True),))),
        Field(field_id=5, name="lines", type=List(element=Field(field_id=6, name="element", type=Struct(fields=(Field(field_id=7, name="n", type=INT),))))),
        Field(field_id=8, name="prices", type=Map(key=Field(field_id=9, name="key", type=INT, required=True), value=Field(field_id=10, name="value", type=INT))),
        Field(field_id=11, name="a.b", type=STRING),
    )
)  # fmt: skip


def changed(*changes: Change, schema: Schema = SHOP, history: tuple[Schema, ...] = ()) -> dict[int, Field]:
    altered = alter(schema, changes, history=history)
    assert not list_obstacles(altered, schema)
    return altered.by_id


def test_columns_are_added_at_any_depth_with_ids_never_used_before() -> None:
    old = Schema(fields=(*SHOP.fields, Field(field_id=40, name="note", type=LONG)))

    found = changed(
        AddColumn(column="note", type=STRING), AddColumn(column="address.city", type=STRING),
        AddColumn(column="lines.element.price", type=Struct(fields=(Field(field_id=1, name="cents", type=LONG),))), history=(old,),
    )  # fmt: skip

    assert {i: (f.name, f.physical_name, f.required) for i, f in found.items() if i > 11} == {
        41: ("note", "note_41", False), 42: ("city", "city", False), 43: ("price", "price", False), 44: ("cents", "cents", False),
    }  # fmt: skip


def test_names_types_and_requirements_change_and_ids_stay() -> None:
    found = changed(
        RenameColumn(column="ID", to="number"), WidenColumn(column="number", type=LONG), MakeOptional(column="number"),
        RenameColumn(column="address.street", to="road"), WidenColumn(column="lines.element.n", type=LONG),
        WidenColumn(column="prices.value", type=LONG), DropColumn(column="a.b"),
    )  # fmt: skip

    assert (found[1].name, found[1].physical_name, found[1].type, found[1].required) == ("number", "id", LONG, False)
    assert (found[4].name, found[4].physical_name) == ("road", "street")
    assert (found[7].type, found[10].type, 11 in found) == (LONG, LONG, False)


def test_two_columns_swap_their_names_in_one_call() -> None:
    found = changed(RenameColumn(column="id", to="x"), RenameColumn(column="ts", to="id"), RenameColumn(column="x", to="ts"))

    assert (found[1].name, found[2].name) == ("ts", "id")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (DropColumn(column="nothing"), "there is no column 'nothing': the columns are id, ts"),
        (RenameColumn(column="id", to="TS"), "occurs twice"),
        (RenameColumn(column="id", to="ts"), "occurs twice"),
        (RenameColumn(column="id", to="id"), "the table already has this schema"),
        (RenameColumn(column="id", to=""), "illegal name"),
        (RenameColumn(column="id", to="lakebed__key"), "kept for Lakebed"),
        (RenameColumn(column="address.street", to="address.road"), "only the last part"),
        (AddColumn(column="_lakebed_instance", type=STRING), "kept for Lakebed"),
        (AddColumn(column="Id", type=STRING), "occurs twice"),
        (AddColumn(column="id.x", type=STRING), "id is int, only a struct has columns"),
        (AddColumn(column="lines.x", type=STRING), "lines is list, only a struct has columns"),
        (WidenColumn(column="id", type=STRING), "it is int, and values are only promoted from int to long"),
        (WidenColumn(column="address", type=LONG), "it is struct"),
        (WidenColumn(column="prices.key", type=LONG), "the keys of prices cannot be changed"),
        (DropColumn(column="address.street"), "drop address itself"),
        (DropColumn(column="prices.value"), "can be neither dropped nor renamed"),
        (RenameColumn(column="lines.element", to="line"), "can be neither dropped nor renamed"),
        (MakeOptional(column="ts"), "the table already has this schema"),
    ],
)
def test_a_change_that_cannot_be_is_refused_with_its_reason(change: Change, reason: str) -> None:
    with pytest.raises(SchemaRefusedError, match=reason):
        alter(SHOP, [change], history=[])


def test_no_change_at_all_and_the_last_column_are_refused() -> None:
    one = Schema(fields=SHOP.fields[:1])

    with pytest.raises(SchemaRefusedError, match="no change is named"):
        alter(SHOP, [], history=[])
    with pytest.raises(SchemaRefusedError, match="at least one column"):
        alter(one, [DropColumn(column="id")], history=[])


def test_what_the_settings_name_is_needed_under_whatever_name() -> None:
    renamed = alter(SHOP, [RenameColumn(column="id", to="number"), AddColumn(column="id", type=LONG)], history=[])

    needed = list_needed(renamed, event_time=2, partition_by=["bucket(4, id)"], sort_by=["a.b"])

    assert needed == {1: "the table is partitioned by bucket(4, id)", 2: "it is the event time", 11: "the table is sorted by it"}


@given(schemas(), st.data())
def test_any_column_can_be_renamed_or_dropped_without_stranding_a_row(schema: Schema, data: st.DataObject) -> None:
    column = data.draw(st.sampled_from([f.name for f in schema.fields]))
    offered: list[Change] = [RenameColumn(column=column, to="quite another"), DropColumn(column=column)]
    change = data.draw(st.sampled_from(offered))
    try:
        altered = alter(schema, [change], history=[])
    except SchemaRefusedError:
        return  # names that Spark takes for one, or the last column

    assert not list_obstacles(altered, schema)
    known = schema.by_id
    assert all(known[f.field_id].physical_name == f.physical_name for f in walk(altered.fields))
