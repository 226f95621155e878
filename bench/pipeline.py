"""The Spark pipeline beside plain Spark: what an insert, a read and a merge cost over the same work without Lakebed.

    .venv/bin/python bench/pipeline.py                       # everything, about 23 minutes on two cores
    .venv/bin/python bench/pipeline.py --only insert --scale small

Pairs are interleaved, so that a slow minute of the machine hits both; a ratio comes with the 95 % interval of its median.
"""

import argparse
import functools
import json
import os
import random
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import DataFrame

import postgres
from lakebed.core.names import TableName
from lakebed.lake import Lake, connect
from lakebed.registry.queries.plans import ColumnRange
from lakebed.storage.local import LocalStorage
from machine import read_facts
from planning import plan_files

SPARK = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "4g", "spark.log.level": "ERROR"}
RESULTS = Path(__file__).parent / "results"
Work = Callable[[], object]
WARM = 8  # Java compiles what both write with while these run


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    insert: dict[int, int]  # rows -> pairs
    parted: tuple[int, int] = (500_000, 30)  # rows, pairs
    many: int = 200
    read: tuple[int, ...] = (1_000, 10_000)
    plan: tuple[int, ...] = (1_000, 10_000, 100_000)
    merge: dict[int, tuple[int, int]] = field(default_factory=dict)  # bytes in all -> (files, pairs)
    inserts: int = 500


SCALES = {
    "full": Scale(insert={1_000: 100, 1_000_000: 30, 10_000_000: 30}, merge={10_000_000: (1_000, 5), 1_000_000_000: (1_000, 2)}),
    "small": Scale(
        insert={1_000: 20, 1_000_000: 5}, parted=(500_000, 9), many=50, read=(200,), plan=(1_000,), merge={1_000_000: (50, 2)}, inserts=30
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default="full")
    parser.add_argument("--only", action="append", choices=GROUPS)
    parser.add_argument("--out", type=Path, default=RESULTS / f"pipeline-{datetime.now(UTC):%F}.json")
    parser.add_argument("--note", default="", help="what is special about this run, for whoever reads its figures")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as directory:
        place = Path(directory)
        answer = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "scale": chosen.scale,
            "machine": read_facts(place),
            "note": chosen.note,
            "figures": [],
        }
        for name in chosen.only or GROUPS:
            for figure in GROUPS[name](place / name, SCALES[chosen.scale]):
                answer["figures"].append({"group": name, **figure})
                print(json.dumps(figure), flush=True)
                chosen.out.write_text(json.dumps(answer, indent=1) + "\n", encoding="utf-8")  # a run that is stopped keeps what it measured
    print(f"written: {chosen.out.name}")


@contextmanager
def new_lake(place: Path) -> Iterator[Lake]:
    place.mkdir(parents=True)
    with connect(f"sqlite:///{place}/lake.db", warehouse=str(place / "warehouse"), spark_options=SPARK, service="off") as lake:
        yield lake


def frame(lake: Lake, rows: int, *, begin: int = 0, tasks: int = 2) -> DataFrame:
    return lake.spark.range(begin, begin + rows, 1, tasks).selectExpr(
        "id", "timestamp_micros(1772323200000000 + id * 1000) AS ts", "id % 97 AS customer", "concat('product ', id % 1009) AS product",
        "rand(7) AS amount", "id % 2 = 0 AS paid",
    )  # fmt: skip


def seconds(work: Work) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def compare(ours: Work, theirs: Work, pairs: int, *, warm: int = 1, tidy: Work = lambda: None) -> dict[str, object]:
    """Medians of both and of the ratio pair by pair, after `warm` rounds that are not counted; `tidy` after each, uncounted."""
    for _ in range(warm):
        ours(), theirs(), tidy()
    taken: list[tuple[float, float]] = []
    for number in range(pairs):
        first, second = (ours, theirs) if number % 2 else (theirs, ours)
        one, two = seconds(first), seconds(second)
        taken.append((one, two) if number % 2 else (two, one))
        tidy()
    ratios = [a / b for a, b in taken]
    drawn = sorted(statistics.median(random.choices(ratios, k=pairs)) for _ in range(2_000))
    return {
        "ours_ms": round(statistics.median(a for a, _ in taken) * 1e3, 2),
        "plain_ms": round(statistics.median(b for _, b in taken) * 1e3, 2),
        "ratio": round(statistics.median(ratios), 4),
        "interval": [round(drawn[50], 4), round(drawn[1_949], 4)],
        "pairs": pairs,
    }


def sync_tree(directory: Path) -> None:
    for path in [*directory.rglob("*"), directory]:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def insert(place: Path, scale: Scale) -> Iterator[dict[str, object]]:
    """Against `df.write.parquet` of the same DataFrame and fsync of what it wrote."""
    with new_lake(place) as lake:
        lake.create_table("bench.events", like=frame(lake, 1), event_time="ts")
        for rows, pairs in scale.insert.items():
            df, plain = frame(lake, rows), place / f"plain{rows}"

            def write_plain(df: DataFrame = df, plain: Path = plain) -> None:
                df.write.option("compression", "zstd").parquet(str(plain))
                sync_tree(plain)

            # short jobs are compared once Java has compiled both paths, which takes some dozen of them
            found = compare(
                functools.partial(lake.insert, "bench.events", df), write_plain, pairs,
                warm=30 if rows < 10_000 else 2, tidy=functools.partial(shutil.rmtree, plain),
            )  # fmt: skip
            yield {"work": "insert", "rows": rows, "must": 1.05 if rows < 10_000 else 1.02, **found}


def parted(place: Path, scale: Scale) -> Iterator[dict[str, object]]:
    """Against Spark's `repartition`, `partitionBy` and fsync of what it wrote: ten values, on both databases."""
    with new_lake(place / "sqlite") as lake:
        yield {**compare_parted(lake, place / "plain", scale), "database": "sqlite"}
        with postgres.run_server(place / "pg") as dsn:
            at = conninfo_to_dict(dsn)
            url = f"postgresql://{at['user']}@/{at['dbname']}?host={at['host']}&port={at['port']}"
            with connect(url, warehouse=str(place / "postgresql"), spark=lake.spark, service="off") as other:
                yield {**compare_parted(other, place / "plain", scale), "database": "postgresql"}


def compare_parted(lake: Lake, plain: Path, scale: Scale) -> dict[str, object]:
    rows, pairs = scale.parted
    df = frame(lake, rows).selectExpr("*", "concat('shop ', id % 10) AS shop")
    lake.create_table("bench.sales", like=df, event_time="ts", partition_by=["shop"])
    timings: list[Mapping[str, float]] = []

    def write_plain() -> None:
        df.repartition("shop").write.partitionBy("shop").option("compression", "zstd").parquet(str(plain))
        sync_tree(plain)

    def write_ours() -> None:
        timings.append(lake.insert("bench.sales", df).timings)

    found = compare(write_ours, write_plain, pairs, warm=WARM, tidy=functools.partial(shutil.rmtree, plain))
    stages = {name: round(statistics.median(t[name] for t in timings[WARM:]) * 1e3, 1) for name in timings[-1]}
    return {"work": "insert into ten partitions", "rows": rows, "must": 1.05, **found, "stages_ms": stages}


def many(place: Path, scale: Scale) -> Iterator[dict[str, object]]:
    """Many files in one insert: what publishing takes once footers and hashes are there."""
    with new_lake(place) as lake:
        lake.create_table("bench.events", like=frame(lake, 1), event_time="ts")
        taken = [lake.insert("bench.events", frame(lake, scale.many * 50, tasks=scale.many)) for _ in range(5)]
        yield {"work": "register", "files": taken[-1].files, "must_ms": 100,
               "stages_ms": {name: round(statistics.median(t.timings[name] for t in taken) * 1e3, 1) for name in taken[-1].timings}}  # fmt: skip


def read(place: Path, scale: Scale) -> Iterator[dict[str, object]]:
    """Building a DataFrame over registered small files, against one directory of as many with a given schema."""
    for files in scale.read:
        with new_lake(place / str(files)) as lake:
            lake.create_table("bench.events", like=frame(lake, 1), event_time="ts")
            tasks = min(files, 1_000)
            for begin in range(0, files, tasks):
                lake.insert("bench.events", frame(lake, tasks * 5, begin=begin * 5, tasks=tasks))
            plain = place / f"plain{files}"
            plain.mkdir()
            for number, row in enumerate(lake.files.list("bench.events")):
                os.link(row.file_path, plain / f"part-{number:05d}.parquet")
            schema = lake.read("bench.events").schema
            found = compare(
                lambda lake=lake: lake.read("bench.events"),
                lambda lake=lake, schema=schema, plain=plain: lake.spark.read.schema(schema).parquet(str(plain)),
                10,
            )
            assert lake.read("bench.events").count() == files * 5
            yield {"work": "build a DataFrame", "files": files, "directories": files // tasks, "must": 3, **found}


def plan(place: Path, scale: Scale) -> Iterator[dict[str, object]]:
    """A plan that matches ten files, in tables of growing size; files exist in the registry alone."""
    import adapter  # noqa: PLC0415 - the registry's benchmark knows how to fill a table

    for files in scale.plan:
        root = place / str(files)
        root.mkdir(parents=True)
        with connect(f"sqlite:///{root}/lake.db", warehouse=str(root / "warehouse"), service="off") as lake:
            assert isinstance(lake.storage, LocalStorage)
            adapter.create_table(lake)
            adapter.fill(lake, files)
            wanted = [ten_files(files // 2)]
            name = TableName.parse(adapter.TABLE)
            taken = sorted(seconds(functools.partial(plan_files, lake.registry, name, ranges=wanted)) for _ in range(200))
            yield {"work": "plan ten files", "files": files, "p50_ms": round(taken[100] * 1e3, 3)}


def ten_files(middle: int) -> ColumnRange:
    import adapter  # noqa: PLC0415

    low, high = float(middle * adapter.ROWS), float((middle + 10) * adapter.ROWS - 1)
    bounds = adapter.statistics(1, adapter.LONG, int(low), int(high))
    return ColumnRange(field_id=1, lower=bounds.lower, upper=bounds.upper, lower_coordinate=low, upper_coordinate=high)


def merge(place: Path, scale: Scale) -> Iterator[dict[str, object]]:
    """Against Spark's own read, coalesce and write of the same files."""
    for size, (files, pairs) in scale.merge.items():
        with new_lake(place / str(size)) as lake:
            rows = max(5, size // files // 24)  # about 24 bytes a row, compressed
            plain = place / f"plain{size}"

            def merge_ours(lake: Lake = lake, rows: int = rows, files: int = files) -> float:
                name = f"bench.t{random.getrandbits(40)}"
                lake.create_table(name, like=frame(lake, 1), event_time="ts")
                lake.insert(name, frame(lake, rows * files // 2, tasks=files // 2))
                lake.insert(name, frame(lake, rows * files // 2, begin=rows * files // 2, tasks=files // 2))
                began = time.perf_counter()
                done = lake.partitions.merge(name)
                taken = time.perf_counter() - began
                assert done.files_before == files, done
                return taken

            def merge_plain(lake: Lake = lake, rows: int = rows, files: int = files, plain: Path = plain, size: int = size) -> float:
                shutil.rmtree(plain, ignore_errors=True)
                frame(lake, rows * files, tasks=files).write.option("compression", "zstd").parquet(str(plain / "small"))
                schema = lake.spark.read.parquet(str(plain / "small")).schema
                began = time.perf_counter()
                small = lake.spark.read.schema(schema).parquet(str(plain / "small"))
                small.coalesce(max(1, size >> 27)).write.option("compression", "zstd").parquet(str(plain / "merged"))
                sync_tree(plain / "merged")
                return time.perf_counter() - began

            merge_plain(), merge_ours()
            taken = [(merge_ours(), merge_plain()) for _ in range(pairs)]
            ratio = statistics.median(theirs / ours for ours, theirs in taken)
            yield {"work": "merge", "bytes": size, "files": files, "must": 1.0, "ratio": round(ratio, 3), "pairs": pairs,
                   "ours_s": round(statistics.median(a for a, _ in taken), 2), "plain_s": round(statistics.median(b for _, b in taken), 2)}  # fmt: skip


def memory(place: Path, scale: Scale) -> Iterator[dict[str, object]]:
    """Of the Python driver over many inserts: what is kept must not grow with them."""
    with new_lake(place) as lake:
        lake.create_table("bench.events", like=frame(lake, 1), event_time="ts")
        df, seen = frame(lake, 100), []
        for _ in range(scale.inserts):
            lake.insert("bench.events", df)
            seen.append(resident_mb())
        settled = len(seen) // 5
        yield {"work": "memory over inserts", "inserts": scale.inserts, "after_a_fifth_mb": seen[settled], "at_the_end_mb": seen[-1],
               "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)}  # fmt: skip


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return round(pages * resource.getpagesize() / 2**20, 1)


GROUPS: dict[str, Callable[[Path, Scale], Iterator[dict[str, object]]]] = {
    "insert": insert,
    "parted": parted,
    "many": many,
    "read": read,
    "plan": plan,
    "merge": merge,
    "memory": memory,
}

if __name__ == "__main__":
    main()
