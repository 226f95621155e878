"""Spark through Hadoop's S3A on a server that speaks S3, with both registries and both committers: every operation, each compared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from object_store_walk import CLOUD, PACKAGES

from maven import require_maven

pytest_plugins = ["storage_fixtures"]
COMPARISONS = 27


@pytest.mark.long
@pytest.mark.maven
@pytest.mark.timeout(900)
@pytest.mark.parametrize("committer", ["default", "magic"])
def test_a_lake_on_an_object_store_is_walked_with_spark(url: str, unused_prefix: str, s3_endpoint: str, committer: str) -> None:
    require_maven(CLOUD if committer == "magic" else PACKAGES)
    here = Path(__file__).parent
    environment = {name: value for name, value in os.environ.items() if name != "LAKEBED_SERVICE"}  # it publishes by itself
    environment["PYTHONPATH"] = f"{here}{os.pathsep}{here.parent}"
    place = {"url": url, "warehouse": unused_prefix, "endpoint": s3_endpoint, "committer": committer}
    script = [sys.executable, str(here / "object_store_walk.py"), json.dumps(place)]

    done = subprocess.run(script, capture_output=True, text=True, check=False, timeout=880, env=environment)

    assert done.returncode == 0, done.stderr[-3000:]
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [line for line in said if not line["equal"]] == []
    assert len(said) == COMPARISONS
