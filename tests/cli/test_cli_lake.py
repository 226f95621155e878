"""Commands over partitions, snapshots, compaction, clean-up, Astha and settings: what they say, and their exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from shells import NAME
from typer.testing import CliRunner

from builders import write_partition
from lakebed.cli.app import app
from lakebed.core.events import Component
from lakebed.lake import connect

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from shells import Shell


def test_partitions_and_files_are_listed_with_the_keys_of_their_rows(shell: Shell) -> None:
    listed, files = shell.json("partitions", "list", NAME), shell.json("files", "list", NAME)
    assert [row["num_rows"] for row in listed] == [50, 50, 50]
    assert {"partition_id", "view_set_name", "begin_insert_time", "file_path"} <= set(listed[0])
    assert len(files) == 3
    assert NAME in shell.run("partitions", "list").output
    assert shell.json("partitions", "incompatible") == []


def test_a_snapshot_is_taken_listed_and_tagged(shell: Shell) -> None:
    taken = shell.json("snapshots", "create", NAME)["snapshot_id"]
    (row,) = shell.json("snapshots", "list", NAME)
    assert (row["snapshot_id"], row["rows"], row["is_current"]) == (taken, 150, True)

    shell.json("snapshots", "tag", NAME, "audit", str(taken))
    assert shell.json("snapshots", "list", NAME)[0]["tags"] == "audit"
    assert shell.run("snapshots", "tag", NAME, "audit", "5").exit_code == 1
    assert shell.run("snapshots", "tag", NAME, "audit").exit_code == 2
    assert shell.json("snapshots", "list", NAME)[0]["tags"] == "audit"

    assert "did you mean audit?" in shell.run("snapshots", "untag", NAME, "audt").output
    shell.json("snapshots", "untag", NAME, "audit")
    assert shell.json("snapshots", "list", NAME)[0]["tags"] == ""


def test_a_plan_says_why_and_a_run_leaves_one_file(shell: Shell) -> None:
    (planned,) = shell.json("compact", "plan", NAME)
    assert planned["reason"] == "small"
    done = shell.json("compact", "run", NAME)
    assert (done["files_before"], done["files_after"], done["rows"]) == (3, 1, 150)
    assert shell.json("compact", "run", NAME)["files_before"] == 0
    assert shell.run("check").exit_code == 0


def test_retiring_is_a_dry_run_by_default(shell: Shell) -> None:
    ends = ["--insert-begin", "2026-01-01", "--insert-end", "2100-01-01"]
    assert shell.json("partitions", "retire", NAME, *ends)["dry_run"] is True
    assert len(shell.json("partitions", "list", NAME)) == 3

    done = shell.json("partitions", "retire", NAME, *ends, "--execute")

    assert (done["non_empty"], done["dry_run"]) == (3, False)
    assert shell.json("partitions", "list", NAME) == []
    assert shell.json("clean", "temp", "--dry-run") == {"dry_run": True, "files": 0, "bytes": 0, "failed": {}}


def test_expired_and_incompatible_partitions_are_previewed(shell: Shell) -> None:
    assert shell.json("partitions", "retire-expired", "--older-than-days", "1")["non_empty"] == 3
    assert shell.json("partitions", "retire-incompatible")["non_empty"] == 0
    assert len(shell.json("partitions", "list", NAME)) == 3


def test_orphans_are_listed(shell: Shell) -> None:
    assert shell.json("clean", "orphans") == {"dry_run": True, "complete": True, "bytes": 0, "newer": 0, "skipped": [], "orphans": []}
    assert "no orphan" in shell.run("clean", "orphans").output


def test_astha_status_shows_its_process_and_parked_tables(shell: Shell) -> None:
    assert shell.json("astha", "status")["holder"] is None
    shell.json("snapshots", "create", NAME)
    lanes = shell.json("astha", "status")["lanes"]
    assert {lane["component"] for lane in lanes} >= {Component.ICEBERG_UPDATER, Component.SNAPSHOTTER}
    assert shell.json("astha", "dead-letters") == []
    assert shell.run("astha", "retry", "iceberg_updater", NAME).exit_code == 1
    assert shell.run("astha", "retry", "nobody", NAME).exit_code == 1


def test_a_table_whose_metadata_was_lost_is_repaired(shell: Shell, tmp_path: Path) -> None:
    shell.json("snapshots", "create", NAME)
    for path in (tmp_path / "warehouse").rglob("metadata/*.metadata.json"):
        path.write_bytes(b"torn")
    assert shell.run("check").exit_code == 3

    assert shell.run("repair", NAME).exit_code == 3
    (step,) = shell.json("repair", NAME, "--how", "refresh", "--execute")["steps"]
    assert (step["remedy"], step["outcome"]) == ("iceberg_refresh", "done")

    assert shell.run("check").exit_code == 0, shell.run("check").output
    assert shell.run("repair", NAME, "--how", "pray").exit_code == 1


def test_an_unknown_table_is_refused_without_a_traceback(shell: Shell) -> None:
    for words in (["snapshots", "list"], ["compact", "plan"], ["partitions", "list"]):
        done = shell.run(*words, "shop.nothing")
        assert done.exit_code == 1
        assert "Traceback" not in done.output


def test_settings_show_their_origin_and_hide_passwords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEBED_REGISTRY_URL", "postgresql://me:canary@host/lake")
    (tmp_path / "lakebed.toml").write_text('warehouse = "there"\n')
    done = CliRunner().invoke(app, ["config", "show", "--json"])
    found = {row["setting"]: row for row in json.loads(done.output)}
    assert found["registry_url"]["origin"] == "LAKEBED_REGISTRY_URL"
    assert found["warehouse"] == {"setting": "warehouse", "value": "there", "origin": "lakebed.toml"}
    assert found["metadata_mode"]["origin"] == "default"
    assert "canary" not in done.output


def test_a_service_in_a_separate_process_publishes_and_stops_on_a_signal(shell: Shell, url: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lakebed.cli.app", "serve", "--no-http", *shell.options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        assert "active" in service.stdout.readline()
        with connect(url, warehouse=str(tmp_path / "warehouse"), service="off") as lake:
            write_partition(lake, 7)
            assert lake.snapshot(NAME, timeout_s=60) is not None
            assert lake.snapshots(NAME)[-1].rows == 200
        service.send_signal(signal.SIGTERM)
        assert service.wait(60) == 0
