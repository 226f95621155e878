from __future__ import annotations

import subprocess
import sys

import pytest

_OPEN = """
import sys
from lakebed.registry.open import open_registry
heartbeat = open_registry(sys.argv[1]).heartbeat
write = heartbeat.renewing("an operation", lease_us=3_600_000_000, renew=lambda *_: None)
write.__enter__()
while not heartbeat._wakes_at:
    pass
with heartbeat._changed:
    pass  # its thread waits for the time of the first renewal
"""


def test_a_process_may_end_inside_an_open_write(url: str) -> None:
    """The thread that renews the lease of a write that was never ended must not keep the process alive."""
    subprocess.run([sys.executable, "-c", _OPEN, url], check=True, timeout=60)


_END_AT_ONCE = """
import sys
from lakebed.registry.open import open_registry
write = open_registry(sys.argv[1]).heartbeat.renewing("an operation", lease_us=3_600_000_000, renew=lambda *_: None)
write.__enter__()
"""


@pytest.mark.parametrize("attempt", range(5))
def test_a_process_may_end_just_after_it_opened_a_write(url: str, attempt: int) -> None:  # noqa: ARG001 - the same again
    """Threads are frozen where they are when the interpreter ends, most times with the lock; the open write is closed after that."""
    subprocess.run([sys.executable, "-c", _END_AT_ONCE, url], check=True, timeout=60)
