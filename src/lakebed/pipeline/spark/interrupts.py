"""Ctrl-C in the middle of a Spark job: the job is cancelled and has ended before the interrupt goes on.

PySpark's own handler asks the JVM to cancel over the connection that is waiting for the job's answer. That fails, the job
runs on, and its files would appear behind the back of the writer that undid them.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_PYSPARKS = "pyspark.core.context"


@contextmanager
def interruptible() -> Iterator[None]:
    """Around one Spark action. Handlers that are not PySpark's are left alone, and so are other threads, which get no signals."""
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or getattr(previous, "__module__", "") != _PYSPARKS:
        yield
        return
    asked = threading.Event()
    signal.signal(signal.SIGINT, _handler(previous, asked))
    try:
        yield
    except Exception as exc:
        if asked.is_set():
            raise KeyboardInterrupt from exc
        raise
    finally:
        signal.signal(signal.SIGINT, previous)
    if asked.is_set():
        raise KeyboardInterrupt


def _handler(previous: Any, asked: threading.Event) -> Callable[[int, FrameType | None], None]:
    def cancel(number: int, frame: FrameType | None) -> None:
        with suppress(KeyboardInterrupt):  # it is raised where the job was waited for
            previous(number, frame)

    def handle(number: int, frame: FrameType | None) -> None:
        asked.set()
        threading.Thread(target=cancel, args=(number, frame), name="lakebed-cancel", daemon=True).start()

    return handle
