"""What a process holds on to: objects that a root keeps alive, descriptors, threads, memory."""

from __future__ import annotations

import gc
import sqlite3
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import psycopg
from sqlalchemy import Engine

if TYPE_CHECKING:
    from collections.abc import Sequence

# Of a thread only what others hold counts: its frame changes. Connections and engines bound their statements themselves.
_SHARED = (type, ModuleType, CodeType, FrameType, BuiltinFunctionType, threading.Thread, sqlite3.Connection, psycopg.Connection, Engine)


@dataclass(frozen=True, slots=True)
class Held:
    """Of this process, with the objects that `root` reaches, by type."""

    objects: Counter[str]
    descriptors: int
    threads: int

    @classmethod
    def of(cls, root: object) -> Held:
        return cls(count_reachable(root), len(list(Path("/proc/self/fd").iterdir())), threading.active_count())

    def gains_since(self, before: Held) -> dict[str, int]:
        """By type, the most first; what became fewer is left out."""
        return dict((self.objects - before.objects).most_common())


def count_reachable(root: object) -> Counter[str]:
    """Objects by type, each once. Modules, types and a function's globals belong to the program, not to the root."""
    seen: dict[int, object] = {}
    waiting = [root]
    while waiting:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, _SHARED):
            continue
        seen[id(found)] = found
        waiting += _references(found)
    return Counter(type(each).__name__ for each in seen.values())


def _references(found: Any) -> list[Any]:
    if isinstance(found, FunctionType):
        return [found.__closure__, found.__defaults__, found.__kwdefaults__]
    if isinstance(found, MethodType):
        return [found.__self__, found.__func__]
    return gc.get_referents(found)


@dataclass(frozen=True, slots=True)
class Sample:
    """Of another process, and of the registry's files."""

    memory_kb: int  # what is its own: program code that is mapped on first use is left out
    descriptors: int
    threads: int
    wal_bytes: int

    @classmethod
    def of(cls, pid: int, registry: Path | None) -> Sample:
        """`registry` is a file, or None where the database has its own log."""
        place = Path(f"/proc/{pid}")
        status = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines())
        logs = [] if registry is None else [*registry.parent.glob(f"{registry.stem}*-wal")]
        descriptors = len(list((place / "fd").iterdir()))
        return cls(int(status["RssAnon"].split()[0]), descriptors, int(status["Threads"]), sum(map(_size, logs)))


def middle(samples: Sequence[Sample]) -> Sample:
    """The median of each figure: one that is taken in the middle of a task stands for nothing."""
    columns = [[getattr(sample, name) for sample in samples] for name in Sample.__slots__]
    return Sample(*(int(median(column)) for column in columns))


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
