"""The identity of the process that holds a lease, so that another process can prove that it has ended.

A process id alone proves nothing: containers share host names and have process ids of their own, hosts restart, and ids
are used again. Where the system has no /proc, a holder counts as alive until its lease expires.
"""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress
from pathlib import Path

_OWNER = re.compile(r"(?P<host>[^/]+)/(?P<pid>\d+)@(?P<started>\d+)\.(?P<space>[^/]+)/.*")
_START_TIME = 19  # of the fields behind the process's name in /proc/<pid>/stat


def make_owner(label: str) -> str:
    """Host, process and purpose; the process with its start time and the system that its id belongs to."""
    pid = os.getpid()
    started, space = _find_start(pid), _find_space()
    identity = f"@{started}.{space}" if started and space else ""
    return f"{socket.gethostname()}/{pid}{identity}/{label}"


def is_dead(owner: str) -> bool:
    """Whether the holder was a process of this very system and has ended; False wherever that cannot be proven."""
    found = _OWNER.fullmatch(owner)
    if found is None or found["host"] != socket.gethostname() or found["space"] != _find_space():
        return False
    pid = int(found["pid"])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _find_start(pid) not in ("", found["started"])


def _find_space() -> str:
    """The boot of the system and the namespace of process ids; empty where it does not say."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")
        namespace = "".join(filter(str.isdigit, os.readlink("/proc/self/ns/pid")))  # noqa: PTH115 - no path, a name such as pid:[4026531836]
        return f"{namespace}.{boot}" if boot and namespace else ""
    return ""


def _find_start(pid: int) -> str:
    """In ticks since the boot; empty where the system does not say. The name before it may hold anything, so it is cut off."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[_START_TIME]
    return ""
