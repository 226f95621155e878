"""The systemd unit and the compose file, started as they are written; only places, the port and the program's directory are ours."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from configparser import ConfigParser
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import psycopg
import pytest
import yaml  # type: ignore[import-untyped]

from lakebed.lake import connect
from lakebed.service.service import STOP_S
from serving import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conftest import Databases

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = str(Path(sys.executable).parent)
PASSWORD = "never-told-anybody"  # noqa: S105 - of a server that ends with the test
PORT = "9464"


def read_unit() -> tuple[dict[str, str], str]:
    """The settings of its service, and all of its text."""
    text = (EXAMPLES / "systemd" / "lakebed.service").read_text()
    unit = ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign] # the keys of units keep their case
    unit.read_string(text)
    return dict(unit["Service"]), text


def find_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def ask(port: str, path: str, *, host: str = "127.0.0.1") -> int:
    try:
        with urlopen(Request(f"http://127.0.0.1:{port}{path}", headers={"Host": f"{host}:{port}"}), timeout=10) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code
    except OSError:
        return 0


@contextmanager
def started(command: Sequence[str], log: Path, *, cwd: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """With nothing in its environment but what the example gives, and where programs and Java are."""
    bare = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "HOME": str(cwd)}
    bare |= {name: os.environ[name] for name in ("JAVA_HOME", "TMPDIR") if name in os.environ}
    with log.open("wb") as stream:
        process = subprocess.Popen(command, cwd=cwd, env={**bare, **environment}, stdout=stream, stderr=stream)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(60)


def stop(process: subprocess.Popen[bytes], number: int, *, within_s: float) -> int:
    """Exit code; the example gives it this time to end."""
    process.send_signal(number)
    return process.wait(within_s)


def test_the_unit_serves_the_lake_that_its_settings_name(tmp_path: Path) -> None:
    service, text = read_unit()
    settings = "\n".join(re.findall(r'^#   (\w+ = ".*")$', text, re.MULTILINE)).replace("/var/lib/lakebed", str(tmp_path))
    (tmp_path / "lakebed.toml").write_text(settings)
    port, log = find_port(), tmp_path / "log"
    command = shlex.split(service["ExecStart"].replace("/opt/lakebed/bin", PROGRAMS).replace(PORT, port))
    name, _, value = service["Environment"].partition("=")

    with started([f"{PROGRAMS}/lakebed", "init"], log, cwd=tmp_path, environment={}) as init:
        assert init.wait(60) == 0, log.read_text()
    with started(command, log, cwd=tmp_path, environment={name: value}) as process:
        wait_until(lambda: process.poll() is not None or ask(port, "/ready") == 200)
        assert process.poll() is None, log.read_text()
        code = stop(process, signal.Signals[service["KillSignal"]], within_s=float(service["TimeoutStopSec"]))

    assert code == 0, log.read_text()
    assert '"action": "start"' in log.read_text()  # one object per line
    with connect(f"sqlite:///{tmp_path}/lake.db", warehouse=str(tmp_path / "warehouse"), create=False) as lake:
        assert lake.check().clean


def test_the_unit_gives_the_service_time_to_stop() -> None:
    service, _ = read_unit()
    assert float(service["TimeoutStopSec"]) > STOP_S
    assert service["ExecStart"].split()[1:] == ["serve", "--listen", f"127.0.0.1:{PORT}"]


def test_the_unit_does_not_serve_a_lake_that_does_not_exist(tmp_path: Path) -> None:
    """Started too early, or with a slip in a setting, it says so and creates nothing."""
    (tmp_path / "lakebed.toml").write_text(f'registry_url = "sqlite:///{tmp_path}/lake.db"\nwarehouse = "{tmp_path}/warehouse"\n')
    log = tmp_path / "log"
    with started([f"{PROGRAMS}/lakebed", "serve", "--no-http"], log, cwd=tmp_path, environment={}) as process:
        assert process.wait(60) == 1
    assert "lakebed init" in log.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lakebed.toml", "log"]


@pytest.fixture
def composed(databases: Databases, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The service of the compose file: its registry is there, places and port are the test's."""
    text = (EXAMPLES / "compose" / "compose.yaml").read_text()
    directory = urlsplit(databases.postgres_url).query.partition("host=")[2]
    text = text.replace("host=/var/run/postgresql", f"host={directory}").replace(
        "WAREHOUSE: /warehouse", f"WAREHOUSE: {tmp_path}/warehouse"
    )
    text = re.sub(r"\$\{LAKEBED_DB_PASSWORD[^}]*\}", PASSWORD, text).replace(PORT, find_port())
    found: dict[str, Any] = yaml.safe_load(text)["services"]
    registry = found["registry"]["environment"]
    with psycopg.connect(databases.postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {registry['POSTGRES_USER']} LOGIN SUPERUSER PASSWORD '{registry['POSTGRES_PASSWORD']}'")
        connection.execute(f"CREATE DATABASE {registry['POSTGRES_DB']} OWNER {registry['POSTGRES_USER']}")
        yield found["lakebed"]
        connection.execute(f"DROP DATABASE {registry['POSTGRES_DB']} WITH (FORCE)")
        connection.execute(f"DROP ROLE {registry['POSTGRES_USER']}")


def test_the_composed_service_makes_its_lake_is_healthy_and_stops_in_time(composed: dict[str, Any], tmp_path: Path) -> None:
    log, environment = tmp_path / "log", {name: str(value) for name, value in composed["environment"].items()}
    port = composed["ports"][0].rpartition(":")[2]
    kind, *healthy = composed["healthcheck"]["test"]
    assert kind == "CMD"
    for _ in range(2):  # a container that is started again finds the lake it made
        with started(composed["command"], log, cwd=tmp_path, environment=environment) as process:
            wait_until(lambda: process.poll() is not None or ask(port, "/ready") == 200)
            assert process.poll() is None, log.read_text()
            with started(healthy, tmp_path / "health", cwd=tmp_path, environment=environment) as look:
                assert look.wait(30) == 0, (tmp_path / "health").read_text()
            assert [ask(port, "/metrics", host=host) for host in ("lakebed", "evil.example")] == [200, 403]
            code = stop(process, signal.SIGTERM, within_s=float(composed["stop_grace_period"].rstrip("s")))
        assert code == 0, log.read_text()
        assert PASSWORD not in log.read_text()


def test_the_image_is_made_of_what_is_there_and_nothing_else() -> None:
    root = EXAMPLES.parent
    steps = (EXAMPLES / "compose" / "Dockerfile").read_text()
    copied = [name for line in re.findall(r"^COPY (.*) \S+$", steps, re.MULTILINE) for name in line.split()]
    let_in = [line[1:] for line in (root / ".dockerignore").read_text().splitlines() if line.startswith("!")]

    assert copied
    assert all((root / name).exists() for name in copied)
    assert sorted(copied) == sorted(let_in)


def test_what_is_installed_to_run_is_what_is_tested() -> None:
    root = EXAMPLES.parent
    running, tested = (
        set(re.findall(r"^(\S+==[^\s;]+)", (root / name).read_text(), re.MULTILINE))
        for name in ("requirements-run.lock", "requirements.lock")
    )
    assert running < tested
    assert not any(pin.startswith(("pytest==", "mypy==", "moto==")) for pin in running)
