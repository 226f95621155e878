"""HTTP endpoints for monitoring: /health, /ready, /metrics, /status. They change nothing and answer only allowed host names."""

from __future__ import annotations

import ipaddress
import json
import logging
import socket
import threading
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from lakebed.core.errors import InvalidValueError

if TYPE_CHECKING:
    from collections.abc import Iterable

logger = logging.getLogger(__name__)

ANY_HOST = "*"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_JSON = "application/json; charset=utf-8"
_PORTS = 65536
_SOCKET_TIMEOUT_S = 10.0


class Watched(Protocol):
    """What the endpoints show. A problem is a sentence; empty means healthy."""

    def liveness_problem(self) -> str: ...

    def readiness_problem(self) -> str: ...

    def to_metrics(self) -> bytes: ...

    def to_status(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """`host:port`; port 0 lets the system choose."""
    host, _, port = text.strip().rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not bare or not port.isascii() or not port.isdigit() or int(port) >= _PORTS:
        message = f"listen={text!r} is not an address: write it as 127.0.0.1:9464"
        raise InvalidValueError(message)
    return Address(host=bare, port=int(port))


class Endpoints:
    """Serves in its own threads. Requests under a host name that is not allowed, or from a page of another site, are refused.

    Otherwise a page in a browser on this machine could read them by resolving its own name to 127.0.0.1.
    """

    def __init__(self, address: Address, *, allowed_hosts: Iterable[str] = ()) -> None:
        """Binds the address, so that an address in use is refused before anything else starts; nothing is answered before `start`."""
        self._watched: Watched | None = None
        self._names = frozenset(name.strip().lower() for name in (*_LOOPBACK, address.host, *allowed_hosts) if name.strip())
        self._server = _listen(self, address)
        host, port = self._server.server_address[:2]
        self.address = Address(host=str(host), port=int(port))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="lakebed-http", daemon=True)

    def start(self, watched: Watched) -> None:
        self._watched = watched
        self._thread.start()

    def close(self) -> None:
        """A second call does nothing."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def is_ours(self, host: str | None, origin: str | None) -> bool:
        """Judged by the headers of a request. An origin, which only browsers send, must be allowed too."""
        if ANY_HOST in self._names:
            return True
        return self._knows(host) and (origin is None or self._knows(urlsplit(origin).netloc))

    def answer(self, path: str) -> tuple[HTTPStatus, str, bytes]:
        """Status, content type and body."""
        assert self._watched is not None  # noqa: S101 - called only in the threads, after `start` has set it
        match path.partition("?")[0]:
            case "/health":
                return _verdict(self._watched.liveness_problem())
            case "/ready":
                return _verdict(self._watched.readiness_problem())
            case "/metrics":
                return HTTPStatus.OK, _TEXT, self._watched.to_metrics()
            case "/status":
                return HTTPStatus.OK, _JSON, _to_json(self._watched.to_status())
            case _:
                known = {"error": "not found", "paths": ["/health", "/ready", "/metrics", "/status"]}
                return HTTPStatus.NOT_FOUND, _JSON, _to_json(known)

    def _knows(self, netloc: str | None) -> bool:
        name = _host_of(netloc or "")
        return name is not None and name in self._names


class _Handler(BaseHTTPRequestHandler):
    endpoints: Endpoints
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "lakebed", ""
    timeout = _SOCKET_TIMEOUT_S

    def do_GET(self) -> None:
        self._reply(*self._find_answer())

    def do_HEAD(self) -> None:
        self._reply(*self._find_answer(), with_body=False)

    def _find_answer(self) -> tuple[HTTPStatus, str, bytes]:
        if not self.endpoints.is_ours(self.headers.get("Host"), self.headers.get("Origin")):
            refused = {"error": "this host or origin is not allowed: add it to the setting allowed_hosts"}
            return HTTPStatus.FORBIDDEN, _JSON, _to_json(refused)
        try:
            return self.endpoints.answer(self.path)
        except Exception:
            logger.exception("a request could not be answered", extra={"action": "http"})
            return HTTPStatus.INTERNAL_SERVER_ERROR, _JSON, _to_json({"error": "see the log"})

    def _reply(self, status: HTTPStatus, kind: str, body: bytes, *, with_body: bool = True) -> None:
        self.close_connection = True  # a thread per request, none of which waits for the next
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind), ("Content-Length", str(len(body))), ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"), ("Connection", "close"),
        ):  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the library's
        logger.debug("http", extra={"action": "http", "request": format % args})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a client that never finishes reading must not delay a stop

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the library's signature
        logger.debug("a connection was broken", extra={"action": "http"})


class _Server6(_Server):
    address_family = socket.AF_INET6


def _listen(endpoints: Endpoints, address: Address) -> _Server:
    handler = type("Handler", (_Handler,), {"endpoints": endpoints})
    kind = _Server6 if ":" in address.host else _Server
    try:
        return kind((address.host, address.port), handler)
    except OSError as exc:
        message = f"listen={address} cannot be bound ({exc.strerror or exc}): choose another address, or serve with --no-http"
        raise InvalidValueError(message) from exc


def _host_of(netloc: str) -> str | None:
    """The name without its port; addresses in canonical form."""
    try:
        name = urlsplit(f"//{netloc}").hostname
    except ValueError:
        return None
    if not name:
        return None
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name


def _verdict(problem: str) -> tuple[HTTPStatus, str, bytes]:
    status = HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK
    return status, _JSON, _to_json({"ok": not problem, "problem": problem})


def _to_json(value: Any) -> bytes:
    return json.dumps(value, default=str).encode() + b"\n"
