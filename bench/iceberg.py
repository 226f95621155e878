"""Iceberg commits beside PyIceberg's `add_files`, on the same files, in the same run.

    .venv/bin/python bench/iceberg.py                     # everything, about ten minutes on two cores
    .venv/bin/python bench/iceberg.py --scale small

Ours is the committer's whole move: read the registry, describe the files from stored footers, write manifests, list and
metadata durably, swap the pointer under the fence, tell the registry. The peer opens a table with the same history and calls
`add_files`; it makes nothing durable.
"""

import argparse
import hashlib
import json
import os
import secrets
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from lakebed.core import fingerprints
from lakebed.core.files import Footer, NewFile
from lakebed.core.ids import make_op_id
from lakebed.core.names import TableName
from lakebed.core.partitions import NewPartition
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, Primitive
from lakebed.core.tables.snapshots import SnapshotRequests
from lakebed.iceberg.catalog import LakeCatalog, open_catalog
from lakebed.iceberg.commit.committer import Committer
from lakebed.iceberg.locations import to_uri
from lakebed.lake import Lake, connect
from lakebed.parquet.footer.framing import read_tail
from lakebed.parquet.schema.arrow import to_arrow
from lakebed.registry.files.operations import Operation
from lakebed.registry.partitions.publish import publish_partition
from lakebed.registry.snapshots.requests import change_requests
from lakebed.registry.tables.groups import seal_table
from lakebed.registry.tables.lake_tables import LakeTable, TableSpec, create_table
from machine import read_facts

RESULTS = Path(__file__).parent / "results"
NAME = TableName("bench", "events")
KEPT = 50  # snapshots under the default retention of a table that is written all the time
EXPIRE_EVERY = 10
ROWS = 100
SCHEMA = Schema(
    fields=(
        Field(field_id=1, name="id", type=Primitive(name="long")),
        Field(field_id=2, name="ts", type=Primitive(name="timestamptz")),
        Field(field_id=3, name="amount", type=Primitive(name="double")),
        Field(field_id=4, name="country", type=Primitive(name="string")),
        Field(field_id=5, name="note", type=Primitive(name="string")),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    history: int
    retained: int
    files: int
    together: int
    tries: int


SCALES = {
    "full": Scale(history=2_000, retained=1_000, files=100_000, together=1_000, tries=20),
    "small": Scale(history=200, retained=100, files=3_000, together=200, tries=5),
}


@dataclass(slots=True)
class Bench:
    """One lake, its committer, and a real Parquet file that every other one is a copy of."""

    lake: Lake
    catalog: LakeCatalog
    committer: Committer
    table: LakeTable
    template: Path
    footer: Footer
    results: list[dict[str, object]] = field(default_factory=list)

    def offer(self, count: int, *, real: bool = False) -> list[str]:
        """`count` pending files in one partition; only those that another program must open are put on the disk."""
        op_id = make_op_id(time.time_ns() // 1000, secrets.token_bytes(10))
        directory = self.lake.storage.paths.operation_directory(self.table.table_id, NAME, op_id)
        paths = [f"{directory}/part-{number:05d}.parquet" for number in range(count)]
        if real:
            Path(directory).mkdir(parents=True)
            for path in paths:
                os.link(self.template, path)
        partition = NewPartition(
            table=NAME,
            schema_hash=self.table.schema_hash,
            fingerprint=fingerprints.from_bytes(secrets.token_bytes(16)),
            files=tuple(self._file(path) for path in paths),
            event_range=(0, 1),
        )
        publish_partition(self.lake.registry, partition, Operation(op_id=op_id))
        return paths

    def _file(self, path: str) -> NewFile:
        size = self.template.stat().st_size
        return NewFile(path=path, size_bytes=size, row_count=ROWS, checksum=self.footer.checksum, footer=self.footer)

    def publish(self, count: int = 1, *, real: bool = False) -> float:
        """Seconds of the commit alone."""
        self.offer(count, real=real)
        seal_table(self.lake.registry, self.table.table_id)
        return timed(lambda: self.committer.advance(self.table.table_id))

    def expire(self, keep: int) -> float:
        _, kept = self.committer.find_version(NAME)
        change_requests(self.lake.registry, self.table.table_id, lambda _: SnapshotRequests(expire=kept[:-keep]))
        return timed(lambda: self.committer.advance(self.table.table_id))

    def tell(self, metric: str, value: float, unit: str, **facts: object) -> None:
        line = {"metric": metric, "value": round(value, 3), "unit": unit, **facts}
        self.results.append(line)
        print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default="full")
    parser.add_argument("--only", action="append", choices=GROUPS)
    parser.add_argument("--out", type=Path, default=RESULTS / f"iceberg-{datetime.now(UTC):%F}.json")
    chosen = parser.parse_args()
    scale, results = SCALES[chosen.scale], []
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-") as directory:
        facts = read_facts(Path(directory))
        for name in chosen.only or GROUPS:
            with opened(Path(directory) / name) as bench:
                GROUPS[name](bench, scale)
                results += [{"group": name, **line} for line in bench.results]
    chosen.out.parent.mkdir(exist_ok=True)
    chosen.out.write_text(json.dumps({"scale": chosen.scale, "machine": facts, "results": results}, indent=1) + "\n")


def measure_history(bench: Bench, scale: Scale) -> None:
    """One file per commit under our retention: the cost must not follow the number of commits."""
    times, expiries = [], []
    for number in range(1, scale.history + 1):
        times.append(bench.publish())
        if number % EXPIRE_EVERY == 0 and number > KEPT:
            expiries.append(bench.expire(KEPT))
    early, late = median_ms(times[5:15]), median_ms(times[-100:])
    bench.tell("commit_at_10", early, "ms")
    bench.tell(f"commit_at_{scale.history}", late, "ms", p95=round(sorted(times[-100:])[94] * 1000, 2))
    bench.tell("growth", late / early, "ratio", bound=1.5)
    bench.tell("expiry", median_ms(expiries), "ms", every=EXPIRE_EVERY)


def measure_retained(bench: Bench, scale: Scale) -> None:
    """The same table with every snapshot kept, given to both; then ours with our retention."""
    for _ in range(scale.retained):
        bench.publish(real=True)
    ours = median_ms([bench.publish() for _ in range(scale.tries)])
    with peer(bench) as table:
        theirs = median_ms([add_files(bench, table, 1) for _ in range(max(3, scale.tries // 4))])
    bench.expire(KEPT)
    thinned = median_ms([bench.publish() for _ in range(scale.tries)])
    bench.tell("commit_all_retained", ours, "ms", snapshots=scale.retained)
    bench.tell("add_files_all_retained", theirs, "ms", snapshots=scale.retained)
    bench.tell("commit_our_retention", thinned, "ms", snapshots=KEPT)
    bench.tell("faster_all_retained", theirs / ours, "ratio", bound=6)
    bench.tell("faster_our_retention", theirs / thinned, "ratio", bound=25)


def measure_together(bench: Bench, scale: Scale) -> None:
    """Many files in one commit, on a fresh table each."""
    bench.publish()
    ours = statistics.median(bench.publish(scale.together, real=True) for _ in range(3))
    with peer(bench, fresh=True) as table:
        theirs = add_files(bench, table, scale.together)
    bench.tell("files_per_s", scale.together / ours, "files/s", files=scale.together)
    bench.tell("add_files_per_s", scale.together / theirs, "files/s", files=scale.together)
    bench.tell("faster", theirs / ours, "ratio", bound=5)


def measure_large(bench: Bench, scale: Scale) -> None:
    """One file into a table that holds very many, and one file out of it."""
    times = [bench.publish(1_000) for _ in range(scale.files // 1_000)]
    bench.expire(KEPT)
    bench.tell("files_per_s_throughout", scale.files / sum(times), "files/s", files=scale.files)
    bench.tell("one_file_added", median_ms([bench.publish() for _ in range(scale.tries)]), "ms", files=scale.files, bound=300)


GROUPS: dict[str, Callable[[Bench, Scale], None]] = {
    "history": measure_history,
    "retained": measure_retained,
    "together": measure_together,
    "large": measure_large,
}


@contextmanager
def opened(directory: Path) -> Iterator[Bench]:
    directory.mkdir()
    template = directory / "template.parquet"
    pq.write_table(rows(), template)
    content = template.read_bytes()
    tail = read_tail(lambda offset, length: content[offset : offset + length], len(content), path=str(template))
    footer = Footer(tail=tail, num_rows=ROWS, checksum=hashlib.sha256(tail).hexdigest())
    os.environ["LAKEBED_SERVICE"] = "off"
    with connect(f"sqlite:///{directory}/lake.db", warehouse=str(directory / "warehouse")) as lake:
        table = create_table(lake.registry, TableSpec(name=NAME, schema=SCHEMA))
        with closing(open_catalog(lake.registry, lake.storage)) as catalog:
            yield Bench(lake, catalog, Committer(lake.registry, lake.storage, catalog), table, template, footer)


@contextmanager
def peer(bench: Bench, *, fresh: bool = False) -> Iterator[Table]:
    """PyIceberg's own catalog in a file of its own, on our table as it stands, or on an empty one."""
    directory = bench.template.parent
    catalog = SqlCatalog("peer", uri=f"sqlite:///{directory}/peer.db", warehouse=f"file://{directory}/peer")
    catalog.create_namespace("bench")
    ours = bench.catalog.load_table(f"{NAME}")
    if fresh:
        table = catalog.create_table("bench.events", schema=pa.schema([f.remove_metadata() for f in to_arrow(SCHEMA)]))
    else:
        table = catalog.register_table("bench.events", ours.metadata_location)
    yield table
    catalog.engine.dispose()


def add_files(bench: Bench, table: Table, count: int) -> float:
    """Seconds; the files are plain ones, because it refuses files that hold field ids."""
    directory = bench.template.parent / f"peer-{secrets.token_hex(6)}"
    directory.mkdir()
    plain = directory / "plain.parquet"
    found = pq.read_table(bench.template)
    pq.write_table(pa.table(found.columns, names=found.column_names), plain)
    paths = [directory / f"part-{number:05d}.parquet" for number in range(count)]
    for path in paths:
        os.link(plain, path)
    return timed(lambda: table.add_files([to_uri(str(path)) for path in paths]))


def rows() -> pa.Table:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    columns = [
        list(range(ROWS)),
        [start + timedelta(seconds=number) for number in range(ROWS)],
        [number / 7 for number in range(ROWS)],
        [("DE", "FR", "IT")[number % 3] for number in range(ROWS)],
        [f"note {number} of a row like any other" for number in range(ROWS)],
    ]
    return pa.table(columns, schema=to_arrow(SCHEMA))


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def median_ms(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) * 1000 if seconds else 0.0


if __name__ == "__main__":
    main()
