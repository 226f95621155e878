"""A lake with something of everything, and commands on it, in this process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from typer.main import get_command
from typer.testing import CliRunner

from builders import DAILY, HOUR, ORDERS, SCHEMA, make_table, write_partition
from lakebed.cli.app import app
from lakebed.core.tables.view_sets import Definition
from lakebed.lake import Lake, connect
from lakebed.registry.tables.lake_tables import TableSpec, create_table
from lakebed.registry.tables.versions import stage_version

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from typer.testing import Result

NAME, VIEW = str(ORDERS), str(DAILY)


class Shell:
    """A lake with one table and three partitions, and commands on it."""

    def __init__(self, url: str, place: Path) -> None:
        self.url, self.place = url, place
        self.options = ["--registry", url, "--warehouse", str(place)]
        with connect(url, warehouse=str(place), service="off") as lake:
            make_table(lake.registry)
            for number in range(3):
                write_partition(lake, number)

    def open(self) -> Lake:
        return connect(self.url, warehouse=str(self.place), service="off")

    def run(self, *words: str, columns: int = 250, **given: Any) -> Result:
        return run(*words, *self.options, columns=columns, **given)

    def json(self, *words: str) -> Any:
        done = self.run(*words, "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)


def run(*words: str, columns: int = 250, **given: Any) -> Result:
    return CliRunner().invoke(app, list(words), env={"NO_COLOR": "1", "COLUMNS": str(columns)}, **given)


def make_view_set(lake: Lake, *, stages: bool = False) -> None:
    """As `create_view_set` leaves it, without Spark: an hourly copy of the orders."""
    definition = Definition(sql=f"SELECT id, ts, amount FROM {NAME}", over=ORDERS, slice_us=HOUR, event_time="ts")
    create_table(lake.registry, TableSpec(name=DAILY, schema=SCHEMA, kind="view_set", event_time="ts", definition=definition.to_json()))
    if stages:
        newer = Definition(sql=f"SELECT id, ts, 2 * amount AS amount FROM {NAME}", over=ORDERS, slice_us=HOUR, event_time="ts")
        lake.registry.transact(lambda tx: stage_version(tx, DAILY, SCHEMA, definition=newer.to_json()), tables=[DAILY])


def list_commands() -> dict[str, Any]:
    """Every command of the tree under the words it is called by."""
    return dict(_walk(get_command(app), ()))


def _walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield " ".join(words), command
        return
    for name, each in inner.items():
        yield from _walk(each, (*words, name))


def shape_of(value: Any) -> str:
    """The keys of a JSON answer, those of its parts inside; the first row stands for all."""
    match value:
        case dict():
            return "{" + ", ".join(f"{key}{_inner(key, each)}" for key, each in sorted(value.items())) + "}"
        case list():
            return f"[{shape_of(value[0]) if value else ''}]"
        case _:
            return ""


# Keyed by paths, rules, settings: what is in them is data
_OPEN = frozenset({"failed", "checked", "properties", "rows", "findings", "result", "plan"})


def _inner(key: str, value: Any) -> str:
    return shape_of(value) if key not in _OPEN and isinstance(value, dict | list) and value and not _is_plain(value) else ""


def _is_plain(value: Any) -> bool:
    return isinstance(value, list) and not isinstance(value[0], dict | list)
