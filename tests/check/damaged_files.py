"""Ways to hurt files, footers and the warehouse, each with the rules that must find it, and no other."""

from __future__ import annotations

import hashlib
from pathlib import Path

import zstandard
from patients import DAILY_ID, OLD_ID, ORDERS_ID, Patient, forget_journal, found_by

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
    columns = "table_id, file_size, metadata, insert_time, partition_format_version, footer_length, num_rows, checksum"
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


@found_by("footer_file_size")
def a_file_size_beside_the_footer_that_differs(lake: Patient) -> None:
    lake.run("UPDATE partition_metadata SET file_size = file_size + 1 WHERE file_path = :p", p=lake.live_path())


@found_by("footer_rows")
def a_footer_with_wrong_rows(lake: Patient) -> None:
    lake.run("UPDATE partition_metadata SET num_rows = num_rows + 1 WHERE file_path = :p", p=lake.live_path())


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
    for left in Path(lake.storage.paths.root).rglob("data/**/*.json"):
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


@found_by("newer_file")
def a_file_of_an_operation_that_the_registry_lost(lake: Patient) -> None:
    place = Path(lake.live_path()).parent.parent / hashlib.md5(b"lost", usedforsecurity=False).hexdigest()
    place.mkdir()
    (place / "part-00000.parquet").write_bytes(b"of a later history")


@found_by("unregistered_file")
def a_file_beside_an_open_intent(lake: Patient) -> None:
    staging = lake.one("SELECT staging_path FROM operations WHERE state = 'writing'")
    beside = Path(f"{staging}0")
    beside.mkdir()
    (beside / "part-00000.parquet").write_bytes(hashlib.sha256(b"").digest())
