"""Iceberg's reference implementation, through its JDBC catalog and from the metadata file, reads what `lake.read` reads."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from reference_reader import PACKAGES

from maven import require_maven
from poolers import host_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Databases

STEPS = 8


@contextmanager
def tcp_door(url: str) -> Iterator[int]:
    """The test's PostgreSQL listens on a Unix socket, which Java's driver does not speak."""
    target = f"{host_of(url)}/.s.PGSQL.5432"
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_accept, args=(server, target), daemon=True).start()
        yield server.getsockname()[1]


def _accept(server: socket.socket, target: str) -> None:
    with suppress(OSError):
        while True:
            client, _ = server.accept()
            inside = socket.socket(socket.AF_UNIX)
            inside.connect(target)
            for source, sink in ((client, inside), (inside, client)):
                threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65_536):
            sink.sendall(piece)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def run_on_both(script: str, databases: Databases, tmp_path: Path) -> list[dict[str, Any]]:
    """What the script says of a lake on each database."""
    require_maven(PACKAGES)
    sqlite, postgres = databases.new("sqlite"), databases.new("postgresql")
    file = Path(sqlite.removeprefix("sqlite:///")).with_suffix(".iceberg.db")
    with tcp_door(postgres) as port:
        name = postgres.split("?", maxsplit=1)[0].rpartition("/")[2]
        places = [
            {"url": sqlite, "warehouse": str(tmp_path / "one"), "jdbc": f"jdbc:sqlite:{file}"},
            {"url": postgres, "warehouse": str(tmp_path / "two"), "jdbc": f"jdbc:postgresql://127.0.0.1:{port}/{name}?user=postgres"},
        ]
        here = Path(__file__).parent
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parent), os.environ.get("PYTHONPATH", "")])}
        call = [sys.executable, str(here / script), json.dumps(places)]
        done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=580, env=environment)
    databases.drop(postgres)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.maven
@pytest.mark.timeout(600)
def test_the_reference_implementation_agrees_after_every_operation(databases: Databases, tmp_path: Path) -> None:
    said = run_on_both("reference_reader.py", databases, tmp_path)

    assert [line for line in said if not line["equal"]] == []
    assert len(said) == 2 * (STEPS * 4 - 2 + 1)
    assert sum(line["rows"] for line in said) > 0


@pytest.mark.maven
@pytest.mark.timeout(600)
def test_branches_and_tags_of_spark_stay_and_what_is_lakebeds_alone_stops_the_table(databases: Databases, tmp_path: Path) -> None:
    said = run_on_both("ref_writer.py", databases, tmp_path)

    wrong = [line for line in said if not line["equal"]]
    assert wrong == [], wrong
    assert len(said) == 2 * (3 * 4 + 4 * 4 + 1 + 1)
