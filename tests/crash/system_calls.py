"""Strikes a process at its n-th write-like system call: kills it there, or lets the call fail.

The child gives itself a seccomp filter that reports such calls to this process and holds them until it has answered
(seccomp_unotify(2), Linux 5.5 or newer). Threads and children of the child are under the same filter.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import select
import signal
import socket
import struct
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from killing import FORKS

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    Reporter = Callable[..., None]
    Body = Callable[[Reporter], None]


@dataclass(frozen=True, slots=True)
class SystemCall:
    """Its numbers on two kinds of machine; in which arguments its files are: a descriptor, a path, a path at a descriptor."""

    x86_64: int | None
    aarch64: int | None
    files: tuple[tuple[str, int], ...]
    flags_at: int | None = None  # the argument that says whether it creates or empties a file
    takes_room: bool = False


_FD, _PATH, _AT = ("fd", 0), ("path", 0), ("at", 0)
CALLS = {
    "write": SystemCall(1, 64, (_FD,), takes_room=True),
    "writev": SystemCall(20, 66, (_FD,), takes_room=True),
    "pwrite64": SystemCall(18, 68, (_FD,), takes_room=True),
    "pwritev": SystemCall(296, 70, (_FD,), takes_room=True),
    "pwritev2": SystemCall(328, 287, (_FD,), takes_room=True),
    "sendfile": SystemCall(40, 71, (_FD,), takes_room=True),
    "copy_file_range": SystemCall(326, 285, (("fd", 2),), takes_room=True),
    "fallocate": SystemCall(285, 47, (_FD,), takes_room=True),
    "ftruncate": SystemCall(77, 46, (_FD,)),
    "truncate": SystemCall(76, 45, (_PATH,)),
    "fsync": SystemCall(74, 82, (_FD,)),
    "fdatasync": SystemCall(75, 83, (_FD,)),
    "sync_file_range": SystemCall(277, 84, (_FD,)),
    "open": SystemCall(2, None, (_PATH,), flags_at=1, takes_room=True),
    "openat": SystemCall(257, 56, (_AT,), flags_at=2, takes_room=True),
    "creat": SystemCall(85, None, (_PATH,), takes_room=True),
    "mkdir": SystemCall(83, None, (_PATH,), takes_room=True),
    "mkdirat": SystemCall(258, 34, (_AT,), takes_room=True),
    "link": SystemCall(86, None, (_PATH, ("path", 1)), takes_room=True),
    "linkat": SystemCall(265, 37, (_AT, ("at", 2)), takes_room=True),
    "rename": SystemCall(82, None, (_PATH, ("path", 1))),
    "renameat": SystemCall(264, 38, (_AT, ("at", 2))),
    "renameat2": SystemCall(316, 276, (_AT, ("at", 2))),
    "unlink": SystemCall(87, None, (_PATH,)),
    "unlinkat": SystemCall(263, 35, (_AT,)),
    "rmdir": SystemCall(84, None, (_PATH,)),
    "sendto": SystemCall(44, 206, (_FD,)),
}
_SENDS = frozenset({"sendto"})

_MACHINE = platform.machine()
_AUDIT_ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_NUMBERS = {number: name for name, call in CALLS.items() if (number := getattr(call, _MACHINE, None)) is not None}
_CREATING = 0o100 | 0o1000 | 0o20000000  # O_CREAT, O_TRUNC, O_TMPFILE
_NO_NEW_PRIVILEGES, _DIE_WITH_PARENT = 38, 1
_SET_FILTER, _NEW_LISTENER = 1, 8
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_LOAD, _EQUALS, _HAS_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NOTE = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_GO_ON = 1
_AT_WORKING_DIRECTORY = -100
_LONGEST_PATH = 4096


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("value", ctypes.c_uint32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


def install_filter() -> int:
    """From now on this thread's write-like calls wait for an answer; returns the descriptor where they are reported."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = _write_program()
    program = _Program(len(code), (_Instruction * len(code))(*code))
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    listener = int(libc.syscall(_SECCOMP[_MACHINE], _SET_FILTER, _NEW_LISTENER, ctypes.byref(program)))
    if listener < 0:
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")
    return listener


def _write_program() -> list[_Instruction]:
    """For the kernel's filter machine; the call's number is at 0, its kind of machine at 4, its arguments from 16."""
    allow, notify = _Instruction(_RETURN, 0, 0, _ALLOW), _Instruction(_RETURN, 0, 0, _NOTIFY)
    code = [_Instruction(_LOAD, 0, 0, 4), _Instruction(_EQUALS, 1, 0, _AUDIT_ARCHES[_MACHINE]), allow, _Instruction(_LOAD, 0, 0, 0)]
    for number, name in _NUMBERS.items():
        if (at := CALLS[name].flags_at) is None:
            code += [_Instruction(_EQUALS, 0, 1, number), notify]
        else:
            flags = [_Instruction(_LOAD, 0, 0, 16 + 8 * at), _Instruction(_HAS_BIT, 0, 1, _CREATING), notify, allow]
            code += [_Instruction(_EQUALS, 0, len(flags), number), *flags]
    return [*code, allow]


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens at the call. `strike` gets the process; an answer that is not 0 is the error of the call. Killed: None."""

    name: str
    strike: Callable[[int], int | None]
    stays: bool = False  # the calls that follow fail too; without room only those that take room


def _kill(pid: int) -> None:
    os.killpg(pid, signal.SIGKILL)


KILL = Fault("kill", _kill)
IO_ONCE = Fault("EIO once", lambda _: errno.EIO)
IO_STAYS = Fault("EIO from then on", lambda _: errno.EIO, stays=True)
FULL_ONCE = Fault("ENOSPC once", lambda _: errno.ENOSPC)
FULL_STAYS = Fault("ENOSPC from then on", lambda _: errno.ENOSPC, stays=True)
NO_FAULT = Fault("nothing", lambda _: 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Which calls count: on files whose path begins with one of `roots`, and if wished what is sent through sockets."""

    roots: tuple[str, ...] = ()
    sends: bool = False


@dataclass(slots=True)
class Course:
    """How a watched process fared."""

    calls: list[str] = field(default_factory=list)  # those that count, by name and file
    reports: list[tuple[Any, ...]] = field(default_factory=list)
    exit_code: int | None = None
    struck: str | None = None  # the call at which the fault came

    @property
    def was_killed(self) -> bool:
        return self.exit_code == -signal.SIGKILL


class UnwatchableError(Exception):
    """The system does not let a process watch another one's system calls."""


def require_watchable() -> None:
    """Skip the test where the system does not let it watch."""
    try:
        watch_process(_do_nothing, Watch())
    except UnwatchableError as exc:
        pytest.skip(str(exc))


def _do_nothing(_: Reporter) -> None:
    """Only to see whether it can be watched."""


def watch_process(body: Body, watch: Watch, *, at: int = 0, fault: Fault = NO_FAULT, timeout_s: float = 120) -> Course:
    """Run `body` in a process of its own, and let `fault` happen at its call number `at` (from 1)."""
    if _MACHINE not in _SECCOMP:
        raise UnwatchableError(f"system calls have no known numbers on {_MACHINE}")
    ours, theirs = FORKS.Pipe()
    process = FORKS.Process(target=_live, args=(theirs, body))
    process.start()
    theirs.close()
    try:
        return _Watcher(process, _receive_listener(ours), ours, watch, at, fault).run(timeout_s)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()
        ours.close()


def _receive_listener(connection: Connection) -> int:
    with socket.socket(fileno=os.dup(connection.fileno())) as line:
        message, descriptors, _, _ = socket.recv_fds(line, 1000, 1)
    if not descriptors:
        raise UnwatchableError(message.decode())
    return descriptors[0]


def _live(connection: Connection, body: Body) -> None:
    """The life of the watched process. Its first message goes by a call that the filter lets pass: nobody answers yet."""
    os.setsid()
    with socket.socket(fileno=os.dup(connection.fileno())) as line:
        try:
            listener = install_filter()
        except OSError as exc:
            line.sendmsg([f"a seccomp filter with a listener was refused: {exc}".encode()])
            return
        socket.send_fds(line, [b"+"], [listener])
    os.close(listener)
    try:
        body(lambda *report: connection.send(report))
    except BaseException:
        connection.send(("raised", traceback.format_exc()))
        raise


class _Watcher:
    def __init__(self, process: BaseProcess, listener: int, reports: Connection, watch: Watch, at: int, fault: Fault) -> None:
        self._process, self._listener, self._reports = process, listener, reports
        self._watch, self._at, self._fault = watch, at, fault
        self._course = Course()

    def run(self, timeout_s: float) -> Course:
        poller = select.poll()
        for descriptor in (self._listener, self._reports.fileno(), self._process.sentinel):
            poller.register(descriptor, select.POLLIN)
        try:
            while True:
                ready = dict(poller.poll(timeout_s * 1000))
                assert ready, f"the watched process stands still after {self._course.calls[-3:]}"
                if self._reports.fileno() in ready and not self._take_report():
                    poller.unregister(self._reports.fileno())
                if ready.get(self._listener, 0) & select.POLLIN:
                    self._answer()
                elif self._listener in ready:
                    poller.unregister(self._listener)
                if self._process.sentinel in ready:
                    break
        finally:
            os.close(self._listener)
        while self._take_report():
            pass
        self._process.join()
        self._course.exit_code = self._process.exitcode
        return self._course

    def _take_report(self) -> bool:
        try:
            self._course.reports.append(self._reports.recv())
        except (EOFError, ConnectionResetError):
            return False
        return True

    def _answer(self) -> None:
        """Of a call that is in vain, because its process was killed, nobody waits for the answer."""
        note = bytearray(_NOTE.size)
        with suppress(FileNotFoundError):
            fcntl.ioctl(self._listener, _RECEIVE, note)
            cookie, pid, _, number, _, _, *arguments = _NOTE.unpack(note)
            if (error := self._judge(pid, _NUMBERS[number], arguments)) is not None:
                fcntl.ioctl(self._listener, _SEND, _ANSWER.pack(cookie, 0, -error, 0 if error else _GO_ON))

    def _judge(self, pid: int, name: str, arguments: list[int]) -> int | None:
        """The error that the call shall return, 0 for none; None: it shall never return."""
        if (target := self._find_target(pid, name, arguments)) is None:
            return 0
        self._course.calls.append(f"{name} {target}")
        reached = len(self._course.calls)
        if reached == self._at:
            self._course.struck = self._course.calls[-1]
            return self._fault.strike(self._process.pid or 0)
        if not self._fault.stays or not 0 < self._at < reached:
            return 0
        error = self._fault.strike(self._process.pid or 0)
        return 0 if error == errno.ENOSPC and not CALLS[name].takes_room else error

    def _find_target(self, pid: int, name: str, arguments: list[int]) -> str | None:
        if name in _SENDS:
            return "to the server" if self._watch.sends else None
        found = (_find_path(pid, kind, arguments[at:]) for kind, at in CALLS[name].files)
        return next((path for path in found if path.startswith(self._watch.roots)), None) if self._watch.roots else None


def _find_path(pid: int, kind: str, arguments: list[int]) -> str:
    """Empty where the call's descriptor or address is not one."""
    with suppress(OSError):
        if kind == "fd":
            return str(Path(f"/proc/{pid}/fd/{_signed(arguments[0])}").readlink())
        directory = _AT_WORKING_DIRECTORY if kind == "path" else _signed(arguments[0])
        base = f"/proc/{pid}/cwd" if directory == _AT_WORKING_DIRECTORY else f"/proc/{pid}/fd/{directory}"
        return os.path.normpath(Path(base).readlink() / _read_text(pid, arguments[kind == "at"]))
    return ""


def _read_text(pid: int, address: int) -> str:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:  # noqa: PTH123 - unbuffered, a page may end behind the text
        memory.seek(address)
        text = memory.read(_LONGEST_PATH - address % _LONGEST_PATH)
        if b"\0" not in text:
            text += memory.read(_LONGEST_PATH)
    return os.fsdecode(text.partition(b"\0")[0])


def _signed(argument: int) -> int:
    """The low half of a register, as the kernel takes a C int from it."""
    return ctypes.c_int32(argument & 0xFFFFFFFF).value
