"""What a command loads: no Java, no Spark and no database driver that it does not need."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from shells import NAME, Shell, list_commands, run

import lakebed

if TYPE_CHECKING:
    from pathlib import Path

GROUPS = {name.split()[0] for name in list_commands() if " " in name}
# Their answer is in the files, or comes from a process that moves them
TOUCH_DATA = {
    "demo", "serve", "adopt", "import-legacy", "files check", "files register", "compact run", "views materialize",
    "views regenerate", "views merge", "views promote", "explain", "insert", "sql",
}  # fmt: skip
# One process runs them all, and tells which modules each of them brought
WATCH = """
import json, sys
sys.path[:0] = {paths!r}
from typer.testing import CliRunner
from lakebed.cli.app import app
told = []
for words in json.loads(sys.argv[1]):
    done = CliRunner().invoke(app, words)
    told.append([words, done.exit_code, [name for name in ("pyspark", "py4j") if name in sys.modules]])
print(json.dumps(told))
"""


def commands_without_spark(local_shell: Shell) -> list[list[str]]:
    span = ["--insert-begin", "2026-01-01", "--insert-end", "2100-01-01"]
    listed = [
        ["init"], ["check"], ["migrate-footers"], ["tables", "show", NAME], ["files", "list", NAME], ["files", "left-out"], ["partitions", "list"],
        ["partitions", "incompatible"], ["partitions", "retire", NAME, *span], ["partitions", "retire-incompatible"],
        ["partitions", "retire-expired", "--older-than-days", "90"], ["views", "list"], ["snapshots", "create", NAME],
        ["snapshots", "list", NAME], ["snapshots", "expire", NAME], ["snapshots", "tag", NAME, "a", "1"], ["snapshots", "untag", NAME, "a"], ["compact", "plan", NAME],
        ["compact", "history"], ["clean", "temp"], ["clean", "orphans"], ["astha", "status"], ["astha", "tail"], ["astha", "dead-letters"],
        ["read-with", NAME, "--engine", "duckdb"], ["read-with", NAME, "--engine", "spark"], ["tables", "drop", NAME], ["doctor"], ["repair"],
        ["tables", "create", "shop.new", "id INT NOT NULL"], ["columns", "list", NAME], ["columns", "add", "shop.new", "a", "ARRAY<STRING>"],
        ["columns", "rename", "shop.new", "a", "b"], ["columns", "drop", "shop.new", "b", "--execute"],
        ["columns", "widen", "shop.new", "id", "long"], ["columns", "make-optional", "shop.new", "id"],
        ["configure", NAME, "--retire-after", "90d"], ["rollback", NAME, "1"],
    ]  # fmt: skip
    path = local_shell.json("files", "list", NAME)[0]["file_path"]
    listed += [["files", "footer", path], ["why", path], ["partitions", "retire-by-file", path], ["astha", "retry", "compactor", NAME]]
    bare = [["tables", "list", *local_shell.options[:2]], ["migrate", "--dry-run", *local_shell.options[:2]], ["config", "show"]]
    return [*([*words, *local_shell.options] for words in listed), *bare]


def test_every_command_is_known_to_touch_data_or_not_to(local_shell: Shell) -> None:
    named = {" ".join(words[:2]) if words[0] in GROUPS else words[0] for words in commands_without_spark(local_shell)}
    assert named | TOUCH_DATA == set(list_commands())


def test_no_command_that_leaves_data_alone_loads_spark(local_shell: Shell) -> None:
    words = commands_without_spark(local_shell)

    done = subprocess.run(
        [sys.executable, "-c", WATCH.format(paths=sys.path), json.dumps(words)], capture_output=True, text=True, check=True
    )

    shown = json.loads(done.stdout.splitlines()[-1])
    assert len(shown) == len(words)
    assert [one for one in shown if one[1:] not in ([0, []], [1, []], [3, []])] == []
    assert (
        sum(code == 1 for _, code, _ in shown) == 4
    )  # nothing is parked, and there is neither that snapshot (to tag, to return to) nor that tag


def test_what_moves_data_in_this_process_starts_no_java(local_shell: Shell) -> None:
    """They know of Spark, and start it only for what one machine cannot hold."""
    look = WATCH.replace("print(json", "import pyspark\nassert pyspark.SparkContext._gateway is None\nprint(json")
    words = [["compact", "run", NAME, *local_shell.options], ["views", "merge", NAME, *local_shell.options]]
    words += [["explain", f"SELECT * FROM {name} WHERE id = 7", *local_shell.options] for name in (NAME, f"{NAME}x")]

    done = subprocess.run(
        [sys.executable, "-c", look.format(paths=sys.path), json.dumps(words)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


def test_the_version_and_short_help_are_there() -> None:
    assert run("--version").output == f"lakebed {lakebed.__version__}\n"
    assert run("-h").output == run("--help").output
    assert run("tables", "list", "-h").output == run("tables", "list", "--help").output


@pytest.mark.parametrize("module", ["psycopg", "pyarrow", "sqlalchemy", "pydantic", "rich._emoji_codes"])
def test_a_list_loads_nothing_that_it_does_not_need(tmp_path: Path, module: str) -> None:
    place = ["--registry", f"sqlite:///{tmp_path}/lake.db"]
    run("init", *place, "--warehouse", str(tmp_path / "w"))
    code = f"""
import sys
sys.argv = ["lakebed", *{["tables", "list", *place]!r}]
from lakebed.cli.app import main
try:
    main()
finally:
    assert {module!r} not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("module", ["pyspark", "pyarrow", "sqlalchemy", "pyiceberg", "psycopg"])
def test_help_loads_nothing_heavy(module: str) -> None:
    code = (
        f"import sys; from lakebed.cli.app import app; import typer.main; typer.main.get_command(app); assert {module!r} not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
