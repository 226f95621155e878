"""Rows as a table, as JSON and as CSV: the same rows in each."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from shells import NAME, Shell, list_commands, make_view_set, run

from lakebed.cli.rendering import print_csv, to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

LISTS = [
    ("tables", "list"), ("files", "list", NAME), ("partitions", "list", NAME), ("partitions", "incompatible"), ("views", "list"),
    ("snapshots", "list", NAME), ("compact", "plan", NAME), ("compact", "history"), ("astha", "tail", NAME), ("astha", "dead-letters"),
    ("config", "show"),
]  # fmt: skip
EMPTY = {("partitions", "incompatible"), ("compact", "history"), ("astha", "dead-letters")}
# They have more to show than rows, or start Spark
ELSEWHERE = {"sql", "configure", "columns list"}


def options_of(words: Sequence[str]) -> set[str]:
    command = list_commands()[" ".join(words[:2])]
    return {option for param in command.params for option in param.opts}


def ask(shell: Shell, *words: str) -> str:
    known = options_of(words)
    place = [word for pair in zip(shell.options[::2], shell.options[1::2], strict=True) if pair[0] in known for word in pair]
    done = run(*words, *place)
    assert done.exit_code == 0, done.output
    return done.stdout_bytes.decode()


def read_csv(text: str) -> tuple[list[str], list[dict[str, str]]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    rows = list(reader)
    return list(reader.fieldnames or ()), rows


def as_text(value: Any) -> str:
    """What a value of the JSON is in CSV."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case dict() | list():
            return json.dumps(value)
        case _:
            return str(value)


@pytest.fixture
def listed(shell: Shell) -> Shell:
    with shell.open() as lake:
        make_view_set(lake)
    shell.json("snapshots", "create", NAME)
    return shell


def test_every_list_is_the_same_in_json_and_csv(listed: Shell) -> None:
    for words in LISTS:
        found = json.loads(ask(listed, *words, "--json"))
        names, rows = read_csv(ask(listed, *words, "--format", "csv"))

        assert json.loads(ask(listed, *words, "--format", "json")) == found, words
        assert bool(found) == (words not in EMPTY), words
        assert [{name: as_text(row[name]) for name in names} for row in found] == rows, words
        assert names
        assert not found or set(names) == set(found[0]), words
        assert ask(listed, *words) == ask(listed, *words, "--format", "table"), words


def test_every_command_with_a_format_is_shown_here() -> None:
    having = {name for name, command in list_commands().items() if any("--format" in param.opts for param in command.params)}
    assert having - ELSEWHERE == {" ".join(words[:2]) for words in LISTS}


def test_times_in_csv_are_iso_8601(shell: Shell) -> None:
    _, rows = read_csv(ask(shell, "partitions", "list", NAME, "--format", "csv"))

    assert all(row["begin_insert_time"].endswith("Z") and datetime.fromisoformat(row["begin_insert_time"]).tzinfo for row in rows)


def test_csv_follows_rfc_4180(capsys: pytest.CaptureFixture[str]) -> None:
    print_csv(["a", 'b"', "c"], [["x,y", 'he said "hi"', "two\nlines"], [None, True, 1.5]])

    assert capsys.readouterr().out == 'a,"b""",c\r\n"x,y","he said ""hi""","two\nlines"\r\n,true,1.5\r\n'


def test_every_kind_of_value_has_one_text(capsys: pytest.CaptureFixture[str]) -> None:
    moment = datetime(2026, 3, 1, 12, tzinfo=UTC)
    values = [moment, moment.replace(tzinfo=None), date(2026, 3, 1), Decimal("1E+3"), b"\x00\xff", float("nan"), -float("inf"),
              [1, None], {"k": float("inf")}, timedelta(seconds=1)]  # fmt: skip

    print_csv([f"c{n}" for n in range(len(values))], [values])

    (row,) = list(csv.reader(io.StringIO(capsys.readouterr().out)))[1:]
    assert row == [
        "2026-03-01T12:00:00Z", "2026-03-01T12:00:00", "2026-03-01", "1000", "00ff", "NaN", "-Infinity", "[1, null]", '{"k": "Infinity"}',
        "0:00:01",
    ]  # fmt: skip
    assert to_json({date(2026, 3, 1): [float("nan")]}) == {"2026-03-01": ["NaN"]}


def test_two_formats_at_once_are_a_usage_error(shell: Shell) -> None:
    done = shell.run("partitions", "list", "--json", "--format", "csv")

    assert done.exit_code == 2
    assert "exclude each other" in " ".join(done.output.split())
    assert shell.run("partitions", "list", "--format", "xml").exit_code == 2
