"""Our registry beside its peers and the bare-SQL limit, in one run.

    python bench/registry.py [--scale full|small|smoke] [--only TEXT ...] [--out FILE]

Every step is a process of its own; figures compare only steps of the same run. The data directory must lie on a real disk.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import figures
import machine
import postgres
from steps import SCALES, Group, Scale, Step, list_groups

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
STEP_TIMEOUT_S = 1_200


@dataclass(slots=True)
class Run:
    """What one run has found so far."""

    data: Path
    environment: dict[str, str]
    lines: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)

    def carry_out(self, step: Step, round_number: int) -> None:
        place = self.data / "step"
        place.mkdir()
        stall, start = machine.read_cpu_stall_us(), time.monotonic()
        code, output, errors = run_process(step, place, self.environment)
        seconds = time.monotonic() - start
        report = {
            "step": step.label,
            "round": round_number,
            "code": code,
            "seconds": round(seconds, 1),
            "cpu_stall": round((machine.read_cpu_stall_us() - stall) / 1e6 / seconds, 3),
        }
        if code != 0:
            report["error"] = self.hide_paths(errors.strip()[-500:])
        self.steps.append(report)
        measured = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        self.lines += [json.loads(self.hide_paths(json.dumps(line))) | {"step": step.label, "round": round_number} for line in measured]
        shutil.rmtree(place, ignore_errors=True)
        print(f"{seconds:7.1f} s  stall {report['cpu_stall']:.2f}  {step.label}  {describe(report)}", flush=True)

    def hide_paths(self, text: str) -> str:
        """A committed result names no place of the machine it ran on."""
        for path, name in (
            (self.data, "DATA"),
            (HERE, "BENCH"),
            (HERE.parent, "REPOSITORY"),
            (Path(sys.prefix), "VENV"),
            (Path(sys.base_prefix), "PYTHON"),
            (Path.home(), "HOME"),
        ):
            text = text.replace(str(path), name)
        return text

    @property
    def failed(self) -> list[dict[str, Any]]:
        return [step for step in self.steps if step["code"] != 0]


def describe(report: dict[str, Any]) -> str:
    return "" if report["code"] == 0 else f"FAILED ({report['code']}): {report['error'].splitlines()[-1] if report['error'] else ''}"


def run_process(step: Step, place: Path, environment: dict[str, str]) -> tuple[int | str, str, str]:
    """Exit code or "timeout", output, errors. Output goes to files: what a step printed before a timeout still counts."""
    command = [sys.executable, "-m", step.module, step.name, str(place / "data"), *step.arguments]
    out, err = place / "out", place / "err"
    with out.open("w") as stdout, err.open("w") as stderr:
        process = subprocess.Popen(command, cwd=HERE, env=environment, stdout=stdout, stderr=stderr, start_new_session=True)
        try:
            code: int | str = process.wait(STEP_TIMEOUT_S)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)  # its own session: the writers it started go with it
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            code = "timeout"
    return code, out.read_text(), err.read_text()


def run_group(run: Run, group: Group, rounds: int, only: Sequence[str]) -> None:
    for round_number in range(rounds):
        for step in group.order(round_number):
            if not only or any(text in f"{group.name} {step.label}" for text in only):
                run.carry_out(step, round_number)


@contextmanager
def data_directory(parent: Path | None) -> Iterator[Path]:
    """A directory that goes away with the run, whatever ends it."""
    path = Path(tempfile.mkdtemp(prefix="lakebed-bench-", dir=parent)).resolve()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def measure(scale: Scale, arguments: argparse.Namespace) -> dict[str, Any]:
    with data_directory(arguments.data) as data, postgres.run_server(data / "postgres") as dsn:
        facts = machine.read_facts(data) | {"postgres": postgres.read_settings(dsn)}
        if facts["file_system"] in {"tmpfs", "ramfs"}:
            print(
                "warning: the data lies in memory, where a durable commit costs nothing; give --data a directory on a disk", file=sys.stderr
            )
        run = Run(data=data, environment=os.environ | {postgres.DSN_VARIABLE: dsn})
        for group in list_groups(scale):
            run_group(run, group, arguments.rounds or group.rounds, arguments.only)
    rows = figures.compute(run.lines, scale)
    print(f"\n{figures.render(rows)}\n")
    if scale.name != "full":
        print(f"scale {scale.name}: the agreed figures speak of the full one")
    for step in run.failed:
        print(f"failed: {step['step']}")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "scale": asdict(scale),
        "only": arguments.only,
        "machine": facts,
        "figures": [asdict(row) for row in rows],
        "steps": run.steps,
        "measurements": run.lines,
    }


def write_result(result: dict[str, Any], path: Path) -> None:
    """One line per figure, step and measurement, so that two results can be compared line by line."""
    parts = []
    for name, value in result.items():
        text = "[\n  " + ",\n  ".join(map(json.dumps, value)) + "\n ]" if isinstance(value, list) and value else json.dumps(value)
        parts.append(f" {json.dumps(name)}: {text}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default="full")
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="only steps whose group or label contains TEXT; repeatable"
    )
    parser.add_argument("--out", type=Path, help="default: bench/results/registry-DATE.json, with the scale in its name unless full")
    parser.add_argument("--data", type=Path, help="where the temporary data lies (default: the system's temporary directory)")
    parser.add_argument("--rounds", type=int, help="repeat every group that often (default: as each group needs)")
    parser.add_argument("--list", action="store_true", help="show the steps and stop")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    given = parse(arguments)
    scale = SCALES[given.scale]
    if given.list:
        for group in list_groups(scale):
            print(*(f"{group.name}: {step.label}" for step in group.steps), sep="\n")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server and the data go away too
    result = measure(scale, given)
    name = "registry" if scale.name == "full" else f"registry-{scale.name}"
    path = given.out or RESULTS / f"{name}-{datetime.now(UTC).date()}.json"
    write_result(result, path)
    print(f"written: {path}")
    return 1 if any(step["code"] != 0 for step in result["steps"]) else 0


if __name__ == "__main__":
    raise SystemExit(main())
