"""HTTP as a watcher, a stranger and a browser's page see it."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

import pytest

from lakebed.core.errors import InvalidValueError
from lakebed.monitoring.endpoints import Address, Endpoints, parse_address

if TYPE_CHECKING:
    from collections.abc import Iterator


class Patient:
    """Something to watch, whose problems the test decides."""

    def __init__(self) -> None:
        self.not_live, self.not_ready = "", ""

    def liveness_problem(self) -> str:
        return self.not_live

    def readiness_problem(self) -> str:
        return self.not_ready

    def to_metrics(self) -> bytes:
        return b"lakebed_active 1.0\n"

    def to_status(self) -> dict[str, Any]:
        if self.not_live == "raises":
            raise RuntimeError(self.not_live)
        return {"active": True}


@contextmanager
def answering(patient: Patient, *, host: str = "127.0.0.1", allowed: tuple[str, ...] = ()) -> Iterator[Endpoints]:
    endpoints = Endpoints(Address(host=host, port=0), allowed_hosts=allowed)
    endpoints.start(patient)
    yield endpoints
    endpoints.close()


def ask(endpoints: Endpoints, path: str, *, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    with closing(HTTPConnection(endpoints.address.host, endpoints.address.port, timeout=10)) as connection:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())


def test_the_four_questions_are_answered() -> None:
    patient = Patient()
    with answering(patient) as endpoints:
        assert [ask(endpoints, path)[0] for path in ("/health", "/ready", "/metrics", "/status?x=1")] == [200] * 4
        assert json.loads(ask(endpoints, "/status")[1]) == {"active": True}
        assert ask(endpoints, "/metrics")[2]["Content-Type"].startswith("text/plain; version=0.0.4")
        patient.not_live = patient.not_ready = "the watcher failed"
        for path in ("/health", "/ready"):
            status, body, _ = ask(endpoints, path)
            assert (status, json.loads(body)) == (503, {"ok": False, "problem": "the watcher failed"})


def test_what_is_not_there_or_not_asked_for_is_refused() -> None:
    patient = Patient()
    with answering(patient) as endpoints:
        assert ask(endpoints, "/")[0] == 404
        assert ask(endpoints, "/../etc/passwd")[0] == 404
        assert ask(endpoints, "/status", method="POST")[0] == 501
        status, body, headers = ask(endpoints, "/health", method="HEAD")
        assert (status, body, headers["Server"].strip()) == (200, b"", "lakebed")
        patient.not_live = "raises"
        assert ask(endpoints, "/status")[:2] == (500, b'{"error": "see the log"}\n')


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:9464"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "localhost@evil.example"},
        {"Host": ""},
        {"Host": "[::1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1.evil.example:9464"},
        {"Host": "evil.example", "Origin": "http://localhost"},
    ],
)
def test_a_page_of_another_site_reads_nothing_even_when_its_name_points_here(headers: dict[str, str]) -> None:
    with answering(Patient()) as endpoints:
        for path in ("/health", "/ready", "/metrics", "/status", "/"):
            status, body, _ = ask(endpoints, path, **headers)
            assert status == 403
            assert b"active" not in body


@pytest.mark.parametrize("host", ["localhost:9464", "127.0.0.1", "[::1]:9464", "LOCALHOST", "lake.example:80"])
def test_its_own_names_and_those_that_are_allowed_are_answered(host: str) -> None:
    with answering(Patient(), allowed=("lake.example", " ")) as endpoints:
        assert ask(endpoints, "/status", Host=host, Origin=f"http://{host}")[0] == 200


def test_every_name_is_answered_where_that_was_asked_for() -> None:
    with answering(Patient(), allowed=("*",)) as endpoints:
        assert ask(endpoints, "/status", Host="anything", Origin="http://evil.example")[0] == 200


@pytest.mark.parametrize("text", ["", "9464", ":9464", "localhost", "localhost:", "localhost:x", "localhost:65536", "localhost:-1", "::1"])
def test_an_invalid_address_is_refused_with_its_text(text: str) -> None:
    if text == "::1":  # the last part could be a port: what it means is for the socket to say
        assert parse_address(text) == Address(host=":", port=1)
        return
    with pytest.raises(InvalidValueError, match="listen="):
        parse_address(text)


def test_an_address_that_is_taken_is_a_typed_error() -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InvalidValueError, match="cannot be bound"):
            Endpoints(Address(host="127.0.0.1", port=taken.getsockname()[1]))


def test_a_watcher_that_says_nothing_does_not_hold_up_the_others_or_a_stop() -> None:
    before = set(threading.enumerate())
    with answering(Patient()) as endpoints, closing(socket.create_connection((endpoints.address.host, endpoints.address.port))):
        assert ask(endpoints, "/health")[0] == 200
    assert not any(t.name == "lakebed-http" for t in set(threading.enumerate()) - before)
