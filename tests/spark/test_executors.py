"""Executors need the warehouse and no Lakebed; over Spark Connect a stream is written beside the server."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from connect_servers import connect_server
from insert_lakes import ORDERS, make_orders
from pyspark import cloudpickle

from lakebed.core.errors import InvalidValueError
from lakebed.lake import connect
from lakebed.pipeline.context import Context
from lakebed.pipeline.spark.session import SparkSource

if TYPE_CHECKING:
    from lakebed.lake import Lake

HERE = Path(__file__).parent
WALK = HERE / "executor_walk.py"
OPTIONS = {"spark.sql.shuffle.partitions": "2"}
GOOD = {"keys_of_decimals": True, "lists": ["spark", 20], "json_lines": ["spark", 20], "stream": [True, 2, True, True], "clean": True}
# found by every Python that starts with it on its path, before anything else is imported
WITHOUT_LAKEBED = """
import sys
class NoLakebed:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "lakebed":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, NoLakebed)
"""


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LAKEBED_", "SPARK_REMOTE", "PYSPARK_"))}
    paths = [str(HERE), str(HERE.parent), *kept.get("PYTHONPATH", "").split(os.pathsep)]
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYSPARK_PYTHON": sys.executable, **more}


def python_without_lakebed(directory: Path) -> str:
    (directory / "sitecustomize.py").write_text(WITHOUT_LAKEBED)
    python = directory / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{directory}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return str(python)


def walk(url: str, place: Path, options: dict[str, str], **more: str) -> Any:
    (place / "lake").mkdir()
    command = [sys.executable, str(WALK), url, str(place / "lake" / "warehouse"), json.dumps({**OPTIONS, **options})]
    done = subprocess.run(command, env=environment(**more), capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.timeout(450)
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("kind", ["sqlite"])
def test_executors_need_no_lakebed(url: str, tmp_path: Path) -> None:
    cluster = {"spark.master": "local-cluster[1,1,1024]", "spark.executor.memory": "600m"}

    answers = walk(url, tmp_path, cluster, PYSPARK_PYTHON=python_without_lakebed(tmp_path))

    assert "they cannot import this version of Lakebed (No module named 'lakebed'): install it" in answers.pop("functions")
    assert answers == {"imports_lakebed": False, **GOOD}


@pytest.mark.timeout(450)
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("kind", ["postgresql"])
def test_a_lake_is_written_and_streamed_into_over_spark_connect(url: str, tmp_path: Path) -> None:
    with connect_server(environment()) as remote:
        answers = walk(url, tmp_path, {"spark.remote": remote})

    assert "LAKEBED_REGISTRY_URL is not set in the environment of Spark's Python workers: set" in answers.pop("functions")
    assert answers == {"imports_lakebed": True, **GOOD}


def test_a_writer_of_batches_is_pickled_as_the_settings_of_its_lake(lake: Lake) -> None:
    make_orders(lake)
    write = lake.foreach_batch(ORDERS, "app", mode="overwrite", evolve=True)
    stored = cloudpickle.dumps(write)  # type: ignore[no-untyped-call]

    again = pickle.loads(stored)  # noqa: S301 - our own

    assert (str(again.table), again.app_id, again.mode, again.evolve) == (ORDERS, "app", "overwrite", True)
    assert again.context.registry is not lake.registry
    assert [row.name for row in again.context.owner.tables.list()] == ["orders"]
    again.context.owner.close()


def test_a_lake_with_a_relative_path_is_opened_again_from_any_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with connect("sqlite:///lake.db", warehouse="warehouse") as lake:
        make_orders(lake)
        content = pickle.dumps(lake)
        monkeypatch.chdir(tmp_path / "elsewhere")

        with pickle.loads(content) as again:  # noqa: S301 - our own
            assert [row.name for row in again.tables.list()] == ["orders"]

    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_context_that_no_lake_owns_is_not_pickled(lake: Lake) -> None:
    with pytest.raises(InvalidValueError, match="open the lake with"):
        pickle.dumps(Context(lake.registry, lake.storage, SparkSource()))
