"""Commands that touch data, in a process of their own: it starts Spark, once for each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from shells import NAME, VIEW, Shell, make_view_set, shape_of
from test_cli_json import read_golden

# One JVM for all of them: what a command leaves is the next one's session
SESSION = """
import json, sys
sys.path[:0] = {paths!r}
from typer.testing import CliRunner
from lakebed.cli.app import app
for words in json.loads(sys.argv[1]):
    done = CliRunner().invoke(app, words)
    print("\\x1e" + json.dumps([done.exit_code, done.stdout]))
"""


def run_all(words: list[list[str]]) -> list[tuple[int, Any]]:
    command = [sys.executable, "-c", SESSION.format(paths=sys.path), json.dumps(words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "NO_COLOR": "1"})
    return [tuple(json.loads(part.splitlines()[0])) for part in done.stdout.split("\x1e")[1:]]


@pytest.fixture
def place(local_shell: Shell) -> Shell:
    with local_shell.open() as lake:
        make_view_set(lake)
    return local_shell


def test_views_are_built_and_queries_explained_and_read(place: Shell) -> None:
    asked = [
        ["views", "materialize", VIEW, "--json"],
        ["views", "materialize", "--json"],
        ["views", "regenerate", VIEW, "--json"],
        ["explain", f"SELECT sum(amount) FROM {NAME} WHERE id < 60", "--json"],
        ["explain", "SELECT FROM WHERE", "--json"],
        ["read-with", NAME, "--engine", "spark", "--run", "--rows", "2", "--json"],
        ["views", "materialize", NAME, "--json"],
        ["check", "--json"],
    ]

    done = run_all([[*words, *place.options] for words in asked])

    assert [code for code, _ in done] == [0, 0, 0, 0, 1, 0, 1, 0], done
    built, again, anew, explained, _, read, _, _ = (json.loads(text or "{}") for _, text in done)
    assert {one["outcome"] for one in built["slices"]} == {"built"}
    assert sum(one["rows"] for one in built["slices"]) == 150
    assert {one["outcome"] for one in again["slices"]} == {"fresh"}
    assert {one["outcome"] for one in anew["slices"]} == {"built"}
    assert [(scan["files"], scan["files_in_table"]) for scan in explained["scans"]] == [(1, 3)]
    assert shape_of(explained) == read_golden()["explain"]
    assert shape_of(built) == read_golden()["views materialize"]
    assert len(read["rows"]) == 2
