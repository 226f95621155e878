"""The child process that reads foreign footers: confined before it reads the first byte.

Started by lakebed.parquet.foreign.sandbox, never imported by the parent's own work.
"""

from __future__ import annotations

import io
import math
import os
import resource
import sys
from pathlib import Path
from typing import IO

from lakebed.core.errors import CorruptionError, FooterCorruptError, FooterRowsError
from lakebed.parquet.footer.framing import TRAILER_BYTES, find_meta
from lakebed.parquet.footer.upgrade import list_pointers
from lakebed.parquet.foreign import protocol
from lakebed.parquet.inspect import PYARROW_ERRORS, Inspection, inspect
from lakebed.parquet.pages import find_damage
from lakebed.parquet.schema.match import forget_layouts, walk_nodes
from lakebed.parquet.schema.problems import find_problems
from lakebed.parquet.schema.tree import decode_schema

_STATM = Path("/proc/self/statm")
_STANDARD_STREAMS = 3
_MIB = 1 << 20


def main() -> None:
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    if (first := protocol.read_frame(source)) is None:
        return
    job = protocol.decode_job(first)
    confine(job.memory_bytes)
    protocol.write_frame(sink, protocol.READY)
    while (item := protocol.read_frame(source)) is not None:
        file_bytes, seconds, tail = protocol.decode_file(item)
        _allow_cpu(seconds)
        file = _AskedFile(source, sink, file_bytes) if job.decodes_pages else None
        protocol.write_frame(sink, _limited(protocol.encode_answer(answer(tail, job, file_bytes=file_bytes, file=file))))
        forget_layouts()  # the columns of one file must not use up the memory of the next
        find_problems.cache_clear()


def confine(memory_bytes: int) -> None:
    """No more memory than `memory_bytes`, no file, no socket, no core dump."""
    if _STATM.exists():
        mapped = int(_STATM.read_text().split()[0]) * resource.getpagesize()
        # What is mapped bounds what is resident. Where libraries alone map that much, a quarter is left to work with.
        _limit(resource.RLIMIT_AS, max(memory_bytes, mapped + memory_bytes // 4))
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_NOFILE, _STANDARD_STREAMS)


def answer(tail: bytes, job: protocol.Job, *, file_bytes: int, file: _AskedFile | None = None) -> protocol.Answer:
    """What `job` wants to know of one tail; the form is proven by our own walker before pyarrow looks. With `file`, its pages are decoded."""
    try:
        found = _refusal(tail, job) or _inspect(tail, job, file_bytes)
        damage = find_damage(file, tail, limits=job.parse) if file is not None and isinstance(found, Inspection) else None
    except MemoryError:
        return protocol.OverLimit(limit=f"{job.memory_bytes // _MIB} MiB of memory", is_memory=True)
    except FooterRowsError as exc:
        return protocol.Unreadable(reason=f"its row groups hold {exc.footer_rows} rows, its file level says {exc.registry_rows}")
    except FooterCorruptError as exc:
        return protocol.Unreadable(reason=str(exc), row_group=exc.row_group, column=exc.column)
    except CorruptionError as exc:
        return protocol.Unreadable(reason=str(exc))
    except PYARROW_ERRORS as exc:
        return protocol.Unreadable(reason=f"its footer contradicts itself ({type(exc).__name__})")
    if damage is not None:
        return protocol.Unreadable(reason=f"it cannot be decoded: {damage}", row_group=damage.row_group, column=damage.column)
    return found


def _inspect(tail: bytes, job: protocol.Job, file_bytes: int) -> Inspection:
    pointers = list_pointers(find_meta(tail))
    return inspect(tail, job.schema, spec=job.spec, limits=job.parse, file_bytes=file_bytes, pointers=pointers)


def _refusal(tail: bytes, job: protocol.Job) -> protocol.Answer | None:
    meta = find_meta(tail)
    if len(meta) + TRAILER_BYTES != len(tail):
        return protocol.Unreadable(reason="its tail does not begin with the metadata")
    columns = sum(1 for _ in walk_nodes(decode_schema(meta).children))
    return protocol.OverLimit(limit=f"{job.parse.container_items} columns") if columns > job.parse.container_items else None


class _AskedFile(io.RawIOBase):
    """The file whose tail is looked at, read through the parent: this process can open nothing itself."""

    def __init__(self, source: IO[bytes], sink: IO[bytes], size_bytes: int) -> None:
        super().__init__()
        self._source, self._sink, self._size, self._position = source, sink, size_bytes, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        return self._position

    def read(self, size: int = -1) -> bytes:
        left = self._size - self._position
        wanted = left if size < 0 else min(size, left)
        parts = []
        while wanted > 0 and (part := self._ask(min(wanted, protocol.MAX_RANGE))):
            parts.append(part)
            wanted -= len(part)
        return b"".join(parts)

    def _ask(self, length: int) -> bytes:
        protocol.write_frame(self._sink, protocol.encode_range(protocol.Range(offset=self._position, length=length)))
        part = protocol.read_frame(self._source) or b""
        self._position += len(part)
        return part


def _limited(payload: bytes) -> bytes:
    return (
        payload
        if len(payload) <= protocol.MAX_ANSWER
        else protocol.encode_answer(protocol.OverLimit(limit=f"{protocol.MAX_ANSWER} bytes of statistics"))
    )


def _allow_cpu(seconds: float) -> None:
    """The wall clock is the parent's; this ends a spin even when the parent is gone."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = math.ceil(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _limit(what: int, value: int) -> None:
    _, hard = resource.getrlimit(what)
    lowest = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (lowest, lowest))


if __name__ == "__main__":
    main()
