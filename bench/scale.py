"""What hot calls cost as the lake grows: the same calls beside 10^4 and 10^5 files, on both databases.

    .venv/bin/python bench/scale.py                                # some minutes on two cores
    .venv/bin/python bench/scale.py --without-group-indexes        # as it was before registry revision 0005

One large table is made by copying the rows of one file; the calls are about one file, one group or a small table beside it, so
that their cost must not depend on the size. PostgreSQL's tables are analyzed; SQLite's never are.
"""

import argparse
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import machine
import postgres
from harness import percentile
from lakebed.core import fingerprints
from lakebed.core.files import ColumnStatistics, Footer, NewFile
from lakebed.core.ids import make_op_id
from lakebed.core.names import TableName
from lakebed.core.partitions import NewPartition
from lakebed.core.schema import bounds
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, Primitive
from lakebed.core.times import TimeRange
from lakebed.registry.files.operations import Operation
from lakebed.registry.open import open_registry
from lakebed.registry.partitions.publish import Published, publish_partition
from lakebed.registry.queries.plans import AtGroup, ColumnRange
from lakebed.registry.registry import Registry
from lakebed.registry.snapshots.history import sum_at_group
from lakebed.registry.tables.groups import plan_step, seal_table
from lakebed.registry.tables.lake_tables import TableSpec, create_table
from lakebed.testing import multiply_file
from planning import plan_files

RESULTS = Path(__file__).parent / "results"
SIZES = (10_000, 100_000)
TIMES = 40
LONG = Primitive(name="long")
SCHEMA = Schema(fields=(Field(field_id=1, name="id", type=LONG),))
LARGE, SMALL = TableName("bench", "large"), TableName("bench", "small")
TAIL = hashlib.sha256(b"footer").digest() * 32
SUM = hashlib.sha256(TAIL).hexdigest()
GROUP_INDEXES = ("table_files_added_group", "table_files_removed_group")


def statistics(number: int) -> tuple[ColumnStatistics, ...]:
    low, high = number * 1000, number * 1000 + 999
    lower, upper = bounds.lower_bound(LONG, low), bounds.upper_bound(LONG, high)
    return (
        ColumnStatistics(
            field_id=1, null_count=0, value_count=1000, lower=lower, upper=upper, lower_coordinate=float(low), upper_coordinate=float(high)
        ),
    )


def publish(registry: Registry, name: TableName, number: int) -> Published:
    table = registry.require_table_id(name)
    file = NewFile(
        path=f"/warehouse/{name}/{number}-{time.monotonic_ns()}.parquet",
        size_bytes=20_000,
        row_count=1000,
        checksum=SUM,
        footer=Footer(tail=TAIL, num_rows=1000, checksum=SUM),
        columns=statistics(number),
    )
    (schema_hash,) = registry.query("SELECT schema_hash FROM table_metadata WHERE table_id = :id", {"id": table})[0]
    chosen = TimeRange(begin=10**15, end=10**15 + 1) if number == 0 else None
    partition = NewPartition(
        table=name, schema_hash=schema_hash, fingerprint=fingerprints.from_bytes(os.urandom(16)), files=(file,), insert_range=chosen
    )
    return publish_partition(registry, partition, Operation(op_id=make_op_id(time.time_ns() // 1000, os.urandom(10))))


def fill(registry: Registry, files: int, *, indexes: bool) -> None:
    for name in (LARGE, SMALL):
        create_table(registry, TableSpec(name=name, schema=SCHEMA, index=("id",)))
    multiply_file(registry, publish(registry, LARGE, 0), files, columns=statistics)
    publish(registry, SMALL, 1)
    seal_table(registry, registry.require_table_id(SMALL))
    with registry.write() as tx:
        for name in () if indexes else GROUP_INDEXES:
            tx.send(f"DROP INDEX {name}")
        if registry.dialect == "postgresql":
            tx.send("ANALYZE")


def point(value: int) -> ColumnRange:
    low, high = bounds.lower_bound(LONG, value), bounds.upper_bound(LONG, value)
    return ColumnRange(field_id=1, lower=low, upper=high, lower_coordinate=float(value), upper_coordinate=float(value))


def seal_one(registry: Registry, large: int) -> float:
    publish(registry, LARGE, 7)
    began = time.perf_counter()
    seal_table(registry, large)
    return time.perf_counter() - began


def calls(registry: Registry, files: int) -> dict[str, Callable[[], object]]:
    large, small = registry.require_table_id(LARGE), registry.require_table_id(SMALL)
    return {
        "plan a point": lambda: plan_files(registry, LARGE, ranges=[point(files // 2 * 1000 + 500)]),
        "step of one file beside the large table": lambda: plan_step(registry, small, since=0, until=1),
        "step of one group of the large table": lambda: plan_step(registry, large, since=5, until=6),
        "totals of the small table": lambda: sum_at_group(registry, small, 1),
        "plan the small table at a group": lambda: plan_files(registry, SMALL, as_of=AtGroup(1)),
        "seal one file": lambda: seal_one(registry, large),
    }


def measure(registry: Registry, files: int, *, indexes: bool) -> Iterator[dict[str, object]]:
    fill(registry, files, indexes=indexes)
    for name, call in calls(registry, files).items():
        taken = []
        for _ in range(TIMES):
            began = time.perf_counter()
            answer = call()
            taken.append((answer if isinstance(answer, float) else time.perf_counter() - began) * 1e3)
        figures = {"best_ms": round(min(taken), 3), "p50_ms": round(percentile(taken, 50), 3), "p99_ms": round(percentile(taken, 99), 3)}
        yield {"database": registry.dialect, "files": files, "call": name, **figures}


def run(place: Path, *, indexes: bool) -> Iterator[dict[str, object]]:
    for files in SIZES:
        with closing(open_registry(f"sqlite:///{place}/scale-{files}.db", create=True)) as registry:
            yield from measure(registry, files, indexes=indexes)
        with postgres.new_database(f"scale_{files}") as made, closing(open_registry(postgres.url_of(made), create=True)) as registry:
            yield from measure(registry, files, indexes=indexes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--without-group-indexes", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS / f"scale-{datetime.now(UTC):%F}.json")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lb-") as directory, postgres.run_server(Path(directory) / "pg") as dsn:
        os.environ[postgres.DSN_VARIABLE] = dsn
        answer: dict[str, Any] = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine.read_facts(Path(directory)) | {"postgres": postgres.read_settings(dsn)},
            "figures": [],
        }
        for found in run(Path(directory), indexes=not chosen.without_group_indexes):
            answer["figures"].append(found)
            print(json.dumps(found), flush=True)
    chosen.out.write_text(json.dumps(answer, indent=1) + "\n", encoding="utf-8")
    print(f"written: {chosen.out.name}")


if __name__ == "__main__":
    main()
