"""Storage in a directory of this host."""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from lakebed.core.errors import FileMissingError, InvalidValueError, LakebedError, PathRefusedError, StorageUnavailableError
from lakebed.storage import descriptors
from lakebed.storage.delete_many import DELETED, MISSING, delete_each
from lakebed.storage.descriptors import DirectoryCursor
from lakebed.storage.errors import translate
from lakebed.storage.paths import MARKER_NAME, PathManager, Warehouse, has_scheme, is_local, normalize, require_clean
from lakebed.storage.protocol import MAX_MARKER_BYTES, DeleteOutcome, Deletion, FileFacts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakebed.storage.delete_many import Verdict

_DELETE_WORKERS = 4
_SMALLEST_DELETE_BATCH = 128
_HASH_CHUNK_BYTES = 1024 * 1024


def resolve_root(text: str) -> Warehouse:
    """The warehouse at a local path, relative to the working directory if need be; symlinks above it are resolved here, once."""
    require_clean(text)
    if not text:
        raise PathRefusedError(text, reason="it is empty; name a directory")
    location = normalize(text) if has_scheme(text) else text
    return Warehouse(root=normalize(os.path.realpath(location)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalStorage:
    """Every call walks from the root by descriptors that refuse symlinks, so it holds no open file between calls.

    Without `is_marked`: a directory that others own, where a missing file needs no marker to count as missing.
    """

    paths: PathManager
    is_marked: bool = True

    def canonical(self, path: str) -> str:
        if self.paths.is_canonical(path):
            return path
        return self.paths.canonical(self._spell_by_root(normalize(path)))

    def find_marker(self) -> bytes | None:
        try:
            return self._read(self.paths.marker, 0, MAX_MARKER_BYTES)
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise translate(exc, self.paths.marker, doing="read") from exc

    def is_unused(self) -> bool:
        with self._translated(self.paths.root, doing="list"), DirectoryCursor(self.paths.root) as cursor:
            entries = descriptors.list_entries(cursor.enter(self.paths.root))
        return all(name == MARKER_NAME or descriptors.is_scratch(name) for name, _ in entries)

    def clear_scratch(self) -> None:
        with self._translated(self.paths.root, doing="clear"), DirectoryCursor(self.paths.root) as cursor:
            self._require_marker()
            descriptors.clear_scratch(cursor.enter(self.paths.root))

    def stat(self, path: str) -> FileFacts:
        path = self.canonical(path)
        with self._translated(path, doing="look at"), DirectoryCursor(self.paths.root) as cursor:
            parent, name = cursor.enter_parent(path)
            return _describe(path, descriptors.stat_regular(path, name, parent))

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0:
            message = f"a range begins at 0 or later and has no negative length: {offset}, {length}"
            raise InvalidValueError(message)
        path = self.canonical(path)
        with self._translated(path, doing="read"):
            return self._read(path, offset, length)

    def read_files(self, wanted: Iterable[tuple[str, int]]) -> Iterator[bytes]:
        with DirectoryCursor(self.paths.root) as cursor:
            for spelled, length in wanted:
                path = self.canonical(spelled)
                with self._translated(path, doing="read"):
                    content = _read_at(cursor, path, 0, length)
                yield content

    def open_input(self, path: str) -> BinaryIO:
        path = self.canonical(path)
        with self._translated(path, doing="open"), DirectoryCursor(self.paths.root) as cursor:
            parent, name = cursor.enter_parent(path)
            return os.fdopen(descriptors.open_regular(path, name, parent), "rb")

    def create_exclusive(self, path: str, data: bytes) -> None:
        path = self.canonical(path)
        with self._translated(path, doing="create"), DirectoryCursor(self.paths.root) as cursor:
            if path != self.paths.marker:
                self._require_marker()  # else an unmounted disk's mount point would take the file
            parent, name = cursor.enter_parent(path, create=True)
            descriptors.create_whole(path, name, parent, data)

    def make_directory(self, directory: str) -> None:
        directory = self._canonical_directory(directory)
        with self._translated(directory, doing="create"), DirectoryCursor(self.paths.root) as cursor:
            self._require_marker()  # as for a file
            cursor.enter(directory, create=True)

    def require_writable(self, directory: str) -> None:
        there = self._canonical_directory(directory)
        while there != self.paths.root and not os.path.lexists(there):
            there = there.rpartition("/")[0]
        if not os.access(there, os.W_OK | os.X_OK, effective_ids=True):
            message = (
                f"the warehouse {self.paths.root} cannot be written by this process: {there!a} is read-only for it; give it permission on "
                "every directory of the warehouse, or mount the file system writable; nothing was written"
            )
            raise StorageUnavailableError(message)

    def replace_end(self, path: str, offset: int, data: bytes) -> None:
        path = self.canonical(path)
        with self._translated(path, doing="change"), DirectoryCursor(self.paths.root) as cursor:
            parent, name = cursor.enter_parent(path)
            descriptors.replace_end(path, name, parent, offset=offset, data=data)

    def copy(self, source: str, target: str) -> None:
        source, target = self.canonical(source), self.canonical(target)
        with (
            self._translated(source, doing="link"),
            DirectoryCursor(self.paths.root) as cursor,
            DirectoryCursor(self.paths.root) as below,
        ):
            parent, name = cursor.enter_parent(source)
            descriptors.stat_regular(source, name, parent)
            new_parent, new_name = below.enter_parent(target, create=True)
            descriptors.link(target, name, parent, new_name, new_parent)

    def sync(self, path: str) -> None:
        path = self.canonical(path)
        with self._translated(path, doing="sync"), DirectoryCursor(self.paths.root) as cursor:
            parent, name = cursor.enter_parent(path)
            with descriptors.closing_descriptor(descriptors.open_regular(path, name, parent)) as descriptor:
                descriptors.sync_descriptor(descriptor)

    def sync_tree(self, directory: str) -> None:
        directory = self._canonical_directory(directory)
        with self._translated(directory, doing="sync"), DirectoryCursor(self.paths.root) as cursor:
            descriptors.sync_tree(cursor.enter(directory))
            while directory != self.paths.root:
                directory = directory.rpartition("/")[0]
                descriptors.sync_descriptor(cursor.enter(directory))

    def sha256(self, path: str) -> str:
        with self.open_input(path) as source, self._translated(path, doing="read"):
            return hash_stream(source, chunk_bytes=_HASH_CHUNK_BYTES)

    def delete(self, paths: Sequence[str]) -> list[DeleteOutcome]:
        return delete_each(
            paths,
            resolve=self._resolve_deletable,
            delete_batch=self._unlink_all,
            workers=_DELETE_WORKERS,
            smallest_batch=_SMALLEST_DELETE_BATCH,
        )

    def delete_tree(self, directory: str) -> bool:
        directory = self.paths.require_operation_directory(self.canonical(directory))
        with self._translated(directory, doing="delete"), DirectoryCursor(self.paths.root) as cursor:
            if not _enter_if_there(cursor, directory):
                self._require_marker()
                return False
            parent, name = cursor.enter_parent(directory)
            descriptors.remove_tree(name, parent)
            return True

    def list_files(self, directory: str) -> Iterator[FileFacts]:
        return self._walk(self._canonical_directory(directory))

    def remove_empty_directories(self, paths: Sequence[str]) -> list[str]:
        one_each = {path.rpartition("/")[0]: path for path in paths}.values()  # neighbours share their directories
        candidates = {directory for path in one_each for directory in self._list_own_directories(path)}
        with DirectoryCursor(self.paths.root) as cursor:
            return [directory for directory in sorted(candidates, reverse=True) if _remove_if_empty(cursor, directory)]

    def _canonical_directory(self, path: str) -> str:
        return self.paths.canonical_directory(self._spell_by_root(normalize(path)))

    def _spell_by_root(self, location: str) -> str:
        """The same location below our root if it reaches the root through symlinks, else unchanged."""
        if not is_local(location) or self.paths.holds(location):
            return location
        above = ""
        for segment in location[1:].split("/"):
            above = f"{above}/{segment}"
            if os.path.realpath(above) == self.paths.root:
                return self.paths.root + location[len(above) :]
        return location

    def _resolve_deletable(self, path: str) -> str:
        return self.paths.require_not_marker(self.canonical(path))

    def _read(self, path: str, offset: int, length: int) -> bytes:
        with DirectoryCursor(self.paths.root) as cursor:
            return _read_at(cursor, path, offset, length)

    def _unlink_all(self, paths: Sequence[str]) -> list[Verdict]:
        with DirectoryCursor(self.paths.root) as cursor:
            return [self._unlink(cursor, path) for path in paths]

    def _unlink(self, cursor: DirectoryCursor, path: str) -> Verdict:
        try:
            parent, name = cursor.enter_parent(path)
            os.unlink(name, dir_fd=parent)
        except FileNotFoundError:
            return MISSING if self._has_marker() else (Deletion.FAILED, str(self._lost()))
        except OSError as exc:
            return Deletion.FAILED, str(translate(exc, path, doing="delete"))
        except PathRefusedError as exc:
            return Deletion.FAILED, str(exc)
        return DELETED

    def _walk(self, start: str) -> Iterator[FileFacts]:
        waiting = [start]
        with DirectoryCursor(self.paths.root) as cursor:
            while waiting:
                directory = waiting.pop()
                with self._translated(directory, doing="list"):
                    files, below = self._list_level(cursor, directory)
                yield from files
                waiting.extend(below)

    def _list_level(self, cursor: DirectoryCursor, directory: str) -> tuple[list[FileFacts], list[str]]:
        files: list[FileFacts] = []
        below: list[str] = []
        if not _enter_if_there(cursor, directory):
            self._require_marker()
            return files, below
        for name, found in descriptors.list_entries(cursor.enter(directory)):
            path = f"{directory}/{name}"
            if path == self.paths.marker or not self.paths.is_canonical(path):
                continue
            if stat.S_ISDIR(found.st_mode):
                below.append(path)
            elif stat.S_ISREG(found.st_mode):
                files.append(_describe(path, found))
        return files, below

    def _list_own_directories(self, path: str) -> Iterator[str]:
        """From the file's directory up to its operation's."""
        path = self.canonical(path)
        top = self.paths.find_operation_directory(path)
        while top is not None and path != top:
            path = path.rpartition("/")[0]
            yield path

    @contextmanager
    def _translated(self, path: str, *, doing: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as exc:
            self._require_marker()
            raise FileMissingError(path) from exc
        except OSError as exc:
            raise translate(exc, path, doing=doing) from exc

    def _require_marker(self) -> None:
        if not self._has_marker():
            raise self._lost()

    def _has_marker(self) -> bool:
        return not self.is_marked or os.path.lexists(self.paths.marker)

    def _lost(self) -> LakebedError:
        return StorageUnavailableError(
            f"the warehouse {self.paths.root} has no {MARKER_NAME}: mount it, or restore the marker; nothing in it counts as deleted"
        )


def hash_stream(source: BinaryIO, *, chunk_bytes: int) -> str:
    digest = hashlib.sha256()
    while chunk := source.read(chunk_bytes):
        digest.update(chunk)
    return digest.hexdigest()


def _read_at(cursor: DirectoryCursor, path: str, offset: int, length: int) -> bytes:
    parent, name = cursor.enter_parent(path)
    with descriptors.closing_descriptor(descriptors.open_regular(path, name, parent)) as descriptor:
        return descriptors.read_range(descriptor, offset, length)


def _describe(path: str, found: os.stat_result) -> FileFacts:
    return FileFacts(path=path, size_bytes=found.st_size, modified_micros=found.st_mtime_ns // 1000)


def _enter_if_there(cursor: DirectoryCursor, directory: str) -> bool:
    try:
        cursor.enter(directory)
    except FileNotFoundError:
        return False
    return True


def _remove_if_empty(cursor: DirectoryCursor, directory: str) -> bool:
    """A directory that stays costs nothing, so an error here is ignored."""
    try:
        parent, name = cursor.enter_parent(directory)
        os.rmdir(name, dir_fd=parent)
    except (OSError, PathRefusedError):
        return False
    return True
