"""What the type checker refuses before anything runs: one small file per mistake, with the errors it must give."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.xdist_group("typing")  # one run of the type checker for all of them
SAMPLES = sorted((Path(__file__).parent / "typing_samples").glob("*.py.txt"))
_FOUND = re.compile(r"(?P<file>[^:]+):(?P<line>\d+): error: .*\[(?P<code>[a-z-]+)\]$")
_EXPECTED = re.compile(r"# expect: (?P<code>[a-z-]+)$")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[tuple[int, str]]]:
    """What one run says of all samples: loading the package takes most of it. They are stored as text, because no other tool is to read them."""
    directory = tmp_path_factory.mktemp("samples")
    for sample in SAMPLES:
        shutil.copy(sample, directory / sample.stem)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--no-error-summary",
        "--config-file",
        str(ROOT / "pyproject.toml"),
        str(directory),
    ]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    errors: dict[str, set[tuple[int, str]]] = {sample.stem: set() for sample in SAMPLES}
    for line in output.splitlines():
        if (match := _FOUND.match(line)) is not None:
            errors[Path(match["file"]).name].add((int(match["line"]), match["code"]))
    return errors


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name.partition(".")[0])
def test_the_type_checker_says_exactly_what_is_wrong(sample: Path, found: dict[str, set[tuple[int, str]]]) -> None:
    lines = enumerate(sample.read_text().splitlines(), start=1)
    expected = {(number, match["code"]) for number, line in lines if (match := _EXPECTED.search(line))}

    assert found[sample.stem] == expected


def test_components_never_see_json() -> None:
    using = [
        path.name
        for path in (ROOT / "src/lakebed/components").glob("*.py")
        if re.search(r"^(import|from) json\b", path.read_text(), re.MULTILINE)
    ]

    assert using == []
