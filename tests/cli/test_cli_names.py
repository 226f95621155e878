"""Names on the command line: case does not matter, and a misspelled one gets a suggestion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from shells import NAME

if TYPE_CHECKING:
    from shells import Shell

OTHER = "SHOP.Orders"


def test_commands_ignore_case(shell: Shell) -> None:
    assert shell.json("tables", "show", OTHER)["table"] == NAME
    assert len(shell.json("partitions", "list", OTHER)) == len(shell.json("files", "list", OTHER)) == 3
    assert shell.run("repair", OTHER).exit_code == 0
    assert shell.json("compact", "plan", OTHER)[0]["table"] == NAME


@pytest.mark.parametrize("words", [("tables", "show"), ("files", "list"), ("partitions", "list"), ("snapshots", "list"), ("repair",)])
def test_a_misspelled_table_gets_a_suggestion_on_the_command_line(shell: Shell, words: tuple[str, ...]) -> None:
    done = shell.run(*words, "shop.ordes")
    assert done.exit_code == 1
    assert "did you mean shop.orders?" in done.output
