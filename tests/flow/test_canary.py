"""A password in the registry's URL appears nowhere: no log, no error, no metric, no JSON, no pickle, no row."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import traceback
from typing import TYPE_CHECKING
from urllib.parse import quote

import psycopg
import pytest

from builders import ORDERS, logical_dump, make_table, write_partition
from lakebed.core.errors import LakebedError, RegistryUnavailableError
from lakebed.core.redaction import strip_password
from lakebed.lake import connect
from lakebed.registry.open import open_registry
from serving import EVERY_SECOND, serving, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Databases

CANARY = "canary-5d0f'x"


@pytest.fixture
def kind() -> str:
    """The other one has no password."""
    return "postgresql"


@pytest.fixture
def secret_url(url: str) -> str:
    """The server of the tests accepts any password."""
    user, at, rest = url.removeprefix("postgresql://").partition("@")
    assert at
    return f"postgresql://{user.partition(':')[0]}:{quote(CANARY)}@{rest}"


def has_canary(text: str | bytes) -> bool:
    reported = text.decode(errors="replace") if isinstance(text, bytes) else text
    return any(form in reported for form in (CANARY, quote(CANARY), repr(CANARY)[1:-1], "canary-5d0f"))


def lakebed(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lakebed.cli.app", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **variables})


def test_a_service_that_fails_and_recovers_shows_no_password(secret_url: str, databases: Databases, tmp_path: Path) -> None:
    warehouse, log = tmp_path / "warehouse", tmp_path / "log"
    reported: list[str | bytes] = []
    variables = {"LAKEBED_LOG_LEVEL": "debug", "LAKEBED_SCHEDULE_CHECK": EVERY_SECOND, "LAKEBED_SCHEDULE_RECOVER": EVERY_SECOND}
    with connect(secret_url, warehouse=str(warehouse), service="off") as lake:
        make_table(lake.registry)
        with serving(secret_url, warehouse, log, "--log-format", "json", **variables) as served:
            write_partition(lake, 1)
            lake.snapshot(str(ORDERS), timeout_s=60)
            cut_connections(databases, secret_url)
            with pytest.raises(RegistryUnavailableError) as refused:
                connect(f"{secret_url}&port=1", warehouse=str(warehouse), create=False)
            reported.append(repr(refused.value))
            (path,) = [row.file_path for row in lake.files.list(str(ORDERS))]
            lake.storage.delete([path])
            wait_until(lambda: 'lakebed_check_findings{severity="damage"} 0' not in served.ask("/metrics")[1])
            reported += [served.ask(path)[1] for path in ("/health", "/ready", "/metrics", "/status")]
            served.stop()
        reported += [log.read_text(), json.dumps(served.reported), repr(lake.registry.backend.shown_url)]
        reported += [
            pickle.dumps(result) for result in (lake.check(), lake.files.list(), lake.snapshots(str(ORDERS)), lake.table(str(ORDERS)))
        ]
        reported += [repr(row) for rows in logical_dump(lake.registry).values() for row in rows]
    shown = lakebed("config", "show", "--json", LAKEBED_REGISTRY_URL=secret_url)
    assert "registry_url" in shown.stdout
    reported += [shown.stdout, shown.stderr]
    assert [text for text in reported if has_canary(text)] == []
    assert "a task ended" in log.read_text()


def test_a_pickled_lake_and_its_settings_hold_no_password_and_it_reconnects_with_the_environments(
    secret_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(secret_url, warehouse=str(tmp_path / "warehouse"), service="off") as lake:
        make_table(lake.registry)
        stored = pickle.dumps(lake)
        reported: list[str | bytes] = [stored, repr(lake._settings), *map(repr, lake._settings.origins), repr(lake)]
    assert [text for text in reported if has_canary(text)] == []

    with pickle.loads(stored) as again:  # noqa: S301 - our own
        assert again._settings.registry_url == strip_password(secret_url)
    monkeypatch.setenv("LAKEBED_REGISTRY_URL", secret_url)
    with pickle.loads(stored) as again:  # noqa: S301 - our own
        assert again._settings.registry_url == secret_url
        assert [table.name for table in again.tables.list()] == [ORDERS.name]
    monkeypatch.setenv("LAKEBED_REGISTRY_URL", secret_url.replace("@", "@elsewhere", 1))
    with pickle.loads(stored) as again:  # noqa: S301 - our own
        assert again._settings.registry_url == strip_password(secret_url)


@pytest.mark.parametrize(
    ("url", "stripped"),
    [
        ("sqlite:///lake.db", "sqlite:///lake.db"),
        ("postgresql://me@host/lake", "postgresql://me@host/lake"),
        ("postgresql://me:p%40w@host/lake?sslmode=verify-full", "postgresql://me@host/lake?sslmode=verify-full"),
        ("postgresql://host/lake?user=me&password=secret", "postgresql://host/lake?user=me"),
        ("postgresql://host/lake?password=secret", "postgresql://host/lake"),
    ],
)
def test_a_url_without_its_password_names_the_same_place(url: str, stripped: str) -> None:
    assert strip_password(url) == stripped


def cut_connections(databases: Databases, url: str) -> None:
    """As a server that restarts does."""
    name = url.split("?", maxsplit=1)[0].rpartition("/")[2]
    with psycopg.connect(databases.postgres_url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])


BAD_URLS = [
    "postgresql://me:{0}@127.0.0.1:1/lake",
    "postgresql://me:{0}@/lake?host=/nowhere/at/all",
    "postgresql://me:{0}@localhost:port/lake",
    "postgresql://me:{0}@localhost/lake?nonsense=1",
    "postgresql://me:{0}@db.example/lake",
    "postgresql://me:{0}#x@localhost/lake",
    "postgresql://me:{0}/x@localhost/lake",
    "postgresql://me:{0}@[::1/lake",
    "postgresql://me:{0}@local host/lake",
    "postgresql://me:{0}%zz@localhost:1/lake",
    "postgres+psycopg://me:{0}@localhost/lake",
    "mysql://me:{0}@localhost/lake",
]


@pytest.mark.parametrize("form", BAD_URLS)
def test_an_error_about_a_url_does_not_quote_its_password(form: str) -> None:
    with pytest.raises(LakebedError) as caught:
        open_registry(form.format(quote(CANARY)), timeout_s=1.0).close()
    assert not has_canary("".join(traceback.format_exception_only(caught.value)))
    assert not has_canary(repr(caught.value.__cause__))


@pytest.mark.parametrize("form", BAD_URLS[5:6])
def test_the_command_line_does_not_quote_it_either(form: str, tmp_path: Path) -> None:
    done = lakebed("serve", "--no-http", "--warehouse", str(tmp_path / "w"), LAKEBED_REGISTRY_URL=form.format(quote(CANARY)))
    assert done.returncode in {1, 4}, done.stderr
    assert not has_canary(done.stdout + done.stderr)
    assert "Traceback" not in done.stderr
