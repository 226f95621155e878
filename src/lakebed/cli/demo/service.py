"""A service in a process of its own, for the demo to kill: `python -m lakebed.cli.demo.service URL WAREHOUSE MICROSECONDS`."""

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
    """Runs until it is killed; says when it is active."""
    clock = FixedClock(from_micros(int(micros)))
    with connect(url, warehouse=warehouse, clock=clock, service="off", create=False) as lake, lake.service(maintenance=False):
        sys.stdout.write("active\n")
        sys.stdout.flush()
        threading.Event().wait()


@contextmanager
def running(url: str, warehouse: str, clock: FixedClock) -> Iterator[subprocess.Popen[str]]:
    """The process, once it is active; dead at the end of the block."""
    command = [sys.executable, "-m", "lakebed.cli.demo.service", url, warehouse, str(clock())]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own module and our own lake
    try:
        assert child.stdout is not None  # noqa: S101 - it was asked for
        child.stdout.readline()
        yield child
    finally:
        child.kill()
        child.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
