"""Secrets leave every text, whatever form the log has."""

from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING

import pytest

from lakebed.core.redaction import HIDDEN, Redactor, find_passwords, hide_secrets
from lakebed.monitoring.logs import make_redactor, set_up_logs, take_down_logs
from lakebed.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "canary-7f'\"3@x"  # noqa: S105 - not one that opens anything
URL = f"postgresql://me:{SECRET}@db.example/lake"


@pytest.fixture(params=["text", "json"])
def log(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = set_up_logs(Redactor([SECRET]), kind=request.param, level="info", stream=stream)
    yield stream
    take_down_logs(handler)


def test_no_part_of_a_record_shows_a_secret(log: io.StringIO) -> None:
    logger = logging.getLogger("lakebed.test")
    try:
        int(URL)
    except ValueError:
        logger.exception("reading %s failed", URL, extra={"action": "read", "where": {"url": [URL]}, "reason": SECRET})
    logger.info("all is well", extra={"action": "read", "table": "shop.orders"})

    reported = log.getvalue()
    assert "canary" not in reported
    assert HIDDEN in reported
    assert "shop.orders" in reported
    assert "Traceback" in reported


def test_a_json_log_is_one_object_per_line_with_what_extra_gave(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    handler = set_up_logs(Redactor(), kind="json", level="info", stream=stream)
    logging.getLogger("lakebed.test").warning("a line\nwith a break", extra={"action": "x", "sequence": 7})
    logging.getLogger("lakebed.test").debug("too quiet")
    take_down_logs(handler)

    (line,) = stream.getvalue().splitlines()
    found = json.loads(line)
    assert (found["message"], found["level"], found["sequence"]) == ("a line\nwith a break", "warning", 7)
    assert found["time"].endswith("Z")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:hidden@db/lake",
        "could not connect to postgresql://me:hid:den@[::1]:5432/lake?sslmode=verify-full",
        "host=db user=me password=hidden dbname=lake",
        "{'password': 'hidden', 'user': 'me'}",
        "PGPASSWORD=hidden psql",
        "aws_secret_access_key = hidden",
        "s3://key:hidden@bucket/prefix and then postgresql://you:hidden@db/lake",
        "postgresql://me:hid/den@db/lake",
    ],
)
def test_urls_and_assignments_lose_their_passwords(text: str) -> None:
    reported = hide_secrets(text)
    assert "hidden" not in reported
    assert "den@" not in reported
    assert HIDDEN in reported


@pytest.mark.parametrize(
    "text", ["sqlite:////var/lake.db", "http://127.0.0.1:9464/status", "12:30:05 me@host", "s3://bucket/a:b@c.parquet"]
)
def test_texts_without_a_password_stay_as_they_are(text: str) -> None:
    assert hide_secrets(text) == text


def test_a_process_knows_the_secrets_of_its_settings_and_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret-key")
    settings = load_settings(registry_url="postgresql://me:per%20cent@db/lake", environment={})
    hide = make_redactor(settings)
    assert hide("per cent, per%20cent, very-secret-key") == f"{HIDDEN}, {HIDDEN}, {HIDDEN}"
    assert SECRET in find_passwords([None, "sqlite:///lake.db", "s3://bucket/a:b@c", URL])
    assert find_passwords(["sqlite:///lake.db", "s3://bucket/a:b@c"]) == []
