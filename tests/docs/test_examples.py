"""Every example of README and docs is run as it stands there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto.server import ThreadedMotoServer
from pages import NOT_RUN, PAGES, ROOT, list_blocks
from run_pages import run_page

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Databases

pytestmark = [pytest.mark.xdist_group("examples"), pytest.mark.timeout(900)]  # all pages run before the first test ends

_ON_PAPER = "postgresql://lakebed@db.example.org/lakes?sslmode=verify-full"
_STORE_ON_PAPER, _BUCKET = "https://minio.example.org:9000", "example-lake"
_NEED_ANOTHER_MACHINE = {"cluster-and-object-store.md"}
_WITH_EXAMPLES = [page for page in PAGES if any(block.runs for block in list_blocks(page.read_text()))]


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """An object store with the bucket of the examples; it takes any keys."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    keys = {"aws_access_key_id": "example-key", "aws_secret_access_key": "example-secret"}
    client = boto3.client("s3", endpoint_url=endpoint, region_name="eu-central-1", **keys)
    client.create_bucket(Bucket=_BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    client.close()
    yield endpoint
    server.stop()


@pytest.fixture(scope="module")
def outcomes(databases: Databases, store: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Per page what went wrong. All of them in one process: Spark starts once."""
    place = tmp_path_factory.mktemp("examples")
    url = databases.new_empty("postgresql")
    request = {
        "pages": list(map(str, _WITH_EXAMPLES)),
        "names": {_ON_PAPER: url, _STORE_ON_PAPER: store},
        "answer": str(place / "answer.json"),
    }
    (place / "request.json").write_text(json.dumps(request))
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LAKEBED_")}  # as a newcomer has it
    command = [sys.executable, "-W", "error", str(ROOT / "tests/docs/run_pages.py"), str(place / "request.json")]
    wide = {"NO_COLOR": "1", "COLUMNS": "140"}
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, env={**environment, **wide})
    databases.drop(url)
    assert done.returncode == 0, done.stderr[-4000:]
    answer: dict[str, Any] = json.loads((place / "answer.json").read_text())
    return answer


@pytest.mark.parametrize("page", _WITH_EXAMPLES, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_examples_of_the_page_run(outcomes: dict[str, Any], page: Path) -> None:
    wrong, _ = outcomes[str(page)]

    assert not wrong, wrong


def test_the_quick_start_and_every_how_to_have_examples() -> None:
    wanted = [ROOT / "README.md", ROOT / "docs/quick-start.md", *(ROOT / "docs/how-to").glob("*.md")]

    assert [page.name for page in wanted if page not in _WITH_EXAMPLES] == []


def test_only_what_needs_another_machine_is_not_run() -> None:
    skipped = {page.name for page in PAGES for block in list_blocks(page.read_text()) if block.options == NOT_RUN}

    assert skipped - _NEED_ANOTHER_MACHINE == set()


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "it printed"),
        ("```python\n1 / 0\n```\n", "ZeroDivisionError"),
        ("```sh\nlakebed config show --no-such-option\n```\n", "ended with 2, not 0"),
        ("```sh\nlakebed config show   # exit 3\n```\n", "ended with 0, not 3"),
        ("```sh\nmake everything\n```\n", "the runner knows no make"),
        ("```python\nprint('a b')\n```\n\n```text\na ...\n```\n\n```console\nmake all\n```\n", ""),
        ("```python not-run\n1 / 0\n```\n", ""),
    ],
    ids=["prints otherwise", "raises", "fails", "ends otherwise", "is unknown", "does", "is not run"],
)
def test_an_example_that_does_not_do_what_its_page_says_is_found(page: str, shown: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(page)

    wrong = run_page(tmp_path / "page.md", {})

    assert shown in wrong
    assert bool(shown) == bool(wrong)
