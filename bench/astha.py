"""Astha's delivery: how soon after a commit a component hears of it, and whether a flood of changes arrives whole.

    .venv/bin/python bench/astha.py                       # everything, about a quarter of an hour on two cores
    .venv/bin/python bench/astha.py --only latency --scale small

Components that only count are attached to all four subscriptions, so that what is measured is delivery. Writers are
processes; PostgreSQL comes from a wheel with durable commits, SQLite runs with synchronous=FULL.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import resource
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TYPE_CHECKING, Any

import machine
import postgres
from harness import percentile
from lakebed.astha import Astha, AsthaOptions
from lakebed.core import fingerprints
from lakebed.core.events import COMPONENT_SUBSCRIPTIONS, Component, Event, RegistryTable
from lakebed.core.files import ColumnStatistics, Footer, NewFile
from lakebed.core.ids import make_op_id
from lakebed.core.names import TableName
from lakebed.core.partitions import NewPartition
from lakebed.core.rows import Row, TableFiles
from lakebed.core.schema import bounds
from lakebed.core.schema.schema import Schema
from lakebed.core.schema.types import Field, Primitive
from lakebed.registry.files.operations import Operation
from lakebed.registry.journal.changes import last_journal_numbers
from lakebed.registry.open import open_registry
from lakebed.registry.partitions.publish import publish_partition
from lakebed.registry.registry import Registry
from lakebed.registry.tables.lake_tables import LakeTable, TableSpec, create_table, require_table

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

RESULTS = Path(__file__).parent / "results"
LONG = Primitive(name="long")
SCHEMA = Schema(fields=(Field(field_id=1, name="id", type=LONG), Field(field_id=2, name="amount", type=Primitive(name="double"))))
TAIL = hashlib.sha256(b"footer").digest() * 32
SUM = hashlib.sha256(TAIL).hexdigest()
PAUSE_S = 0.005  # between two commits whose latency is measured
DRAIN_S = 1_800.0
FIRST = TableName("bench", "t0")
Figures = Iterator[dict[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    commits: int  # whose latency is measured
    changes: dict[str, int]  # of the flood, per database
    writers: int = 16
    tables: int = 16
    files: int = 25  # per transaction of the flood


SCALES = {
    "full": Scale(commits=2_000, changes={"sqlite": 100_000, "postgresql": 1_000_000}),
    "small": Scale(commits=300, changes={"sqlite": 10_000, "postgresql": 30_000}),
    "smoke": Scale(commits=30, changes={"sqlite": 1_000, "postgresql": 1_000}, writers=4, tables=4),
}


@dataclass
class Counter:
    """A component that only counts: what came, in which order, and when the newest file was told."""

    component: Component
    registry: Registry
    calls: int = 0
    last: dict[int, int] = field(default_factory=dict)
    out_of_order: int = 0
    refreshes: int = 0
    heard: dict[str, int] = field(default_factory=dict)  # file name -> when, while `timing`
    timing: bool = False

    def on_event(self, event: Event[Row]) -> None:
        if self.timing and isinstance(event.data, TableFiles):
            self.heard[event.data.file_path] = time.monotonic_ns()
        self.calls += 1
        if event.sequence <= self.last.get(event.table_id, 0):
            self.out_of_order += 1
        self.last[event.table_id] = event.sequence

    def on_health(self) -> None: ...

    def on_refresh(self, table_id: int) -> int:
        self.refreshes += 1
        return last_journal_numbers(self.registry)[table_id]

    def get_subscribed_tables(self) -> frozenset[RegistryTable]:
        return COMPONENT_SUBSCRIPTIONS[self.component]


def new_file(number: int) -> NewFile:
    column = ColumnStatistics(
        field_id=1,
        null_count=0,
        value_count=100,
        lower=bounds.lower_bound(LONG, number),
        upper=bounds.upper_bound(LONG, number),
        lower_coordinate=bounds.coordinate(LONG, number),
        upper_coordinate=bounds.coordinate(LONG, number),
    )
    return NewFile(
        path=f"/warehouse/bench/{new_op_id()}/part-{number:06d}.parquet",
        size_bytes=20_000,
        row_count=100,
        checksum=SUM,
        partition_path="",
        footer=Footer(tail=TAIL, num_rows=100, checksum=SUM),
        columns=(column,),
    )


def new_op_id() -> str:
    return make_op_id(time.time_ns() // 1000, secrets.token_bytes(10))


def publish(registry: Registry, table: LakeTable, files: Sequence[NewFile]) -> None:
    partition = NewPartition(
        table=table.name,
        schema_hash=table.schema_hash,
        fingerprint=fingerprints.from_bytes(secrets.token_bytes(16)),
        files=tuple(files),
    )
    publish_partition(registry, partition, Operation(op_id=new_op_id()))


def make_tables(registry: Registry, many: int) -> list[LakeTable]:
    return [create_table(registry, TableSpec(name=TableName("bench", f"t{n}"), schema=SCHEMA, index=("id",))) for n in range(many)]


@contextmanager
def running(registry: Registry, **changed: Any) -> Iterator[tuple[Astha, dict[Component, Counter]]]:
    counters = {component: Counter(component, registry) for component in Component}
    astha = Astha(registry, counters, owner="bench", options=AsthaOptions(**changed))
    astha.start()
    assert astha.is_active, astha.status()
    try:
        yield astha, counters
    finally:
        astha.stop()


# -- latency ----------------------------------------------------------------------------------


def latency(url: str, kind: str, scale: Scale) -> Figures:
    """From the writer's commit (when it returns) to `on_event`, one commit at a time."""
    with closing(open_registry(url, create=True)) as registry:
        (table,) = make_tables(registry, 1)
        with running(registry) as (astha, counters):
            assert astha.drain(30)
            updater = counters[Component.ICEBERG_UPDATER]
            updater.timing = True
            yield figure("in process", kind, commit_each(registry, table, scale.commits, updater.heard), updater.heard, must=(2.0, 10.0))
            assert astha.drain(30)
            updater.heard.clear()
            yield figure("another process", kind, commit_elsewhere(url, scale.commits), updater.heard, must=(3.0, 15.0), astha=astha)


def commit_each(registry: Registry, table: LakeTable, commits: int, heard: dict[str, int] | None = None) -> dict[str, tuple[int, int]]:
    """Per file: when its transaction began, and when its commit had returned."""
    done = {}
    for number in range(commits):
        file = new_file(number)
        began = time.monotonic_ns()
        publish(registry, table, [file])
        done[file.path] = (began, time.monotonic_ns())
        deadline = time.monotonic() + 5.0
        while heard is not None and file.path not in heard and time.monotonic() < deadline:
            time.sleep(PAUSE_S / 10)  # the interpreter is shared: whoever computes here would delay what is measured
        time.sleep(PAUSE_S)
    return done


def commit_elsewhere(url: str, commits: int) -> dict[str, tuple[int, int]]:
    context = multiprocessing.get_context("spawn")
    answers: Queue[dict[str, tuple[int, int]]] = context.Queue()
    process = context.Process(target=write_latency, args=(url, commits, answers))
    process.start()
    done = answers.get(timeout=600)
    process.join()
    return done


def write_latency(url: str, commits: int, answers: "Queue[dict[str, tuple[int, int]]]") -> None:
    with closing(open_registry(url)) as registry:
        answers.put(commit_each(registry, require_table(registry, FIRST), commits))


def figure(
    where: str, kind: str, done: dict[str, tuple[int, int]], heard: dict[str, int], *, must: tuple[float, float], astha: Astha | None = None
) -> dict[str, object]:
    if astha is not None:
        assert astha.drain(60)
    after_commit = [max(0, heard[path] - commit) / 1e6 for path, (_, commit) in done.items()]
    after_begin = [(heard[path] - began) / 1e6 for path, (began, _) in done.items()]
    p50, p99 = percentile(after_commit, 50), percentile(after_commit, 99)
    return {
        "work": f"commit to on_event, {where}", "database": kind, "commits": len(done), "p50_ms": round(p50, 3), "p99_ms": round(p99, 3),
        "worst_ms": round(max(after_commit), 3), "must_p50_ms": must[0], "must_p99_ms": must[1], "reached": p50 <= must[0] and p99 <= must[1],
        "begin_p50_ms": round(percentile(after_begin, 50), 3), "begin_p99_ms": round(percentile(after_begin, 99), 3),
    }  # fmt: skip


# -- flood ------------------------------------------------------------------------------------


def flood(url: str, kind: str, scale: Scale) -> Figures:
    """Many writers at once while Astha delivers; then the whole journal again, to see how fast it catches up."""
    with closing(open_registry(url, create=True)) as registry:
        tables = make_tables(registry, scale.tables)
        transactions = scale.changes[kind] // (scale.files + 2) // scale.writers + 1
        with running(registry, purge_every_s=1e9) as (astha, counters):
            assert astha.drain(60)
            start = last_journal_numbers(registry)
            memory = Memory()
            seconds = write_flood(url, scale, transactions)
            behind = astha.status().of(Component.METADATA_ORCHESTRATOR).behind
            began = time.perf_counter()
            assert astha.drain(DRAIN_S)
            drained = time.perf_counter() - began
            memory.stop()  # before the journal is counted: that fills a page cache
            live = judge(registry, counters, start)
        changes = sum(end - start[table_id] for table_id, end in last_journal_numbers(registry).items())
        ingest = changes / seconds
        yield {
            "work": "flood, live", "database": kind, "changes": changes, "writers": scale.writers, "tables": len(tables),
            "ingest_per_s": round(ingest), "behind_at_the_end": behind, "drain_s": round(drained, 2), **live, **memory.figures(),
            "reached": live["skipped"] == live["out_of_order"] == live["refreshes_beyond_start"] == 0,
        }  # fmt: skip
        yield catch_up(registry, kind, start, changes, ingest)


def catch_up(registry: Registry, kind: str, start: dict[int, int], changes: int, ingest: float) -> dict[str, object]:
    with registry.write() as tx:
        for table_id, seq in start.items():
            tx.run("UPDATE subscriber_cursor SET seq = :seq WHERE table_id = :table_id", {"seq": seq, "table_id": table_id})
    memory, cpu, began = Memory(), time.process_time(), time.perf_counter()
    with running(registry, purge_every_s=1e9) as (astha, counters):
        assert astha.drain(DRAIN_S)
        seconds = time.perf_counter() - began
        memory.stop()
        found = judge(registry, counters, start, refreshes=0)
    rate = changes / seconds
    return {
        "work": "flood, catch-up", "database": kind, "changes": changes, "per_s": round(rate), "calls_per_s": round(found["calls"] / seconds),
        "cpu_us_per_change": round((time.process_time() - cpu) / changes * 1e6, 1), "over_ingest": round(rate / ingest, 2), "must": 2.0,
        **found, **memory.figures(),
        "reached": rate >= 2 * ingest and found["skipped"] == found["out_of_order"] == found["refreshes_beyond_start"] == 0,
    }  # fmt: skip


def judge(registry: Registry, counters: dict[Component, Counter], start: dict[int, int], *, refreshes: int = 1) -> dict[str, Any]:
    """What came, against what the journal holds."""
    wanted = {
        (table_id, RegistryTable(name)): many
        for table_id, low in start.items()
        for name, many in registry.query(
            "SELECT registry_table, count(*) FROM change_log WHERE table_id = :id AND seq > :low GROUP BY 1", {"id": table_id, "low": low}
        )
    }
    expected = {c: sum(many for (_, table), many in wanted.items() if table in COMPONENT_SUBSCRIPTIONS[c]) for c in counters}
    return {
        "calls": sum(counter.calls for counter in counters.values()),
        "skipped": sum(abs(expected[c] - counter.calls) for c, counter in counters.items()),
        "out_of_order": sum(counter.out_of_order for counter in counters.values()),
        "refreshes_beyond_start": sum(counter.refreshes - refreshes * len(start) for counter in counters.values()),
    }


def write_flood(url: str, scale: Scale, transactions: int) -> float:
    """Seconds from the moment all writers are ready to the last one's end."""
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(scale.writers + 1)
    arguments = [(url, scale.files, transactions, scale.tables, writer, ready) for writer in range(scale.writers)]
    processes = [context.Process(target=write_many, args=one) for one in arguments]
    for process in processes:
        process.start()
    ready.wait(300)
    began = time.perf_counter()
    for process in processes:
        process.join()
    assert all(process.exitcode == 0 for process in processes)
    return time.perf_counter() - began


def write_many(url: str, files: int, transactions: int, tables: int, writer: int, ready: Barrier) -> None:
    with closing(open_registry(url, timeout_s=300)) as registry:
        chosen = [require_table(registry, TableName("bench", f"t{n}")) for n in range(tables)]
        ready.wait(300)
        for number in range(transactions):
            publish(registry, chosen[(writer + number) % tables], [new_file(number * files + n) for n in range(files)])


class Memory:
    """Resident size of this process, sampled while something runs."""

    def __init__(self) -> None:
        self._seen = [resident_mb()]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def figures(self) -> dict[str, object]:
        quarter, half = self._seen[len(self._seen) // 4], self._seen[len(self._seen) // 2]
        return {
            "resident_mb_at_a_quarter": quarter,
            "resident_mb_at_half": half,
            "resident_mb_at_the_end": self._seen[-1],
            "resident_mb_at_most": max(self._seen),
        }

    def _sample(self) -> None:
        while not self._stop.wait(0.2):
            self._seen.append(resident_mb())


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return round(pages * resource.getpagesize() / 2**20, 1)


# -- the run ----------------------------------------------------------------------------------

GROUPS: dict[str, Callable[[str, str, Scale], Figures]] = {"latency": latency, "flood": flood}


def measure(chosen: argparse.Namespace, place: Path) -> Figures:
    for name in chosen.only or GROUPS:
        for kind in chosen.database or ("sqlite", "postgresql"):
            database = f"bench_{name}"
            if kind == "sqlite":
                yield from tagged(name, GROUPS[name](f"sqlite:///{place}/{database}.db", kind, SCALES[chosen.scale]))
                continue
            with postgres.new_database(database) as made:
                yield from tagged(name, GROUPS[name](postgres.url_of(made), kind, SCALES[chosen.scale]))


def tagged(name: str, figures: Figures) -> Figures:
    stall, began = machine.read_cpu_stall_us(), time.monotonic()
    for one in figures:
        seconds = time.monotonic() - began
        yield {"group": name, **one, "cpu_stall": round((machine.read_cpu_stall_us() - stall) / 1e6 / seconds, 3)}
        stall, began = machine.read_cpu_stall_us(), time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default="full")
    parser.add_argument("--only", action="append", choices=GROUPS)
    parser.add_argument("--database", action="append", choices=["sqlite", "postgresql"])
    parser.add_argument("--out", type=Path, default=RESULTS / f"astha-{datetime.now(UTC):%F}.json")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lb-") as directory, postgres.run_server(Path(directory) / "pg") as dsn:
        place = Path(directory)
        os.environ[postgres.DSN_VARIABLE] = dsn
        answer: dict[str, Any] = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "scale": chosen.scale,
            "machine": machine.read_facts(place) | {"postgres": postgres.read_settings(dsn)},
            "figures": [],
        }
        for found in measure(chosen, place):
            answer["figures"].append(found)
            print(json.dumps(found), flush=True)
    chosen.out.write_text(json.dumps(answer, indent=1) + "\n", encoding="utf-8")
    print(f"written: {chosen.out.name}")


if __name__ == "__main__":
    main()
