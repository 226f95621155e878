"""Ways to hurt the Iceberg table, each with the rules that must find it, and no other."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

from patients import LINES_ID, Patient, found_by

_METADATA = ".gz.metadata.json"


def place(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def rewrite(lake: Patient, change: Any) -> None:
    """Change the current metadata file, as a person with an editor would."""
    path = place(lake.metadata_location())
    content = json.loads(gzip.decompress(path.read_bytes()))
    change(content)
    path.write_bytes(gzip.compress(json.dumps(content).encode()))


@found_by("iceberg_pointer")
def a_pointer_to_nothing(lake: Patient) -> None:
    lake.run_in_catalog("UPDATE iceberg_tables SET metadata_location = metadata_location || 'x' WHERE table_name = 'lines'")


@found_by("iceberg_pointer")
def a_lost_catalog_row(lake: Patient) -> None:
    lake.run_in_catalog("DELETE FROM iceberg_tables WHERE table_name = 'lines'")


@found_by("iceberg_pointer")
def metadata_that_is_no_json(lake: Patient) -> None:
    place(lake.metadata_location()).write_bytes(gzip.compress(b"{"))


@found_by("iceberg_pointer")
def a_snapshot_without_summary(lake: Patient) -> None:
    rewrite(lake, lambda metadata: metadata["snapshots"][-1].pop("summary"))


@found_by("iceberg_pointer")
def a_snapshot_without_manifest_list(lake: Patient) -> None:
    rewrite(lake, lambda metadata: metadata["snapshots"][0].pop("manifest-list"))


@found_by("iceberg_pointer")
def a_snapshot_without_sequence_number(lake: Patient) -> None:
    rewrite(lake, lambda metadata: metadata["snapshots"][0].pop("sequence-number"))


@found_by("iceberg_pointer")
def a_summary_that_counts_in_letters(lake: Patient) -> None:
    rewrite(lake, lambda metadata: metadata["snapshots"][-1]["summary"].update({"total-records": "x"}))


@found_by("iceberg_pointer")
def a_snapshot_that_is_a_text(lake: Patient) -> None:
    rewrite(lake, lambda metadata: metadata["snapshots"].append("x"))


@found_by("iceberg_pointer")
def a_committed_group_in_letters(lake: Patient) -> None:
    rewrite(lake, lambda metadata: metadata["properties"].update({"lakebed.committed-group": "x"}))


@found_by("iceberg_tree")
def a_lost_manifest(lake: Patient) -> None:
    for path in place(lake.metadata_location()).parent.glob("*-m*.avro"):
        path.unlink()


@found_by("iceberg_tree")
def a_truncated_manifest_list(lake: Patient) -> None:
    for path in place(lake.metadata_location()).parent.glob("snap-*.avro"):
        path.write_bytes(path.read_bytes()[:-40])


@found_by("iceberg_group")
def a_group_that_the_registry_never_drew(lake: Patient) -> None:
    def change(metadata: dict[str, Any]) -> None:
        metadata["snapshots"][-1]["summary"]["lakebed.group"] = "99"
        written = json.loads(metadata["properties"]["lakebed.written"])
        written["properties"]["lakebed.committed-group"] = "99"
        metadata["properties"] |= {"lakebed.committed-group": "99", "lakebed.written": json.dumps(written)}

    rewrite(lake, change)


@found_by("iceberg_foreign")
def a_schema_that_another_program_made_current(lake: Patient) -> None:
    def change(metadata: dict[str, Any]) -> None:
        metadata["schemas"].append({**metadata["schemas"][0], "schema-id": 7})
        metadata["current-schema-id"] = 7

    rewrite(lake, change)


@found_by("iceberg_files")
def a_file_that_the_registry_takes_for_pending(lake: Patient) -> None:
    with lake.past_triggers("table_files"):
        lake.run("UPDATE table_files SET added_group = NULL WHERE table_id = :t AND file_path = :p", t=LINES_ID, p=lake.live_path(LINES_ID))
    lake.run("DELETE FROM change_log WHERE table_id = :t", t=LINES_ID)
    lake.run("UPDATE table_seq SET purged_seq = last_seq WHERE table_id = :t", t=LINES_ID)


@found_by("iceberg_totals")
def a_summary_that_counts_wrongly(lake: Patient) -> None:
    def change(metadata: dict[str, Any]) -> None:
        metadata["snapshots"][-1]["summary"]["total-records"] = "1"

    rewrite(lake, change)


@found_by("iceberg_history")
def a_commit_that_occurs_twice(lake: Patient) -> None:
    def change(metadata: dict[str, Any]) -> None:
        metadata["snapshots"][1]["summary"]["lakebed.commit-id"] = metadata["snapshots"][0]["summary"]["lakebed.commit-id"]

    rewrite(lake, change)


@found_by("iceberg_history")
def a_snapshot_that_the_registry_forgot(lake: Patient) -> None:
    with lake.past_triggers("table_snapshots"):
        lake.run("UPDATE table_snapshots SET expired_at = 1 WHERE table_id = :t AND parent_id IS NULL", t=LINES_ID)
    lake.run("DELETE FROM change_log WHERE table_id = :t", t=LINES_ID)
    lake.run("UPDATE table_seq SET purged_seq = last_seq WHERE table_id = :t", t=LINES_ID)


@found_by("iceberg_needed")
def a_file_deleted_though_a_kept_snapshot_needs_it(lake: Patient) -> None:
    path = lake.one("SELECT file_path FROM table_files WHERE table_id = :t AND retired_seq IS NOT NULL", t=LINES_ID)
    lake.run("DELETE FROM partition_metadata WHERE file_path = :p", p=path)
    lake.run("DELETE FROM file_columns WHERE file_id = (SELECT id FROM table_files WHERE file_path = :p)", p=path)
    lake.run("DELETE FROM temporary_files WHERE file_path = :p", p=path)
    lake.run("DELETE FROM table_files WHERE file_path = :p", p=path)
    Path(path).unlink()


@found_by("iceberg_missing")
def a_lost_statistics_file(lake: Patient) -> None:
    path = place(lake.metadata_location()).parent / "lost.stats"
    rewrite(lake, lambda metadata: metadata.update({"statistics": [{"statistics-path": f"file:{path}"}]}))


@found_by("iceberg_missing")
def a_pointer_to_nothing_of_a_table_that_only_the_catalog_knows(lake: Patient) -> None:
    location = f"file:{place(lake.metadata_location()).parent}/nothing.metadata.json"
    lake.run_in_catalog(
        "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, iceberg_type) "
        f"VALUES ('lakebed', 'other', 'things', '{location}', 'TABLE')"
    )


@found_by("fresh_metadata", "unregistered_file")
def leftovers_of_commits(lake: Patient) -> None:
    directory = place(lake.metadata_location()).parent
    (directory / "young-m0.avro").write_bytes(b"Obj")
    old = directory / "old-m0.avro"
    old.write_bytes(b"Obj")
    os.utime(old, (1, 1))
