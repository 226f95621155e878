from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from builders import ORDERS, make_table, write_partition
from lakebed.cli.app import app
from lakebed.lake import connect

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result


@pytest.fixture
def warehouse(url: str, tmp_path: Path) -> Path:
    """A lake with one table and two partitions."""
    place = tmp_path / "warehouse"
    with connect(url, warehouse=str(place)) as lake:
        make_table(lake.registry)
        write_partition(lake, 1)
        write_partition(lake, 2)
    return place


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"NO_COLOR": "1", "COLUMNS": "200"})


def test_init_creates_a_lake_and_a_second_time_changes_nothing(tmp_path: Path) -> None:
    place = ["--registry", f"sqlite:///{tmp_path}/lake.db", "--warehouse", str(tmp_path / "w")]

    first, second = run("init", *place), run("init", *place)

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert first.output == second.output
    assert (tmp_path / "lake.db").stat().st_mode & 0o777 == 0o600


def test_check_of_a_healthy_lake_exits_0_with_stable_keys(url: str, warehouse: Path) -> None:
    done = run("check", "--registry", url, "--warehouse", str(warehouse), "--deep", "--json")

    assert done.exit_code == 0, done.output
    report = json.loads(done.output)
    assert sorted(report) == ["checked", "clean", "findings"]
    assert report["clean"] is True


def test_check_of_a_damaged_lake_exits_3_and_names_the_file(url: str, warehouse: Path) -> None:
    victim = next(warehouse.rglob("*.parquet"))
    victim.write_bytes(victim.read_bytes()[:-1] + b"?")

    done = run("check", "--registry", url, "--warehouse", str(warehouse), "--json")

    assert done.exit_code == 3
    assert any(str(victim) in finding["subject"] + finding["message"] for finding in json.loads(done.output)["findings"])


def test_tables_are_listed_with_their_counters(url: str, warehouse: Path) -> None:
    done = run("tables", "list", "--registry", url, "--json")

    assert done.exit_code == 0
    size = sum(p.stat().st_size for p in warehouse.rglob("*.parquet"))
    assert json.loads(done.output) == [{"table": str(ORDERS), "kind": "table", "rows": 100, "files": 2, "bytes": size}]


def test_migrate_says_that_there_is_nothing_to_do(url: str) -> None:
    assert json.loads(run("migrate", "--registry", url, "--json").output) == {"dry_run": False, "revisions": [], "warehouse": None}
    assert "up to date" in run("migrate", "--registry", url, "--dry-run").output


def test_migrate_footers_reports_what_it_did(url: str, warehouse: Path) -> None:
    done = run("migrate-footers", "--registry", url, "--warehouse", str(warehouse), "--json")

    assert json.loads(done.output) == {"dry_run": False, "upgraded": 0, "skipped": 0, "failed": {}}


def test_a_refusal_exits_1_with_its_code_and_no_traceback(tmp_path: Path) -> None:
    done = run("tables", "list", "--registry", "mysql://somewhere/else")

    assert done.exit_code == 1
    assert done.stderr.startswith("invalid_value: ")
    assert "Traceback" not in done.output + done.stderr
    assert not list(tmp_path.iterdir())


def test_a_database_that_does_not_answer_exits_4_without_its_password() -> None:
    done = run("tables", "list", "--registry", "postgresql://me:canary-secret@127.0.0.1:1/none")

    assert done.exit_code == 4
    assert "canary-secret" not in done.output + done.stderr


def test_a_missing_warehouse_is_refused_by_check(url: str, tmp_path: Path) -> None:
    done = run("check", "--registry", url, "--warehouse", str(tmp_path / "nowhere"))

    assert done.exit_code == 1
    assert not (tmp_path / "nowhere").exists()


def test_a_registry_is_bound_to_its_warehouse(url: str, warehouse: Path, tmp_path: Path) -> None:
    assert warehouse.exists()
    other = tmp_path / "other"
    connect(f"sqlite:///{tmp_path}/other.db", warehouse=str(other)).close()

    done = run("check", "--registry", url, "--warehouse", str(other))

    assert done.exit_code == 1
    assert "holds the files of another registry" in done.stderr


def test_the_demo_runs_all_steps_and_ends_clean() -> None:
    command = [sys.executable, "-m", "lakebed.cli.app", "demo"]  # a process of its own: it starts and stops a Spark session

    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200"})

    assert done.returncode == 0, done.stdout + done.stderr
    for step in ("spark", "create", "insert", "refuse", "views", "merge", "query", "evolve", "redefine", "retire", "clean", "check"):
        assert f"  {step:<9} " in done.stdout
    assert "24 hours into 1" in done.stdout
    assert "the views stay fresh: 0 slices to build" in done.stdout
    assert "20,000 rows from 4 of 48 files" in done.stdout
    assert "retired 23 with rows and 1 empty ones" in done.stdout
    assert "clean: " in done.stdout


def test_an_unreadable_registry_file_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "lake.db"
    path.touch(mode=0o600)
    path.write_bytes(b"not a database at all, but long enough to be looked at" * 100)

    done = run("tables", "list", "--registry", f"sqlite:///{path}")

    assert done.exit_code == 3
    assert "not a SQLite database" in done.stderr
