"""The keys of every JSON answer: programs rely on them, so they are written down and never change unnoticed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from shells import NAME, VIEW, Shell, list_commands, make_view_set, run, shape_of

from builders import arrow_rows
from lakebed.core.events import Component
from lakebed.core.names import TableName
from lakebed.registry.files.left_out import LeftOut, record_left_out
from lakebed.registry.tables.lake_tables import drop_table

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN = Path(__file__).parent.parent / "golden" / "cli_json.txt"
RANGE = ["--insert-begin", "2026-01-01", "--insert-end", "2100-01-01"]
# Shown where they can be: with Spark, as a process of their own, or by the tests of what they do
ELSEWHERE = {"explain", "demo", "serve", "import-legacy", "insert", "sql"}


def read_golden() -> dict[str, str]:
    lines = (line for line in GOLDEN.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#"))
    return dict(line.split(": ", maxsplit=1) for line in lines)


@pytest.fixture
def full(local_shell: Shell) -> Shell:
    """A lake in which every list has a row."""
    with local_shell.open() as lake:
        make_view_set(lake, stages=True)
        drop_letter(lake)
        left = {f"{lake.storage.paths.root}/left.parquet": LeftOut(size_bytes=1, reason="unfit")}
        record_left_out(lake.registry, left, source="adopt", table_id=lake.table(NAME).table_id)
        pq.write_table(arrow_rows(7), local_shell.place / "new.parquet")
        (local_shell.place.parent / "adopted").mkdir()
        pq.write_table(arrow_rows(8), local_shell.place.parent / "adopted" / "old.parquet")
    local_shell.json("snapshots", "create", NAME)
    return local_shell


def drop_letter(lake: Any) -> None:
    table_id = lake.table(NAME).table_id
    with lake.registry.write() as tx:
        columns = ("component", "table_id", "seq", "attempts", "error", "at")
        tx.insert("dead_letter", columns, [(Component.COMPACTOR.value, table_id, 1, 30, "it failed", tx.now)])


def test_every_command_has_its_keys_written_down() -> None:
    answering = {name for name, command in list_commands().items() if any("--json" in param.opts for param in command.params)}
    assert set(read_golden()) >= answering - ELSEWHERE
    assert set(read_golden()) <= set(list_commands())


def test_the_keys_are_those_that_are_written_down(full: Shell) -> None:
    found = {name: shape_of(answer) for name, answer in ask_all(full)}

    assert {name: shape for name, shape in read_golden().items() if name in found} == found
    assert not list_commands().keys() - found.keys() - ELSEWHERE


def ask_all(full: Shell) -> Iterator[tuple[str, Any]]:
    yield from ask_lists(full)
    yield from ask_columns(full)
    yield from ask_changes(full)


def ask_lists(full: Shell) -> Iterator[tuple[str, Any]]:
    yield "init", full.json("init")
    yield "migrate", plain(full, "migrate")
    yield "migrate-footers", full.json("migrate-footers")
    yield "config show", plain(full, "config", "show", bare=True)
    yield "tables list", plain(full, "tables", "list")
    yield "tables show", full.json("tables", "show", NAME)
    listed = full.json("files", "list", NAME)
    yield "files list", listed
    yield "files footer", full.json("files", "footer", listed[0]["file_path"])
    yield "files left-out", full.json("files", "left-out")
    yield "files check", full.json("files", "check", str(full.place / "new.parquet"), "--table", NAME)
    yield "why", full.json("why", listed[0]["file_path"])
    yield "check", whatever(full, "check")
    yield "repair", whatever(full, "repair")
    yield "doctor", whatever(full, "doctor")
    yield "adopt", full.json("adopt", str(full.place.parent / "adopted"), "--table", "shop.adopted", "--dry-run")
    yield "partitions list", full.json("partitions", "list")
    yield "views list", full.json("views", "list")
    yield "columns list", full.json("columns", "list", NAME)
    yield "configure", full.json("configure", NAME)
    yield "snapshots list", full.json("snapshots", "list", NAME)
    yield "compact plan", full.json("compact", "plan", NAME)
    yield "astha status", full.json("astha", "status")
    yield "astha tail", full.json("astha", "tail")
    yield "astha dead-letters", full.json("astha", "dead-letters")
    yield "read-with", full.json("read-with", NAME, "--engine", "pyiceberg", "--run")


def ask_columns(full: Shell) -> Iterator[tuple[str, Any]]:
    new = "shop.new"
    yield "tables create", full.json("tables", "create", new, "id INT NOT NULL, a STRING")
    yield "columns add", full.json("columns", "add", new, "b", "long")
    yield "columns rename", full.json("columns", "rename", new, "b", "c")
    yield "columns widen", full.json("columns", "widen", new, "id", "long")
    yield "columns make-optional", full.json("columns", "make-optional", new, "id")
    yield "columns drop", full.json("columns", "drop", new, "c")
    yield "rollback", full.json("rollback", NAME, str(full.json("snapshots", "list", NAME)[0]["snapshot_id"]))


def ask_changes(full: Shell) -> Iterator[tuple[str, Any]]:
    yield "views materialize", full.json("views", "materialize", VIEW, "--dry-run")
    yield "views regenerate", full.json("views", "regenerate", VIEW, "--dry-run")
    yield "views merge", full.json("views", "merge", NAME, "--dry-run")
    yield "views promote", full.json("views", "promote", VIEW)
    yield "files register", full.json("files", "register", str(full.place / "new.parquet"), "--table", NAME)
    yield "snapshots create", full.json("snapshots", "create", NAME)
    oldest = full.json("snapshots", "list", NAME)[0]["snapshot_id"]
    yield "snapshots tag", full.json("snapshots", "tag", NAME, "audit", str(oldest))
    yield "snapshots untag", full.json("snapshots", "untag", NAME, "audit")
    yield "compact run", full.json("compact", "run", NAME)
    yield "compact history", full.json("compact", "history", NAME)
    yield "snapshots expire", full.json("snapshots", "expire", NAME, "--older-than-days", "0", "--execute")
    yield "partitions retire", full.json("partitions", "retire", NAME, *RANGE)
    (kept,) = full.json("files", "list", NAME)
    yield "partitions retire-by-file", full.json("partitions", "retire-by-file", kept["file_path"])
    yield "partitions retire-expired", full.json("partitions", "retire-expired", "--older-than-days", "1")
    yield "astha retry", whatever(full, "astha", "retry", "compactor", NAME)
    make_orphan(full)
    yield "clean orphans", full.json("clean", "orphans")
    yield "clean temp", full.json("clean", "temp")
    hide_table(full)
    yield "partitions incompatible", full.json("partitions", "incompatible")
    yield "partitions retire-incompatible", full.json("partitions", "retire-incompatible")
    yield "tables drop", full.json("tables", "drop", VIEW)


def make_orphan(full: Shell) -> None:
    path = full.place / "lost.parquet"
    path.write_bytes(b"nobody knows me")
    os.utime(path, (1_000_000_000, 1_000_000_000))


def hide_table(full: Shell) -> None:
    """Its partitions are those of an unknown view set from now on."""
    with full.open() as lake:
        lake.registry.transact(lambda tx: drop_table(tx, TableName.parse(NAME)), tables=[TableName.parse(NAME)])


def plain(full: Shell, *words: str, bare: bool = False) -> Any:
    """Of commands that need no warehouse, or no lake at all."""
    done = run(*words, "--json", *([] if bare else full.options[:2]))
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def whatever(full: Shell, *words: str) -> Any:
    """For commands whose exit code depends on their findings."""
    return json.loads(full.run(*words, "--json").stdout)
