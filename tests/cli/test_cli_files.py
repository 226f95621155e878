"""`lakebed files`: check what others wrote, then register it, all or nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from builders import ORDERS, SCHEMA, arrow_rows
from lakebed.cli.app import app
from lakebed.lake import connect

if TYPE_CHECKING:
    from shells import Shell
    from typer.testing import Result


@pytest.fixture
def place(url: str, tmp_path: Path) -> list[str]:
    """Options that name a lake with one table by day, and two files beside it: a good one and one that spans two days."""
    warehouse = tmp_path / "warehouse"
    with connect(url, warehouse=str(warehouse)) as lake:
        lake.create_table(str(ORDERS), SCHEMA, event_time="ts", partition_by=["day(ts)"])
    pq.write_table(arrow_rows(1), warehouse / "good.parquet")
    both = arrow_rows(1).to_pylist() + arrow_rows(90_000).to_pylist()
    pq.write_table(type(arrow_rows(1)).from_pylist(both, schema=arrow_rows(1).schema), warehouse / "wide.parquet")
    return ["--table", str(ORDERS), "--registry", url, "--warehouse", str(warehouse)]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"NO_COLOR": "1", "COLUMNS": "200"})


def file_of(place: list[str], name: str) -> str:
    return f"{place[-1]}/{name}"


def test_check_names_the_problem_and_the_fix_and_exits_1(place: list[str]) -> None:
    done = run("files", "check", file_of(place, "good.parquet"), file_of(place, "wide.parquet"), *place, "--json")

    assert done.exit_code == 1
    good, wide = json.loads(done.output)
    assert (good["ok"], good["partition_path"], good["rows"], good["problems"]) == (True, "ts_day=2026-01-01", 50, [])
    assert [(p["kind"], p["column"]) for p in wide["problems"]] == [("spans_partitions", "ts")]
    assert sorted(wide) == ["bytes", "ok", "partition_path", "path", "problems", "rows", "warnings"]


def test_check_in_words_says_ok_or_refused(place: list[str]) -> None:
    done = run("files", "check", file_of(place, "good.parquet"), *place)
    refused = run("files", "check", file_of(place, "wide.parquet"), *place)

    assert done.output.startswith("ok ")
    assert "one file per partition value" in refused.output


def test_register_takes_all_files_or_none(place: list[str]) -> None:
    good, wide = file_of(place, "good.parquet"), file_of(place, "wide.parquet")

    refused, tried, done = (
        run("files", "register", good, wide, *place, "--json"),
        run("files", "register", good, *place, "--dry-run"),
        run("files", "register", good, *place, "--json"),
    )

    assert [r.exit_code for r in (refused, tried, done)] == [1, 0, 0]
    with connect(place[3], warehouse=place[-1]) as lake:
        assert [(f.file_path, f.partition_path) for f in lake.files.list(str(ORDERS))] == [(good, "ts_day=2026-01-01")]
        assert json.loads(done.output)["rows"] == 50
        Path(wide).unlink()
        assert lake.check().clean


def test_paths_may_be_relative_to_where_the_shell_stands(place: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(place[-1]))

    assert run("files", "check", "good.parquet", *place).exit_code == 0


def test_an_unknown_table_is_refused_in_one_sentence(place: list[str]) -> None:
    done = run("files", "check", file_of(place, "good.parquet"), *place[2:], "--table", "shop.nothing")

    assert done.exit_code == 1
    assert "table_not_found" in done.output


def test_files_that_were_left_out_are_listed_and_given_up_only_on_demand(shell: Shell) -> None:
    incoming = shell.place / "incoming"
    incoming.mkdir()
    path = incoming / "torn.parquet"
    path.write_bytes(b"this is not Parquet")
    shell.run("adopt", str(incoming), "--table", "shop.others", "--skip-refused")

    assert [row["file_path"] for row in shell.json("files", "left-out")["files"]] == [str(path)]
    preview = shell.json("files", "left-out", "--forget", str(path))
    assert (preview["dry_run"], preview["forgotten"], len(preview["files"])) == (True, 0, 1)
    done = shell.json("files", "left-out", "--forget", str(path), "--execute")
    assert (done["dry_run"], done["forgotten"]) == (False, 1)
    assert shell.json("files", "left-out")["files"] == []
    assert shell.run("files", "left-out", "--forget", str(path), "--execute").exit_code == 1
