"""Do the tests notice? A sample of small changes to a package, each of which some test should catch.

    .venv/bin/python scripts/mutants.py --package registry --tests tests/registry --wider tests/compaction tests/check --count 50

A mutant is the package with one comparison, constant, operator, answer or piece of SQL turned into another. One run of the tests on an
instrumented copy records which test reaches which line; then each mutant meets only the tests that reach its line, the fastest first, until
one fails. The tests run against copies, so the working tree stays as it is. The record and the results are kept in a temporary directory: a
run that was stopped goes on where it was, and a survivor meets again only test files that have changed. Some changes alter nothing that can
be observed: read them, and write a test for the others.
"""

import argparse
import json
import shutil
import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutation.changes import Mutant, draw_sample, list_mutants
from mutation.reach import Reach, file_of, hash_of, list_files, record_reach
from mutation.running import ROOT, Report, run_tests

SOURCES = ROOT / "src"
INTERRUPTED, NOTHING_LEFT = 2, 5  # what pytest returns


@dataclass(frozen=True, slots=True)
class Work:
    """What one call of the script has to do."""

    modules: list[Path]
    reach: Reach
    hashes: dict[str, str]  # of the text of each test file
    wider: list[str]
    at_first: int
    copied: Path

    def meet(self, mutant: Mutant, passed: dict[str, str]) -> dict[str, Any]:
        """Who caught the mutant and why, or what it `passed`: each test file with the hash of its text."""
        target = self.copied / mutant.path.relative_to(SOURCES)
        original = target.read_text(encoding="utf-8")
        target.write_text(mutant.write(), encoding="utf-8")
        try:
            for tests in self._stages(mutant, passed):
                if caught := self._meet_stage(tests):
                    return {"by": caught[0], "why": caught[1]}
            if files := [path for path in self._wider_files(mutant) if passed.get(path) != self.hashes[path]]:
                caught = _verdict(run_tests(files, copied=self.copied, timeout_s=3600, options=["-x"]))
                if caught:
                    return {"by": caught[0], "why": caught[1]}
        finally:
            target.write_text(original, encoding="utf-8")
        met = {file_of(test) for stage in self._stages(mutant, {}) for test in stage} | set(self._wider_files(mutant))
        return {"by": None, "passed": {path: self.hashes[path] for path in sorted(met)}}

    def _stages(self, mutant: Mutant, passed: dict[str, str]) -> list[list[str]]:
        stages = self.reach.list_stages(mutant, self.modules, at_first=self.at_first)
        left = [[test for test in stage if passed.get(file_of(test)) != self.hashes[file_of(test)]] for stage in stages]
        return [stage for stage in left if stage]

    def _meet_stage(self, tests: list[str]) -> tuple[str, str] | None:
        while tests:
            caught = _verdict(self._run(tests, self.copied))
            if caught is None or "Timeout" not in caught[1] or not self._run([caught[0]], SOURCES).failed:
                return caught
            tests = tests[tests.index(caught[0]) + 1 :]  # it is too slow without any change, too
        return None

    def _run(self, tests: list[str], copied: Path) -> Report:
        slowest, total = max(self.reach.seconds[test] for test in tests), sum(self.reach.seconds[test] for test in tests)
        # tests that hang have noticed something, too
        options = ["-x", f"--timeout={120 + 10 * slowest:.0f}"]
        files = sorted({file_of(test) for test in tests})
        return run_tests(files, copied=copied, tests=tests, timeout_s=300 + 10 * total, options=options)

    def _wider_files(self, mutant: Mutant) -> list[str]:
        """Those of the wider tests that name the mutant's module, or were asked for by their own name."""
        name = ".".join(mutant.path.relative_to(SOURCES).with_suffix("").parts)
        wider = [str(path.relative_to(ROOT)) for path in list_files(self.wider)]
        return [path for path in wider if path in self.wider or name in (ROOT / path).read_text(encoding="utf-8")]


def _verdict(report: Report) -> tuple[str, str] | None:
    if report.failed:
        return next(iter(report.failed.items()))
    if not report.ended:
        return "a test that hangs", "stopped"
    if report.returned == INTERRUPTED:
        return "whatever imports it", report.output.strip().rpartition("\n")[2]
    if report.returned not in (0, NOTHING_LEFT):
        return "a run that breaks", report.output.strip().rpartition("\n")[2]
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", default="registry", help="below src/lakebed; a module's name without .py works, too")
    parser.add_argument("--tests", nargs="+", default=["tests/registry"])
    parser.add_argument("--wider", nargs="+", default=[], help="for what survives: files, and folders for what there names the module")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--at-first", type=int, default=60, help="how many of the tests that reach a line run before the others are collected"
    )
    parser.add_argument(
        "--only", default="", help="mutants of the sample whose place contains this, src/lakebed/registry/maintenance/runs.py:30 say"
    )
    parser.add_argument("--place", type=Path, default=Path(tempfile.gettempdir()) / "lakebed-mutants", help="where records and results are")
    chosen = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell started this in the background
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the run of the tests and its database end, too
    place = SOURCES / "lakebed" / chosen.package
    modules = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    found = [mutant for path in modules for mutant in list_mutants(path, root=ROOT)]
    sample = [one for one in draw_sample(found, count=chosen.count, seed=chosen.seed) if chosen.only in where(one)]
    chosen.place.mkdir(mode=0o700, exist_ok=True)
    reach = record_reach(modules, chosen.tests, chosen.place / f"reach-{hash_of(modules)}.json")
    hashes = reach.files | {str(path.relative_to(ROOT)): hash_of([path]) for path in list_files(chosen.wider)}
    with tempfile.TemporaryDirectory(prefix="lakebed-mutants-") as directory:
        copied = Path(directory) / "src"
        shutil.copytree(SOURCES, copied, ignore=shutil.ignore_patterns("__pycache__"))
        alive = meet_all(sample, Work(modules, reach, hashes, chosen.wider, chosen.at_first, copied), chosen.place / "results.json")
    print(f"{len(sample) - alive} of {len(sample)} were caught, out of {len(found)} that could be made")
    raise SystemExit(1 if alive else 0)


def meet_all(sample: Sequence[Mutant], work: Work, kept: Path) -> int:
    """How many survive; each result is kept as soon as it is known."""
    results: dict[str, dict[str, Any]] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    alive = 0
    for number, mutant in enumerate(sample, 1):
        began = time.monotonic()
        key = f"{mutant.key}-{hash_of([mutant.path])}"
        result = results.get(key, {"by": None, "passed": {}})
        if result["by"] is None:
            result = results[key] = work.meet(mutant, result["passed"])
            kept.write_text(json.dumps(results, indent=1), encoding="utf-8")
        alive += result["by"] is None
        outcome = f"caught by {result['by']} ({result['why']})" if result["by"] else "SURVIVED"
        print(f"{number:3}/{len(sample)} {time.monotonic() - began:5.0f} s  {where(mutant)}  {mutant.change}  {outcome}", flush=True)
    return alive


def where(mutant: Mutant) -> str:
    return f"{mutant.path.relative_to(ROOT)}:{mutant.line}"


if __name__ == "__main__":
    main()
