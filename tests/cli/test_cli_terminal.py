"""Output on a terminal: tables that fit, bars while work runs, a question before anything is destroyed."""

from __future__ import annotations

import io
import os
import pty
import select
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from shells import NAME, VIEW, Shell, make_view_set, run

from lakebed.cli.progress import bar

if TYPE_CHECKING:
    from collections.abc import Sequence

RANGE = ("--insert-begin", "2026-01-01", "--insert-end", "2100-01-01")
NARROW = 80


def at_a_terminal(words: Sequence[str], *, answer: str, environment: dict[str, str]) -> tuple[int, str]:
    """Exit code and everything that was shown, of a command whose three streams are one terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "lakebed.cli.app", *words]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, **environment}) as running:
        os.close(theirs)
        os.write(ours, answer.encode())
        shown = read_all(ours)
    os.close(ours)
    return running.returncode, shown


def read_all(terminal: int) -> str:
    shown = b""
    while select.select([terminal], [], [], 60)[0]:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    return shown.decode()


def test_a_word_between_colons_is_not_shown_as_an_emoji(tmp_path: Path) -> None:
    place = tmp_path / "a:car:b"
    place.mkdir()
    done = run("tables", "list", "--registry", f"sqlite:///{place}/none/lake.db")

    assert done.exit_code
    assert "a:car:b" in done.stderr


def test_tables_fit_a_narrow_terminal_and_nothing_is_cut(local_shell: Shell) -> None:
    with local_shell.open() as lake:
        make_view_set(lake)
        paths = [row.file_path for row in lake.files.list(NAME)]
    snapshot_id = str(local_shell.json("snapshots", "create", NAME)["snapshot_id"])
    shown = {
        words: local_shell.run(*words, columns=NARROW).output
        for words in (
            ("tables", "show", NAME), ("files", "list", NAME), ("files", "footer", paths[0]), ("partitions", "list", NAME), ("views", "list"),
            ("snapshots", "list", NAME), ("compact", "plan", NAME), ("astha", "status"), ("astha", "tail"),
            ("partitions", "retire", NAME, *RANGE), ("views", "materialize", VIEW, "--dry-run"),
        )
    }  # fmt: skip

    for words, text in shown.items():
        assert max(map(len, text.splitlines())) <= NARROW, words
        assert "…" not in text, words
    folded = "".join(shown["files", "list", NAME].split())
    assert all(path[-20:] in folded for path in paths)
    assert snapshot_id in shown["snapshots", "list", NAME]


def test_what_is_piped_is_not_folded(local_shell: Shell) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = [sys.executable, "-m", "lakebed.cli.app", "files", "list", NAME, *local_shell.options]

    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)

    assert sum(line.strip().startswith(str(local_shell.place)) and ".parquet" in line for line in done.stdout.splitlines()) == 3
    assert not done.stderr


def test_a_bar_shows_rate_and_remaining_time_and_is_gone_afterwards() -> None:
    screen = io.StringIO()
    with bar("compacting", total=10, console=Console(file=screen, force_terminal=True, width=100)) as tell:
        for done in range(1, 8):
            tell(done)
    shown = screen.getvalue()

    assert "compacting" in shown
    assert "7/10" in shown
    assert "/s" in shown or "/min" in shown
    assert "0:00:0" in shown
    assert "\x1b[2K" in shown  # the line is taken away at the end


def test_long_commands_show_how_far_they_have_come(local_shell: Shell) -> None:
    with local_shell.open() as lake:
        (path, *_) = [row.file_path for row in lake.files.list(NAME)]
        copies = [str(Path(path).with_name(f"copy-{number}.parquet")) for number in range(3)]
    for copy in copies:
        Path(copy).write_bytes(Path(path).read_bytes())
    shown = {
        ("files", "check", *copies, "--table", NAME): ("checking", "3/3"),
        ("files", "register", *copies, "--table", NAME): ("registering", "3/3"),
        ("migrate-footers",): ("upgrading footers", ""),
        ("check",): ("checking", ""),
        ("repair",): ("checking", ""),
        ("clean", "orphans"): ("looking at files", ""),
    }
    for words, (what, done) in shown.items():
        code, printed = at_a_terminal([*words, *local_shell.options], answer="", environment={"COLUMNS": "120", "TERM": "xterm"})
        bars = [line for line in printed.split("\r") if what in line]
        assert code == 0, printed
        assert any("━" in line and done in line for line in bars), (words, printed)


def test_no_bar_is_written_into_a_pipe() -> None:
    file = io.StringIO()
    with bar("compacting", total=10, console=Console(file=file)) as tell:
        tell(5, 10)
    assert file.getvalue() == ""


def test_a_person_is_asked_before_anything_is_destroyed(local_shell: Shell) -> None:
    words = ["partitions", "retire", NAME, *RANGE, "--execute", *local_shell.options]

    refused, printed = at_a_terminal(words, answer="n\n", environment={"NO_COLOR": "1"})
    assert (refused, "retire 3 partitions" in printed, "nothing was changed" in printed) == (1, True, True), printed
    assert len(local_shell.json("partitions", "list", NAME)) == 3

    done, printed = at_a_terminal(words, answer="y\n", environment={"NO_COLOR": "1"})
    assert (done, "retired 3 partitions" in printed) == (0, True), printed
    assert local_shell.json("partitions", "list", NAME) == []


def test_a_script_that_says_execute_is_not_asked(local_shell: Shell) -> None:
    assert local_shell.run("tables", "drop", NAME, "--execute").exit_code == 0
    assert run("tables", "show", NAME, *local_shell.options).exit_code == 1
