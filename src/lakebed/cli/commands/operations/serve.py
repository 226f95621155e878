"""The service: Astha, the components, maintenance, and what watches them, until the process receives a signal to stop."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli.rendering import out, print_json
from lakebed.cli.terminal import EXIT_UNAVAILABLE, URL, WAREHOUSE, AsJson, Url, Warehouse, errors, opened
from lakebed.settings import load_command_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.lake import Lake
    from lakebed.monitoring.endpoints import Endpoints
    from lakebed.service.service import Service
    from lakebed.settings import Settings

_LOOK_S = 1.0
_KILLED = 128
_M_ARENA_MAX, _ARENAS = -8, 2

Listen = Annotated[str | None, typer.Option("--listen", help="where HTTP is answered, as host:port; the setting `listen` unless given")]
NoHttp = Annotated[bool, typer.Option("--no-http", help="answer no HTTP")]
LogFormat = Annotated[str | None, typer.Option("--log-format", help="text or json; the setting `log_format` unless given")]


def serve(
    registry: Url = URL,
    warehouse: Warehouse = WAREHOUSE,
    listen: Listen = None,
    log_format: LogFormat = None,
    *,
    no_http: NoHttp = False,
    as_json: AsJson = False,
) -> None:
    """Run Astha, all components and maintenance until the process receives a signal to stop. Example: lakebed serve --listen 127.0.0.1:9464."""
    _share_freed_memory()
    stop = _stop_on_signals()
    with errors():
        settings = load_command_settings(registry_url=registry, warehouse=warehouse, listen=listen, log_format=log_format)
    with (
        _logging(settings),
        opened(registry, warehouse) as lake,
        _bound(settings, no_http=no_http) as at,
        lake.service() as service,
        _answering(at, service),
    ):
        _print_facts({"state": "active" if service.status().active else "standing by", **_places(lake, at)}, as_json=as_json)
        problem = _wait(stop, service)
        _print_facts({"state": "stopping", **_places(lake, at)}, as_json=as_json)
    if problem:
        raise typer.Exit(EXIT_UNAVAILABLE)


def _share_freed_memory() -> None:
    """Two arenas of glibc's malloc for all threads, unless MALLOC_ARENA_MAX says otherwise.

    By default there are eight per core, and what a thread frees in one is of no use to the others: the service would grow for hours.
    """
    if "MALLOC_ARENA_MAX" not in os.environ:
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)


def _stop_on_signals() -> threading.Event:
    """The first signal asks to stop, the second does not wait for it."""
    stop = threading.Event()

    def handle(number: int, _: object) -> None:
        if stop.is_set():
            os._exit(_KILLED + number)  # nothing is flushed: what was under way is recovered by the next process
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
    return stop


def _wait(stop: threading.Event, service: Service) -> str:
    """Until a signal, or until the service can no longer restart itself: then its supervisor may start it again."""
    while not stop.wait(_LOOK_S):
        if problem := service.liveness_problem():
            return problem
    return ""


@contextmanager
def _logging(settings: Settings) -> Iterator[None]:
    from lakebed.monitoring.logs import make_redactor, set_up_logs, take_down_logs  # noqa: PLC0415 - only here

    handler = set_up_logs(make_redactor(settings), kind=settings.log_format, level=settings.log_level)
    try:
        yield
    finally:
        take_down_logs(handler)


@contextmanager
def _bound(settings: Settings, *, no_http: bool) -> Iterator[Endpoints | None]:
    """The address is ours before the lease is: a process that cannot be watched does not become the active one."""
    from lakebed.monitoring.endpoints import Endpoints, parse_address  # noqa: PLC0415 - only here

    if no_http:
        yield None
        return
    with closing(Endpoints(parse_address(settings.listen), allowed_hosts=settings.allowed_hosts.split(","))) as endpoints:
        yield endpoints


@contextmanager
def _answering(endpoints: Endpoints | None, service: Service) -> Iterator[None]:
    if endpoints is None:
        yield
        return
    endpoints.start(service)
    try:
        yield
    finally:
        endpoints.close()


def _places(lake: Lake, endpoints: Endpoints | None) -> dict[str, Any]:
    return {
        "registry": lake.registry.backend.shown_url,
        "warehouse": lake.storage.paths.root,
        "listen": None if endpoints is None else str(endpoints.address),
    }


def _print_facts(facts: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    where = "" if facts["listen"] is None else f", http://{facts['listen']}/status"
    out().print(f"serving {facts['registry']}: {facts['state']}{where}", markup=False, soft_wrap=True)
