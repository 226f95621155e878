"""Files that others wrote, inspected in a process of its own that may crash."""

from __future__ import annotations

import hashlib
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self, TypeAlias

import pyarrow as pa

from lakebed.core.errors import FileChangedError, LakebedError, LimitExceededError, UnavailableError, UnreadableFileError
from lakebed.core.files import Verify
from lakebed.parquet.footer.framing import MAX_FOOTER_BYTES, TRAILER_BYTES
from lakebed.parquet.foreign import protocol
from lakebed.parquet.inspect import DEFAULT, UNKNOWN_BYTES, Inspection, ParseLimits, StatisticsSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lakebed.core.schema.schema import Schema

ReadRange: TypeAlias = "Callable[[int, int], bytes]"

_MIB = 1 << 20
_CHUNK = 1 << 20
_DYING_SECONDS = 1.0
# -I keeps the working directory and PYTHONPATH out; so the places of our two packages are named, in front of what else is installed:
# parent and worker must be of one version.
_BOOT = (
    "import sys; places = [n for n, p in enumerate(sys.path) if p.endswith('-packages')]; at = min(places, default=len(sys.path)); "
    "sys.path[at:at] = sys.argv[1:]; from lakebed.parquet.foreign.worker import main; main()"
)
_ROOTS = (str(Path(__file__).parents[2]), str(Path(pa.__file__).parents[1]))
_KEPT_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "LC_ALL")  # and so no credentials
# The system's allocator honours the address limit; the others reserve far more than they use.
_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignFile:
    """A file that another program wrote; `tail` as read_tail gave it, `size_bytes` of the whole file."""

    path: str
    tail: bytes = field(repr=False)
    size_bytes: int = UNKNOWN_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """What one foreign file may cost. `seconds` begin when the worker is ready.

    Where pages are decoded, `page_seconds` and `page_memory_bytes` stand in their place, and each megabyte adds a second.
    """

    seconds: float = 2.0
    memory_bytes: int = 512 * _MIB
    page_seconds: float = 120.0
    page_memory_bytes: int = 2048 * _MIB
    footer_bytes: int = MAX_FOOTER_BYTES
    start_seconds: float = 30.0
    parse: ParseLimits = field(default=ParseLimits())


_LIMITS = WorkerLimits()


def inspect_isolated(
    items: Sequence[ForeignFile], schema: Schema, *, spec: StatisticsSpec = DEFAULT, limits: WorkerLimits = _LIMITS
) -> list[Inspection | LakebedError]:
    """One answer per file, in order; a file that crashes, hangs or bloats the worker loses only its own answer.

    Raises UnavailableError when no worker can be started.
    """
    with Inspector(schema, spec=spec, limits=limits) as inspector:
        return [inspector.inspect(item) for item in items]


class _End(Enum):
    """How an exchange can fail."""

    TIMED_OUT = "timed out"
    DIED = "died"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    answer: protocol.Answer
    is_doubtful: bool = False  # it may be the fault of a file before this one


class Inspector:
    """Keeps one worker alive and replaces it when a file has ended it; none is started before the first file."""

    def __init__(
        self, schema: Schema, *, spec: StatisticsSpec = DEFAULT, limits: WorkerLimits = _LIMITS, verify: Verify = Verify.FOOTER
    ) -> None:
        self._decodes_pages = verify is Verify.PAGES
        self._memory_bytes = limits.page_memory_bytes if self._decodes_pages else limits.memory_bytes
        job = protocol.Job(schema=schema, spec=spec, parse=limits.parse, memory_bytes=self._memory_bytes, decodes_pages=self._decodes_pages)
        self._job, self._limits = protocol.encode_job(job), limits
        self._worker: _Worker | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def inspect(self, item: ForeignFile, *, read: ReadRange | None = None) -> Inspection | LakebedError:
        """`read(offset, length)` gives bytes of the file, for pages to be decoded; what it raises is the answer."""
        if len(item.tail) > self._limits.footer_bytes + TRAILER_BYTES:
            return LimitExceededError(item.path, limit=f"{self._limits.footer_bytes} bytes of footer")
        is_fresh = self._worker is None
        try:
            outcome = self._ask(item, read)
            if outcome.is_doubtful and not is_fresh:
                outcome = self._ask(item, read)  # only a fresh worker convicts
        except _ReadFailedError as exc:
            self._stop()
            return exc.error
        return _verdict(item.path, outcome.answer)

    def _ask(self, item: ForeignFile, read: ReadRange | None) -> _Outcome:
        worker = self._worker = self._worker or _Worker(self._job, self._limits.start_seconds)
        seconds = self._seconds_for(item)
        deadline = time.monotonic() + seconds
        reply = worker.exchange(protocol.encode_file(item.tail, file_bytes=item.size_bytes, seconds=seconds), seconds)
        while isinstance(reply, bytes) and (wanted := protocol.find_range(reply)) is not None:
            reply = worker.exchange(_read(read, item, wanted), deadline - time.monotonic())
        if reply is _End.TIMED_OUT:
            self._stop()
            return _Outcome(answer=self._too_slow(seconds))
        if reply is _End.DIED:
            return _Outcome(answer=self._explain(self._stop(grace_seconds=_DYING_SECONDS), seconds), is_doubtful=True)
        answer = _decode(reply, item.tail)
        if isinstance(answer, protocol.OverLimit) and answer.is_memory:
            self._stop()  # what a refused allocation leaves behind is nothing to build on
            return _Outcome(answer=answer, is_doubtful=True)
        return _Outcome(answer=answer)

    def _seconds_for(self, item: ForeignFile) -> float:
        return self._limits.page_seconds + item.size_bytes / 1e6 if self._decodes_pages else self._limits.seconds

    def _too_slow(self, seconds: float) -> protocol.Answer:
        return protocol.OverLimit(limit=f"{seconds:.3g} s of {'decoding' if self._decodes_pages else 'inspection'}")

    def _explain(self, status: int, seconds: float) -> protocol.Answer:
        if status == -signal.SIGXCPU:
            return self._too_slow(seconds)
        if status == -signal.SIGKILL:  # not ours: the kernel was out of memory
            return protocol.OverLimit(limit=f"{self._memory_bytes // _MIB} MiB of memory")
        doing = "decoding it" if self._decodes_pages else "reading its footer"
        return protocol.Unreadable(reason=f"{doing} crashes the reader ({_name(status)})")

    def _stop(self, *, grace_seconds: float = 0) -> int:
        worker, self._worker = self._worker, None
        return worker.stop(grace_seconds=grace_seconds) if worker is not None else 0


class _ReadFailedError(Exception):
    """The file could not be read for the worker, which now waits for bytes that never come."""

    def __init__(self, error: LakebedError) -> None:
        super().__init__(str(error))
        self.error = error


def _read(read: ReadRange | None, item: ForeignFile, wanted: protocol.Range) -> bytes:
    if read is None or wanted.length > protocol.MAX_RANGE or wanted.offset + wanted.length > item.size_bytes:
        raise _ReadFailedError(UnreadableFileError(item.path, reason="its pages confuse the reader"))
    try:
        found = read(wanted.offset, wanted.length)
    except LakebedError as exc:
        raise _ReadFailedError(exc) from exc
    if len(found) != wanted.length:
        raise _ReadFailedError(FileChangedError(item.path, reason="its size changed while it was read"))
    return found


def _verdict(path: str, answer: protocol.Answer) -> Inspection | LakebedError:
    match answer:
        case Inspection():
            return answer
        case protocol.Unreadable(reason=reason, row_group=row_group, column=column):
            return UnreadableFileError(path, reason=reason, row_group=row_group, column=column)
        case protocol.OverLimit(limit=limit):
            return LimitExceededError(path, limit=limit)


def _decode(reply: bytes, tail: bytes) -> protocol.Answer:
    try:
        return protocol.decode_answer(reply, tail=tail, checksum=hashlib.sha256(tail).hexdigest())
    except protocol.MalformedAnswerError:
        return protocol.Unreadable(reason="its footer confuses the reader")


def _name(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"exit code {status}"


class _Worker:
    """One child process and its two pipes; ready for tails when it is constructed."""

    def __init__(self, job: bytes, start_seconds: float) -> None:
        environment = _ENVIRONMENT | {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter, our own code
                [sys.executable, "-I", "-c", _BOOT, *_ROOTS],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                cwd="/", env=environment, bufsize=0,
            )  # fmt: skip
        except OSError as exc:
            message = f"no process could be started to inspect foreign files: {exc}"
            raise UnavailableError(message) from exc
        self._to, self._from = _descriptor(self._process.stdin), _descriptor(self._process.stdout)
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)
        if (reply := self.exchange(job, start_seconds)) != protocol.READY:
            how = reply.value if isinstance(reply, _End) else "answered nonsense"
            message = f"the process that inspects foreign files did not start: it {how} (status {self.stop()})"
            raise UnavailableError(message)

    @property
    def pid(self) -> int:
        return self._process.pid

    def exchange(self, payload: bytes, seconds: float) -> bytes | _End:
        """Send one frame and wait for one, no longer than `seconds` in all."""
        deadline = time.monotonic() + seconds
        unsent = memoryview(protocol.pack(payload))
        received = bytearray()
        while (wanted := protocol.frame_length(received)) is None or len(received) < wanted:
            if wanted is not None and wanted > protocol.MAX_FRAME:
                return _End.DIED  # the pipe no longer holds whole frames
            descriptors = self._wait(deadline, is_sending=bool(unsent))
            if not descriptors:
                return _End.TIMED_OUT
            try:
                unsent = unsent[os.write(self._to, unsent[:_CHUNK]) :] if self._to in descriptors else unsent
                chunk = os.read(self._from, _CHUNK) if self._from in descriptors else None
            except OSError:
                return _End.DIED
            if chunk == b"":
                return _End.DIED
            received += chunk or b""
        return protocol.payload_of(received)

    def stop(self, *, grace_seconds: float = 0) -> int:
        """End the process; how it ended (negative: by which signal). One that is dying gets a moment to say why."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            return self._process.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _wait(self, deadline: float, *, is_sending: bool) -> set[int]:
        """The pipes that can be used now; empty when the time is over."""
        poll = select.poll()
        poll.register(self._from, select.POLLIN)
        if is_sending:
            poll.register(self._to, select.POLLOUT)
        left = deadline - time.monotonic()
        return {descriptor for descriptor, _ in poll.poll(left * 1000)} if left > 0 else set()


def _descriptor(pipe: IO[bytes] | None) -> int:
    if pipe is None:
        message = "the process that inspects foreign files has no pipe"
        raise UnavailableError(message)
    return pipe.fileno()
