"""One run of pytest in a process of its own, against a copy of the package."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mutation.environment import REPORT, TESTS

ROOT = Path(__file__).parents[2]
ENDING_S = 60.0  # for a run that was interrupted: it stops its database


@dataclass(frozen=True, slots=True)
class Report:
    """What the plugin wrote; `ended` is false for a run that had to be stopped."""

    ended: bool
    returned: int
    seconds: dict[str, float]
    failed: dict[str, str]
    skipped: list[str]
    output: str


def run_tests(
    files: Sequence[str], *, copied: Path, tests: Sequence[str] | None = None, timeout_s: float, options: Sequence[str] = (), **more: str
) -> Report:
    """Run `tests` of `files` in this order, or all of them; `more` is added to the environment."""
    with tempfile.TemporaryDirectory(prefix="lakebed-mutant-run-") as directory:
        environment = os.environ | more | {"PYTHONPATH": f"{copied}{os.pathsep}{ROOT / 'scripts'}", REPORT: f"{directory}/report.json"}
        if tests is not None:
            environment[TESTS] = f"{directory}/tests.json"
            Path(environment[TESTS]).write_text(json.dumps(tests), encoding="utf-8")
        command = [
            "./scripts/in-memory", sys.executable, "-m", "pytest", "-q", "-m", "not long", "-p", "mutation.plugin", *options, *files,
        ]  # fmt: skip
        with (
            Path(directory, "output.txt").open("w+", encoding="utf-8") as output,
            subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True) as process,  # noqa: S603 - our own interpreter
        ):
            try:
                process.wait(timeout_s)
                ended = True
            except subprocess.TimeoutExpired:
                ended = False
            finally:
                _stop(process)
            report = Path(environment[REPORT])
            written = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {"seconds": {}, "failed": {}, "skipped": []}
            output.seek(0)
            return Report(ended=ended, returned=process.returncode, output=output.read()[-4000:], **written)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupted first, because a killed pytest leaves its PostgreSQL behind."""
    for signalled in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signalled)
            with suppress(subprocess.TimeoutExpired):
                process.wait(ENDING_S)
