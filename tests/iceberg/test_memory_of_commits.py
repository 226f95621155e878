"""What a commit holds does not grow with its files: measured in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BESIDE_IDS = 15_000_000  # one manifest, a page of rows and footers, and the answer that names a step's files
PER_FILE = 8 + 8 + 100  # ids twice, and for a moment the rows they come in


@pytest.mark.timeout(600)
@pytest.mark.parametrize("files", [20_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_adding_rebuilding_and_comparing_many_files_takes_bounded_memory(tmp_path: Path, files: int) -> None:
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here.parent), os.environ.get("PYTHONPATH", "")])}

    call = [sys.executable, str(here / "memory_of_commits.py"), str(tmp_path), str(files)]
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=environment)

    assert done.returncode == 0, done.stderr[-3000:]
    peaks: dict[str, int] = json.loads(done.stdout)
    assert set(peaks) == {"resident", "rebuild", "refresh", "verify"}
    assert {what: peak for what, peak in peaks.items() if peak > BESIDE_IDS + PER_FILE * files} == {}
