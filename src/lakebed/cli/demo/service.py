"""A service in a separate process, for the demo to kill: `python -m lakebed.cli.demo.service URL WAREHOUSE MICROSECONDS`."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakebed.core.times import from_micros
from lakebed.lake import connect
from lakebed.testing import FixedClock

if TYPE_CHECKING:
    from collections.abc import Iterator


def main(url: str, warehouse: str, micros: str) -> None:
    """Runs until it is killed; prints when it is active."""
    clock = FixedClock(from_micros(int(micros)))
    with connect(url, warehouse=warehouse, clock=clock, service="off", create=False) as lake, lake.service(maintenance=False):
        sys.stdout.write("active\n")
        sys.stdout.flush()
        threading.Event().wait()


@contextmanager
def running(url: str, warehouse: str, clock: FixedClock) -> Iterator[subprocess.Popen[str]]:
    """The process, once it is active; it is killed at the end of the block."""
    command = [sys.executable, "-m", "lakebed.cli.demo.service", url, warehouse, str(clock())]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - Lakebed's own module and a lake of the demo
    try:
        assert child.stdout is not None  # noqa: S101 - stdout=PIPE was given
        child.stdout.readline()
        yield child
    finally:
        child.kill()
        child.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
