"""Changing columns by one call each: a new version, every partition visible, every engine reads old and new rows under the new names."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from builders import DAILY, ORDERS, SCHEMA, count, fake_file, logical_dump, make_table, make_view, publish, write_partition
from ice import ROWS, SHOP, IceLake
from lakebed.admin import add_column, alter_table, drop_column, list_columns, make_column_optional, rename_column, widen_column
from lakebed.core.errors import InvalidValueError, SchemaRefusedError, TableNotFoundError
from lakebed.core.schema.altering import AddColumn, Change, DropColumn, RenameColumn, WidenColumn
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, Primitive
from lakebed.registry.maintenance.runs import list_runs
from lakebed.registry.snapshots.history import list_snapshots
from lakebed.registry.tables.lake_tables import TableSpec, create_table, require_table
from lakebed.registry.tables.versions import list_versions

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.lake import Lake
    from lakebed.registry.registry import Registry

NAME = str(ORDERS)


def column_names(registry: Registry) -> list[str]:
    return [f.name for f in require_table(registry, ORDERS).schema.fields]


def test_each_change_is_a_version_and_rows_partitions_and_counters_stay(registry: Registry) -> None:
    table = make_table(registry)
    publish(registry, table, fake_file(1), fake_file(2))
    before = require_table(registry, ORDERS).row

    done = [
        add_column(registry, NAME, "note", "string"),
        rename_column(registry, NAME, "amount", "price"),
        add_column(registry, NAME, "tags", pa.list_(pa.string())),
        drop_column(registry, NAME, "note"),
    ]

    assert column_names(registry) == ["id", "ts", "price", "tags"]
    assert [one.schema_version for one in done] == [2, 3, 4, 5]
    row = require_table(registry, ORDERS).row
    assert (row.row_count, row.file_count, row.total_size) == (before.row_count, before.file_count, before.total_size) == (200, 2, 40_000)
    assert require_table(registry, ORDERS).schema_hash == done[-1].schema_hash
    with registry.read() as reader:
        assert [v.standing for v in list_versions(reader, row.id)] == [*["readable"] * 4, "serving"]
    publish(registry, table, fake_file(3))  # a writer that began before goes on under the version it knows
    assert require_table(registry, ORDERS).row.row_count == 300


def test_columns_are_listed_with_what_the_table_needs_them_for(registry: Registry) -> None:
    spec = TableSpec(name=ORDERS, schema=SCHEMA, event_time="ts", partition_by=("day(ts)",), sort_by=("amount", "id"), index=("id",))
    create_table(registry, spec)
    rename_column(registry, NAME, "amount", "price")
    add_column(registry, NAME, "place", pa.struct([pa.field("city", pa.string())]))

    rows = list_columns(registry, NAME)

    assert [(row.name, row.type, row.role) for row in rows] == [
        ("id", "long", "sort, index"), ("ts", "timestamptz", "event_time, partition"), ("price", "double", "sort"), ("place", "struct", ""),
        ("place.city", "string", ""),
    ]  # fmt: skip
    assert [(row.field_id, row.nullable) for row in rows] == [(1, True), (2, True), (3, True), (4, True), (5, True)]
    assert rows.to_arrow().num_rows == 5
    with pytest.raises(TableNotFoundError, match=r"did you mean shop\.orders"):
        list_columns(registry, "shop.ordes")


def test_several_changes_are_one_version_or_none(registry: Registry) -> None:
    make_table(registry)
    before = logical_dump(registry)

    with pytest.raises(SchemaRefusedError, match=r"shop\.orders: there is no column 'nothing'"):
        alter_table(registry, NAME, RenameColumn(column="id", to="number"), DropColumn(column="nothing"))
    assert logical_dump(registry) == before

    done = alter_table(
        registry, NAME, RenameColumn(column="id", to="x"), RenameColumn(column="amount", to="id"), RenameColumn(column="x", to="amount"),
        actor="ann",
    )  # fmt: skip

    assert (done.schema_version, column_names(registry)) == (2, ["amount", "ts", "id"])
    run = list_runs(registry, job="alter")[0]
    assert (run.actor, run.state, run.plan["changes"][0], run.result["schema_version"]) == ("ann", "done", "rename id to x", 2)


def test_a_preview_shows_the_columns_and_changes_nothing(registry: Registry) -> None:
    make_table(registry)
    before = logical_dump(registry)

    reported = add_column(registry, NAME, "note", "decimal(10, 2)", dry_run=True)

    assert [f.name for f in reported.schema.fields] == ["id", "ts", "amount", "note"]
    assert (reported.dry_run, reported.schema_version, reported.changes) == (True, 2, ("add note (decimal(10,2))",))
    assert logical_dump(registry) == before


@pytest.mark.parametrize(
    ("column", "reason"),
    [("ts", "it is the event time"), ("id", r"the table is partitioned by bucket\(4, id\)"), ("amount", "the table is sorted by it")],
)
def test_a_column_that_the_table_is_laid_out_by_is_not_dropped_even_when_renamed(registry: Registry, column: str, reason: str) -> None:
    create_table(registry, TableSpec(name=ORDERS, schema=SCHEMA, event_time="ts", partition_by=("bucket(4, id)",), sort_by=("amount",)))
    rename_column(registry, NAME, column, "other")
    before = logical_dump(registry)

    for dry_run in (True, False):
        with pytest.raises(SchemaRefusedError, match=f"other cannot be dropped: {reason}"):
            drop_column(registry, NAME, "other", dry_run=dry_run)

    assert logical_dump(registry) == before


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"partition_by": ("day(nothing)",)}, "there is no column 'nothing'"),
        ({"partition_by": ("day(amount)",)}, "cannot partition"),
        ({"sort_by": ("nothing",)}, "there is no column 'nothing'"),
    ],
)
def test_a_table_laid_out_by_what_it_does_not_have_is_refused(registry: Registry, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(SchemaRefusedError, match=reason):
        create_table(registry, TableSpec(name=ORDERS, schema=SCHEMA, **settings))

    assert count(registry, "tables") == 0


def test_types_are_widened_and_requirements_lifted(registry: Registry) -> None:
    narrow = Schema(fields=(Field(field_id=1, name="n", type=Primitive(name="int"), required=True),))
    create_table(registry, TableSpec(name=ORDERS, schema=narrow, index=("n",)))

    widen_column(registry, NAME, "n", pa.int64())
    make_column_optional(registry, NAME, "n")

    assert require_table(registry, ORDERS).schema.fields == (Field(field_id=1, name="n", type=Primitive(name="long")),)
    with pytest.raises(SchemaRefusedError, match="only plain columns can be widened"):
        widen_column(registry, NAME, "n", pa.list_(pa.int64()))
    with pytest.raises(SchemaRefusedError, match="values are only promoted"):
        widen_column(registry, NAME, "n", "int")


def test_anything_but_a_plain_table_and_a_type_is_refused(registry: Registry) -> None:
    make_table(registry)
    make_view(registry)

    with pytest.raises(InvalidValueError, match=r"shop\.daily is a view set.*create_view_set"):
        drop_column(registry, str(DAILY), "amount")
    with pytest.raises(TableNotFoundError):
        drop_column(registry, "shop.nothing", "amount")
    with pytest.raises(SchemaRefusedError, match="type 'text' is not supported"):
        add_column(registry, NAME, "note", "text")
    with pytest.raises(InvalidValueError, match="invalid type 7"):
        add_column(registry, NAME, "note", 7)


def test_changes_of_two_processes_at_once_are_all_kept(registry: Registry, another: Callable[[], Registry]) -> None:
    make_table(registry)
    doors = [registry, another()]

    def add(n: int) -> None:
        for i in range(5):
            alter_table(doors[n], NAME, AddColumn(column=f"c{n}_{i}", type=Primitive(name="long")))

    threads = [threading.Thread(target=add, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    schema = require_table(registry, ORDERS).schema
    assert {f.name for f in schema.fields} == {"id", "ts", "amount", *(f"c{n}_{i}" for n in range(2) for i in range(5))}
    assert sorted(schema.by_id) == list(range(1, 14))


def test_a_dropped_index_column_leaves_a_table_that_works(lake: Lake) -> None:
    make_table(lake.registry)  # indexed by id
    write_partition(lake, 1)
    drop_column(lake.registry, NAME, "id")

    with lake.writing(NAME) as writing:
        published = writing.publish()

    assert published.file_count == 0
    assert lake.check().clean


def test_other_engines_read_old_and_new_rows_under_the_new_names(ice: IceLake) -> None:
    ice.create(
        schema=Schema(fields=(Field(field_id=1, name="id", type=Primitive(name="int")), *SHOP.fields[1:])), partition_by=("country",)
    )
    ice.insert(1)

    changes: list[Change] = [
        RenameColumn(column="country", to="nation"),
        WidenColumn(column="id", type=Primitive(name="long")),
        DropColumn(column="amount"),
        AddColumn(column="amount", type=Primitive(name="string")),
    ]
    for change in changes:
        ice.lake.columns.alter(NAME, change)
        ice.advance()
    ice.insert(3_000_000)

    read = ice.static().scan().to_arrow().sort_by("id")
    assert read.column_names == ["id", "ts", "nation", "amount"]
    assert read["id"].to_pylist() == [*range(1000, 1000 + ROWS), *range(3_000_000_000, 3_000_000_000 + ROWS)]
    assert (read["nation"].to_pylist(), read["amount"].to_pylist()) == (["DE"] * 2 * ROWS, [None] * 2 * ROWS)
    with pytest.raises(SchemaRefusedError, match="nation cannot be dropped: the table is partitioned by country"):
        ice.lake.columns.drop(NAME, "nation")
    ice.insert(4)
    ice.require_true()


def test_a_partition_source_is_widened_and_its_paths_keep_their_meaning(ice: IceLake) -> None:
    narrow = Schema(fields=(Field(field_id=1, name="id", type=Primitive(name="int")), *SHOP.fields[1:]))
    ice.create(schema=narrow, partition_by=("truncate(1000000, id)", "bucket(4, country)"))
    ice.insert(1)

    ice.lake.columns.widen(NAME, "id", "long")
    ice.advance()
    ice.insert(3_000_000)

    assert {f.partition_path.split("/")[0] for f in ice.lake.files.list(NAME)} == {"id_trunc=0", "id_trunc=3000000000"}
    assert ice.static().scan(row_filter="id < 1005").to_arrow().num_rows == 5
    assert len(list(ice.static().scan(row_filter="id >= 3000000000").plan_files())) == 1
    ice.require_true()


def test_a_service_carries_a_changed_schema_to_iceberg_by_itself(lake: Lake) -> None:
    make_table(lake.registry)
    with lake.service():
        write_partition(lake, 1)
        lake.columns.rename(NAME, "amount", "price")
        lake.columns.add(NAME, "note", "string")
        assert lake.drain(timeout_s=30)
        write_partition(lake, 2)
        assert lake.snapshot(NAME, timeout_s=30) is not None

    with lake.registry.read() as reader:
        newest = max(list_snapshots(reader, lake.table(NAME).table_id), key=lambda s: s.sequence_number)
    read = StaticTable.from_metadata(str(newest.metadata_location)).scan().to_arrow()
    assert (read.column_names, read.num_rows) == (["id", "ts", "price", "note"], 100)
    assert read["price"].null_count == 0
    assert lake.check().clean
