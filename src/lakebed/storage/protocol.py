"""The guarantees of every storage, in a local directory or in an object store."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, BinaryIO, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakebed.storage.paths import PathManager

MAX_MARKER_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """What the storage says of one file. Object stores know times to the second and give an ETag; listings give none."""

    path: str
    size_bytes: int
    modified_micros: int
    etag: str | None = None


class Deletion(StrEnum):
    DELETED = "deleted"
    MISSING = "missing"  # nothing was there: as good as deleted
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOutcome:
    """What became of one path, spelled as the caller gave it; `reason` is empty unless it failed."""

    path: str
    result: Deletion
    reason: str = ""

    @property
    def gone(self) -> bool:
        return self.result is not Deletion.FAILED


class Storage(Protocol):
    """Bytes below one warehouse root. Every call takes any spelling of a path and refuses paths outside.

    A path that is not there is `FileMissingError` only while the warehouse's marker is there: an
    unmounted disk or a lost bucket is `StorageUnavailableError`, so that it is never mistaken for deleted files.
    """

    @property
    def paths(self) -> PathManager: ...

    def canonical(self, path: str) -> str:
        """The stored spelling; a local path may name the root through a symlink."""

    def find_marker(self) -> bytes | None:
        """What the root marker says, or None where there is none."""

    def is_unused(self) -> bool:
        """Whether nothing but a marker (or one in the making) is at the root."""

    def clear_scratch(self) -> None:
        """Delete what processes that died while they marked this warehouse left at its root: it has its marker, and needs no other."""

    def stat(self, path: str) -> FileFacts:
        """Of a regular file; anything else that is there is `NotAFileError`."""

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """`length` bytes from `offset`; fewer only where the file ends."""

    def read_files(self, wanted: Iterable[tuple[str, int]]) -> Iterator[bytes]:
        """Of each path at most the given number of bytes, in order: for many small files, whose directories are walked once."""

    def open_input(self, path: str) -> BinaryIO:
        """A seekable file that `pyarrow.parquet.ParquetFile` accepts; the caller closes it."""

    def create_exclusive(self, path: str, data: bytes) -> None:
        """A new file with exactly `data`, durable on return; `FileConflictError` when the path is taken."""

    def make_directory(self, directory: str) -> None:
        """An operation's directory and those above it; nothing where the storage has no directories."""

    def require_writable(self, directory: str) -> None:
        """Refuse, before anything is written, what this process may not write: the directory, or the nearest above it that is there.

        An object store is not asked: only a write shows what its keys allow.
        """

    def replace_end(self, path: str, offset: int, data: bytes) -> None:
        """Replace the bytes from `offset` on by `data`; for files of an operation that is not published. Refused where files cannot change."""

    def copy(self, source: str, target: str) -> None:
        """The same bytes under a second path (a hard link where the storage has them); `FileConflictError` when it is taken.

        Not synced: like files that an operation writes, it is made durable with its tree.
        """

    def sync(self, path: str) -> None:
        """The file's bytes survive a power failure."""

    def sync_tree(self, directory: str) -> None:
        """Every file and directory below, then the way up to the root, bottom-up: afterwards the tree can be found again."""

    def sha256(self, path: str) -> str:
        """Of the whole file, read as a stream."""

    def delete(self, paths: Sequence[str]) -> list[DeleteOutcome]:
        """One outcome per path, in their order; a failure does not stop the others.

        Not synced: a power failure may bring a file back, as an orphan for the sweep.
        """

    def delete_tree(self, directory: str) -> bool:
        """Delete an operation's directory and all below it; whether there was one."""

    def list_files(self, directory: str) -> Iterator[FileFacts]:
        """Regular files at any depth, in no promised order, symlinks neither followed nor listed; the marker is left out.

        What disappears meanwhile is skipped, and so are names that no canonical path can have.
        """

    def remove_empty_directories(self, paths: Sequence[str]) -> list[str]:
        """After a delete of `paths`: the directories that became empty, up to and including their operation's."""
