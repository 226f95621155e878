"""Two source trees side by side, in one run: whether moving, merging or renaming made Lakebed slower.

    .venv/bin/python bench/house.py --before ../before --after .                        # everything, about twenty minutes on two cores
    .venv/bin/python bench/house.py --before ../before --only import --scale small

start: what `import lakebed` and its public face take, and how many modules (its own, all) they load, in fresh processes.
command: `lakebed tables list` on a small lake, start of the process included.
register: registrations one by one and by eight writers at once, by the `bench/ours.py` of each tree, on both databases.
insert: Spark inserts beside plain Spark, by the `bench/pipeline.py` of each tree; what is compared is the ratio to plain Spark.

Each measurement is a process of its own that sees the one tree's sources. Both trees take turns, and who is first changes with every pair. A
ratio is the median over pairs of after / before, above 1 when the later tree is slower, with the 95 % interval of that median.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import machine
import postgres
from registry import write_result

RESULTS = Path(__file__).resolve().parent / "results"
BACKENDS = ("sqlite", "postgres")
STEP_TIMEOUT_S = 1_200
DRAWS = 5_000

Values = Mapping[str, float]  # work -> what it took, less is better


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    starts: int  # pairs
    registers: int
    inserts: int
    size: int = 2_000  # files in the table when registrations are timed
    singles: int = 200
    each: int = 100  # of eight writers


SCALES = {
    "full": Scale(starts=40, registers=10, inserts=6),
    "small": Scale(starts=30, registers=4, inserts=2, size=500, singles=60, each=40),
    "smoke": Scale(starts=4, registers=2, inserts=1, size=100, singles=20, each=10),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """One state of the sources, with its own benchmark."""

    name: str
    path: Path

    @property
    def environment(self) -> dict[str, str]:
        """The same for both but for the sources; what Python compiles is kept, as it is for users."""
        kept = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}}
        return kept | {"PYTHONPATH": str(self.path / "src"), "LAKEBED_SERVICE": "off"}

    def run(self, arguments: Sequence[str], *, cwd: Path, **more: str) -> str:
        """The output of this Python over this tree; a session of its own, so that what it started ends with it."""
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=cwd, env=self.environment | more,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            output, errors = process.communicate(timeout=STEP_TIMEOUT_S)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        if process.returncode != 0:
            raise SystemExit(f"{self.name}: {' '.join(arguments)[:200]} ended with {process.returncode}:\n{errors[-2_000:]}")
        return output

    def require_own(self, cwd: Path) -> None:
        """An installed Lakebed must not be what is measured."""
        found = Path(self.run(["-c", "import lakebed; print(lakebed.__file__)"], cwd=cwd).strip()).resolve()
        if not found.is_relative_to(self.path / "src"):
            raise SystemExit(f"{self.name}: Python imports {found}, not what is under {self.path / 'src'}")

    @property
    def command(self) -> str:
        """What the program `lakebed` of this tree does, as an installation would write it."""
        scripts = tomllib.loads((self.path / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
        module, function = scripts["lakebed"].split(":")
        return f"import sys; from {module} import {function}; sys.exit({function}())"

    def find_commit(self) -> str:
        """Empty where the tree is no checkout; with a + where it was changed since."""
        answers = [
            subprocess.run(["git", "-C", str(self.path), *words], capture_output=True, text=True, check=False).stdout.strip()
            for words in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--", "src", "bench"])
        ]
        return answers[0] + "+" * bool(answers[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Both trees, and where they may write."""

    trees: tuple[Tree, Tree]
    place: Path
    scale: Scale

    def compare(self, measure: Callable[[Tree], Values], pairs: int, *, warm: int = 1) -> Iterator[dict[str, Any]]:
        """A figure for each work that `measure` names; the first rounds, in which Python compiles, are not counted."""
        taken: dict[str, list[tuple[float, float]]] = {}
        stall = Stall()
        for number in range(-warm, pairs):
            order = self.trees[:: -1 if number % 2 else 1]
            found = {tree.name: measure(tree) for tree in order}
            before, after = (found[tree.name] for tree in self.trees)
            for work in before if number >= 0 else ():
                taken.setdefault(work, []).append((before[work], after[work]))
        for work, values in taken.items():
            yield {"work": work, **summarize(values), "cpu_stall": stall.share}


class Stall:
    """The share of the time since its making in which some task waited for a CPU."""

    def __init__(self) -> None:
        self._begun, self._stalled_us = time.monotonic(), machine.read_cpu_stall_us()

    @property
    def share(self) -> float:
        return round((machine.read_cpu_stall_us() - self._stalled_us) / 1e6 / (time.monotonic() - self._begun), 3)


def summarize(values: Sequence[tuple[float, float]]) -> dict[str, Any]:
    ratios = [after / before for before, after in values]
    draw = random.Random(1)  # the same interval for the same values
    drawn = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(DRAWS))
    return {
        "before": round(statistics.median(before for before, _ in values), 4),
        "after": round(statistics.median(after for _, after in values), 4),
        "ratio": round(statistics.median(ratios), 4),
        "interval": [round(drawn[DRAWS // 40], 4), round(drawn[-DRAWS // 40 - 1], 4)],
        "pairs": len(values),
        "values": [[round(value, 4) for value in pair] for pair in values],
    }


def start(bench: Bench) -> Iterator[dict[str, Any]]:
    programs = {"import lakebed": "import lakebed", "import its public face": "import lakebed; lakebed.connect, lakebed.Lake"}
    timed = "import time; began, used = time.perf_counter(), time.process_time(); {}; print(time.perf_counter() - began, time.process_time() - used)"
    counted = "import sys; {}; print(sum(name.split('.')[0] == 'lakebed' for name in sys.modules), len(sys.modules))"
    for work, program in programs.items():
        modules = {tree.name: [int(n) for n in tree.run(["-c", counted.format(program)], cwd=bench.place).split()] for tree in bench.trees}

        def measure(tree: Tree, work: str = work, program: str = program) -> Values:
            wall_s, cpu_s = map(float, tree.run(["-c", timed.format(program)], cwd=bench.place).split())
            return {work: wall_s * 1e3, f"{work}, CPU": cpu_s * 1e3}

        for figure in bench.compare(measure, bench.scale.starts):
            yield {**figure, "unit": "ms", "modules": modules}


def command(bench: Bench) -> Iterator[dict[str, Any]]:
    """Each tree lists the tables of a lake that it made itself."""
    urls = {tree.name: make_lake(tree, bench.place / tree.name) for tree in bench.trees}

    def measure(tree: Tree) -> Values:
        began, used = time.perf_counter(), children_cpu_s()
        output = tree.run(["-c", tree.command, "tables", "list", "--registry", urls[tree.name]], cwd=bench.place)
        wall_s, cpu_s = time.perf_counter() - began, children_cpu_s() - used
        assert "bench.t2" in output, output
        return {"lakebed tables list": wall_s * 1e3, "lakebed tables list, CPU": cpu_s * 1e3}

    for figure in bench.compare(measure, bench.scale.starts):
        yield {**figure, "unit": "ms"}


def children_cpu_s() -> float:
    """Of processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def make_lake(tree: Tree, place: Path) -> str:
    place.mkdir()
    url = f"sqlite:///{place}/lake.db"
    program = f"""import lakebed
with lakebed.connect({url!r}, warehouse={str(place / "warehouse")!r}, service="off") as lake:
    for number in range(3):
        lake.create_table(f"bench.t{{number}}", "id BIGINT, name STRING")"""
    tree.run(["-c", program], cwd=place)
    return url


def register(bench: Bench) -> Iterator[dict[str, Any]]:
    with postgres.run_server(bench.place / "postgres") as dsn:
        postgres.read_settings(dsn)  # refuses a server that does not commit durably
        for backend in BACKENDS:

            def measure(tree: Tree, backend: str = backend, dsn: str = dsn) -> Values:
                return register_once(bench, tree, backend, dsn)

            for figure in bench.compare(measure, bench.scale.registers):
                yield {**figure, "unit": "ms", "database": "sqlite" if backend == "sqlite" else "postgresql"}


def register_once(bench: Bench, tree: Tree, backend: str, dsn: str) -> Values:
    scale, more = bench.scale, {postgres.DSN_VARIABLE: dsn}
    one_by_one = [f"backend={backend}", f"sizes={scale.size}", f"singles={scale.singles}"]
    at_once = [f"backend={backend}", "writers=8", f"each={scale.each}"]
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for step, options in (("register", one_by_one), ("concurrent", at_once)):
        place = bench.place / "step"
        output = tree.run(["-m", "ours", step, str(place), *options], cwd=tree.path / "bench", **more)
        shutil.rmtree(place)
        lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        found |= {(line["work"], line["metric"]): line for line in lines}
    rate = found["concurrent", "rate"]
    wrong = rate["failed"], found["concurrent", "lost"]["value"], found["concurrent", "duplicates"]["value"]
    if any(wrong):
        raise SystemExit(f"{tree.name}, {backend}: failed, lost and doubled commits: {wrong}")
    return {
        "register, the transaction": found["commit_only", "p50"]["value"],
        "register, the transaction, CPU": found["commit_only", "cpu"]["value"],
        "register with capture": found["capture_commit", "p50"]["value"],
        "register with capture, CPU": found["capture_commit", "cpu"]["value"],
        "register by 8 writers, per file": 1e3 / rate["value"],
    }


def insert(bench: Bench) -> Iterator[dict[str, Any]]:
    """What an insert takes beyond plain Spark, whose speed differs from one Java to the next; its milliseconds beside it."""

    def measure(tree: Tree) -> Values:
        out = bench.place / "pipeline.json"
        tree.run(["pipeline.py", "--only", "insert", "--scale", "small", "--out", str(out)], cwd=tree.path / "bench")
        figures = json.loads(out.read_text(encoding="utf-8"))["figures"]
        out.unlink()
        return {f"insert {one['rows']:,} rows, {unit}": one[key] for one in figures for key, unit in (("ratio", "times plain Spark"), ("ours_ms", "ms"))}  # fmt: skip

    for figure in bench.compare(measure, bench.scale.inserts, warm=0):
        work, unit = figure.pop("work").rsplit(", ", 1)
        yield {"work": work, **figure, "unit": unit}


GROUPS: dict[str, Callable[[Bench], Iterator[dict[str, Any]]]] = {
    "start": start,
    "command": command,
    "register": register,
    "insert": insert,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="the root of the earlier tree")
    parser.add_argument("--after", type=Path, default=Path(), help="the root of the later tree (default: here)")
    parser.add_argument("--scale", choices=SCALES, default="full")
    parser.add_argument("--only", action="append", choices=GROUPS)
    parser.add_argument(
        "--data", type=Path, help="where the temporary data lies: a disk, not memory (default: the system's temporary directory)"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / f"house-{datetime.now(UTC):%F}.json")
    parser.add_argument("--note", default="", help="what is special about this run, for whoever reads its figures")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server and the data go away too
    trees = (Tree(name="before", path=chosen.before.resolve()), Tree(name="after", path=chosen.after.resolve()))
    with tempfile.TemporaryDirectory(prefix="lakebed-bench-", dir=chosen.data) as directory:
        place = Path(directory).resolve()
        for tree in trees:
            tree.require_own(place)
        answer: dict[str, Any] = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "scale": chosen.scale,
            "machine": machine.read_facts(place),
            "note": chosen.note,
            "trees": {tree.name: tree.find_commit() for tree in trees},
            "figures": [],
        }
        for name in chosen.only or GROUPS:
            (place / name).mkdir()
            for figure in GROUPS[name](Bench(trees=trees, place=place / name, scale=SCALES[chosen.scale])):
                answer["figures"].append({"group": name, **figure})
                print(describe(figure), flush=True)
                write_result(answer, chosen.out)  # a run that is stopped keeps what it measured
    print(f"written: {chosen.out.name}")


def describe(figure: Mapping[str, Any]) -> str:
    low, high = figure["interval"]
    work = ", ".join(filter(None, (figure["work"], figure.get("database"))))
    return f"{work}: {figure['before']} -> {figure['after']} {figure['unit']}, {figure['ratio']} times ({low} to {high}, {figure['pairs']} pairs)"


if __name__ == "__main__":
    main()
