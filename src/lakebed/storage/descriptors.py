"""Walking below the root by directory descriptors, so that no symlink, not even one made meanwhile, can redirect a call."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Self

from lakebed.core.errors import FileConflictError, NotAFileError, PathRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# O_NONBLOCK: a FIFO put in the place of a file must not make us wait for its writer.
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_CHANGE_FLAGS = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_DIRECTORY_MODE, _FILE_MODE = 0o700, 0o600
_SCRATCH_SUFFIX = ".lakebed-tmp"
_NOT_A_DIRECTORY = frozenset({errno.ENOTDIR, errno.ELOOP})
_KINDS = {
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symbolic link",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


class DirectoryCursor:
    """Open descriptors from the root down to one directory; moving on reopens only what differs.

    Each step is opened relative to the one above and never through a symlink.
    """

    __slots__ = ("_at", "_descriptors", "_root", "_segments")

    def __init__(self, root: str) -> None:
        self._root = root
        self._segments: list[str] = []
        self._descriptors: list[int] = []
        self._at = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave(0)

    def enter(self, directory: str, *, create: bool = False) -> int:
        """The descriptor of a canonical directory, valid until the next move."""
        if self._at == directory and self._descriptors:
            return self._descriptors[-1]
        self._at = ""
        if not self._descriptors:
            self._descriptors.append(self._open_root())
        wanted = directory[len(self._root) + 1 :].split("/") if directory != self._root else []
        self._leave(1 + _count_common(self._segments, wanted))
        for segment in wanted[len(self._segments) :]:
            self._step(segment, directory, create=create)
        self._at = directory
        return self._descriptors[-1]

    def enter_parent(self, path: str, *, create: bool = False) -> tuple[int, str]:
        """The descriptor of the directory that holds `path`, and the name in it."""
        parent, _, name = path.rpartition("/")
        return self.enter(parent, create=create), name

    def _open_root(self) -> int:
        try:
            return os.open(self._root, _DIRECTORY_FLAGS)
        except OSError as exc:
            if exc.errno in _NOT_A_DIRECTORY:
                raise PathRefusedError(self._root, reason="the warehouse is not a directory, or was replaced by a symbolic link") from exc
            raise

    def _step(self, segment: str, directory: str, *, create: bool) -> None:
        above = self._descriptors[-1]
        if create:
            make_directory(segment, above)
        try:
            below = os.open(segment, _DIRECTORY_FLAGS, dir_fd=above)
        except OSError as exc:
            if exc.errno in _NOT_A_DIRECTORY:
                found = name_kind(os.stat(segment, dir_fd=above, follow_symlinks=False).st_mode)
                raise PathRefusedError(directory, reason=f"its part {segment!a} is a {found}, not a directory of the warehouse") from exc
            raise
        self._descriptors.append(below)
        self._segments.append(segment)

    def _leave(self, keep: int) -> None:
        while len(self._descriptors) > keep:
            os.close(self._descriptors.pop())
        del self._segments[max(keep - 1, 0) :]


def _count_common(left: list[str], right: list[str]) -> int:
    common = 0
    for ours, theirs in zip(left, right, strict=False):
        if ours != theirs:
            break
        common += 1
    return common


def name_kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "regular file")


def stat_regular(path: str, name: str, parent: int) -> os.stat_result:
    found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode):
        raise NotAFileError(path, found=name_kind(found.st_mode))
    return found


def open_regular(path: str, name: str, parent: int, *, flags: int = _READ_FLAGS) -> int:
    """Looked at before opening, because opening a device may do something, and after, because the name may be swapped between."""
    stat_regular(path, name, parent)
    try:
        descriptor = os.open(name, flags, dir_fd=parent)
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            raise NotAFileError(path, found=_KINDS[stat.S_IFLNK]) from exc
        raise
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise NotAFileError(path, found=name_kind(mode))
    return descriptor


def read_range(descriptor: int, offset: int, length: int) -> bytes:
    """A read may stop short of what was asked, so it goes on until the range or the file ends."""
    wanted = min(length, os.fstat(descriptor).st_size - offset)
    read = os.pread(descriptor, wanted, offset) if wanted > 0 else b""
    while read and len(read) < wanted and (more := os.pread(descriptor, wanted - len(read), offset + len(read))):
        read += more
    return read


def replace_end(path: str, name: str, parent: int, *, offset: int, data: bytes) -> None:
    with closing_descriptor(open_regular(path, name, parent, flags=_CHANGE_FLAGS)) as descriptor:
        os.ftruncate(descriptor, offset)
        os.lseek(descriptor, 0, os.SEEK_END)
        _write_all(descriptor, data)


def list_entries(directory: int) -> list[tuple[str, os.stat_result]]:
    """Names with what they are, symlinks not followed; what disappears meanwhile is left out."""
    found: list[tuple[str, os.stat_result]] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                found.append((entry.name, entry.stat(follow_symlinks=False)))
    return found


def make_directory(name: str, parent: int) -> None:
    """The directory exists afterwards; its entry is durable if this call made it."""
    with suppress(FileExistsError):
        os.mkdir(name, _DIRECTORY_MODE, dir_fd=parent)
        sync_descriptor(parent)


def create_whole(path: str, name: str, parent: int, data: bytes) -> None:
    """The file appears whole, durable and under a free name, or not at all.

    Written under a scratch name and linked, because a link fails on a taken name and a reader never sees half a file.
    """
    scratch = f".{secrets.token_hex(8)}{_SCRATCH_SUFFIX}"
    try:
        _write(scratch, parent, data)
        os.link(scratch, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
    except FileExistsError as exc:
        raise FileConflictError(path, reason="the path is already taken") from exc
    except FileNotFoundError as exc:  # removed by another process that saw a marker here
        raise FileConflictError(path, reason="another process created it first") from exc
    finally:
        _unlink_if_there(scratch, parent)
    sync_descriptor(parent)


def link(path: str, name: str, parent: int, new_name: str, new_parent: int) -> None:
    try:
        os.link(name, new_name, src_dir_fd=parent, dst_dir_fd=new_parent, follow_symlinks=False)
    except FileExistsError as exc:
        raise FileConflictError(path, reason="the path is already taken") from exc


def copy_target(name: str, parent: int) -> int:
    """A new file to write to; a taken name is refused."""
    return os.open(name, _CREATE_FLAGS, _FILE_MODE, dir_fd=parent)


def is_scratch(name: str) -> bool:
    return name.startswith(".") and name.endswith(_SCRATCH_SUFFIX)


def clear_scratch(directory: int) -> None:
    for name, found in list_entries(directory):
        if is_scratch(name) and stat.S_ISREG(found.st_mode):
            _unlink_if_there(name, directory)


def sync_descriptor(descriptor: int) -> None:
    """The only place that asks for durability. A failure is never retried: the kernel may have dropped the dirty pages."""
    os.fsync(descriptor)


def _write(name: str, parent: int, data: bytes) -> None:
    with closing_descriptor(os.open(name, _CREATE_FLAGS, _FILE_MODE, dir_fd=parent)) as descriptor:
        _write_all(descriptor, data)
        sync_descriptor(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_tree(directory: int) -> None:
    """Regular files and directories below, then the directory itself; links and special files are left out."""
    for name, found in list_entries(directory):
        if stat.S_ISDIR(found.st_mode):
            with closing_descriptor(os.open(name, _DIRECTORY_FLAGS, dir_fd=directory)) as below:
                sync_tree(below)
        elif stat.S_ISREG(found.st_mode):
            with closing_descriptor(os.open(name, _READ_FLAGS, dir_fd=directory)) as file:
                sync_descriptor(file)
    sync_descriptor(directory)


def remove_tree(name: str, parent: int) -> None:
    """Links are unlinked, never followed; what another process removes meanwhile counts as removed."""
    with suppress(FileNotFoundError):
        with closing_descriptor(os.open(name, _DIRECTORY_FLAGS, dir_fd=parent)) as directory:
            for child, found in list_entries(directory):
                if stat.S_ISDIR(found.st_mode):
                    remove_tree(child, directory)
                else:
                    _unlink_if_there(child, directory)
        os.rmdir(name, dir_fd=parent)


@contextmanager
def closing_descriptor(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _unlink_if_there(name: str, parent: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=parent)
