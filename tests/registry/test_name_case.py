"""Names that differ in case alone are one name, as in Spark's catalog; pairs of older lakes are found by their exact names."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders import DAILY, ORDERS, SCHEMA, START, make_table, make_view, write_partition
from lakebed.core.errors import LakebedError, TableExistsError, TableNotFoundError
from lakebed.core.names import TableName
from lakebed.legacy.plan import name_tables
from lakebed.pipeline.sql.functions.answers import answer, bind_arguments
from lakebed.registry.tables.lake_tables import TableSpec, add_table, create_table, list_tables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lakebed.lake import Lake
    from lakebed.registry.registry import Registry

NAME, OTHER = str(ORDERS), "SHOP.Orders"
CAPITAL = TableName("Shop", "Orders")


@pytest.mark.parametrize("kind", ["table", "view_set"])
def test_a_second_spelling_of_a_name_is_refused(registry: Registry, kind: str) -> None:
    make_table(registry)

    with pytest.raises(TableExistsError, match=r"Shop\.Orders exists already as shop\.orders") as refused:
        create_table(registry, TableSpec(name=CAPITAL, schema=SCHEMA, kind=kind, definition="SELECT 1"))

    assert (refused.value.table, refused.value.found) == ("Shop.Orders", NAME)
    assert len(list_tables(registry)) == 1


def test_of_creators_in_a_race_one_wins_whatever_the_spelling(registry: Registry, another: Callable[[], Registry]) -> None:
    spellings = [TableName("shop", name) for name in ("orders", "Orders", "ORDERS", "oRDERS")]
    places = [registry, *(another() for _ in spellings[1:])]
    for number in range(5):
        start = Barrier(len(spellings))

        def create(place: Registry, name: TableName, start: Barrier = start, number: int = number) -> bool:
            start.wait()
            try:
                create_table(place, TableSpec(name=TableName(name.database, f"{name.name}{number}"), schema=SCHEMA))
            except TableExistsError:
                return False
            return True

        with ThreadPoolExecutor(len(spellings)) as pool:
            assert sorted(pool.map(create, places, spellings)) == [False, False, False, True]
    assert len(list_tables(registry)) == 5


def test_the_name_of_a_dropped_table_is_free_in_any_case(lake: Lake) -> None:
    make_table(lake.registry)
    lake.tables.drop(OTHER, dry_run=False)
    lake.create_table(OTHER, SCHEMA)
    assert str(lake.table(NAME).name) == OTHER
    assert lake.check().clean


def test_every_look_up_ignores_case_and_answers_with_the_name_as_it_is(lake: Lake) -> None:
    make_table(lake.registry)
    write_partition(lake, 1)
    write_partition(lake, 2)

    assert str(lake.table(OTHER).name) == NAME
    assert lake.files.plan(OTHER).paths == lake.files.plan(NAME).paths != []
    assert lake.list_partitions(OTHER) == lake.list_partitions(NAME)
    assert lake.files.list(OTHER) == lake.files.list(NAME)
    assert lake.snapshots(OTHER) == []
    lake.tables.configure(OTHER, retire_after="9000d")
    lake.columns.rename(OTHER, "amount", "price")
    assert lake.compact(OTHER).table == NAME
    assert lake.retire_partitions(OTHER, insert_begin=START, insert_end=START + timedelta(hours=1)).outcomes == []
    with lake.writing(OTHER) as writing:
        path = writing.new_path()
    assert "/shop/orders/" in path or "orders" in path
    assert lake.repair(OTHER).clean
    assert lake.tables.drop(OTHER).table == NAME


def test_sql_functions_ignore_case(lake: Lake) -> None:
    make_table(lake.registry)
    write_partition(lake, 1)
    rows = answer(lake.registry, lake.storage, "list_partitions", bind_arguments("list_partitions", [OTHER], {}))
    assert rows.num_rows == 1


def test_adopting_under_another_spelling_adds_to_the_table(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "from" / "a.parquet")
    lake.tables.adopt(NAME, str(tmp_path / "from"))
    pq.write_table(pa.table({"id": [2]}), tmp_path / "from" / "b.parquet")

    lake.tables.adopt(OTHER, str(tmp_path / "from"))

    assert [(table.name, table.row_count) for table in lake.tables.list()] == [("orders", 2)]


def test_older_view_sets_that_differ_in_case_alone_get_no_table_of_one_name() -> None:
    assert name_tables(["Orders", "orders", "other"], database="old", names={}) == {"other": TableName("old", "other")}


def test_a_view_set_that_a_query_spells_otherwise_keeps_its_source_from_being_dropped(lake: Lake) -> None:
    make_table(lake.registry)
    make_view(lake.registry)
    assert str(lake.table("Shop.DAILY").name) == str(DAILY)


@pytest.fixture
def pair(lake: Lake) -> Lake:
    """As programs made it before such names were refused."""
    make_table(lake.registry)
    write_partition(lake, 1)
    with lake.registry.write() as tx:
        add_table(tx, TableSpec(name=CAPITAL, schema=SCHEMA))
    return lake


def test_a_pair_is_found_by_its_exact_names_and_the_check_warns(pair: Lake) -> None:
    assert [str(pair.table(name).name) for name in (NAME, "Shop.Orders")] == [NAME, "Shop.Orders"]
    assert (len(pair.list_partitions(NAME)), len(pair.list_partitions("Shop.Orders"))) == (1, 0)
    pair.tables.configure("Shop.Orders", properties={"owner": "ann"})
    assert "owner" not in pair.table(NAME).metadata.properties

    found = {(finding.rule, str(finding.severity), finding.table) for finding in pair.check().findings}

    assert found == {("table_name_case", "warning", NAME), ("table_name_case", "warning", "Shop.Orders")}


def test_a_third_spelling_of_a_pair_is_refused_with_both(pair: Lake) -> None:
    with pytest.raises(TableNotFoundError) as refused:
        pair.table("SHOP.ORDERS")
    assert set(refused.value.near) == {NAME, "Shop.Orders"}
    with pytest.raises(TableExistsError):
        pair.create_table("SHOP.ORDERS", SCHEMA)
    pair.tables.drop("Shop.Orders", dry_run=False)
    assert str(pair.table("SHOP.ORDERS").name) == NAME
    assert pair.check().clean


MISSING: dict[str, Callable[[Lake], object]] = {
    "table": lambda lake: lake.table("shop.ordes"),
    "plan": lambda lake: lake.files.plan("shop.ordes"),
    "list_partitions": lambda lake: lake.list_partitions("shop.ordes"),
    "configure": lambda lake: lake.tables.configure("shop.ordes", retire_after="1d"),
    "add_column": lambda lake: lake.columns.add("shop.ordes", "x", "int"),
    "add_column_preview": lambda lake: lake.columns.add("shop.ordes", "x", "int", dry_run=True),
    "drop_table": lambda lake: lake.tables.drop("shop.ordes"),
    "snapshot": lambda lake: lake.snapshot("shop.ordes"),
    "rollback": lambda lake: lake.snapshots.rollback("shop.ordes", 1 << 50),
    "writing": lambda lake: lake.writing("shop.ordes").__enter__(),
    "compact": lambda lake: lake.compact("shop.ordes"),
    "repair": lambda lake: lake.repair("shop.ordes"),
    "retire": lambda lake: lake.retire_partitions("shop.ordes", insert_begin="2026-01-01", insert_end="2026-01-02"),
    "retire_one": lambda lake: lake.retire_partition_by_metadata("shop.ordes", insert_begin="2026-01-01", insert_end="2026-01-02"),
    "sql_function": lambda lake: answer(lake.registry, lake.storage, "list_files", bind_arguments("list_files", ["shop.ordes"], {})),
    "request": lambda lake: answer(
        lake.registry, lake.storage, "materialize_partitions", bind_arguments("materialize_partitions", ["shop.ordes"], {})
    ),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_misspelled_table_gets_a_suggestion(lake: Lake, name: str) -> None:
    make_table(lake.registry)
    with pytest.raises(LakebedError, match=r"did you mean shop\.orders") as refused:
        MISSING[name](lake)
    assert refused.value.code == "table_not_found"
