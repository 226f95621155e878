"""Rules that the database keeps by itself: raw SQL that breaks one fails by the rule's name, on both databases alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import Index, UniqueConstraint

from builders import DAILY, ORDERS, fake_file, grow_schema, logical_dump, make_table, make_view, publish, stage, within
from lakebed.core.errors import ConflictError, LakebedError, RefusedError
from lakebed.core.events import ROW_TYPES, RegistryTable
from lakebed.core.rows import list_changing_columns, list_columns
from lakebed.registry.backends.constraints import _COLUMNS
from lakebed.registry.schema.tables import METADATA
from lakebed.registry.snapshots.history import NewSnapshot, add_snapshot

if TYPE_CHECKING:
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable

HOUR = 3600 * 1_000_000


def add(registry: Registry, table: str, row: dict[str, Any]) -> None:
    columns, holders = ", ".join(row), ", ".join(f":{name}" for name in row)
    with registry.write() as tx:
        tx.run(f"INSERT INTO {table} ({columns}) VALUES ({holders})", row)


def violated_by(registry: Registry, sql: str, params: dict[str, Any] | None = None) -> str:
    """The rule that refuses the statement; whatever it says, nothing was changed."""
    before = logical_dump(registry)
    with pytest.raises((RefusedError, ConflictError)) as refused, registry.write() as tx:
        tx.run(sql, params)
    assert logical_dump(registry) == before
    return rule_of(refused.value)


def rule_of(error: LakebedError) -> str:
    named: str | None = getattr(error, "constraint", None)
    if named is not None:
        return named
    if isinstance(error.__cause__, psycopg.Error):
        return str(error.__cause__.diag.constraint_name)
    spoken = str(error.__cause__).removeprefix("UNIQUE constraint failed: ")
    return _COLUMNS.get(spoken, spoken)


def a_partition(table: LakeTable, **changes: Any) -> dict[str, Any]:
    row = {
        "id": (table.table_id << 40) + 900, "table_id": table.table_id, "scope_id": 1, "view_instance_id": "global",
        "begin_insert_time": 0, "end_insert_time": HOUR, "min_event_time": 1, "max_event_time": 2, "schema_hash": table.schema_hash,
        "fingerprint": "0" * 32, "num_rows": 10, "file_count": 1, "partition_format_version": 2, "updated": 5,
    }  # fmt: skip
    return row | changes


EMPTY: dict[str, Any] = {"num_rows": 0, "file_count": 0, "min_event_time": None, "max_event_time": None}
BAD_PARTITIONS: dict[str, tuple[dict[str, Any], str]] = {
    "rows without a file": ({"file_count": 0}, "partition_emptiness"),
    "a file without rows": ({**EMPTY, "file_count": 1}, "partition_emptiness"),
    "no rows with event bounds": ({**EMPTY, "min_event_time": 1, "max_event_time": 2}, "partition_empty_event_range"),
    "only a lower event bound": ({"max_event_time": None}, "partition_event_bounds"),
    "only an upper event bound": ({"min_event_time": None}, "partition_event_bounds"),
    "event bounds the wrong way round": ({"min_event_time": 3}, "partition_event_order"),
    "rows without event bounds": ({"min_event_time": None, "max_event_time": None}, "partition_event_range"),
    "zero width": ({"end_insert_time": 0}, "partition_range"),
    "an end before the begin": ({"end_insert_time": -1}, "partition_range"),
    "negative rows": ({**EMPTY, "num_rows": -1, "file_count": 1}, "partition_rows"),
}


@pytest.mark.parametrize("case", BAD_PARTITIONS)
def test_a_partition_that_contradicts_itself_is_refused_by_a_named_rule(registry: Registry, case: str) -> None:
    changes, rule = BAD_PARTITIONS[case]
    table = make_table(registry, event_time="ts" if rule == "partition_event_range" else None)
    row = a_partition(table, **changes)

    sql = f"INSERT INTO partitions ({', '.join(row)}) VALUES ({', '.join(f':{name}' for name in row)})"

    assert violated_by(registry, sql, row) == rule


def test_the_rows_that_the_rules_are_tested_with_are_otherwise_good(registry: Registry) -> None:
    table = make_table(registry)

    add(registry, "partitions", a_partition(table))
    add(registry, "partitions", a_partition(table, id=1, begin_insert_time=HOUR, end_insert_time=2 * HOUR, **EMPTY))


@pytest.mark.parametrize(("begin", "end"), [(-5, 1), (HOUR - 1, HOUR + 5), (5, 6), (-5, HOUR + 5), (0, HOUR - 1), (0, HOUR + 1)])
def test_an_overlap_is_refused_by_the_database_itself(registry: Registry, begin: int, end: int) -> None:
    table = make_table(registry)
    add(registry, "partitions", a_partition(table))
    row = a_partition(table, id=7, begin_insert_time=begin, end_insert_time=end)
    sql = f"INSERT INTO partitions ({', '.join(row)}) VALUES ({', '.join(f':{name}' for name in row)})"

    assert violated_by(registry, sql, row) == "partition_overlap"


def test_no_wide_old_partition_hides_behind_narrow_young_ones(registry: Registry) -> None:
    table = make_table(registry)
    for number, (begin, end) in enumerate([(0, 10), (10, 20), (40, 50), (30, 40), (60, 100), (20, 25)]):
        add(registry, "partitions", a_partition(table, id=number + 1, begin_insert_time=begin, end_insert_time=end))
    row = a_partition(table, id=50, begin_insert_time=26, end_insert_time=31)

    sql = f"INSERT INTO partitions ({', '.join(row)}) VALUES ({', '.join(f':{name}' for name in row)})"

    assert violated_by(registry, sql, row) == "partition_overlap"
    add(registry, "partitions", row | {"end_insert_time": 30})


def test_the_same_slice_of_another_scope_does_not_overlap(registry: Registry) -> None:
    table = make_table(registry)
    add(registry, "partitions", a_partition(table))

    add(registry, "partitions", a_partition(table, id=7, scope_id=2, view_instance_id="tenant-7"))
    add(registry, "partitions", a_partition(table, id=8, scope_id=3, schema_hash=grow_schema(registry)))


@pytest.mark.parametrize(
    "column", ["id", "table_id", "scope_id", "view_instance_id", "begin_insert_time", "end_insert_time", "schema_hash"]
)
def test_a_partition_never_moves(registry: Registry, column: str) -> None:
    publish(registry, make_table(registry), fake_file(1), hours=(0, 1))

    assert violated_by(registry, f"UPDATE partitions SET {column} = {column}") == "frozen_column: partitions"


def _fill_all(registry: Registry) -> None:
    """At least one row in each of the five monitored tables."""
    publish(registry, make_table(registry), fake_file(1))
    snapshot = NewSnapshot(
        snapshot_id=1, parent_id=None, sequence_number=1, group_no=0, timestamp_ms=1, manifest_list="m", metadata_location="l",
        summary="{}", schema_id=0, operation="append", trigger="insert",
    )  # fmt: skip
    within(registry, lambda tx: add_snapshot(tx, ORDERS, snapshot))


@pytest.mark.parametrize("table", RegistryTable)
def test_every_frozen_column_of_a_journaled_table_is_refused(registry: Registry, table: RegistryTable) -> None:
    _fill_all(registry)
    row = ROW_TYPES[table]

    for column in set(list_columns(row)) - set(list_changing_columns(row)):
        assert violated_by(registry, f"UPDATE {table} SET {column} = {column}") == f"frozen_column: {table}"


@pytest.mark.parametrize("table", RegistryTable)
def test_every_other_column_may_change(registry: Registry, table: RegistryTable) -> None:
    _fill_all(registry)

    with registry.write() as tx:
        for column in list_changing_columns(ROW_TYPES[table]):
            assert tx.run(f"UPDATE {table} SET {column} = {column}") >= 1


def test_a_file_under_an_empty_partition_is_refused(registry: Registry) -> None:
    table = make_table(registry)
    empty = publish(registry, table, hours=(0, 1)).partition_id
    publish(registry, table, fake_file(1), hours=(1, 2))
    columns = [c for c in list_columns(ROW_TYPES[RegistryTable.TABLE_FILES]) if c not in ("id", "partition_id", "file_path")]
    listed = ", ".join(columns)

    sql = f"INSERT INTO table_files (id, partition_id, file_path, {listed}) SELECT 5, :p, '/w/x', {listed} FROM table_files"

    assert violated_by(registry, sql, {"p": empty}) == "partition_emptiness"


BAD_FILES = {
    "no bytes": ("file_size", "0", "table_files_not_empty"),
    "no rows": ("row_count", "0", "table_files_not_empty"),
    "an unknown type": ("file_type", "'avro'", "file_type_known"),
    "retired before it was added": ("retired_seq", "added_seq", "table_files_lifetime"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_file_row_that_contradicts_itself_is_refused_by_a_named_rule(registry: Registry, case: str) -> None:
    publish(registry, make_table(registry), fake_file(1))
    column, value, rule = BAD_FILES[case]
    listed = ", ".join(c for c in list_columns(ROW_TYPES[RegistryTable.TABLE_FILES]) if c not in ("id", "file_path", column))

    sql = f"INSERT INTO table_files (id, file_path, {column}, {listed}) SELECT 5, '/w/x', {value}, {listed} FROM table_files"

    assert violated_by(registry, sql) == rule


def test_a_file_never_leaves_iceberg_before_it_came(registry: Registry) -> None:
    publish(registry, make_table(registry), fake_file(1))

    assert violated_by(registry, "UPDATE table_files SET added_group = 3, removed_group = 3") == "table_files_groups"


def test_a_footer_without_its_file_is_refused(registry: Registry) -> None:
    publish(registry, make_table(registry), fake_file(1))
    columns = "table_id, file_size, metadata, insert_time, partition_format_version, footer_length, num_rows, checksum"

    with pytest.raises(RefusedError), registry.write() as tx:
        tx.run(f"INSERT INTO partition_metadata (file_path, {columns}) SELECT '/w/nothing', {columns} FROM partition_metadata")
    with registry.write() as tx:
        tx.run("DELETE FROM file_columns")
    with pytest.raises(RefusedError), registry.write() as tx:
        tx.run("DELETE FROM table_files")


def test_one_name_is_one_living_table(registry: Registry) -> None:
    make_table(registry)
    columns = "database, name, kind, last_modified, created_at"

    sql = f"INSERT INTO tables (id, {columns}) SELECT 77, {columns} FROM tables"

    assert violated_by(registry, sql) == "tables_name"
    with registry.write() as tx:
        tx.run("UPDATE tables SET dropped_at = 1")
        tx.run(sql)


RULES = {
    "two serving versions": ("UPDATE table_metadata SET standing = 'serving'", "table_metadata_serving"),
    "an unknown standing": ("UPDATE table_metadata SET standing = 'old'", "standing_known"),
    "an unknown state": ("UPDATE tables SET state = 'sad'", "state_known"),
    "committed beyond the last group": ("UPDATE tables SET committed_group = 5", "tables_groups"),
    "a negative counter": ("UPDATE tables SET row_count = -1", "tables_counters"),
    "a negative statistic": ("UPDATE table_stats SET small_file_count = -1", "table_stats_counters"),
    "an unknown operation state": ("UPDATE operations SET state = 'lost'", "state_known"),
    "half a batch": ("UPDATE operations SET app_id = 'a'", "operations_batch"),
    "an unknown kind of table": (
        "INSERT INTO tables (id, database, name, kind, last_modified, created_at) VALUES (70, 'a', 'b', 'view', 1, 1)", "kind_known",
    ),
    "the same version twice": (
        """INSERT INTO table_metadata SELECT id + 1, table_id, schema_version, schema, 'x', 'readable', storage_engine, engine_config, format,
        compression, partition_by, sort_by, properties, last_modified, created_at, updated_at FROM table_metadata WHERE standing = 'staged'""",
        "table_metadata_version",
    ),
    "the same path of statistics twice": (
        "INSERT INTO table_stats SELECT id + 1, table_id, partition_path, 1, 1, 1, 1, 1, 1, 1 FROM table_stats", "table_stats_path",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RULES)
def test_every_other_rule_is_refused_by_its_name(registry: Registry, case: str) -> None:
    view = make_view(registry)
    publish(registry, view, fake_file(1), hours=(0, 1))
    stage(registry, DAILY)
    sql, rule = RULES[case]

    assert violated_by(registry, sql) == rule


def test_a_batch_is_open_once_among_those_not_rolled_back(registry: Registry) -> None:
    make_table(registry)
    row = {"table_id": 1, "kind": "insert", "app_id": "a", "batch_id": 1, "lease_until": 1, "created_at": 1, "updated_at": 1}
    add(registry, "operations", {**row, "op_id": "1" * 32, "state": "rolled_back"})
    add(registry, "operations", {**row, "op_id": "2" * 32, "state": "writing"})
    again = {**row, "op_id": "3" * 32, "state": "writing"}
    sql = f"INSERT INTO operations ({', '.join(again)}) VALUES ({', '.join(f':{name}' for name in again)})"

    assert violated_by(registry, sql, again) == "operations_batch_once"


def test_every_unique_rule_has_one_name_on_both_databases() -> None:
    """SQLite names only the columns, so the names are written down."""
    declared = {
        ", ".join(f"{table.name}.{column.name}" for column in rule.columns): str(rule.name)
        for table in METADATA.tables.values()
        for rule in [*table.constraints, *table.indexes]
        if isinstance(rule, UniqueConstraint) or (isinstance(rule, Index) and rule.unique)
    }

    assert declared.items() <= _COLUMNS.items()
