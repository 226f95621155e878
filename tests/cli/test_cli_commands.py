"""Commands that look into, publish, expire, drop and read: what they do to a lake, and what they say."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from shells import NAME, VIEW, Shell, make_view_set, run

from builders import SCHEMA, logical_dump, write_partition

if TYPE_CHECKING:
    from pathlib import Path

RANGE = ("--insert-begin", "2026-01-01", "--insert-end", "2100-01-01")


def test_a_table_shows_its_columns_and_where_it_lies(shell: Shell) -> None:
    shown = shell.json("tables", "show", NAME)

    assert [(c["id"], c["column"], c["type"]) for c in shown["columns"]] == [
        (1, "id", "long"),
        (2, "ts", "timestamptz"),
        (3, "amount", "double"),
    ]
    assert (shown["rows"], shown["event_time"], shown["kind"], shown["state"]) == (150, "ts", "table", "ok")
    assert shown["location"].startswith(str(shell.place))
    assert shell.run("tables", "show", "shop.nothing").exit_code == 1


def test_a_footer_is_shown_from_the_registry_after_the_file_is_gone(shell: Shell) -> None:
    path = shell.json("files", "list", NAME)[0]["file_path"]
    (shell.place / path).unlink()

    shown = shell.json("files", "footer", path)

    assert (shown["rows"], shown["path"]) == (50, path)
    assert [(c["column"], c["field_id"], c["nulls"]) for c in shown["columns"]] == [("id", 1, 0), ("ts", 2, 0), ("amount", 3, 0)]
    assert shell.run("files", "footer", f"{path}x").exit_code == 1


def test_lists_go_on_where_the_page_before_ended(shell: Shell) -> None:
    first = shell.json("partitions", "list", NAME, "--limit", "2")
    rest = shell.json("partitions", "list", NAME, "--limit", "2", "--after", str(first[-1]["partition_id"]))
    files = shell.json("files", "list", NAME, "--limit", "1")

    assert [len(first), len(rest), len(files)] == [2, 1, 1]
    assert f"--after {first[-1]['partition_id']}" in shell.run("partitions", "list", NAME, "--limit", "2").output


def test_exactly_one_partition_is_retired_by_its_slice(shell: Shell) -> None:
    row = shell.json("partitions", "list", NAME)[1]
    key = ("--insert-begin", row["begin_insert_time"], "--insert-end", row["end_insert_time"], "--exact")

    assert shell.json("partitions", "retire", NAME, *key)["outcomes"][0]["outcome"] == "would_retire"
    done = shell.json("partitions", "retire", NAME, *key, "--execute")

    assert [o["partition_id"] for o in done["outcomes"]] == [row["partition_id"]]
    assert len(shell.json("partitions", "list", NAME)) == 2
    assert shell.run("partitions", "retire", NAME, *key, "--execute").exit_code == 1
    assert shell.run("check").exit_code == 0


def test_more_than_the_cap_is_refused_and_nothing_is_changed(shell: Shell) -> None:
    done = shell.run("partitions", "retire", NAME, *RANGE, "--max-partitions", "2", "--execute")

    assert done.exit_code == 1
    assert done.stderr.startswith("too_many_partitions: ")
    assert len(shell.json("partitions", "list", NAME)) == 3


def test_a_range_that_only_cuts_partitions_retires_nothing_and_exits_with_3(shell: Shell) -> None:
    with shell.open() as lake:
        write_partition(lake, 9, hours=(0, 2))
    cut = ("--insert-begin", "2026-01-01T01:00:00Z", "--insert-end", "2026-01-01T03:00:00Z")

    preview = shell.run("partitions", "retire", NAME, *cut)
    done = shell.run("partitions", "retire", NAME, *cut, "--execute")

    assert (preview.exit_code, done.exit_code) == (0, 3)
    assert "retire_partition_by_metadata('shop.orders', 'global', insert_begin='2026-01-01T00:00:00Z'" in preview.output
    assert done.stderr.startswith("partition_straddles: nothing was retired")
    assert len(shell.json("partitions", "list", NAME)) == 4


def test_a_partition_is_retired_by_one_of_its_files(shell: Shell) -> None:
    path = shell.json("files", "list", NAME)[0]["file_path"]

    assert shell.json("partitions", "retire-by-file", path)["non_empty"] == 1
    assert shell.json("partitions", "retire-by-file", path, "--execute")["non_empty"] == 1
    assert shell.run("partitions", "retire-by-file", f"{path}x").exit_code == 1
    assert len(shell.json("partitions", "list", NAME)) == 2


def test_snapshots_are_expired_by_age_and_the_current_one_stays(shell: Shell) -> None:
    first = shell.json("snapshots", "create", NAME)["snapshot_id"]
    with shell.open() as lake:
        write_partition(lake, 9)
    second = shell.json("snapshots", "create", NAME)["snapshot_id"]

    assert shell.json("snapshots", "expire", NAME, "--older-than-days", "0")["snapshots"] == [first]
    done = shell.json("snapshots", "expire", NAME, "--older-than-days", "0", "--execute")

    assert (done["snapshots"], done["waiting"], done["kept"]) == ([first], 0, 1)
    assert [row["snapshot_id"] for row in shell.json("snapshots", "list", NAME)] == [second]
    assert shell.run("snapshots", "expire", NAME, str(second), "--execute").exit_code == 1
    assert shell.run("check").exit_code == 0


def test_a_snapshot_can_be_tried_before_it_is_made(shell: Shell) -> None:
    assert shell.json("snapshots", "create", NAME, "--dry-run")["pending_files"] == 3
    assert shell.json("snapshots", "list", NAME) == []


def test_compactions_are_kept_as_history(shell: Shell) -> None:
    assert shell.json("compact", "history") == []
    assert shell.json("compact", "run", NAME, "--dry-run")["planned_files"] == 3
    shell.json("compact", "run", NAME)

    (row,) = shell.json("compact", "history", NAME)

    assert (row["table"], row["state"], row["files_in"], row["files_out"]) == (NAME, "done", 3, 1)


def test_the_journal_is_shown_in_the_order_of_time(shell: Shell) -> None:
    shown = shell.json("astha", "tail", NAME, "--limit", "4")

    assert [row["seq"] for row in shown] == sorted(row["seq"] for row in shown)
    assert len(shown) == 4
    assert {row["registry_table"] for row in shell.json("astha", "tail")} >= {"tables", "table_files", "table_stats"}


def test_following_the_journal_shows_new_changes(local_shell: Shell) -> None:
    command = [sys.executable, "-m", "lakebed.cli.app", "astha", "tail", NAME, "--follow", "--json", "--limit", "1", *local_shell.options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        last = json.loads(following.stdout.readline())["seq"]
        with local_shell.open() as lake:
            write_partition(lake, 5)
        assert json.loads(following.stdout.readline())["seq"] == last + 1
        following.terminate()
        following.wait(60)


def test_following_all_tables_includes_those_created_later(shell: Shell) -> None:
    command = [sys.executable, "-m", "lakebed.cli.app", "astha", "tail", "--follow", "--json", "--limit", "1", *shell.options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["table"] == NAME
        with shell.open() as lake:
            lake.create_table("shop.later", SCHEMA)
        assert json.loads(following.stdout.readline())["table"] == "shop.later"
        following.terminate()
        following.wait(60)


@pytest.mark.parametrize("engine", ["duckdb", "polars", "pyiceberg"])
def test_a_snippet_runs_and_shows_what_the_command_shows(local_shell: Shell, engine: str) -> None:
    assert local_shell.run("read-with", NAME, "--engine", engine).exit_code == 1  # nothing is published yet
    local_shell.json("snapshots", "create", NAME)

    shown = local_shell.json("read-with", NAME, "--engine", engine, "--run", "--rows", "3")
    done = subprocess.run([sys.executable, "-c", shown["snippet"]], capture_output=True, text=True, check=False)

    assert [sorted(row) for row in shown["rows"]] == [["amount", "id", "ts"]] * 3
    assert done.returncode == 0, done.stderr
    assert "amount" in done.stdout
    assert local_shell.run("read-with", NAME, "--engine", engine, "--rows", "3").stdout.strip() == shown["snippet"].strip()


def test_a_staged_definition_is_promoted_once(shell: Shell) -> None:
    with shell.open() as lake:
        make_view_set(lake, stages=True)

    tried, done = shell.json("views", "promote", VIEW, "--dry-run"), shell.json("views", "promote", VIEW)

    assert tried["schema_hash"] == done["schema_hash"]
    assert shell.json("views", "list")[0]["schema_hash"] == done["schema_hash"]
    assert shell.run("views", "promote", VIEW).exit_code == 1
    assert shell.run("views", "promote", NAME).exit_code == 1


def test_stale_slices_and_mergeable_runs_are_shown_without_spark(shell: Shell) -> None:
    with shell.open() as lake:
        make_view_set(lake)

    plan = shell.json("views", "materialize", "--dry-run")
    assert {one["outcome"] for one in plan["slices"]} == {"would_build"}
    assert plan["views"] == [VIEW]
    assert shell.json("views", "merge", NAME, "--dry-run")["runs"][0]["partitions"] == 3
    assert shell.run("views", "materialize", NAME, "--dry-run").exit_code == 1


def test_partitions_are_merged_in_this_process(shell: Shell) -> None:
    (merged,) = shell.json("views", "merge", NAME)["runs"]

    assert (merged["partitions"], merged["files_after"], merged["rows"]) == (3, 1, 150)
    assert shell.run("check").exit_code == 0


def test_a_table_is_dropped_only_with_execute(shell: Shell) -> None:
    assert shell.json("tables", "drop", NAME)["rows"] == 150
    assert len(shell.json("files", "list", NAME)) == 3

    done = shell.json("tables", "drop", NAME, "--execute", "--yes")

    assert (done["dry_run"], done["non_empty"], done["files"]) == (False, 3, 3)
    assert shell.run("tables", "show", NAME).exit_code == 1
    assert shell.run("check").exit_code == 0


def test_a_table_that_a_view_set_reads_is_not_dropped(shell: Shell) -> None:
    with shell.open() as lake:
        make_view_set(lake)

    done = shell.run("tables", "drop", NAME, "--execute")

    assert done.exit_code == 1
    assert f"is read by {VIEW}" in done.stderr
    assert len(shell.json("files", "list", NAME)) == 3


def test_where_the_lake_is_may_stand_in_the_settings_file(local_shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lakebed.toml").write_text(f'registry_url = "{local_shell.url}"\nwarehouse = "{local_shell.place}"\n')

    assert json.loads(run("tables", "list", "--json").stdout)[0]["table"] == NAME
    assert json.loads(run("files", "list", NAME, "--json").stdout)[0]["view_set_name"] == NAME

    (tmp_path / "lakebed.toml").write_text("nonsense = 1\n")
    done = run("tables", "list")
    assert done.exit_code == 1
    assert done.stderr.startswith("invalid_value: ")


@pytest.mark.parametrize("listen", ["taken", "nonsense"])
def test_a_service_that_cannot_listen_takes_no_lease(shell: Shell, listen: str) -> None:
    with shell.open() as lake:
        before = logical_dump(lake.registry)
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = f"127.0.0.1:{taken.getsockname()[1]}" if listen == "taken" else listen
        command = [sys.executable, "-m", "lakebed.cli.app", "serve", "--listen", place, *shell.options]

        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    assert (done.returncode, done.stdout) == (1, "")
    assert "invalid_value: listen=" in done.stderr
    with shell.open() as lake:
        assert logical_dump(lake.registry) == before


@pytest.mark.parametrize(("as_of", "said"), [("2999-01-01", "is in the future"), ("2013-01-01", "had no file yet")])
def test_explaining_a_state_that_never_was_is_refused(shell: Shell, as_of: str, said: str) -> None:
    done = shell.run("explain", f"SELECT * FROM {NAME}", "--as-of", as_of)

    assert done.exit_code == 1
    assert done.stderr.startswith("invalid_value: ")
    assert said in done.stderr
