"""The tree of commands: what each of them has, whatever it does."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from shells import Shell, list_commands, run

COMMANDS = list_commands()
# Of these the answer goes on until somebody stops it
ENDLESS = {"serve"}
# What they change is told by what they are for, or can be taken back by another command
PLAIN = {"init", "demo", "serve", "sql", "snapshots tag", "snapshots untag"}
CHANGES = {
    "migrate", "migrate-footers", "files register", "partitions retire", "partitions retire-by-file", "partitions retire-incompatible",
    "partitions retire-expired", "tables drop", "views materialize", "views regenerate", "views merge", "views promote",
    "snapshots create", "snapshots expire", "compact run", "clean temp", "clean orphans", "astha retry", "insert", "configure", "rollback",
    "tables create", "columns add", "columns rename", "columns drop", "columns widen", "columns make-optional",
}  # fmt: skip
DESTROYS = {
    "tables drop", "partitions retire", "partitions retire-by-file", "partitions retire-incompatible", "partitions retire-expired",
    "snapshots expire", "clean temp", "clean orphans", "rollback", "columns drop",
}  # fmt: skip
DESIGNED = """insert sql configure rollback init demo serve check repair doctor migrate migrate-footers read-with explain why|config show
columns list|columns add|columns rename|columns drop|columns widen|columns make-optional
tables list|tables show|tables create|tables drop|files list|files check|files register|files footer
partitions list|partitions incompatible|partitions retire|partitions retire-incompatible|partitions retire-expired
views list|views materialize|views regenerate|views merge|views promote
snapshots list|snapshots create|snapshots expire|snapshots tag|snapshots untag|compact plan|compact run|compact history|clean temp|clean orphans
astha status|astha tail|astha dead-letters|astha retry"""


def options_of(name: str) -> set[str]:
    return {option for param in COMMANDS[name].params for option in (*param.opts, *param.secondary_opts)}


def test_the_whole_tree_of_the_design_is_there() -> None:
    top, *rest = DESIGNED.replace("\n", "|").split("|")
    assert {*top.split(), *rest} <= set(COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_has_an_example_that_the_command_itself_understands(name: str) -> None:
    found = re.search(r"Example: (lakebed [^\n]*)", COMMANDS[name].help or "")
    assert found is not None, name

    words = shlex.split(found[1].rstrip("."))[1:]

    assert words[: len(name.split())] == name.split()
    COMMANDS[name].make_context(name, words[len(name.split()) :]).close()


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_answers_in_json(name: str) -> None:
    assert name in ENDLESS or "--json" in options_of(name)


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_what_changes_something_can_be_tried_first(name: str) -> None:
    assert "--dry-run" in options_of(name)


@pytest.mark.parametrize("name", sorted(DESTROYS))
def test_destructive_commands_are_dry_runs_without_execute(name: str) -> None:
    assert {"--execute", "--yes"} <= options_of(name)
    execute = next(param for param in COMMANDS[name].params if "--execute" in param.opts)
    assert execute.default is False


def test_a_wrong_word_or_option_is_a_usage_error(shell: Shell) -> None:
    for words in (
        ["nothing"],
        ["tables", "nothing"],
        ["tables", "list", "--nothing"],
        ["compact", "plan"],
        ["astha", "tail", "--limit", "x"],
    ):
        done = run(*words)
        assert done.exit_code == 2, words
        assert "Traceback" not in done.output
    assert shell.run("partitions", "list", "--begin", "yesterday").exit_code == 2


def test_times_are_utc_unless_they_name_a_zone(shell: Shell) -> None:
    (first, *_), words = shell.json("partitions", "list"), ("partitions", "list", "--insert-end")
    begin = first["begin_insert_time"]

    assert shell.json(*words, begin.removesuffix("Z")) == shell.json(*words, begin) == []


def test_the_shell_completes_commands_and_names_of_tables(local_shell: Shell) -> None:
    def complete(*words: str) -> list[str]:
        printed = {
            "_LAKEBED_COMPLETE": "complete_bash", "COMP_WORDS": shlex.join(["lakebed", *words]), "COMP_CWORD": str(len(words)),
            "LAKEBED_REGISTRY_URL": local_shell.url,
        }  # fmt: skip
        done = subprocess.run(
            [Path(sys.executable).with_name("lakebed")], capture_output=True, text=True, check=False, env={**os.environ, **printed}
        )
        return done.stdout.split()

    assert complete("compact", "hi") == ["history"]
    assert complete("tables", "show", "shop.o") == ["shop.orders"]


def test_no_color_disables_colours() -> None:
    command = [sys.executable, "-m", "lakebed.cli.app", "tables", "list", "--registry", "mysql://x"]
    plain = {**os.environ, "FORCE_COLOR": "1", "NO_COLOR": "1"}
    coloured = {name: value for name, value in plain.items() if name != "NO_COLOR"}

    printed, shown = (subprocess.run(command, capture_output=True, text=True, check=False, env=env).stderr for env in (plain, coloured))

    assert "\x1b[" in shown
    assert "\x1b[3" not in printed
    assert "\x1b[9" not in printed
