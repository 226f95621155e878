"""The columns of a rollback: the old names and ids again, and every file written since can still be read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakebed.core.errors import SchemaRefusedError
from lakebed.core.schema.altering import AddColumn, Change, DropColumn, MakeOptional, RenameColumn, WidenColumn, alter
from lakebed.core.schema.restoring import list_clashes, list_lost_names, restore_fields
from lakebed.core.schema.schema import Schema, list_obstacles, walk
from lakebed.core.schema.types import Field, List, Map, Primitive, Struct

INT, LONG, STRING = Primitive(name="int"), Primitive(name="long"), Primitive(name="string")
FIRST = Schema(
    fields=(
        Field(field_id=1, name="id", type=INT, required=True),
        Field(field_id=2, name="name", type=STRING, required=True),
        Field(field_id=3, name="address", type=Struct(fields=(Field(field_id=4, name="street", type=STRING), Field(field_id=5, name="no", type=INT)))),
        Field(field_id=6, name="lines", type=List(element=Field(field_id=7, name="element", type=Struct(fields=(Field(field_id=8, name="n", type=INT),))))),
        Field(field_id=9, name="prices", type=Map(key=Field(field_id=10, name="key", type=STRING, required=True), value=Field(field_id=11, name="value", type=INT))),
    )
)  # fmt: skip


def history_of(*changes: Change) -> list[Schema]:
    """One version per change, the first one first."""
    versions = [FIRST]
    for change in changes:
        versions.append(alter(versions[-1], [change], history=versions))
    return versions


def restored(versions: list[Schema], *, to: int = 0) -> Schema:
    return Schema(fields=restore_fields(versions[to], versions[-1], history=versions))


def test_a_dropped_column_comes_back_with_its_id_and_is_optional() -> None:
    found = restored(history_of(DropColumn(column="name"))).by_id[2]
    assert (found.name, found.physical_name, found.required) == ("name", "name", False)


def test_old_names_come_back_at_every_depth_and_columns_added_since_stay_behind_them() -> None:
    versions = history_of(
        RenameColumn(column="name", to="title"), RenameColumn(column="address.street", to="road"), AddColumn(column="note", type=STRING),
        AddColumn(column="address.city", type=STRING),
    )  # fmt: skip
    found = restored(versions)
    assert [f.name for f in found.fields] == ["id", "name", "address", "lines", "prices", "note"]
    assert [f.name for f in found.by_id[3].children] == ["street", "no", "city"]
    assert list_lost_names(versions[-1], found) == ("title", "road")


def test_two_swapped_names_swap_back() -> None:
    versions = history_of(RenameColumn(column="id", to="x"), RenameColumn(column="name", to="id"), RenameColumn(column="x", to="name"))
    assert restored(versions) == FIRST
    assert list_clashes(restored(versions).fields) == ()


def test_what_was_widened_stays_wide_even_where_the_column_was_dropped_since() -> None:
    versions = history_of(
        WidenColumn(column="id", type=LONG), WidenColumn(column="address.no", type=LONG), WidenColumn(column="lines.element.n", type=LONG),
        WidenColumn(column="prices.value", type=LONG), DropColumn(column="address"),
    )  # fmt: skip
    found = restored(versions).by_id
    assert [found[field_id].type for field_id in (1, 5, 8, 11)] == [LONG] * 4


def test_required_columns_stay_required_unless_a_version_let_them_be_null() -> None:
    assert restored(history_of(AddColumn(column="note", type=STRING))).by_id[1].required
    assert not restored(history_of(MakeOptional(column="id"))).by_id[1].required


def test_a_name_that_another_column_has_now_clashes_at_every_depth() -> None:
    versions = history_of(
        DropColumn(column="name"), AddColumn(column="NAME", type=LONG), RenameColumn(column="address.street", to="road"),
        AddColumn(column="address.street", type=STRING),
    )  # fmt: skip
    clashes = list_clashes(restore_fields(FIRST, versions[-1], history=versions))
    assert [str(clash) for clash in clashes] == [
        "address.street was field 4 then and is field 13 now", "NAME was field 2 then and is field 12 now",
    ]  # fmt: skip


CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.builds(lambda c: DropColumn(column=c), st.sampled_from(["name", "address", "address.street", "lines", "prices", "a", "b"])),
    st.builds(lambda c, to: RenameColumn(column=c, to=to), st.sampled_from(["id", "name", "address", "lines", "a", "address.no"]), st.sampled_from("abc")),
    st.builds(lambda c, t: AddColumn(column=c, type=t), st.sampled_from(["a", "b", "address.a", "lines.element.a"]), st.sampled_from([INT, STRING])),
    st.builds(lambda c: WidenColumn(column=c, type=LONG), st.sampled_from(["id", "address.no", "a", "lines.element.n", "prices.value"])),
    st.builds(lambda c: MakeOptional(column=c), st.sampled_from(["id", "name"])),
)  # fmt: skip


@given(st.lists(CHANGES, max_size=12), st.data())
def test_any_history_can_be_gone_back_to_and_nothing_written_is_lost(changes: list[Change], data: st.DataObject) -> None:
    versions = [FIRST]
    for change in changes:
        try:
            versions.append(alter(versions[-1], [change], history=versions))
        except SchemaRefusedError:
            continue
    earlier = data.draw(st.sampled_from(versions))
    fields = restore_fields(earlier, versions[-1], history=versions)
    if list_clashes(fields):
        return
    found = Schema(fields=fields)

    assert [obstacle for version in versions for obstacle in list_obstacles(found, version)] == []
    assert {f.field_id: (f.name, f.physical_name) for f in walk(earlier.fields)}.items() <= {
        f.field_id: (f.name, f.physical_name) for f in walk(found.fields)
    }.items()
    assert {f.field_id for f in versions[-1].fields} <= found.by_id.keys()
