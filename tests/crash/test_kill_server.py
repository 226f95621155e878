"""The server dies while its client sends: the client tells what became of its work, and nothing is lost or there twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenes import SCENES
from servers import OwnServer, end_sessions, own_server
from sweeping import pick, setting, strike_everywhere

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Databases

FAULTS = range(3)


@pytest.fixture(scope="module")
def own() -> Iterator[OwnServer]:
    with own_server() as made:
        yield made


@pytest.mark.parametrize("name", SCENES)
def test_sessions_that_the_server_ends(databases: Databases, tmp_path: Path, name: str) -> None:
    with setting(databases, "postgresql", tmp_path, name) as sweep:
        calls = sweep.list_calls(sends=True, files=False)
        for at in pick(2, out_of=len(calls), seed=name):
            assert sweep.strike(at, end_sessions(databases), sends=True, files=False).struck


@pytest.mark.parametrize("number", FAULTS)
def test_a_server_that_dies_at_once(own: OwnServer, tmp_path: Path, number: int) -> None:
    with setting(own.databases, "postgresql", tmp_path, "insert", after_run=own.start) as sweep:
        fault = own.faults()[number]
        assert sweep.strike(17 + number, fault, sends=True, files=False).struck


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", SCENES)
def test_sessions_ended_at_each_message(databases: Databases, tmp_path: Path, name: str) -> None:
    with setting(databases, "postgresql", tmp_path, name) as sweep:
        strike_everywhere(sweep, end_sessions(databases), sends=True, files=False)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("number", FAULTS)
@pytest.mark.parametrize("name", SCENES)
def test_a_server_that_dies_at_once_during_every_action(own: OwnServer, tmp_path: Path, name: str, number: int) -> None:
    with setting(own.databases, "postgresql", tmp_path, name, after_run=own.start) as sweep:
        strike_everywhere(sweep, own.faults()[number], every=7, sends=True, files=False)
