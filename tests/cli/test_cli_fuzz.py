"""Whatever the arguments are: an answer or an error that says what to do, never a traceback."""

from __future__ import annotations

import io
import traceback
import warnings
from contextlib import redirect_stderr, redirect_stdout
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from fuzzing import draw_arguments, draw_words
from shells import Shell, list_commands, make_view_set
from typer.main import get_command

from lakebed.cli.app import app
from lakebed.core.errors import LakebedError
from lakebed.pipeline.sql.functions.answers import FUNCTIONS, answer

if TYPE_CHECKING:
    from pathlib import Path

# They run until they are stopped, or start Java
LEFT_OUT = {"serve", "demo", "explain"}
# They look for something to be wrong, and tell it by their exit code
FINDING = {"check", "doctor", "repair"}
SAMPLES = pytest.mark.parametrize(
    ("commands", "functions"), [(110, 40), pytest.param(1400, 600, marks=[pytest.mark.long, pytest.mark.timeout(1800)])]
)


@pytest.fixture
def fuzzed(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)  # where relative paths lead
    monkeypatch.setenv("COLUMNS", "80")
    with shell.open() as lake:
        make_view_set(lake)
    return shell


@SAMPLES
def test_any_arguments_end_in_an_answer_or_a_typed_error(fuzzed: Shell, commands: int, functions: int) -> None:
    random, tree = Random(20260301), {n: c for n, c in list_commands().items() if n not in LEFT_OUT}
    root = get_command(app)

    drawn = [random.choice(sorted(tree)) for _ in range(commands)]
    calls = ([*name.split(), *draw_words(random, name, tree[name], fuzzed.options)] for name in drawn)
    wrong = [fault for name, words in zip(drawn, calls, strict=True) if (fault := find_fault(root, name, words))]
    assert not wrong, "\n".join(wrong)

    with fuzzed.open() as lake:
        for name in (random.choice(sorted(FUNCTIONS)) for _ in range(functions)):
            ask(lake, name, draw_arguments(random, [parameter.name for parameter in FUNCTIONS[name].parameters]))
        assert lake.check().clean


def ask(lake: Any, name: str, given: dict[str, Any]) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            answer(lake.registry, lake.storage, name, given)
    except LakebedError:
        return
    except Exception as error:
        message = f"{name}({given})"
        raise AssertionError(message) from error


def find_fault(root: Any, name: str, words: list[str]) -> str:
    """What is wrong with how the command ended; nothing for an answer, or an error that says something."""
    shown = io.StringIO()
    with redirect_stdout(shown), redirect_stderr(shown):
        try:
            root.main(words, prog_name="lakebed")
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the fault that is looked for
            return f"{words}: {error!r} {error.__traceback__ and traceback.format_exception(error)[-3:]}"
    printed = shown.getvalue()
    if code not in {0, 1, 2, 4, *([3] if name in FINDING else [])} or "Traceback" in printed or not (printed.strip() or code == 0):
        return f"{words}: {code} {printed[-300:]}"
    return ""
