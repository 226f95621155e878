"""The two commands: plans that people can read, JSON that programs can, and exit codes for both."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from directories import put, rows
from typer.testing import CliRunner, Result

from lakebed.cli.app import app
from lakebed.lake import connect
from legacy_lakes import DAY

if TYPE_CHECKING:
    from pathlib import Path

    from legacy_lakes import LegacyLake

ADOPTION_KEYS = {
    "table", "directory", "dry_run", "creates_table", "columns", "partition_by", "skipped", "differences", "partition_ids", "run_id",
    "files_taken", "rows", "bytes", "files",
}  # fmt: skip
FILE_KEYS = {"path", "how", "row_count", "file_size", "partition_path", "reason"}
IMPORT_KEYS = {
    "source", "version", "root", "in_place", "dry_run", "temporary_files", "run_id", "partitions", "view_sets", "findings",
}  # fmt: skip
VIEW_SET_KEYS = {
    "view_set_name", "table", "schema_hash", "partitions", "empty_partitions", "incompatible_partitions", "known_partitions", "files",
    "rows", "size_bytes", "left_out",
}  # fmt: skip
FINDING_KEYS = {"kind", "view_set_name", "view_instance_id", "insert_range", "schema_hash", "file_path", "message", "kept"}


@pytest.fixture
def place(tmp_path: Path) -> list[str]:
    options = ["--registry", f"sqlite:///{tmp_path}/lake.db", "--warehouse", str(tmp_path / "warehouse")]
    assert run("init", *options).exit_code == 0
    return options


def run(*words: str) -> Result:
    return CliRunner().invoke(app, [*words], env={"COLUMNS": "120"})


def test_adopting_from_the_command_line(tmp_path: Path, place: list[str]) -> None:
    put(tmp_path / "source/day=2026-03-01/a.parquet", rows(0))
    (tmp_path / "source/_SUCCESS").touch()
    words = ["adopt", str(tmp_path / "source"), "--table", "shop.events", "--event-time", "ts", *place]

    plan, done, again = run(*words, "--dry-run"), run(*words, "--json"), run(*words)

    assert [r.exit_code for r in (plan, done, again)] == [0, 0, 0]
    assert "shop.events would be created: id long, ts timestamptz, name string, day date" in plan.output
    assert "1 files with 10 rows" in plan.output
    assert "skipped: 1 hidden" in plan.output
    answer = json.loads(done.output)
    assert (answer.keys(), answer["files"][0].keys()) == (ADOPTION_KEYS, FILE_KEYS)
    assert (answer["files_taken"], answer["files"][0]["how"], answer["partition_by"]) == (1, "rewrite", ["day"])
    assert "0 files with 0 rows" in again.output


def test_refused_files_are_named_one_by_one(tmp_path: Path, place: list[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / "source").mkdir(exist_ok=True)
        (tmp_path / f"source/{name}.parquet").write_text("no Parquet at all")
    words = ["adopt", str(tmp_path / "source"), "--table", "shop.events", *place]

    refused, skipped, bad = run(*words), run(*words, "--skip-refused"), run(*words, "--path-column", "day")

    assert [r.exit_code for r in (refused, skipped, bad)] == [1, 1, 2]
    assert refused.output.count("REFUSED") == 2
    assert "adoption_refused" in refused.output


def test_importing_from_the_command_line(place: list[str], old: LegacyLake) -> None:
    old.add(0)
    words = ["import-legacy", old.url, "--root", str(old.root), *place]

    plan, done = run(*words), run(*words, "--execute", "--json")
    old.add(1, max_event_time=None)
    wrong = run(*words, "--execute")

    assert [r.exit_code for r in (plan, done, wrong)] == [0, 0, 3]
    assert "1 partitions and 0 temporary files would be taken over from version 5" in plan.output
    answer = json.loads(done.output)
    assert (answer.keys(), answer["view_sets"][0].keys()) == (IMPORT_KEYS, VIEW_SET_KEYS)
    assert "LEFT OUT  one_event_bound" in wrong.output
    with connect(place[1], warehouse=place[3]) as lake:
        assert lake.list_partitions("legacy.spans")[0].begin_insert_time == DAY
        assert lake.check().clean


def test_findings_have_keys_of_their_own(place: list[str], old: LegacyLake) -> None:
    old.add_empty(0)

    answer = json.loads(run("import-legacy", old.url, "--root", str(old.root), "--json", *place).output)

    assert [finding.keys() for finding in answer["findings"]] == [FINDING_KEYS]


def test_bad_words_are_refused(place: list[str], old: LegacyLake) -> None:
    assert run("import-legacy", "mysql://x", *place).exit_code == 1
    assert run("import-legacy", "postgresql:///nowhere?host=/no/such/socket", *place).exit_code == 4
    assert run("import-legacy", old.url, "--name", "spans", *place).exit_code == 2
    assert run("import-legacy", old.url, "--database", "no name!", *place).exit_code in {0, 1}
    assert run("adopt", "/no/such/directory", "--table", "shop.events", *place).exit_code == 1
