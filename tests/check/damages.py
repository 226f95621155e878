"""Every way to hurt a lake that the checker knows, each with the rules that must find it, and no other."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zstandard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lakebed.registry.engine import Registry
    from lakebed.storage.access import Storage

ORDERS_ID, DAILY_ID, OLD_ID = 1, 2, 3
BOTH = ("sqlite", "postgresql")


class Patient:
    """A lake to be hurt: raw SQL past the write door, raw bytes past the storage."""

    def __init__(self, registry: Registry, storage: Storage) -> None:
        self.storage, self.dialect = storage, registry.dialect
        self._connection = registry.backend.connect()

    @property
    def is_sqlite(self) -> bool:
        return self.dialect == "sqlite"

    def run(self, sql: str, **params: Any) -> None:
        self._connection.run(sql, params or None)

    def one(self, sql: str, **params: Any) -> Any:
        return self._connection.query(sql, params or None)[0][0]

    def live_path(self, table_id: int = ORDERS_ID) -> str:
        sql = "SELECT file_path FROM table_files WHERE table_id = :t AND retired_seq IS NULL AND file_type = 'parquet' ORDER BY id LIMIT 1"
        return str(self.one(sql, t=table_id))

    def retired_path(self) -> str:
        return str(self.one("SELECT file_path FROM table_files WHERE table_id = :t AND retired_seq IS NOT NULL", t=OLD_ID))

    @contextmanager
    def past_triggers(self, table: str) -> Iterator[None]:
        """Nothing is captured or refused inside; afterwards the triggers are as before."""
        if not self.is_sqlite:
            self.run(f"ALTER TABLE {table} DISABLE TRIGGER USER")
            yield
            self.run(f"ALTER TABLE {table} ENABLE TRIGGER USER")
            return
        sql = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = :table"
        found = self._connection.query(sql, {"table": table})
        for name, _ in found:
            self.run(f"DROP TRIGGER {name}")
        yield
        for _, ddl in found:
            self.run(ddl)

    def drop_check(self, table: str, constraint: str) -> None:
        self.run("PRAGMA ignore_check_constraints=ON" if self.is_sqlite else f"ALTER TABLE {table} DROP CONSTRAINT {constraint}")

    def drop_reference(self, table: str, constraint: str) -> None:
        self.run("PRAGMA foreign_keys=OFF" if self.is_sqlite else f"ALTER TABLE {table} DROP CONSTRAINT {constraint}")

    def close(self) -> None:
        self._connection.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    name: str
    inflict: Callable[[Patient], None]
    rules: frozenset[str]
    also: dict[str, frozenset[str]]  # what one of the databases sees besides
    kinds: tuple[str, ...]
    deep: bool

    def expected(self, kind: str) -> set[str]:
        return set(self.rules | self.also.get(kind, frozenset()))


DAMAGES: list[Damage] = []


def found_by(
    *rules: str, sqlite: str | None = None, postgresql: str | None = None, kinds: tuple[str, ...] = BOTH, deep: bool = False
) -> Callable[[Callable[[Patient], None]], Callable[[Patient], None]]:
    def add(inflict: Callable[[Patient], None]) -> Callable[[Patient], None]:
        seen = {"sqlite": sqlite, "postgresql": postgresql}
        also = {kind: frozenset({rule}) for kind, rule in seen.items() if rule is not None}
        damage = Damage(name=inflict.__name__, inflict=inflict, rules=frozenset(rules), also=also, kinds=kinds, deep=deep)
        DAMAGES.append(damage)
        return inflict

    return add


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


@found_by("table_groups", sqlite="database_integrity")
def a_committed_group_that_was_never_drawn(lake: Patient) -> None:
    lake.drop_check("tables", "tables_groups")
    lake.run("UPDATE tables SET committed_group = last_group + 1 WHERE id = :t", t=ORDERS_ID)


@found_by("table_groups")
def a_snapshot_of_a_group_that_was_never_drawn(lake: Patient) -> None:
    columns = "parent_id, sequence_number, timestamp_ms, manifest_list, metadata_location, summary, schema_id, operation, trigger"
    sql = (
        f"INSERT INTO table_snapshots (id, table_id, snapshot_id, group_no, {columns}) SELECT 5, :t, 78, 99, {columns} FROM table_snapshots"
    )
    lake.run(sql, t=OLD_ID)


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


# -- files -------------------------------------------------------------------------------------


@found_by("path_twice", kinds=("postgresql",))
def a_path_registered_twice(lake: Patient) -> None:
    lake.run("ALTER TABLE table_files DROP CONSTRAINT table_files_path CASCADE")
    columns = """partition_id, file_name, file_path, file_size, file_type, partition_path, row_count, checksum, checksum_kind,
is_compressed, schema_hash, added_seq, retired_seq, created_at, modified_at"""
    lake.run(
        f"INSERT INTO table_files (id, table_id, {columns}) SELECT 5, :t, {columns} FROM table_files WHERE file_path = :p",
        t=OLD_ID,
        p=lake.retired_path(),
    )


@found_by("file_partition")
def a_lost_partition(lake: Patient) -> None:
    lake.run("DELETE FROM partitions WHERE table_id = :t", t=OLD_ID)


@found_by("file_partition")
def a_partition_of_another_schema(lake: Patient) -> None:
    old = "(SELECT schema_hash FROM table_metadata WHERE table_id = :t AND standing = 'incompatible')"
    with lake.past_triggers("table_files"):
        lake.run(f"UPDATE table_files SET schema_hash = 'f00' WHERE table_id = :t AND schema_hash = {old}", t=DAILY_ID)
    forget_journal(lake, DAILY_ID)


@found_by("file_numbers")
def a_retirement_in_the_future(lake: Patient) -> None:
    lake.run("UPDATE table_files SET retired_seq = 1000 WHERE file_path = :p", p=lake.retired_path())


@found_by("file_numbers", sqlite="database_integrity")
def a_retirement_before_the_addition(lake: Patient) -> None:
    lake.drop_check("table_files", "table_files_lifetime")
    lake.run("UPDATE table_files SET retired_seq = added_seq WHERE file_path = :p", p=lake.retired_path())


@found_by("file_groups")
def a_visible_file_that_left_iceberg(lake: Patient) -> None:
    lake.run("UPDATE table_files SET removed_group = 2 WHERE file_path = :p", p=lake.live_path())


@found_by("file_groups")
def a_group_that_was_never_drawn(lake: Patient) -> None:
    lake.run("UPDATE table_files SET added_group = 99 WHERE file_path = :p", p=lake.live_path())


@found_by("file_groups", sqlite="database_integrity")
def groups_in_the_wrong_order(lake: Patient) -> None:
    lake.drop_check("table_files", "table_files_groups")
    lake.run("UPDATE table_files SET added_group = 1, removed_group = 1 WHERE retired_seq IS NOT NULL AND table_id = :t", t=ORDERS_ID)


@found_by("file_groups")
def json_in_iceberg(lake: Patient) -> None:
    lake.run("UPDATE table_files SET added_group = 1 WHERE file_type = 'json'")


@found_by("retired_not_queued")
def a_lost_queue_entry(lake: Patient) -> None:
    lake.run("DELETE FROM temporary_files WHERE file_path = :p", p=lake.retired_path())


@found_by("queued_but_live")
def a_live_file_in_the_queue(lake: Patient) -> None:
    lake.run(
        "INSERT INTO temporary_files (file_path, file_size, table_id, retired_at, expiration, reason) VALUES (:p, 1, :t, 0, 0, 'x')",
        p=lake.live_path(),
        t=ORDERS_ID,
    )


@found_by("column_without_file")
def statistics_of_no_file(lake: Patient) -> None:
    lake.run("INSERT INTO file_columns (file_id, field_id) VALUES (999, 1)")


@found_by("column_statistics")
def more_nulls_than_values(lake: Patient) -> None:
    lake.run("UPDATE file_columns SET null_count = value_count + 1 WHERE field_id = 2")


@found_by("column_statistics")
def bounds_in_the_wrong_order(lake: Patient) -> None:
    lake.run("UPDATE file_columns SET lower = :low WHERE field_id = 1", low=b"\x09")


@found_by("range_missing")
def a_lost_range(lake: Patient) -> None:
    lake.run("DELETE FROM file_ranges WHERE id = (SELECT id * 8 + 1 FROM table_files WHERE file_path = :p)", p=lake.live_path())


@found_by("range_unexpected")
def a_range_of_no_file(lake: Patient) -> None:
    lake.run("INSERT INTO file_ranges (id, scope, level, prefix) VALUES (8000, 1, 0, 0)")


@found_by("range_unexpected")
def a_range_of_no_indexed_column(lake: Patient) -> None:
    at = lake.one("SELECT id * 8 + 7 FROM table_files WHERE file_path = :p", p=lake.live_path())
    lake.run("INSERT INTO file_ranges (id, scope, level, prefix) VALUES (:i, 15, 0, 0)", i=at)


@found_by("range_unexpected")
def a_range_in_another_lane(lake: Patient) -> None:
    at = lake.one("SELECT id * 8 FROM table_files WHERE file_path = :p", p=lake.live_path())
    lake.run("UPDATE file_ranges SET scope = 80 WHERE id = :i", i=at)


@found_by("table_properties")
def properties_that_are_no_json(lake: Patient) -> None:
    lake.run("UPDATE table_metadata SET properties = 'none' WHERE table_id = :t", t=OLD_ID)


# -- footers -----------------------------------------------------------------------------------


@found_by("footer_missing")
def a_lost_footer(lake: Patient) -> None:
    lake.run("DELETE FROM partition_metadata WHERE file_path = :p", p=lake.live_path())


@found_by("footer_missing")
def a_lost_footer_of_a_retired_file(lake: Patient) -> None:
    lake.run("DELETE FROM partition_metadata WHERE file_path = :p", p=lake.retired_path())


@found_by("footer_without_file", sqlite="foreign_keys")
def a_footer_of_no_file(lake: Patient) -> None:
    lake.drop_reference("partition_metadata", "partition_metadata_file")
    columns = "table_id, metadata, insert_time, partition_format_version, footer_length, num_rows, checksum"
    sql = f"INSERT INTO partition_metadata (file_path, {columns}) SELECT '/gone', {columns} FROM partition_metadata WHERE file_path = :p"
    with lake.past_triggers("partition_metadata"):
        lake.run(sql, p=lake.live_path())


@found_by("footer_without_file")
def a_footer_of_another_table(lake: Patient) -> None:
    lake.run("UPDATE partition_metadata SET table_id = :t WHERE file_path = :p", t=DAILY_ID, p=lake.live_path())


@found_by("footer_bytes")
def a_damaged_footer(lake: Patient) -> None:
    lake.run("UPDATE partition_metadata SET metadata = :m WHERE file_path = :p", m=b"not zstd", p=lake.live_path())


@found_by("footer_bytes")
def a_truncated_footer(lake: Patient) -> None:
    stored = bytes(lake.one("SELECT metadata FROM partition_metadata WHERE file_path = :p", p=lake.live_path()))
    lake.run("UPDATE partition_metadata SET metadata = :m WHERE file_path = :p", m=stored[:-5], p=lake.live_path())


@found_by("footer_bytes")
def another_footer_of_the_same_length(lake: Patient) -> None:
    length = lake.one("SELECT footer_length FROM partition_metadata WHERE file_path = :p", p=lake.live_path())
    packed = zstandard.ZstdCompressor().compress(bytes(length))
    lake.run("UPDATE partition_metadata SET metadata = :m WHERE file_path = :p", m=packed, p=lake.live_path())


@found_by("footer_bytes")
def a_wrong_footer_length(lake: Patient) -> None:
    lake.run("UPDATE partition_metadata SET footer_length = footer_length + 1 WHERE file_path = :p", p=lake.live_path())


@found_by("footer_bytes")
def a_wrong_footer_checksum(lake: Patient) -> None:
    lake.run("UPDATE partition_metadata SET checksum = :c WHERE file_path = :p", c="0" * 64, p=lake.live_path())


@found_by("footer_bytes")
def an_unknown_footer_format(lake: Patient) -> None:
    lake.run("UPDATE partition_metadata SET partition_format_version = 7 WHERE file_path = :p", p=lake.live_path())


@found_by("footer_rows")
def a_footer_with_wrong_rows(lake: Patient) -> None:
    lake.run("UPDATE partition_metadata SET num_rows = num_rows + 1 WHERE file_path = :p", p=lake.live_path())


# -- the journal -------------------------------------------------------------------------------


def forget_journal(lake: Patient, table_id: int) -> None:
    """As a purge does: afterwards no replay can tell what was changed."""
    lake.run("DELETE FROM change_log WHERE table_id = :t", t=table_id)
    lake.run("DELETE FROM subscriber_cursor WHERE table_id = :t", t=table_id)
    lake.run("UPDATE table_seq SET purged_seq = last_seq WHERE table_id = :t", t=table_id)


@found_by("journal_ends")
def a_horizon_in_the_future(lake: Patient) -> None:
    lake.run("UPDATE table_seq SET horizon_seq = last_seq + 1 WHERE table_id = :t", t=ORDERS_ID)


@found_by("journal_gap")
def a_gap_in_the_journal(lake: Patient) -> None:
    lake.run("DELETE FROM change_log WHERE table_id = :t AND seq = 3", t=ORDERS_ID)


@found_by("journal_gap")
def a_lost_last_change(lake: Patient) -> None:
    lake.run("DELETE FROM change_log WHERE table_id = :t AND seq = (SELECT last_seq FROM table_seq WHERE table_id = :t)", t=DAILY_ID)


@found_by("journal_beyond")
def a_change_beyond_the_end(lake: Patient) -> None:
    sql = """INSERT INTO change_log (table_id, seq, registry_table, operation, at)
SELECT table_id, last_seq + 1, 'tables', 'INSERT', 0 FROM table_seq WHERE table_id = :t"""
    lake.run(sql, t=ORDERS_ID)


@found_by("journal_not_purged")
def a_change_below_the_purge(lake: Patient) -> None:
    lake.run("INSERT INTO change_log (table_id, seq, registry_table, operation, at) VALUES (:t, 1, 'tables', 'INSERT', 0)", t=OLD_ID)


@found_by("cursor_range")
def a_cursor_beyond_the_end(lake: Patient) -> None:
    lake.run("UPDATE subscriber_cursor SET seq = 9999 WHERE table_id = :t AND component = 'compactor'", t=ORDERS_ID)


@found_by("cursor_range")
def a_cursor_before_the_beginning(lake: Patient) -> None:
    lake.run("UPDATE subscriber_cursor SET seq = -1 WHERE table_id = :t AND component = 'compactor'", t=ORDERS_ID)


@found_by("cursor_lost")
def a_cursor_that_was_purged_past(lake: Patient) -> None:
    lake.run("UPDATE subscriber_cursor SET seq = 1 WHERE table_id = :t AND component = 'compactor'", t=OLD_ID)


@found_by("journal_replay")
def a_change_that_was_not_captured(lake: Patient) -> None:
    with lake.past_triggers("tables"):
        lake.run("UPDATE tables SET state = 'degraded' WHERE id = :t", t=ORDERS_ID)


@found_by("journal_replay")
def a_row_that_vanished_without_a_change(lake: Patient) -> None:
    with lake.past_triggers("table_snapshots"):
        lake.run("DELETE FROM table_snapshots")


@found_by("journal_replay")
def an_altered_image(lake: Patient) -> None:
    sql = "UPDATE change_log SET after = replace(after, 'parquet', 'porquet') WHERE table_id = :t AND registry_table = 'table_files' AND seq < 9"
    lake.run(sql, t=ORDERS_ID)


@found_by("journal_replay")
def an_image_that_cannot_be_read(lake: Patient) -> None:
    lake.run("UPDATE change_log SET after = '[1, 2' WHERE table_id = :t AND seq = 1", t=ORDERS_ID)


@found_by("journal_replay")
def two_changes_in_the_wrong_order(lake: Patient) -> None:
    """Updates of one row: their sum is right, their order is not."""
    swap = "SELECT seq FROM change_log WHERE table_id = :t AND registry_table = 'tables' AND operation = 'UPDATE' ORDER BY seq LIMIT 1"
    first = lake.one(swap, t=ORDERS_ID)
    second = lake.one(swap.replace("ORDER BY", "AND seq > :first ORDER BY"), t=ORDERS_ID, first=first)
    for old, new in ((first, -1), (second, first), (-1, second)):
        lake.run("UPDATE change_log SET seq = :new WHERE table_id = :t AND seq = :old", t=ORDERS_ID, old=old, new=new)


# -- operations and leases ---------------------------------------------------------------------


@found_by("operation_stuck")
def an_operation_nobody_rolls_back(lake: Patient) -> None:
    lake.run("UPDATE operations SET lease_until = 0 WHERE state = 'writing'")


@found_by("operation_result")
def an_operation_without_its_result(lake: Patient) -> None:
    lake.run("UPDATE operations SET result = NULL WHERE state = 'registered' AND table_id = :t", t=OLD_ID)


@found_by("lease_number")
def a_lease_on_the_future(lake: Patient) -> None:
    lake.run("UPDATE lease_numbers SET seq = 9999")


@found_by("lease_unknown", sqlite="foreign_keys")
def a_number_of_no_lease(lake: Patient) -> None:
    lake.drop_reference("lease_numbers", "lease_numbers_lease")
    lake.run("DELETE FROM leases")


# -- the warehouse -----------------------------------------------------------------------------


def flip(path: str, at: int) -> None:
    content = bytearray(Path(path).read_bytes())
    content[at] ^= 1
    Path(path).write_bytes(content)


@found_by("file_missing")
def a_missing_file(lake: Patient) -> None:
    Path(lake.live_path()).unlink()


@found_by("file_missing")
def a_missing_retired_file(lake: Patient) -> None:
    Path(lake.retired_path()).unlink()


@found_by("file_missing")
def a_missing_json_file(lake: Patient) -> None:
    Path(lake.one("SELECT file_path FROM table_files WHERE file_type = 'json'")).unlink()


@found_by("file_place")
def a_directory_in_place_of_a_file(lake: Patient) -> None:
    Path(lake.live_path()).unlink()
    Path(lake.live_path()).mkdir()


@found_by("file_place")
def a_symlink_in_place_of_a_file(lake: Patient) -> None:
    place = Path(lake.live_path())
    place.rename(lake.storage.paths.root + "/../moved")
    place.symlink_to("/etc/passwd")


@found_by("file_place")
def a_path_outside_the_warehouse(lake: Patient) -> None:
    with lake.past_triggers("table_files"):
        lake.run("UPDATE table_files SET file_path = '/etc/passwd' WHERE file_type = 'json'")
    forget_journal(lake, ORDERS_ID)
    for left in Path(lake.storage.paths.root).rglob("*.json"):
        left.unlink()


@found_by("file_size")
def a_truncated_file(lake: Patient) -> None:
    content = Path(lake.live_path()).read_bytes()
    Path(lake.live_path()).write_bytes(content[: len(content) // 2])


@found_by("file_size")
def a_longer_file(lake: Patient) -> None:
    Path(lake.live_path()).write_bytes(Path(lake.live_path()).read_bytes() + b"PAR1")


@found_by("file_tail")
def a_flipped_bit_in_the_tail(lake: Patient) -> None:
    flip(lake.live_path(), -30)


@found_by("file_tail")
def a_flipped_bit_in_the_magic(lake: Patient) -> None:
    flip(lake.retired_path(), -1)


@found_by("file_checksum", deep=True)
def a_flipped_bit_in_the_rows(lake: Patient) -> None:
    flip(lake.live_path(), 6)


@found_by("file_checksum")
def a_footer_checksum_that_differs_from_the_file_row(lake: Patient) -> None:
    with lake.past_triggers("table_files"):
        lake.run("UPDATE table_files SET checksum_kind = 'footer-sha256' WHERE table_id = :t", t=OLD_ID)


@found_by("unregistered_file")
def an_extra_file(lake: Patient) -> None:
    Path(lake.live_path()).with_name("part-99999.parquet").write_bytes(b"nobody knows me")


@found_by("unregistered_file")
def a_rolled_back_operation_that_left_a_file(lake: Patient) -> None:
    lake.run("UPDATE operations SET state = 'rolled_back' WHERE state = 'writing'")


@found_by("unregistered_file")
def a_file_beside_an_open_intent(lake: Patient) -> None:
    staging = lake.one("SELECT staging_path FROM operations WHERE state = 'writing'")
    beside = Path(f"{staging}0")
    beside.mkdir()
    (beside / "part-00000.parquet").write_bytes(hashlib.sha256(b"").digest())
