"""What an Iceberg commit costs as its table grows: CPU and elapsed time, and the memory of a commit of everything.

    .venv/bin/python bench/commits_at_scale.py                          # 10^4 and 10^5 files on both databases
    .venv/bin/python bench/commits_at_scale.py --sizes 1000000 --only sqlite --describe-once

Each size is filled by one process and measured in another. With `--describe-once` the statistics of the first file stand for those of all
(they are copies), which leaves out most of the time and none of the memory. The large table is made by copying the rows of one real file of ten columns, ten files to a partition,
over a hundred partition values; Iceberg learns of all of them in one commit. Then one file at a time goes into that table and into one
beside it, and partitions far apart leave, each from a manifest that no removal has touched where there are several.
"""

import argparse
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import machine
import postgres
from harness import percentile
from lakebed.core import fingerprints
from lakebed.core.files import Footer, NewFile
from lakebed.core.ids import make_op_id
from lakebed.core.names import TableName
from lakebed.core.partitions import NewPartition
from lakebed.core.rows import TableFiles
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, Primitive
from lakebed.core.times import TimeRange
from lakebed.iceberg.catalog import open_catalog
from lakebed.iceberg.commit.committer import Committer
from lakebed.iceberg.manifests.data_file import DataFile, FileWriter
from lakebed.lake import Lake, connect
from lakebed.parquet.footer.framing import read_tail
from lakebed.parquet.schema.arrow import to_arrow
from lakebed.registry.files.operations import Operation
from lakebed.registry.partitions.publish import Published, publish_partition
from lakebed.registry.partitions.retire import load_partitions_to_retire, retire_loaded
from lakebed.registry.tables.groups import seal_table
from lakebed.registry.tables.lake_tables import TableSpec, create_table
from lakebed.testing import multiply_file

RESULTS = Path(__file__).parent / "results"
SIZES = (10_000, 100_000)
TIMES, REMOVALS, ROWS = 20, 8, 1000
NAMES = ("p", *(f"c{number}" for number in range(9)))
KINDS = {name: Primitive(name="string" if name == "p" else "long") for name in NAMES}
SCHEMA = Schema(fields=tuple(Field(field_id=number, name=name, type=KINDS[name]) for number, name in enumerate(NAMES, 1)))
LARGE, SMALL = TableName("bench", "large"), TableName("bench", "small")


def make_footer() -> Footer:
    columns = [["v"] * ROWS if name == "p" else [int.from_bytes(os.urandom(6)) for _ in range(ROWS)] for name in NAMES]
    target = io.BytesIO()
    pq.write_table(pa.table(columns, schema=to_arrow(SCHEMA)), target)
    content = target.getvalue()
    tail = read_tail(lambda offset, length: content[offset : offset + length], len(content), path="template.parquet")
    return Footer(tail=tail, num_rows=ROWS, checksum=hashlib.sha256(tail).hexdigest())


def publish(lake: Lake, name: TableName, number: int, footer: Footer) -> Published:
    operation = Operation(op_id=make_op_id(time.time_ns() // 1000, os.urandom(10)))
    table_id = lake.registry.require_table_id(name)
    directory = lake.storage.paths.operation_directory(table_id, name, operation.op_id)
    path = f"{directory}/part-{number:06d}.parquet"
    file = NewFile(path=path, size_bytes=90_000, row_count=ROWS, checksum=footer.checksum, footer=footer, partition_path="p=v")
    (schema_hash,) = lake.registry.query("SELECT schema_hash FROM table_metadata WHERE table_id = :id", {"id": table_id})[0]
    chosen = TimeRange(begin=10**15, end=10**15 + 1) if number == 0 else None
    partition = NewPartition(
        table=name, schema_hash=schema_hash, fingerprint=fingerprints.from_bytes(os.urandom(16)), files=(file,), insert_range=chosen
    )
    return publish_partition(lake.registry, partition, operation)


def fill(lake: Lake, files: int, footer: Footer) -> None:
    for name in (LARGE, SMALL):
        create_table(lake.registry, TableSpec(name=name, schema=SCHEMA, partition_by=("p",)))
    multiply_file(lake.registry, publish(lake, LARGE, 0, footer), files)
    with lake.registry.write([LARGE]) as tx:
        tx.run("UPDATE tables SET committed_group = 0 WHERE id = :id", {"id": tx.require(LARGE).table_id})
        if tx.dialect == "postgresql":
            tx.send("ANALYZE")


def timed(call: Callable[[], object]) -> dict[str, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return {"cpu_ms": round((time.process_time() - cpu) * 1e3, 1), "wall_ms": round((time.perf_counter() - wall) * 1e3, 1)}


def read_memory(key: str) -> int:
    """In megabytes, of this process."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(key))) // 1024


def middle(call: str, taken: list[dict[str, float]]) -> dict[str, object]:
    found = {f"{key}_p50": percentile([one[key] for one in taken], 50) for key in taken[0]}
    return {"call": call, "times": len(taken), "cpu_ms_best": min(one["cpu_ms"] for one in taken), "first": taken[0], **found}


def describe_once() -> None:
    describe, known = FileWriter.describe, list[DataFile]()

    def copied(self: FileWriter, row: TableFiles, footer: bytes, instance: str) -> DataFile:
        if not known:
            known.append(describe(self, row, footer, instance))
        return {**known[0], "file_path": f"file://{row.file_path}", "partition": {"p": row.partition_path.removeprefix("p=")}}

    FileWriter.describe = copied  # type: ignore[method-assign]


def measure(lake: Lake, *, once: bool) -> Iterator[dict[str, object]]:
    footer, committer = make_footer(), Committer(lake.registry, lake.storage, open_catalog(lake.registry, lake.storage))
    if once:
        describe_once()
    large, small = lake.registry.require_table_id(LARGE), lake.registry.require_table_id(SMALL)
    before = read_memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak counts from here
    found = timed(lambda: committer.advance(large))
    yield {"call": "commit all files", **found, "peak_mb": read_memory("VmHWM"), "before_mb": before}

    def one_more(name: TableName, table_id: int, number: int) -> dict[str, float]:
        publish(lake, name, number, footer)
        seal_table(lake.registry, table_id)
        return timed(lambda: committer.advance(table_id))

    yield middle("commit one file into the large table", [one_more(LARGE, large, n) for n in range(1, TIMES + 1)])
    yield middle("commit one file beside it", [one_more(SMALL, small, n) for n in range(1, TIMES + 1)])
    yield middle("remove ten old files of one partition", [remove(lake, committer, large, part) for part in range(REMOVALS)])


def remove(lake: Lake, committer: Committer, large: int, part: int) -> dict[str, float]:
    ids = [
        row[0]
        for row in lake.registry.query("SELECT id FROM partitions WHERE table_id = :id AND file_count > 1 ORDER BY id", {"id": large})
    ]
    chosen = ids[part * len(ids) // REMOVALS + part]
    with lake.registry.write([LARGE]) as tx:
        table = tx.require(LARGE)
        retire_loaded(tx, table, load_partitions_to_retire(tx, table, {chosen}, exactly=True), reason="bench", grace_us=10**12)
    return timed(lambda: committer.advance(large))


def run_child(url: str, warehouse: str, files: int, what: str) -> None:
    with connect(url, warehouse=warehouse, service="off") as lake:
        if what == "fill":
            fill(lake, files, make_footer())
            return
        for found in measure(lake, once=what == "once"):
            print(json.dumps({"database": lake.registry.dialect, "files": files, "described": what, **found}), flush=True)


def run(place: Path, sizes: list[int], only: str, described: str) -> Iterator[dict[str, object]]:
    for files in sizes:
        if only != "postgresql":
            yield from run_one([f"sqlite:///{place}/commits-{files}.db", str(place / f"sqlite-{files}"), files], described)
        if only != "sqlite":
            with postgres.new_database(f"commits_{files}") as made:
                yield from run_one([postgres.url_of(made), str(place / f"postgres-{files}"), files], described)


def run_one(given: list[object], described: str) -> Iterator[dict[str, object]]:
    call = [sys.executable, __file__, "--child"]
    subprocess.run([*call, json.dumps([*given, "fill"])], check=True)
    with subprocess.Popen([*call, json.dumps([*given, described])], stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout or ():
            yield json.loads(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--only", choices=("sqlite", "postgresql"), default="")
    parser.add_argument("--describe-once", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULTS / f"commits-at-scale-{datetime.now(UTC):%F}.json")
    chosen = parser.parse_args()
    if chosen.child:
        run_child(*json.loads(chosen.child))
        return
    with tempfile.TemporaryDirectory(prefix="lb-") as directory, postgres.run_server(Path(directory) / "pg") as dsn:
        os.environ[postgres.DSN_VARIABLE] = dsn
        answer: dict[str, Any] = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine.read_facts(Path(directory)) | {"postgres": postgres.read_settings(dsn)},
            "figures": [],
        }
        for found in run(Path(directory), chosen.sizes, chosen.only, "once" if chosen.describe_once else "each"):
            answer["figures"].append(found | {"load": round(os.getloadavg()[0], 1)})
            print(json.dumps(answer["figures"][-1]), flush=True)
    chosen.out.write_text(json.dumps(answer, indent=1) + "\n", encoding="utf-8")
    print(f"written: {chosen.out.name}")


if __name__ == "__main__":
    main()
