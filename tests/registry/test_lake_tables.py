"""Lake tables: made once per name, evolved without stranding a partition, staged, promoted and dropped."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from builders import (
    DAILY,
    ORDERS,
    SCHEMA,
    START,
    fake_file,
    grow_schema,
    logical_dump,
    make_table,
    make_view,
    promote,
    publish,
    stage,
    within,
)
from lakebed.core.errors import InvalidValueError, SchemaRefusedError, TableExistsError, TableNotFoundError
from lakebed.core.names import TableName
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, Primitive
from lakebed.registry.tables.groups import list_files_at_group
from lakebed.registry.tables.lake_tables import TableSpec, create_table, drop_table, find_table, list_tables, require_table
from lakebed.registry.tables.versions import evolve_schema, list_versions, set_properties, stage_version

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.registry.registry import Registry

STRING = Primitive(name="string")


def standings(registry: Registry, table_id: int) -> list[str]:
    with registry.read() as reader:
        return [version.standing for version in list_versions(reader, table_id)]


def test_a_table_is_found_as_it_was_made(registry: Registry) -> None:
    spec = TableSpec(name=ORDERS, schema=SCHEMA, event_time="ts", partition_by=("day(ts)",), index=("amount",), properties={"retention": 5})

    made = create_table(registry, spec)

    assert find_table(registry, ORDERS) == made
    assert (made.schema, made.indexed, made.row.event_time_field) == (SCHEMA, (2, 3), 2)
    assert (json.loads(made.metadata.partition_by), json.loads(made.metadata.properties)["retention"]) == (["day(ts)"], 5)


def test_a_name_is_taken_once(registry: Registry) -> None:
    make_table(registry)
    before = logical_dump(registry)

    with pytest.raises(TableExistsError, match=r"shop\.orders exists already"):
        make_table(registry)

    assert logical_dump(registry) == before


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"event_time": "nothing"}, "there is no column 'nothing'"),
        ({"event_time": "amount"}, "must be a timestamp, date or long"),
        ({"index": ("text",)}, "column text cannot be indexed"),
        ({"index": tuple(f"n{i}" for i in range(9))}, "at most 8 columns"),
    ],
)
def test_a_table_that_could_not_work_is_refused(registry: Registry, changes: dict[str, object], reason: str) -> None:
    extra = (
        *(Field(field_id=10 + i, name=f"n{i}", type=Primitive(name="int")) for i in range(9)),
        Field(field_id=5, name="text", type=STRING),
    )
    spec = TableSpec(name=ORDERS, schema=Schema(fields=(*SCHEMA.fields, *extra)))

    with pytest.raises(SchemaRefusedError, match=reason):
        create_table(registry, replace(spec, **changes))  # type: ignore[arg-type]

    assert list_tables(registry) == []


def test_a_dropped_table_is_gone_and_its_name_is_free(registry: Registry) -> None:
    old = make_table(registry)

    within(registry, lambda tx: drop_table(tx, ORDERS))

    assert find_table(registry, ORDERS) is None
    with pytest.raises(TableNotFoundError):
        publish(registry, old, fake_file(1))
    assert make_table(registry).table_id > old.table_id


def test_a_table_that_another_process_dropped_can_be_made_again(registry: Registry, another: Callable[[], Registry]) -> None:
    one, other = registry, another()
    old = make_table(one)
    publish(one, old, fake_file(1))
    within(other, lambda tx: drop_table(tx, ORDERS))

    made = make_table(one)

    assert publish(one, made, fake_file(2)).table_id == made.table_id


def test_a_table_that_another_process_created_again_is_the_one_that_is_written_to(
    registry: Registry, another: Callable[[], Registry]
) -> None:
    one, other = registry, another()
    old = make_table(one)
    publish(one, old, fake_file(1))
    within(other, lambda tx: drop_table(tx, ORDERS))
    made = make_table(other)

    done = publish(one, made, fake_file(2))

    assert done.table_id == made.table_id


def test_a_grown_schema_serves_and_the_earlier_one_stays_readable(registry: Registry) -> None:
    table = make_table(registry)

    later = grow_schema(registry)

    served = require_table(registry, ORDERS)
    assert served.schema_hash == later != table.schema_hash
    assert standings(registry, table.table_id) == ["readable", "serving"]
    assert served.indexed == table.indexed


@pytest.mark.parametrize(
    ("field", "obstacle"),
    [
        (Field(field_id=1, name="id", type=STRING), "id changed from long to string"),
        (Field(field_id=1, name="id", type=Primitive(name="long"), required=True), "id was optional and is required now"),
        (Field(field_id=1, name="id", type=Primitive(name="long"), physical_name="other"), "field 1 was written as id, never as other"),
    ],
)
def test_a_schema_that_would_strand_files_is_refused_with_the_obstacle(registry: Registry, field: Field, obstacle: str) -> None:
    make_table(registry)
    before = logical_dump(registry)

    with pytest.raises(SchemaRefusedError, match=obstacle):
        within(registry, lambda tx: evolve_schema(tx, ORDERS, Schema(fields=(field, *SCHEMA.fields[1:]))))

    assert logical_dump(registry) == before


def test_reverting_a_schema_never_revives_its_old_hash(registry: Registry) -> None:
    table = make_table(registry)
    grow_schema(registry)

    reverted = within(registry, lambda tx: evolve_schema(tx, ORDERS, SCHEMA))

    assert reverted != table.schema_hash
    assert standings(registry, table.table_id) == ["readable", "readable", "serving"]


def test_a_staged_definition_serves_only_after_promotion(registry: Registry) -> None:
    view = make_view(registry)
    staged = stage(registry)
    assert require_table(registry, DAILY).schema_hash == view.schema_hash

    promote(registry, staged)

    assert require_table(registry, DAILY).schema_hash == staged
    assert standings(registry, view.table_id) == ["incompatible", "serving"]


def test_a_newer_staged_definition_replaces_the_older_one(registry: Registry) -> None:
    view = make_view(registry)
    first = stage(registry, definition="SELECT 2")
    second = stage(registry, definition="SELECT 3")

    with pytest.raises(InvalidValueError, match=r"shop\.daily has no staged version"):
        promote(registry, first)
    promote(registry, second)

    assert standings(registry, view.table_id) == ["incompatible", "incompatible", "serving"]


def test_promotion_changes_files_in_one_group(registry: Registry) -> None:
    view = make_view(registry)
    old = publish(registry, view, fake_file(1), hours=(0, 1))
    staged = stage(registry)
    made = publish(registry, view, fake_file(2), hours=(0, 1), schema_hash=staged)
    publish(registry, view, fake_file(3), hours=(1, 2), replacing=frozenset())

    group = promote(registry, staged)

    assert {f.id for f in list_files_at_group(registry, view.table_id, group)} == set(made.file_ids)
    assert old.first_file_id not in {f.id for f in list_files_at_group(registry, view.table_id, group)}


def test_partitions_of_a_demoted_version_are_refused(registry: Registry) -> None:
    view = make_view(registry)
    promote(registry, stage(registry))

    with pytest.raises(SchemaRefusedError, match="no longer served or staged"):
        publish(registry, view, fake_file(1), hours=(0, 1))


def test_settings_are_merged_and_a_none_removes_one(registry: Registry) -> None:
    make_table(registry)

    within(registry, lambda tx: set_properties(tx, ORDERS, {"a": 1, "b": 2}))
    within(registry, lambda tx: set_properties(tx, ORDERS, {"a": None, "c": 3}))

    properties = json.loads(require_table(registry, ORDERS).metadata.properties)
    assert {key: properties.get(key) for key in "abc"} == {"a": None, "b": 2, "c": 3}
    assert require_table(registry, ORDERS).indexed == (2, 1)


def test_tables_are_listed_by_name(registry: Registry) -> None:
    for name in ("b.x", "a.y", "a.x"):
        make_table(registry, TableName.parse(name))

    assert [f"{t.database}.{t.name}" for t in list_tables(registry)] == ["a.x", "a.y", "b.x"]
    assert all(t.created_at.tzinfo is START.tzinfo for t in list_tables(registry))


def test_staging_an_unknown_table_is_refused(registry: Registry) -> None:
    make_table(registry)

    with pytest.raises(TableNotFoundError):
        within(registry, lambda tx: stage_version(tx, DAILY, SCHEMA, definition="SELECT 1"))
