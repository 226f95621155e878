"""New tables, columns, settings and rollbacks on the command line: what they change, and what a dry run shows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shells import NAME, VIEW, Shell, make_view_set

from builders import write_partition

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any


def names(shell: Shell) -> list[str]:
    return [row["name"] for row in shell.json("columns", "list", NAME)]


def settings_of(shell: Shell, *words: str) -> dict[str, tuple[Any, str]]:
    return {row["setting"]: (row["value"], row["origin"]) for row in shell.json("configure", NAME, *words)["settings"]}


def test_a_table_is_created_with_columns_as_sql_names_them(shell: Shell) -> None:
    words = ("tables", "create", "shop.visits", "id BIGINT NOT NULL, at TIMESTAMP, page STRING", "--event-time", "at", "--partition-by", "day(at)",
             "--sort-by", "id", "--index", "id")  # fmt: skip

    tried = shell.json(*words, "--dry-run")
    assert shell.run("tables", "show", "shop.visits").exit_code == 1
    done = shell.json(*words)

    assert {**tried, "dry_run": False} == done
    assert (done["partition_by"], done["sort_by"], done["index"]) == (["day(at)"], ["id"], ["id"])
    shown = shell.json("tables", "show", "shop.visits")
    assert (shown["event_time"], shown["partition_by"], shown["columns"]) == ("at", "day(at)", done["columns"])
    assert [row["role"] for row in shell.json("columns", "list", "shop.visits")] == ["sort, index", "event_time, partition", ""]


@pytest.mark.parametrize("rows", [0, 2])
def test_a_table_is_created_with_the_columns_of_a_parquet_file(shell: Shell, tmp_path: Path, rows: int) -> None:
    columns = {"id": pa.array([7] * rows, type=pa.int64()), "tags": pa.array([["a"]] * rows, type=pa.list_(pa.string()))}
    pq.write_table(pa.table(columns), tmp_path / "like.parquet")

    shell.json("tables", "create", "shop.like", "--like", str(tmp_path / "like.parquet"))

    listed = [(row["name"], row["type"]) for row in shell.json("columns", "list", "shop.like")]
    assert listed == [("id", "long"), ("tags", "list"), ("tags.element", "string")]


def test_columns_are_listed_with_types_and_roles(shell: Shell) -> None:
    assert shell.json("columns", "list", NAME) == [
        {"name": "id", "type": "long", "nullable": True, "field_id": 1, "role": "index"},
        {"name": "ts", "type": "timestamptz", "nullable": True, "field_id": 2, "role": "event_time"},
        {"name": "amount", "type": "double", "nullable": True, "field_id": 3, "role": ""},
    ]
    assert "timestamptz" in shell.run("columns", "list", NAME).stdout


def test_nested_columns_are_listed_under_their_paths(shell: Shell) -> None:
    shell.json("columns", "add", NAME, "place", "STRUCT<city STRING, tags ARRAY<STRING>>")

    listed = shell.json("columns", "list", NAME)[3:]

    assert [row["name"] for row in listed] == ["place", "place.city", "place.tags", "place.tags.element"]
    assert [row["type"] for row in listed] == ["struct", "string", "list", "string"]


def test_a_column_is_added_renamed_widened_and_dropped(shell: Shell) -> None:
    added = shell.json("columns", "add", NAME, "pieces", "int")
    shell.json("columns", "rename", NAME, "pieces", "count")
    shell.json("columns", "widen", NAME, "count", "long")

    assert added["changes"] == ["add pieces (int)"]
    assert added["columns"] == ["id", "ts", "amount", "pieces"]
    assert shell.json("columns", "list", NAME)[3]["type"] == "long"
    preview = shell.run("columns", "drop", NAME, "count")
    assert "would have the columns id, ts, amount" in preview.stdout
    assert names(shell) == ["id", "ts", "amount", "count"]
    assert shell.run("columns", "drop", NAME, "count", "--execute").exit_code == 0
    assert names(shell) == ["id", "ts", "amount"]


def test_a_dry_run_changes_no_column(shell: Shell) -> None:
    for words in (["add", NAME, "x", "long"], ["rename", NAME, "amount", "price"]):
        assert shell.json("columns", *words, "--dry-run")["dry_run"]

    assert names(shell) == ["id", "ts", "amount"]


def test_a_required_column_becomes_optional(shell: Shell) -> None:
    with shell.open() as lake:
        lake.create_table("shop.strict", "id BIGINT NOT NULL")

    shell.json("columns", "make-optional", "shop.strict", "id")

    assert [row["nullable"] for row in shell.json("columns", "list", "shop.strict")] == [True]


def test_a_change_names_the_views_that_read_the_table(shell: Shell) -> None:
    with shell.open() as lake:
        make_view_set(lake)

    assert shell.json("columns", "rename", NAME, "amount", "price", "--dry-run")["view_sets"] == [VIEW]
    assert f"read by {VIEW}" in shell.run("columns", "rename", NAME, "amount", "price").stdout


def test_settings_are_shown_with_their_origin(shell: Shell) -> None:
    found = settings_of(shell)

    assert found["snapshot.trigger"] == ("every_insert", "default")
    assert found["retention.all_s"] == (3600.0, "default")
    assert found["retire_after"] == (None, "default")
    assert found["merge_window_us"] == (86_400_000_000, "default")


def test_settings_are_changed_and_their_defaults_restored(shell: Shell) -> None:
    given = ["--snapshot", "trigger=time", "--snapshot", "interval_s=60", "--retention", "daily_s=7776000", "--retire-after", "90d",
             "--merge-window", "7d", "--property", 'owner="ann"', "--property", "team=data", "--property", 'tags=["a"]']  # fmt: skip
    tried, before = shell.json("configure", NAME, *given, "--dry-run"), settings_of(shell)
    done = shell.json("configure", NAME, *given)

    assert before["snapshot.trigger"] == ("every_insert", "default")
    assert tried["settings"] == done["settings"]
    assert done["changed"] == ["merge_window_us", "properties", "retention", "retire_after", "snapshot"]
    found = settings_of(shell)
    assert (found["snapshot.trigger"], found["snapshot.interval_s"]) == (("time", "table"), (60.0, "table"))
    assert (found["retire_after"], found["merge_window_us"]) == (("90d", "table"), (7 * 86_400_000_000, "table"))
    assert [found[f"properties.{key}"][0] for key in ("owner", "tags", "team")] == ["ann", ["a"], "data"]
    with shell.open() as lake:
        assert lake.table(NAME).properties["retire_after"] == "90d"

    restored = settings_of(shell, "--default", "snapshot", "--default", "merge-window", "--property", "owner=null")
    assert (restored["snapshot.trigger"], restored["retire_after"]) == (("every_insert", "default"), ("90d", "table"))
    assert "properties.owner" not in restored
    assert not [name for name in settings_of(shell, "--default", "properties") if name.startswith("properties.")]


def test_changed_settings_are_shown_to_people(shell: Shell) -> None:
    assert f"{NAME}: would change retire_after" in shell.run("configure", NAME, "--retire-after", "1d", "--dry-run").stdout
    assert f"{NAME}: changed retire_after" in shell.run("configure", NAME, "--retire-after", "1d").stdout
    assert "retire_after,1d,table" in shell.run("configure", NAME, "--format", "csv").stdout


@pytest.fixture
def snapshot_id(shell: Shell) -> int:
    taken = shell.json("snapshots", "create", NAME)["snapshot_id"]
    with shell.open() as lake:
        write_partition(lake, 7)
    return int(taken)


def test_a_rollback_is_a_preview_unless_executed(shell: Shell, snapshot_id: int) -> None:
    preview = shell.json("rollback", NAME, str(snapshot_id))
    assert (preview["dry_run"], preview["files"], preview["columns"]) == (True, 3, ["id", "ts", "amount"])
    assert shell.json("tables", "show", NAME)["rows"] == 200

    done = shell.run("rollback", NAME, str(snapshot_id), "--execute", "--json")

    assert json.loads(done.stdout)["dry_run"] is False, done.output
    assert shell.json("tables", "show", NAME)["rows"] == 150
    assert "are the rows of" in shell.run("rollback", NAME, str(snapshot_id), "--execute").stdout
    assert shell.run("check").exit_code == 0


def test_a_rollback_shows_the_views_that_it_breaks(shell: Shell) -> None:
    shell.json("columns", "rename", NAME, "amount", "price")
    taken = str(shell.json("snapshots", "create", NAME)["snapshot_id"])
    shell.json("columns", "rename", NAME, "price", "amount")
    with shell.open() as lake:
        make_view_set(lake)

    assert shell.json("rollback", NAME, taken)["broken_views"] == [VIEW]
    assert f"{VIEW} breaks" in shell.run("rollback", NAME, taken).stdout
