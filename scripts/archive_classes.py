"""Store Java's classes as Spark loads them, so that every later Java of the tests maps them instead: half of the time to its first answer.

    .venv/bin/python scripts/archive_classes.py .venv/spark.jsa

What a Java that cannot do this leaves behind is no archive, and tests that take longer.
"""

import os
import subprocess
import sys
from pathlib import Path

from lakebed.testing import temporary_lake

SPARK = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false", "spark.log.level": "OFF"}
EVENTS = "id", "timestamp_micros(id) AS ts", "id % 3 AS kind", "string(id) AS text", "array(id) AS many", "id / 7D AS value"


def use_spark() -> None:
    """A little of everything that tests do with Spark: what was loaded by the end is stored."""
    with temporary_lake(spark_options=SPARK, service="off") as lake:
        spark = lake.spark
        events = spark.range(100).selectExpr(*EVENTS)
        lake.create_table("some.plain", like=events.drop("many"), event_time="ts", partition_by=["kind"])
        lake.create_table("some.nested", like=events)
        lake.insert("some.plain", events.drop("many"))
        lake.insert("some.nested", events)
        lake.delete("some.plain", where="id < 10")
        lake.create_view_set(
            "some.counted",
            over="some.plain",
            sql="SELECT kind, count(*) AS n FROM some.plain GROUP BY kind",
            combine="SELECT kind, sum(n) AS n FROM partials GROUP BY kind",
            slice="1h",
        )
        lake.materialize("some.counted").raise_failed()
        lake.sql("SELECT p.kind, max(p.value) FROM some.plain p JOIN some.nested n ON n.id = p.id GROUP BY p.kind ORDER BY 1").collect()
        lake.read("some.plain", where="id > 50 AND kind = 1").toPandas()
        lake.register_functions(spark)
        spark.sql("SELECT * FROM list_partitions()").collect()
        spark.stop()


def archive_classes(archive: Path) -> bool:
    """Whether there is an archive in the end; it takes its name when it is whole."""
    unfinished = archive.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    options = f"-XX:ArchiveClassesAtExit={unfinished} -Xlog:disable -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    # Java outlives the Python that started it, and writes the archive then: its end is the end of what it could say
    told = [sys.executable, __file__]
    subprocess.run(told, env=os.environ | {"SPARK_SUBMIT_OPTS": options}, capture_output=True, check=False)  # noqa: S603 - this very script
    if unfinished.exists():
        unfinished.replace(archive)
    return archive.exists()


if __name__ == "__main__":
    if len(sys.argv) == 1:
        use_spark()
    elif archive_classes(Path(sys.argv[1]).absolute()):
        print("Java's classes are stored: Spark starts in half of the time")
    else:
        print("This Java stores no classes: the tests take some minutes longer")
