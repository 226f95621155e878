"""Lets Spark with Iceberg's own library write beside Lakebed, in a separate process: Java gets its jars when it starts.

python ref_writer.py JSON-LIST-OF-LAKES    prints one JSON line per comparison
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812
from reference_reader import NAME, OPTIONS, Place, reader_of, rows, say

from lakebed.core.errors import ForeignCommitError, InvalidValueError
from lakebed.lake import connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.lake import Lake

EXTENSIONS = {"spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"}
THEIRS = f"lakebed.{NAME}"


def main() -> None:
    spark: SparkSession | None = None
    for given in json.loads(sys.argv[1]):
        place = Place(**given)
        with connect(place.url, warehouse=place.warehouse, spark=spark, spark_options=OPTIONS | EXTENSIONS, service="auto") as lake:
            spark = lake.spark
            lake.create_table(NAME, like=rows(spark, 0, 1).drop("many"), event_time="ts")
            walk(lake, reader_of(spark, place))


def insert(lake: Lake, begin: int, end: int) -> None:
    lake.insert(NAME, rows(lake.spark, begin, end).drop("many"), metadata_mode="sync")


def add_theirs(session: SparkSession, into: str, begin: int, end: int) -> None:
    """By name, because the order of columns is Lakebed's."""
    rows(session, begin, end).drop("many").createOrReplaceTempView("theirs")
    columns = ", ".join(session.table(into).columns[:3])
    session.sql(f"INSERT INTO {into} ({columns}) SELECT {columns} FROM theirs")


def ids(session: SparkSession, what: str) -> list[int]:
    return sorted(row[0] for row in session.sql(f"SELECT id FROM {what}").collect())


def walk(lake: Lake, session: SparkSession) -> None:
    insert(lake, 0, 60)
    session.sql(f"ALTER TABLE {THEIRS} CREATE TAG audit")
    session.sql(f"ALTER TABLE {THEIRS} CREATE BRANCH theirs")
    add_theirs(session, f"{THEIRS}.branch_theirs", 1000, 1020)
    session.sql(f"ALTER TABLE {THEIRS} SET TBLPROPERTIES ('team' = 'ann')")
    insert(lake, 60, 100)
    compare_refs("after an insert", lake, session)
    (first, *_) = lake.list_partitions(NAME)
    lake.retire_partition_by_metadata(NAME, insert_begin=first.begin_insert_time, insert_end=first.end_insert_time, grace_s=0)
    lake.drain(60)
    old = [row.snapshot_id for row in lake.snapshots(NAME) if not row.tags and not row.is_current]
    lake.snapshots.expire(NAME, snapshot_ids=old, dry_run=False)
    lake.drain(60)
    lake.delete_expired_temporary_files()
    compare_refs("after retirement, expiry and clean-up", lake, session)
    for change in (f"ALTER TABLE {THEIRS} ADD COLUMN note STRING", f"ALTER TABLE {THEIRS} WRITE ORDERED BY id"):
        session.sql(change)
        stop_and_discard(change, lake, session)
    add_theirs(session, THEIRS, 2000, 2020)
    stop_and_discard("INSERT INTO main", lake, session)
    session.sql(f"ALTER TABLE {THEIRS} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    session.sql(f"DELETE FROM {THEIRS} WHERE id = 70")
    refuse_to_adopt(lake)
    stop_and_discard("DELETE", lake, session)
    compare_refs("at the end", lake, session)
    say("check", list_damage(lake), [])


def compare_refs(step: str, lake: Lake, session: SparkSession) -> None:
    say(f"{step}: branch", [*range(60), *range(1000, 1020)], ids(session, f"{THEIRS}.branch_theirs"))
    say(f"{step}: tag", list(range(60)), ids(session, f"{THEIRS}.tag_audit"))
    say(f"{step}: table", sorted(row[0] for row in lake.read(NAME).select("id").collect()), ids(session, THEIRS))
    team = session.sql(f"SHOW TBLPROPERTIES {THEIRS}").where(F.col("key") == "team").collect()
    say(f"{step}: property", ["ann"], [row["value"] for row in team])


def refuse_to_adopt(lake: Lake) -> None:
    """Rows that delete files removed would come back."""
    try:
        lake.repair(NAME, how="adopt_foreign", dry_run=False)
    except InvalidValueError as refused:
        say("DELETE: adopting", [True], ["delete files" in str(refused)])


def list_damage(lake: Lake) -> list[str]:
    """Without the checksum files that Hadoop writes beside every file on a local disk: nothing names them."""
    found = [finding for finding in lake.check().findings if finding.severity.value != "info"]
    return [f"{finding.rule} {finding.subject}" for finding in found if not finding.subject.endswith(".crc")]


def stop_and_discard(what: str, lake: Lake, session: SparkSession) -> None:
    try:
        insert(lake, 3000, 3001)
    except ForeignCommitError as stop:
        say(f"{what}: stopped", [True], ["discard_foreign" in str(stop)])
    else:
        say(f"{what}: stopped", ["foreign_commit"], ["nothing"])
    say(f"{what}: check", ["iceberg_foreign"], [line.split()[0] for line in list_damage(lake)])
    lake.repair(NAME, how="discard_foreign", dry_run=False)
    lake.drain(60)
    insert(lake, 3001, 3002)
    say(f"{what}: columns", ["amount", "id", "ts"], sorted(session.table(THEIRS).columns))
    say(f"{what}: check after", [], list_damage(lake))


if __name__ == "__main__":
    main()
