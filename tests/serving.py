"""A service in a process of its own, to be asked, stopped and killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

from lakebed.components.compactor import CompactorOptions
from lakebed.core.tasks import OFF, Task
from lakebed.lake import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# A process that is forked from one with everything imported starts in a moment: more of them can be killed
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "lakebed.testing",
        "lakebed.service",
        "lakebed.pipeline.views.merge",
        "lakebed.pipeline.spark.session",
        "lakebed.registry.schema.tables",
        "lakebed.iceberg.upkeep.dropping",
        "pyiceberg.table",
        "pyarrow.parquet",
        "psycopg",
        "pytest",
    ]
)
EVERY_SECOND = "* * * * * *"
BUSY = (Task.RECOVER, Task.COMPACT, Task.EXPIRE, Task.CLEAN)


@dataclass(frozen=True, slots=True)
class Served:
    """`lakebed serve`, and what it printed when it was up."""

    process: subprocess.Popen[str]
    reported: dict[str, Any]

    def ask(self, path: str) -> tuple[int, str]:
        with urlopen(Request(f"http://{self.reported['listen']}{path}"), timeout=30) as answer:
            return answer.status, answer.read().decode()

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ask("/status")[1])
        return found

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Exit code."""
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def serving(url: str, warehouse: Path, log: Path, *arguments: str, **variables: str) -> Iterator[Served]:
    """As a person starts it; the log goes to a file."""
    command = [sys.executable, "-m", "lakebed.cli.app", "serve", "--listen", "127.0.0.1:0", "--json", *arguments]
    names = {"LAKEBED_REGISTRY_URL": url, "LAKEBED_WAREHOUSE": str(warehouse), **variables}
    environment = {key: value for key, value in os.environ.items() if key != "LAKEBED_SERVICE"} | names
    with log.open("w") as stream:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stream, text=True, env=environment)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, log.read_text()
        yield Served(process, json.loads(line))
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(60)
        process.stdout.close()


def run_service(url: str, warehouse: str) -> None:
    """The life of one service that will be killed: everything that maintains runs every second."""
    for task in Task:
        os.environ[f"LAKEBED_SCHEDULE_{task.upper()}"] = EVERY_SECOND if task in BUSY else OFF
    eager = CompactorOptions(small_files=3, hot_s=0.0, pause_s=0.1)
    with connect(url, warehouse=warehouse, service="off", create=False) as lake, lake.service(compactor_options=eager):
        threading.Event().wait()


def warm_up() -> None:
    """The process that others are forked from imports everything with the first of them."""
    process = FORKS.Process(target=time.sleep, args=(0,))
    process.start()
    process.join(60)


def start_service(url: str, warehouse: Path) -> Any:
    process = FORKS.Process(target=run_service, args=(url, str(warehouse)), daemon=True)
    process.start()
    return process


def wait_until(condition: Callable[[], bool], *, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
