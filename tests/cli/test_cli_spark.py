"""Commands that touch data, in a process of their own: it starts Spark, once for each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shells import NAME, VIEW, Shell, make_view_set, shape_of
from test_cli_json import read_golden

if TYPE_CHECKING:
    from pathlib import Path

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


CSV = '''Amount,id,ts,note
1.5,900001,2026-03-01T12:00:00Z,"he said ""hi"""
2.5,900002,2026-03-02,"two
lines, really"
'''
LINES = """{"id": 900003, "ts": "2026-03-03T00:00:00Z", "amount": 3}
{"id": 900004, "ts": "2026-03-04T00:00:00Z", "amount": 4.5, "note": null}
"""


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    directory = tmp_path / "inputs"
    directory.mkdir()
    for name, text in {
        "good.csv": CSV, "good.jsonl": LINES, "bad.csv": "id,ts,amount\nx,2026-03-01,1\n", "plain.csv": "900006,2026-03-06,6,six\n",
        "short.csv": "900006,2026-03-06\n", "wrong.json": '{"idd": 1}\n', "bad.json": '{"id": "x"}\n', "a*b.csv": CSV, "empty.csv": "id,ts\n",
    }.items():  # fmt: skip
        (directory / name).write_text(text)
    moment = pa.array([1_772_668_800_000_000], type=pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table({"id": [900005], "ts": moment}), directory / "one.parquet")
    pq.write_table(pa.table({"id": [900007], "ts": moment, "amount": [7.0]}), directory / "other.parquet")
    return directory


def test_files_are_inserted_and_queried(local_shell: Shell, inputs: Path) -> None:
    def insert(*words: str) -> list[str]:
        return ["insert", NAME, *(str(inputs / word) if word[0] != "-" else word for word in words), "--json"]

    query = f"SELECT id, ts, amount, note FROM {NAME} WHERE id > 900000 ORDER BY id"
    words = [
        insert("good.csv", "--evolve", "--dry-run"), insert("good.csv"), insert("good.csv", "--evolve", "--sync"), insert("good.jsonl"),
        insert("one.parquet", "other.parquet"), insert("plain.csv", "--no-header"), insert("empty.csv", "--dry-run"),
        insert("bad.csv"), insert("bad.csv", "--dry-run"), insert("short.csv", "--no-header"), insert("wrong.json"), insert("bad.json"),
        insert("a*b.csv"), insert("good.csv", "good.jsonl"),
        ["sql", query, "--json"], ["sql", query, "--format", "csv", "--limit", "2"], ["sql", query, "--limit", "1"],
        ["sql", "SELECT 1 AS a, NULL AS a"], ["sql", "SELECT 1 AS a, 2 AS a", "--json"], ["sql", f"SELECT idd FROM {NAME}"],
        ["sql", f"SELECT sum(num_rows) AS n FROM list_partitions('{NAME}')", "--json"],
        ["sql", "SELECT map('k', 1) AS m, array(1, NULL) AS l, double('NaN') AS n, X'00ff' AS b, DATE'2026-03-01' AS d", "--json"],
        ["check", "--json"],
    ]  # fmt: skip

    done = run_all([[*each, *local_shell.options] for each in words])

    assert [code for code, _ in done] == [0, 1, 0, 0, 0, 0, 0, *[1] * 7, 0, 0, 0, 0, 1, 1, 0, 0, 0], done
    tried, _, added, lines, parquet, plain, empty = (json.loads(text or "{}") for _, text in done[:7])
    assert (tried["rows"], tried["dry_run"], tried["files"], empty["rows"]) == (2, True, None, 0)
    assert (added["rows"], lines["rows"], parquet["rows"], plain["rows"]) == (2, 2, 2, 1)
    assert added["snapshot_id"] is not None
    assert lines["snapshot_id"] is None
    assert shape_of(added) == shape_of(tried) == read_golden()["insert"]
    rows = json.loads(done[14][1])
    assert [row["id"] for row in rows] == list(range(900001, 900008))
    assert rows[1] == {"id": 900002, "ts": "2026-03-02T00:00:00Z", "amount": 2.5, "note": "two\nlines, really"}
    assert [row["amount"] for row in rows] == [1.5, 2.5, 3.0, 4.5, None, 6.0, 7.0]
    assert done[15][1].splitlines() == [
        "id,ts,amount,note", '900001,2026-03-01T12:00:00Z,1.5,"he said ""hi"""', '900002,2026-03-02T00:00:00Z,2.5,"two', 'lines, really"',
    ]  # fmt: skip
    assert "NULL" in done[17][1]
    assert json.loads(done[20][1]) == [{"n": 157}]
    assert json.loads(done[21][1]) == [{"m": {"k": 1}, "l": [1, None], "n": "NaN", "b": "00ff", "d": "2026-03-01"}]
