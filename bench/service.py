"""What publishing costs and how soon rows are in a snapshot.

    .venv/bin/python bench/service.py                        # about five minutes on two cores
    .venv/bin/python bench/service.py --only pace --scale small

pace: small inserts at a fixed rate, both databases: how long until each is in a snapshot, and how many commits that took.
together: inserts that wait for their snapshot, from one thread and from eight: how long each takes, and how many share a group and a commit.
beside: Spark inserts with the publisher running beside the same inserts without, in interleaved pairs.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from psycopg.conninfo import conninfo_to_dict

import postgres
from lakebed.core.names import TableName
from lakebed.lake import Lake, connect
from lakebed.registry.snapshots.history import list_snapshots
from machine import read_facts

RESULTS = Path(__file__).parent / "results"
SPARK = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "2g", "spark.log.level": "ERROR"}
EVENTS = TableName("bench", "events")
SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("ts", pa.timestamp("us", tz="UTC")), pa.field("value", pa.float64())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    seconds: int
    pairs: int
    waiting: int  # inserts of each thread that waits
    rate: int = 50


SCALES = {"full": Scale(seconds=60, pairs=40, waiting=100), "small": Scale(seconds=5, pairs=6, waiting=15)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default="full")
    parser.add_argument("--only", action="append", choices=["pace", "together", "beside"])
    parser.add_argument("--out", type=Path, default=RESULTS / f"service-{datetime.now(UTC):%F}.json")
    chosen = parser.parse_args()
    scale, figures = SCALES[chosen.scale], []
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as directory:
        place = Path(directory)
        for name, measure in (("pace", measure_pace), ("together", measure_together)):
            if name in (chosen.only or [name]):
                figures.append(measure(f"sqlite:///{place}/{name}.db", place / f"sqlite-{name}", scale) | {"database": "sqlite"})
                with postgres.run_server(place / f"pg-{name}") as dsn:
                    at = conninfo_to_dict(dsn)
                    url = f"postgresql://{at['user']}@/{at['dbname']}?host={at['host']}&port={at['port']}"
                    figures.append(measure(url, place / f"postgres-{name}", scale) | {"database": "postgresql"})
        if "beside" in (chosen.only or ["beside"]):
            figures.append(measure_beside(place / "beside", scale))
        facts = read_facts(place)
    answer = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "scale": chosen.scale, "machine": facts, "figures": figures}
    chosen.out.write_text(json.dumps(answer, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(figures, indent=1))


def measure_pace(url: str, warehouse: Path, scale: Scale) -> dict[str, Any]:
    with connect(url, warehouse=str(warehouse), service="auto") as lake:
        lake.create_table(str(EVENTS), SCHEMA, event_time="ts")
        insert_file(lake, 0)
        lake.snapshot(str(EVENTS))  # the publisher is there
        first = len(lake.snapshots(str(EVENTS)))
        registered = insert_paced(lake, scale)
        lake.drain(60)
        lags = lags_of(lake, registered)
        commits = len(lake.snapshots(str(EVENTS))) - first
    inserts = len(registered)
    return {
        "work": f"{scale.rate} inserts a second for {scale.seconds} s",
        "inserts": inserts,
        "commits": commits,
        "inserts_per_commit": round(inserts / commits, 2),
        "lag_p50_s": round(statistics.median(lags), 3),
        "lag_max_s": round(max(lags), 3),
        "must": {"lag_max_s": 2.0, "inserts_per_commit": 5.0},
        "reached": max(lags) <= 2.0 and inserts / commits >= 5.0,
    }


def measure_together(url: str, warehouse: Path, scale: Scale) -> dict[str, Any]:
    with connect(url, warehouse=str(warehouse), service="auto") as lake:
        lake.create_table(str(EVENTS), SCHEMA, event_time="ts")
        insert_file(lake, 0)
        lake.snapshot(str(EVENTS))
        return {
            "work": "inserts that wait for their snapshot",
            "alone": insert_and_wait(lake, threads=1, inserts=scale.waiting),
            "eight": insert_and_wait(lake, threads=8, inserts=scale.waiting),
        }


def insert_and_wait(lake: Lake, *, threads: int, inserts: int) -> dict[str, Any]:
    table_id = lake.registry.require_table_id(EVENTS)

    def insert(number: int) -> float:
        began = time.perf_counter()
        first = insert_file(lake, number)
        assert lake._context.commits.wait(table_id, range(first, first + 1)) is not None
        return time.perf_counter() - began

    count = "SELECT last_group, (SELECT count(*) FROM table_snapshots WHERE table_id = :id) FROM tables WHERE id = :id"
    (before,) = lake.registry.query(count, {"id": table_id})
    began = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        seconds = list(pool.map(insert, range(1, inserts * threads + 1)))
    took = time.perf_counter() - began
    (after,) = lake.registry.query(count, {"id": table_id})
    return {
        "threads": threads,
        "inserts": len(seconds),
        "inserts_per_s": round(len(seconds) / took, 1),
        "p50_s": round(statistics.median(seconds), 4),
        "max_s": round(max(seconds), 4),
        "inserts_per_group": round(len(seconds) / (after[0] - before[0]), 2),
        "inserts_per_commit": round(len(seconds) / (after[1] - before[1]), 2),
    }


def insert_paced(lake: Lake, scale: Scale) -> dict[int, float]:
    """When each insert was registered, by its partition's file; late ones are not made up for by a burst."""
    registered: dict[int, float] = {}
    begin = time.monotonic()
    for number in range(1, scale.rate * scale.seconds + 1):
        due = begin + number / scale.rate
        if (left := due - time.monotonic()) > 0:
            time.sleep(left)
        registered[insert_file(lake, number)] = time.time()
    return registered


def insert_file(lake: Lake, number: int) -> int:
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    rows = pa.table([[number, number + 1], [moment, moment], [0.5, 1.5]], schema=SCHEMA)
    with lake.writing(str(EVENTS)) as writing:
        path = Path(writing.new_path())
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(with_ids(rows), path)
        return writing.publish().first_file_id


def with_ids(rows: pa.Table) -> pa.Table:
    fields = [field.with_metadata({"PARQUET:field_id": str(n)}) for n, field in enumerate(rows.schema, start=1)]
    return rows.cast(pa.schema(fields))


def lags_of(lake: Lake, registered: dict[int, float]) -> list[float]:
    """From the end of the registration to the time of the snapshot that first held the file."""
    table_id = lake.registry.require_table_id(EVENTS)
    snapshots = [(s.group_no, s.timestamp_ms / 1000) for s in list_snapshots(lake.registry, table_id, expired=True)]
    groups = dict(lake.registry.query("SELECT id, added_group FROM table_files WHERE table_id = :id", {"id": table_id}))
    return [max(0.0, next(at for group, at in snapshots if group >= groups[file_id]) - when) for file_id, when in registered.items()]


def measure_beside(place: Path, scale: Scale) -> dict[str, Any]:
    """Each pair in random order; the ratio's interval is by bootstrap over the pairs."""
    with two_lakes(place) as (alone, published):
        frame = alone.spark.range(1_000).selectExpr("id", "id * 0.5D AS value").cache()
        frame.count()
        for lake in (alone, published):
            lake.create_table(str(EVENTS), like=frame)
            for _ in range(3):
                lake.insert(str(EVENTS), frame)
        pairs = []
        for _ in range(scale.pairs):
            taken = {}
            for lake in random.sample([alone, published], 2):
                began = time.perf_counter()
                lake.insert(str(EVENTS), frame)
                taken[lake is published] = time.perf_counter() - began
            pairs.append((taken[True], taken[False]))
    ratios = sorted(statistics.median(a for a, _ in sample) / statistics.median(b for _, b in sample) for sample in resampled(pairs))
    ratio = statistics.median(a for a, _ in pairs) / statistics.median(b for _, b in pairs)
    return {
        "work": "insert of 1,000 rows with the publisher running, over the same without",
        "ratio": round(ratio, 3),
        "interval": [round(ratios[25], 3), round(ratios[975], 3)],
        "published_ms": round(statistics.median(a for a, _ in pairs) * 1000, 1),
        "alone_ms": round(statistics.median(b for _, b in pairs) * 1000, 1),
        "must": 1.05,
        "reached": ratio <= 1.05,
    }


@contextmanager
def two_lakes(place: Path) -> Iterator[tuple[Lake, Lake]]:
    place.mkdir()
    with (
        connect(f"sqlite:///{place}/alone.db", warehouse=str(place / "a"), service="off", spark_options=SPARK) as alone,
        connect(f"sqlite:///{place}/published.db", warehouse=str(place / "b"), service="auto", spark=alone.spark) as published,
    ):
        yield alone, published
        alone.spark.stop()


def resampled(pairs: list[tuple[float, float]]) -> Iterator[list[tuple[float, float]]]:
    for _ in range(1000):
        yield random.choices(pairs, k=len(pairs))


if __name__ == "__main__":
    main()
