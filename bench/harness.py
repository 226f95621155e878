"""What the peers and ours share: timed loops, concurrent writers, JSON lines.

Standard library only: a process whose memory is measured carries nothing of the harness's.
A step is `python -m MODULE STEP DIRECTORY name=value ...` and prints one JSON object per measurement.
"""

import functools
import json
import math
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

CHECK_POINTS = (10, 100, 500, 1_000, 2_000)  # commits after which the latency is reported
WINDOW = 100  # commits before a check point that count
START_TIMEOUT_S = 120.0
WRITERS_TIMEOUT_S = 900.0

Commit = Callable[[int], object]


def emit(peer: str, work: str, metric: str, value: float, unit: str, **facts: Any) -> None:
    line = {
        "peer": peer,
        "work": work,
        "metric": metric,
        "value": round(float(value), 4),
        "unit": unit,
        "peak_mb": round(peak_memory_mb(), 1),
    }
    print(json.dumps(line | facts), flush=True)


def peak_memory_mb() -> float:
    """The largest resident size of this program image.

    Not `ru_maxrss`: that survives exec, so a child would be charged with the memory of the parent it was forked from.
    """
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return math.nan


def percentile(values: Sequence[float], rank: float) -> float:
    """Linear between the two nearest values, as numpy does it."""
    ordered = sorted(values)
    position = (len(ordered) - 1) * rank / 100
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def fresh(directory: Path, name: str) -> Path:
    path = directory.absolute() / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def file_name(number: int) -> str:
    return f"f{number:06d}.parquet"


def part_of(number: int, spread: int | None = None) -> int:
    """The partition of a file: ten in turn, or a hundred equal runs when `spread` files are laid out for planning."""
    return number % 10 if spread is None else number * 100 // spread


@dataclass(slots=True)
class Timings:
    """Wall and own CPU milliseconds per call. CPU and p10 stay comparable when other work shares the machine."""

    wall_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)

    def time(self, call: Callable[[], object]) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        self.wall_ms.append((time.perf_counter() - wall) * 1e3)
        self.cpu_ms.append((time.process_time() - cpu) * 1e3)

    def emit(self, peer: str, work: str, *, last: int | None = None, **facts: Any) -> None:
        wall, cpu = self.wall_ms[-(last or 0) :], self.cpu_ms[-(last or 0) :]
        for rank in (10, 50, 95):
            emit(peer, work, f"p{rank}", percentile(wall, rank), "ms", **facts)
        emit(peer, work, "cpu", sum(cpu) / len(cpu), "ms", **facts)


def timed_commits(peer: str, work: str, count: int, commit: Commit) -> None:
    """Run commit(0) .. commit(count - 1); at each check point report the last WINDOW of them."""
    timings = Timings()
    start = time.perf_counter()
    for number in range(count):
        timings.time(functools.partial(commit, number))
        done = number + 1
        if done in CHECK_POINTS or done == count:
            timings.emit(peer, work, last=min(WINDOW, done), n=done)
    emit(peer, work, "rate_mean", count / (time.perf_counter() - start), "commits/s", n=count)


def best_ms(call: Callable[[], object], times: int) -> float:
    """The best of `times` calls, fewer when one is slow: what the call costs when nothing disturbs it."""
    taken: list[float] = []
    while len(taken) < times and sum(taken) < 15_000:
        start = time.perf_counter()
        call()
        taken.append((time.perf_counter() - start) * 1e3)
    return min(taken)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What one writer process did: a raised commit is a result of the benchmark, not an error of it."""

    writer: int
    acknowledged: list[int]
    latencies_ms: list[float]
    seconds: float
    failed: int
    first_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    written: list[Written]
    each: int
    seconds: float

    @property
    def acknowledged(self) -> set[int]:
        return {number for one in self.written for number in one.acknowledged}

    def emit(self, peer: str, found: Iterable[int], *, work: str = "concurrent") -> None:
        """Report throughput, fairness and loss; `found` are the file numbers that the table holds afterwards."""
        in_table = list(found)
        rates = [len(one.acknowledged) / one.seconds for one in self.written]
        facts = {"writers": len(self.written), "each": self.each}
        lost = len(self.acknowledged - set(in_table))
        unacknowledged = len(set(in_table) - self.acknowledged)
        failed = sum(one.failed for one in self.written)
        errors = sorted({one.first_error for one in self.written if one.first_error})
        emit(peer, work, "rate", len(self.acknowledged) / self.seconds, "commits/s", failed=failed, errors=errors, **facts)
        emit(peer, work, "lost", lost, "commits", unacknowledged=unacknowledged, **facts)
        emit(peer, work, "duplicates", len(in_table) - len(set(in_table)), "files", **facts)
        emit(
            peer,
            work,
            "fairness",
            min(rates) / max(rates) if max(rates) else 0,
            "slowest/fastest",
            rates=[round(r, 1) for r in rates],
            **facts,
        )
        latencies = [ms for one in self.written for ms in one.latencies_ms]
        for rank in (50, 95):
            emit(peer, work, f"p{rank}", percentile(latencies, rank) if latencies else math.nan, "ms", **facts)


def run_writers(writers: int, each: int, prepare: Callable[[int], Commit]) -> Outcome:
    """Start `writers` processes; each calls prepare(writer), waits for all others, then commits its `each` file numbers.

    The clock starts when the last one is ready: start-up and imports do not count.
    """
    context = multiprocessing.get_context("spawn")
    results: Queue[Written | str] = context.Queue()
    ready = context.Barrier(writers + 1)
    processes = [context.Process(target=_write, args=(prepare, writer, each, ready, results)) for writer in range(writers)]
    for process in processes:
        process.start()
    ready.wait(START_TIMEOUT_S)
    start = time.perf_counter()
    written = [results.get(timeout=WRITERS_TIMEOUT_S) for _ in processes]
    seconds = time.perf_counter() - start
    for process in processes:
        process.join()
    return Outcome(written=[one for one in written if isinstance(one, Written)], each=each, seconds=seconds)


def _write(prepare: Callable[[int], Commit], writer: int, each: int, ready: Barrier, results: "Queue[Written | str]") -> None:
    try:
        commit = prepare(writer)
    except BaseException:
        ready.abort()
        raise
    ready.wait(START_TIMEOUT_S)
    results.put(_commit_each(writer, range(writer * each, (writer + 1) * each), commit))


def _commit_each(writer: int, numbers: Iterable[int], commit: Commit) -> Written:
    acknowledged: list[int] = []
    latencies: list[float] = []
    errors: list[str] = []
    begin = time.perf_counter()
    for number in numbers:
        start = time.perf_counter()
        try:
            commit(number)
        except Exception as error:  # noqa: BLE001 - every peer raises its own kind
            errors.append(f"{type(error).__name__}: {str(error)[:160]}")
        else:
            latencies.append((time.perf_counter() - start) * 1e3)
            acknowledged.append(number)
    seconds = time.perf_counter() - begin
    return Written(
        writer=writer,
        acknowledged=acknowledged,
        latencies_ms=latencies,
        seconds=seconds,
        failed=len(errors),
        first_error=errors[0] if errors else None,
    )


def settle() -> None:
    """Everything written so far lies on the disk, as files do that are retired: one that never left memory is deleted ten times as fast."""
    os.sync()


def run_step(steps: Mapping[str, Callable[..., None]], arguments: Sequence[str] | None = None) -> None:
    """Carry out `STEP DIRECTORY name=value ...`; values made of digits are numbers."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if len(given) < 2 or given[0] not in steps:
        raise SystemExit(f"usage: STEP DIRECTORY [name=value ...], STEP one of {', '.join(steps)}")
    options = dict(option.split("=", 1) for option in given[2:])
    steps[given[0]](Path(given[1]), **{name: int(value) if value.isdigit() else value for name, value in options.items()})
