"""Lakebed: register | concurrent | curve | plan | retire | journal | follow | footer | memory, on SQLite and PostgreSQL.

Each step does the work of the peers' step of the same name; everything it knows of Lakebed is in adapter.py.
"""

import functools
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import adapter
from batches import ROWS, write_files, write_tiny_files, write_wide_file
from harness import Commit, Timings, best_ms, emit, file_name, fresh, part_of, percentile, run_step, run_writers, settle
from postgres import new_database, url_of
from steps import WRITERS

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

BLOCK = 20  # registrations in one table before the next one has its turn
PAUSE_S = 0.005  # between commits that a consumer follows
HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a registry is; picklable, so that other processes open it too."""

    backend: str
    url: str
    warehouse: Path

    @property
    def peer(self) -> str:
        return f"lakebed_{self.backend}"

    @contextmanager
    def open(self) -> Iterator[adapter.Registry]:
        registry = adapter.open_registry(self.url, self.warehouse)
        try:
            yield registry
        finally:
            adapter.close_registry(registry)


@contextmanager
def new_place(directory: Path, backend: str, name: str) -> Iterator[Place]:
    """An empty registry that holds the benchmark's table."""
    root = fresh(directory, f"lakebed_{name}_{backend}")
    warehouse = root / "warehouse"
    warehouse.mkdir()
    with ExitStack() as stack:
        url = f"sqlite:///{root}/registry.db"
        if backend == "postgres":
            url = url_of(stack.enter_context(new_database(f"lakebed_{name}")))
        place = Place(backend=backend, url=url, warehouse=warehouse)
        with place.open() as registry:
            adapter.create_table(registry)
        yield place


@contextmanager
def new_registry(directory: Path, backend: str, name: str) -> Iterator[tuple[Place, adapter.Registry]]:
    with new_place(directory, backend, name) as place, place.open() as registry:
        yield place, registry


def register(directory: Path, *, backend: str, sizes: str | int, singles: int) -> None:
    """Time `singles` registrations at each size of the table.

    Every size has a registry of its own and they take turns, so that a disturbance of the machine meets all sizes alike:
    growth is the ratio of two of them.
    """
    with ExitStack() as stack:
        tables: dict[int, adapter.Registry] = {}
        for size in map(int, str(sizes).split(",")):
            place, registry = stack.enter_context(new_registry(directory, backend, f"register_{size}"))
            start = time.perf_counter()
            adapter.fill(registry, size)
            emit(place.peer, "fill", "rate", size / (time.perf_counter() - start), "files/s", n=size)
            write_files(adapter.data_directory(registry), range(size, size + singles))
            tables[size] = registry
        commits, wholes = ({size: Timings() for size in tables} for _ in range(2))
        take_turns(tables, commits, wholes, singles)
        for size, registry in tables.items():
            commits[size].emit(f"lakebed_{backend}", "commit_only", n=size)
            wholes[size].emit(f"lakebed_{backend}", "capture_commit", n=size)
            assert len(set(adapter.list_file_numbers(registry))) == size + singles


def take_turns(tables: dict[int, adapter.Registry], commits: dict[int, Timings], wholes: dict[int, Timings], singles: int) -> None:
    """`commits` time the transaction, as bare SQL does; `wholes` also the capture before it (footer, statistics, SHA-256)."""
    order = list(tables)
    for first in range(0, singles, BLOCK):
        for size in order:
            for offset in range(first, min(first + BLOCK, singles)):
                wholes[size].time(functools.partial(register_timed, tables[size], size + offset, commits[size]))
        order.append(order.pop(0))  # who follows whom changes with every turn


def register_timed(registry: adapter.Registry, number: int, commits: Timings) -> None:
    captured = adapter.capture_one(registry, number)
    commits.time(functools.partial(adapter.publish_one, registry, captured))


def concurrent(directory: Path, *, backend: str, writers: int, each: int, capture: int = 0) -> None:
    """With `capture` each writer also reads footer, statistics and SHA-256 of its file before the transaction."""
    with new_place(directory, backend, "concurrent") as place:
        with place.open() as registry:
            write_files(adapter.data_directory(registry), range(writers * each))
        outcome = run_writers(writers, each, functools.partial(prepare_writer, place, each, capture))
        with place.open() as registry:
            outcome.emit(place.peer + ("_capture" if capture else ""), adapter.list_file_numbers(registry))


def curve(directory: Path, *, backend: str, each: int) -> None:
    """Throughput of 1 to 32 processes: more of them must not make the whole much slower."""
    for writers in WRITERS:
        with new_place(directory, backend, f"curve_{writers}") as place:
            with place.open() as registry:
                write_files(adapter.data_directory(registry), range(writers * each))
            outcome = run_writers(writers, each, functools.partial(prepare_writer, place, each, 0))
            with place.open() as registry:
                outcome.emit(place.peer, adapter.list_file_numbers(registry), work="curve")


def prepare_writer(place: Place, each: int, capture: int, writer: int) -> Commit:
    registry = adapter.open_registry(place.url, place.warehouse)
    if capture:
        return functools.partial(adapter.register_one, registry)
    captured = {number: adapter.capture_one(registry, number) for number in range(writer * each, (writer + 1) * each)}
    return lambda number: adapter.publish_one(registry, captured[number])


def plan(directory: Path, *, backend: str, files: int, points: int = 200) -> None:
    middle = files // 2
    with new_place(directory, backend, f"plan_{files}") as place:
        with place.open() as registry:
            start = time.perf_counter()
            adapter.fill(registry, files, spread=files)
            emit(place.peer, "plan", "build", time.perf_counter() - start, "s", n=files)
        plans: dict[str, Callable[[adapter.Registry], list[str]]] = {
            "point": lambda registry: adapter.plan_point(registry, middle * ROWS + 5),
            "partition": lambda registry: adapter.plan_partition(registry, 37),
            "all": adapter.plan_all,
        }
        with place.open() as registry:
            check_plans({name: plan_one(registry) for name, plan_one in plans.items()}, files)
        for name, plan_one in plans.items():
            emit(place.peer, "plan", f"{name}_cold", best_ms(functools.partial(plan_cold, place, plan_one), 5), "ms", n=files)
            with place.open() as registry:
                plan_one(registry)
                emit(place.peer, "plan", f"{name}_warm", best_ms(functools.partial(plan_one, registry), 5), "ms", n=files)
        with place.open() as registry:
            timings = Timings()
            for number in range(points):
                timings.time(functools.partial(adapter.plan_point, registry, number * 7919 % files * ROWS + 5))
            timings.emit(place.peer, "plan_point", n=files)


def plan_cold(place: Place, plan_one: Callable[[adapter.Registry], list[str]]) -> None:
    with place.open() as registry:
        plan_one(registry)


def check_plans(found: dict[str, list[str]], files: int) -> None:
    """All the right files; a point may bring a few neighbours, as an R-tree of 32-bit floats does."""
    assert len(found["all"]) == files
    assert len(found["partition"]) == files // 100
    assert len(found["point"]) <= 64
    assert any(path.endswith(file_name(files // 2)) for path in found["point"])


def retire(directory: Path, *, backend: str, files: int, tiny: int = 0) -> None:
    """Half of `files` are retired and cleaned up. With `tiny`, only that half is on disk, and small."""
    with new_registry(directory, backend, "retire") as (place, registry):
        data = adapter.data_directory(registry)
        victims = [number for number in range(files) if part_of(number) < 5]
        if tiny:
            write_tiny_files(data, victims)
        else:
            write_files(data, range(files))
        adapter.fill(registry, files)
        settle()
        start = time.perf_counter()
        retired = adapter.retire_half(registry)
        emit(place.peer, "retire", "metadata", retired / (time.perf_counter() - start), "files/s", n=files, retired=retired)
        start = time.perf_counter()
        removed = adapter.clean_up(registry)
        emit(place.peer, "retire", "physical", removed / (time.perf_counter() - start), "files/s", n=files, removed=removed)
        assert retired == removed == len(victims), (retired, removed, len(victims))
        assert not any((data / file_name(number)).exists() for number in victims)


def journal(directory: Path, *, backend: str, files: int, singles: int) -> None:
    """What capture costs: single registrations and a bulk one, with the triggers and without."""
    with ExitStack() as stack:
        tables: dict[int, adapter.Registry] = {}
        for captured in (1, 0):
            place, registry = stack.enter_context(new_registry(directory, backend, f"journal_{captured}"))
            if not captured:
                adapter.drop_triggers(registry)
            start = time.perf_counter()
            adapter.fill(registry, files)
            rate = files / (time.perf_counter() - start)
            emit(place.peer, "journal", "fill", rate, "files/s", n=files, captured=captured)
            write_files(adapter.data_directory(registry), range(files, files + singles))
            tables[captured] = registry
        timings = {captured: Timings() for captured in tables}
        for first in range(files, files + singles, BLOCK):
            for captured, registry in tables.items():
                for number in range(first, min(first + BLOCK, files + singles)):
                    timings[captured].time(functools.partial(adapter.register_one, registry, number))
        for captured, timing in timings.items():
            timing.emit(f"lakebed_{backend}", "journal", n=files, captured=captured)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    at_ns: dict[int, int]
    cpu_s: float


def consume(place: Place, commits: int, results: "Queue[Seen | None]") -> None:
    """The other process: note when each file number comes out of the journal; the first one says that it is listening."""
    at_ns: dict[int, int] = {}
    start = 0.0
    with place.open() as registry:
        for number in adapter.follow(registry):
            at_ns[number] = time.monotonic_ns()  # one clock for all processes of a Linux machine
            if len(at_ns) == 1:
                results.put(None)
                start = time.process_time()
            if len(at_ns) > commits:
                break
    results.put(Seen(at_ns=at_ns, cpu_s=time.process_time() - start))


def follow(directory: Path, *, backend: str, commits: int) -> None:
    """Commit every 5 ms. `p50` counts from before the transaction, as the limits do; `after_commit` from its return."""
    context = multiprocessing.get_context("spawn")
    results: Queue[Seen | None] = context.Queue()
    with new_registry(directory, backend, "follow") as (place, registry):
        write_files(adapter.data_directory(registry), range(commits + 1))
        consumer = context.Process(target=consume, args=(place, commits, results))
        consumer.start()
        adapter.register_one(registry, 0)
        results.get(timeout=60)
        begun, done = {}, {}
        captured = [adapter.capture_one(registry, number) for number in range(commits + 1)]
        start = time.perf_counter()
        for number in range(1, commits + 1):
            begun[number] = time.monotonic_ns()
            adapter.publish_one(registry, captured[number])
            done[number] = time.monotonic_ns()
            time.sleep(PAUSE_S)
        seen = results.get(timeout=60)
        assert seen is not None
        consumer.join()
    facts = {"n": commits, "reader_cpu": round(seen.cpu_s / (time.perf_counter() - start), 3)}
    for suffix, since in (("", begun), ("_after_commit", done)):
        latencies = [(seen.at_ns[number] - at) / 1e6 for number, at in since.items()]
        for rank in (50, 99):
            emit(place.peer, "follow", f"p{rank}{suffix}", percentile(latencies, rank), "ms", **facts)


def footer(directory: Path, *, backend: str, columns: int, row_groups: int, times: int = 200) -> None:
    with new_registry(directory, backend, "footer") as (place, registry):
        path = adapter.data_directory(registry) / "wide.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_wide_file(path, columns, row_groups)
        adapter.store_footer(registry, path)
        adapter.open_with_footer(registry, path).close()
        timings = Timings()
        for _ in range(times):
            timings.time(lambda: adapter.open_with_footer(registry, path).close())
        timings.emit(place.peer, "footer", cols=columns, rg=row_groups)


def footer_table(directory: Path, *, backend: str, files: int) -> None:
    """What the footer table is worth: parsed footers of all files from the registry or from the files, cold and warm."""
    with new_registry(directory, backend, "footer_table") as (place, registry):
        paths = adapter.register_links(registry, files)
        for source, enabled in (("registry", True), ("files", False)):
            index = adapter.footer_index(registry, enabled=enabled)
            for state in ("cold", "warm"):
                start = time.perf_counter()
                rows = sum(index.load(path).num_rows for path in paths)
                assert rows == files * ROWS
                emit(place.peer, "footer_table", f"{source}_{state}", (time.perf_counter() - start) / files * 1e6, "us/file", n=files)


def memory(directory: Path, *, backend: str, files: int, singles: int) -> None:
    """Prepare here, measure in processes that hold nothing but Lakebed."""
    with new_place(directory, backend, "memory") as place:
        with place.open() as registry:
            adapter.fill(registry, files, spread=files)
            write_files(adapter.data_directory(registry), range(files, files + singles))
        options = [f"url={place.url}", f"peer={place.peer}", f"files={files}"]
        for step, more in (("plan", []), ("commit", [f"singles={singles}"])):
            subprocess.run([sys.executable, "-m", "memory", step, str(place.warehouse), *options, *more], check=True, cwd=HERE)


if __name__ == "__main__":
    run_step(
        {
            "register": register,
            "concurrent": concurrent,
            "curve": curve,
            "plan": plan,
            "retire": retire,
            "journal": journal,
            "follow": follow,
            "footer": footer,
            "footer_table": footer_table,
            "memory": memory,
        }
    )
