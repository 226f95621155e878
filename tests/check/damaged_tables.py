"""Ways to hurt the database, tables and partitions, each with the rules that must find it, and no other."""

from __future__ import annotations

import json

from patients import DAILY_ID, OLD_ID, ORDERS_ID, Patient, found_by

# -- the database ------------------------------------------------------------------------------


@found_by("database_integrity")
def an_impossible_value(lake: Patient) -> None:
    if lake.is_sqlite:
        lake.drop_check("operations", "state_known")
        lake.run("UPDATE operations SET state = 'lost' WHERE state = 'registered'")
    else:
        lake.run("SET allow_system_table_mods = on")
        lake.run("UPDATE pg_index SET indisvalid = false WHERE indexrelid = CAST('table_files_partition' AS regclass)")


@found_by("guard_missing")
def a_dropped_trigger(lake: Patient) -> None:
    lake.run("DROP TRIGGER capture_table_files_insert" + ("" if lake.is_sqlite else " ON table_files"))


@found_by("guard_missing", kinds=("postgresql",))
def a_disabled_trigger(lake: Patient) -> None:
    lake.run("ALTER TABLE tables DISABLE TRIGGER frozen_tables")


@found_by("guard_missing", kinds=("postgresql",))
def a_dropped_exclusion(lake: Patient) -> None:
    lake.run("ALTER TABLE partitions DROP CONSTRAINT partition_overlap")


@found_by("guard_unexpected", kinds=("sqlite",))
def a_foreign_trigger(lake: Patient) -> None:
    lake.run("CREATE TRIGGER spy AFTER INSERT ON table_files BEGIN DELETE FROM runs; END")


# -- tables and counters -----------------------------------------------------------------------


@found_by("table_unknown")
def a_row_of_no_table(lake: Patient) -> None:
    lake.run(
        "INSERT INTO temporary_files (file_path, file_size, table_id, retired_at, expiration, reason) VALUES (:p, 1, 999, 0, 0, 'x')",
        p=f"{lake.storage.paths.root}/shop/gone",
    )


@found_by("table_incomplete")
def a_table_that_serves_no_version(lake: Patient) -> None:
    lake.run("UPDATE table_metadata SET standing = 'readable' WHERE table_id = :t", t=OLD_ID)


@found_by("table_incomplete")
def a_table_without_a_journal(lake: Patient) -> None:
    lake.run("DELETE FROM table_seq WHERE table_id = :t", t=OLD_ID)


@found_by("serving_history")
def a_version_that_serves_unrecorded(lake: Patient) -> None:
    lake.run("UPDATE serving_history SET schema_version = schema_version + 7 WHERE table_id = :t", t=OLD_ID)


@found_by("serving_history")
def a_table_without_a_history_of_versions(lake: Patient) -> None:
    lake.run("DELETE FROM serving_history WHERE table_id = :t", t=OLD_ID)


@found_by("table_counters")
def a_wrong_row_count(lake: Patient) -> None:
    lake.run("UPDATE tables SET row_count = row_count + 1 WHERE id = :t", t=ORDERS_ID)


@found_by("table_counters")
def a_wrong_total_size(lake: Patient) -> None:
    lake.run("UPDATE tables SET total_size = total_size - 1 WHERE id = :t", t=DAILY_ID)


@found_by("table_stats")
def a_wrong_small_file_count(lake: Patient) -> None:
    lake.run("UPDATE table_stats SET small_file_count = small_file_count + 1 WHERE table_id = :t AND partition_path = 'day=1'", t=ORDERS_ID)


@found_by("table_stats")
def lost_statistics(lake: Patient) -> None:
    lake.run("DELETE FROM table_stats WHERE table_id = :t AND partition_path = 'day=2'", t=ORDERS_ID)


@found_by("stats_for_nothing")
def statistics_of_nothing(lake: Patient) -> None:
    lake.run(
        "INSERT INTO table_stats (id, table_id, partition_path, row_count, file_count, small_file_count, total_size, last_modified, "
        "created_at, updated_at) VALUES (9, :t, 'day=9', 0, 0, 0, 0, 0, 0, 0)",
        t=OLD_ID,
    )


@found_by("table_groups", "iceberg_pointer", sqlite="database_integrity")
def a_committed_group_that_was_never_drawn(lake: Patient) -> None:
    lake.drop_check("tables", "tables_groups")
    lake.run("UPDATE tables SET committed_group = last_group + 1 WHERE id = :t", t=ORDERS_ID)


@found_by("table_groups")
def a_snapshot_of_a_group_that_was_never_drawn(lake: Patient) -> None:
    columns = "parent_id, sequence_number, timestamp_ms, manifest_list, metadata_location, summary, schema_id, operation, trigger"
    sql = f"INSERT INTO table_snapshots (id, table_id, snapshot_id, group_no, {columns}) SELECT 5, :t, 78, 99, {columns} FROM table_snapshots LIMIT 1"
    lake.run(sql, t=OLD_ID)


@found_by("table_name_case")
def two_tables_that_differ_in_case_alone(lake: Patient) -> None:
    with lake.past_triggers("tables"):
        lake.run("UPDATE tables SET name = 'Daily' WHERE id = :t", t=OLD_ID)


@found_by("slot_in_future")
def a_slot_in_the_future(lake: Patient) -> None:
    lake.run("UPDATE table_seq SET last_slot = last_slot + 7200000000 WHERE table_id = :t", t=OLD_ID)


@found_by("slice_in_future")
def a_slice_of_a_view_set_in_the_future(lake: Patient) -> None:
    """Copied without its rows, under a definition that names its source."""
    lake.run(
        """UPDATE table_metadata SET properties = :p WHERE table_id = :t""",
        p=json.dumps({"definition": json.dumps({"over": "shop.old"})}),
        t=DAILY_ID,
    )
    far = 253402300799000000
    lake.run(
        f"""INSERT INTO partitions (id, table_id, scope_id, view_instance_id, begin_insert_time, end_insert_time, schema_hash, fingerprint,
num_rows, file_count, partition_format_version, updated) SELECT id + 1000, table_id, scope_id, view_instance_id, {far}, {far} + 1, schema_hash,
fingerprint, 0, 0, 2, 0 FROM partitions WHERE table_id = :t""",
        t=DAILY_ID,
    )


# -- partitions --------------------------------------------------------------------------------


@found_by("partition_overlap", postgresql="guard_missing")
def an_overlap(lake: Patient) -> None:
    copied = """INSERT INTO partitions (id, table_id, scope_id, view_instance_id, begin_insert_time, end_insert_time, schema_hash,
fingerprint, num_rows, file_count, partition_format_version, updated) SELECT 1, table_id, scope_id, view_instance_id,
begin_insert_time - 5, end_insert_time + 5, schema_hash, fingerprint, 0, 0, 2, 0 FROM partitions WHERE table_id = :t"""
    if lake.is_sqlite:
        with lake.past_triggers("partitions"):
            lake.run(copied, t=OLD_ID)
    else:
        lake.run("ALTER TABLE partitions DROP CONSTRAINT partition_overlap")
        lake.run(copied, t=OLD_ID)


@found_by("partition_sums")
def a_partition_with_wrong_rows(lake: Patient) -> None:
    lake.run("UPDATE partitions SET num_rows = num_rows + 1 WHERE table_id = :t", t=OLD_ID)


@found_by("partition_sums")
def a_partition_with_wrong_files(lake: Patient) -> None:
    lake.run("UPDATE partitions SET file_count = file_count + 1 WHERE table_id = :t", t=OLD_ID)


@found_by("partition_empty", "partition_sums")
def a_file_in_an_empty_partition(lake: Patient) -> None:
    sql = "UPDATE table_files SET partition_id = (SELECT id FROM partitions WHERE num_rows = 0) WHERE file_path = :p"
    lake.run(sql, p=lake.live_path())


@found_by("partition_empty", sqlite="database_integrity")
def an_empty_partition_with_events(lake: Patient) -> None:
    lake.drop_check("partitions", "partition_empty_event_range")
    lake.run("UPDATE partitions SET min_event_time = 1, max_event_time = 2 WHERE num_rows = 0")


@found_by("partition_range", sqlite="database_integrity")
def a_slice_without_width(lake: Patient) -> None:
    lake.drop_check("partitions", "partition_range")
    with lake.past_triggers("partitions"):
        lake.run("UPDATE partitions SET end_insert_time = begin_insert_time WHERE num_rows = 0")


@found_by("partition_event_range")
def a_lost_event_range(lake: Patient) -> None:
    lake.run("UPDATE partitions SET min_event_time = NULL, max_event_time = NULL WHERE table_id = :t", t=ORDERS_ID)


@found_by("partition_event_range", sqlite="database_integrity")
def half_an_event_range(lake: Patient) -> None:
    lake.drop_check("partitions", "partition_event_bounds")
    lake.run("UPDATE partitions SET min_event_time = NULL WHERE table_id = :t", t=OLD_ID)


@found_by("partition_scope")
def a_wrong_scope(lake: Patient) -> None:
    with lake.past_triggers("partitions"):
        lake.run("UPDATE partitions SET scope_id = scope_id + 1000 WHERE table_id = :t", t=OLD_ID)
