"""Peak memory of a process that does nothing but plan, or commit, in a registry that ours.py has filled: plan | commit."""

from pathlib import Path

import adapter
from harness import emit, peak_memory_mb, run_step


def plan(warehouse: Path, *, url: str, peer: str, files: int) -> None:
    registry = adapter.open_registry(url, warehouse)
    planned = adapter.plan_all(registry)
    assert len(planned) == files
    emit(peer, "memory", "plan", peak_memory_mb(), "MB", n=files)
    adapter.close_registry(registry)


def commit(warehouse: Path, *, url: str, peer: str, files: int, singles: int) -> None:
    registry = adapter.open_registry(url, warehouse)
    for number in range(files, files + singles):
        adapter.register_one(registry, number)
    emit(peer, "memory", "commit", peak_memory_mb(), "MB", n=files, commits=singles)
    adapter.close_registry(registry)


if __name__ == "__main__":
    run_step({"plan": plan, "commit": commit})
