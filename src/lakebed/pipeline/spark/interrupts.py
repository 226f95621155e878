"""Ctrl-C during a Spark job: the job is cancelled and has ended before the interrupt is raised.

PySpark's own handler cancels over the connection that is waiting for the job's answer. That fails, the job
continues, and its files would appear after the writer has undone the write.
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
    """Around one Spark action. Handlers other than PySpark's are not replaced, nor are other threads affected, which get no signals."""
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
        with suppress(KeyboardInterrupt):  # it is raised where the caller waited for the job
            previous(number, frame)

    def handle(number: int, frame: FrameType | None) -> None:
        asked.set()
        threading.Thread(target=cancel, args=(number, frame), name="lakebed-cancel", daemon=True).start()

    return handle
