"""The same history on SQLite and on PostgreSQL leaves the same rows, the same journal and the same answers."""

from __future__ import annotations

import json
import random
from bisect import bisect_left
from collections import defaultdict
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from builders import START
from histories import History
from history_walks import wander
from lakebed.check import check
from lakebed.registry.open import open_registry
from lakebed.registry.schema.tables import METADATA
from lakebed.testing import FixedClock

if TYPE_CHECKING:
    from conftest import Databases
    from lakebed.registry.registry import Registry

# What no history decides: who the registry is, and how its triggers are spelled. The journal is compared by itself
LEFT_OUT = frozenset({"registry_facts", "change_log"})
Rows = list[tuple[Any, ...]]


def dump(registry: Registry) -> dict[str, Rows]:
    """Every row of every table in order; a scope is named by its place, since a refusal may burn a number."""
    with registry.read() as reader:
        scopes = {row[0]: place for place, row in enumerate(reader.query("SELECT id FROM partition_scopes ORDER BY id"))}
        found: dict[str, Rows] = {}
        for table in METADATA.sorted_tables:
            if table.name not in LEFT_OUT:
                columns = [c.name for c in table.columns]
                rows = reader.query(f"SELECT {', '.join(columns)} FROM {table.name}")
                found[table.name] = sorted((_plain(table.name, columns, row, scopes) for row in rows), key=repr)
    return found


def _plain(table: str, columns: list[str], row: tuple[Any, ...], scopes: dict[int, int]) -> tuple[Any, ...]:
    values: list[Any] = []
    for column, value in zip(columns, row, strict=True):
        if column == "scope_id" or (table, column) == ("partition_scopes", "id"):
            values.append(scopes[value])
        else:
            values.append(bytes(value).hex() if isinstance(value, bytes | memoryview) else value)
    return tuple(values)


def list_row_histories(registry: Registry, ends: dict[int, list[int]]) -> dict[str, Rows]:
    """What the journal says of each row, in order, each change with the number at which its move ended.

    Rows that change in one transaction may be journaled in any order: PostgreSQL writes them in one statement.
    """
    found: dict[str, Rows] = defaultdict(list)
    for table_id, seq, name, operation, before, after in registry.query(_JOURNAL):
        images = _image(before), _image(after)
        row_id = (images[1] or images[0] or [None])[0]
        ended = ends[table_id][bisect_left(ends[table_id], seq)]
        found[f"{name} {row_id}"].append((table_id, ended, operation, *images))
    return found


def _image(text: str | None) -> list[Any] | None:
    """Binary columns travel as hex, which the databases spell in different cases."""
    return None if text is None else [v.lower() if isinstance(v, str) else v for v in json.loads(text)]


_JOURNAL = "SELECT table_id, seq, registry_table, operation, before, after FROM change_log ORDER BY table_id, seq"


def live(databases: Databases, kind: str, *, seed: int, moves: int) -> dict[str, Rows]:
    """A whole life, judged by the model at its end."""
    clock = FixedClock(START + timedelta(hours=4))
    url = databases.new(kind)
    with closing(open_registry(url, clock=clock)) as registry:
        history = History(registry, clock)
        ends: dict[int, list[int]] = defaultdict(list)
        for _ in wander(history, random.Random(seed), moves):
            for table in history.tables:
                ends[table.table_id].append(table.last_seq)
        history.compare()
        assert check(registry, None).clean
        found = dump(registry) | list_row_histories(registry, ends)
    databases.drop(url)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_the_same_history_gives_the_same_dump_on_both_databases(databases: Databases, seed: int) -> None:
    ours, theirs = (live(databases, kind, seed=seed, moves=120) for kind in ("sqlite", "postgresql"))

    assert {of: len(rows) for of, rows in ours.items()} == {of: len(rows) for of, rows in theirs.items()}
    for of, rows in ours.items():
        assert rows == theirs[of], of


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 140))
def test_forty_long_histories_give_the_same_dump_on_both_databases(databases: Databases, seed: int) -> None:
    assert live(databases, "sqlite", seed=seed, moves=400) == live(databases, "postgresql", seed=seed, moves=400)


def test_two_different_histories_do_differ(databases: Databases) -> None:
    assert live(databases, "sqlite", seed=1, moves=40) != live(databases, "sqlite", seed=2, moves=40)
