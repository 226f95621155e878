"""Storage in an S3 object store: no directories, no symlinks, nothing to sync."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, cast

from pyarrow import fs

from lakebed.core.errors import FileConflictError, FileMissingError, InvalidValueError, NotAFileError, StorageUnavailableError
from lakebed.core.times import to_micros
from lakebed.storage.delete_many import DELETED, MISSING, delete_each
from lakebed.storage.errors import translate
from lakebed.storage.local import hash_stream
from lakebed.storage.paths import MARKER_NAME, PathManager
from lakebed.storage.protocol import MAX_MARKER_BYTES, DeleteOutcome, Deletion, FileFacts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lakebed.storage.delete_many import Verdict
    from lakebed.storage.signing import ConditionalWriter

_DELETE_WORKERS = 4  # in each of the calls that a clean-up makes at once
_SMALLEST_DELETE_BATCH = 8
_HASH_CHUNK_BYTES = 8 * 1024 * 1024  # each chunk is one request


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStorage:
    """`writer` is there when credentials stand in the environment; without it `create_exclusive` only looks before it writes."""

    paths: PathManager
    client: Any  # pyarrow.fs.S3FileSystem: pyarrow publishes no types
    writer: ConditionalWriter | None

    def canonical(self, path: str) -> str:
        return self.paths.canonical(path)

    def find_marker(self) -> bytes | None:
        try:
            return self._read(self.paths.marker, 0, MAX_MARKER_BYTES)
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise translate(exc, self.paths.marker, doing="read") from exc

    def is_unused(self) -> bool:
        with self._translated(self.paths.root, doing="list"):
            entries = self._list(self.paths.root, recursive=False)
        return all(entry.base_name == MARKER_NAME for entry in entries)

    def clear_scratch(self) -> None:
        """An object appears whole: there is no scratch."""

    def stat(self, path: str) -> FileFacts:
        path = self.canonical(path)
        with self._translated(path, doing="look at"), self._open(path) as source:
            found = source.metadata()
            return FileFacts(
                path=path,
                size_bytes=source.size(),
                modified_micros=to_micros(datetime.fromisoformat(found["Last-Modified"].decode())),
                etag=found["ETag"].decode().strip('"'),
            )

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0:
            message = f"a range begins at 0 or later and has no negative length: {offset}, {length}"
            raise InvalidValueError(message)
        path = self.canonical(path)
        with self._translated(path, doing="read"):
            return self._read(path, offset, length)

    def read_files(self, wanted: Iterable[tuple[str, int]]) -> Iterator[bytes]:
        return (self.read_range(path, 0, length) for path, length in wanted)

    def open_input(self, path: str) -> BinaryIO:
        path = self.canonical(path)
        with self._translated(path, doing="open"):
            return cast("BinaryIO", self._open(path))

    def create_exclusive(self, path: str, data: bytes) -> None:
        """Exclusive in the store itself when `writer` is there.

        Otherwise it looks, writes and looks again: two callers in the same moment may both succeed, and
        the later bytes stay. Data files never meet there, because an operation's id is part of their path.
        """
        path = self.canonical(path)
        if not self._create(path, data):
            raise FileConflictError(path, reason="the path is already taken")

    def make_directory(self, directory: str) -> None:
        """A store has none."""

    def require_writable(self, directory: str) -> None:
        """Only a write can show it."""

    def replace_end(self, path: str, offset: int, data: bytes) -> NoReturn:  # noqa: ARG002 - as every storage is asked
        message = f"an object cannot be changed: {path}"
        raise InvalidValueError(message)

    def copy(self, source: str, target: str) -> None:
        """By the store itself; it looks for the target first, and only the operation itself writes below its id."""
        source, target = self.canonical(source), self.canonical(target)
        with self._translated(source, doing="copy"):
            if self.client.get_file_info(_key(target)).type is not fs.FileType.NotFound:
                raise FileConflictError(target, reason="the path is already taken")
            self.client.copy_file(_key(source), _key(target))

    def sync(self, path: str) -> None:
        """Nothing to do: an object is durable once its upload was answered."""

    def sync_tree(self, directory: str) -> None:
        """Nothing to do: an object is durable once its upload was answered."""

    def sha256(self, path: str) -> str:
        with self.open_input(path) as source, self._translated(path, doing="read"):
            return hash_stream(source, chunk_bytes=_HASH_CHUNK_BYTES)

    def delete(self, paths: Sequence[str]) -> list[DeleteOutcome]:
        return delete_each(
            paths,
            resolve=self.paths.require_deletable,
            delete_batch=self._delete_all,
            workers=_DELETE_WORKERS,
            smallest_batch=_SMALLEST_DELETE_BATCH,
        )

    def delete_tree(self, directory: str) -> bool:
        directory = self.paths.require_operation_directory(directory)
        with self._translated(directory, doing="delete"):
            try:
                self.client.delete_dir(_key(directory))
            except FileNotFoundError:
                self._require_marker()
                return False
        return True

    def list_files(self, directory: str) -> Iterator[FileFacts]:
        """One listing, held in memory."""
        directory = self.paths.canonical_directory(directory)
        with self._translated(directory, doing="list"):
            entries = self._list(directory, recursive=True)
        if not entries:
            self._require_marker()
        return (found for entry in entries if entry.is_file and (found := self._describe(entry)))

    def remove_empty_directories(self, paths: Sequence[str]) -> list[str]:
        """Removes the zero-byte placeholders that pyarrow leaves where the last file of a prefix was deleted."""
        found = {self.paths.find_operation_directory(path) for path in paths}
        return [directory for directory in sorted(filter(None, found)) if self._remove_if_empty(directory)]

    def _open(self, path: str) -> Any:
        try:
            return self.client.open_input_file(_key(path))
        except FileNotFoundError:
            if self.client.get_file_info(_key(path)).type == fs.FileType.Directory:
                raise NotAFileError(path, found="directory") from None
            raise

    def _read(self, path: str, offset: int, length: int) -> bytes:
        with self._open(path) as source:
            wanted = min(length, source.size() - offset)
            return bytes(source.read_at(wanted, offset)) if wanted > 0 else b""

    def _create(self, path: str, data: bytes) -> bool:
        if self.writer is not None:
            return self.writer.create(path, data)
        with self._translated(path, doing="create"):
            if self.client.get_file_info(_key(path)).type != fs.FileType.NotFound:
                return False
            with self.client.open_output_stream(_key(path)) as sink:
                sink.write(data)
            return self._read(path, 0, len(data) + 1) == data

    def _delete_all(self, paths: Sequence[str]) -> list[Verdict]:
        return [self._delete(path) for path in paths]

    def _delete(self, path: str) -> Verdict:
        try:
            self.client.delete_file(_key(path))
        except FileNotFoundError:
            return self._judge_missing(path)
        except OSError as exc:
            return Deletion.FAILED, str(translate(exc, path, doing="delete"))
        return DELETED

    def _judge_missing(self, path: str) -> Verdict:
        try:
            if self.client.get_file_info(_key(path)).type == fs.FileType.Directory:
                return Deletion.FAILED, str(NotAFileError(path, found="directory"))
            self._require_marker()
        except (OSError, StorageUnavailableError) as exc:
            return Deletion.FAILED, str(exc)
        return MISSING

    def _list(self, directory: str, *, recursive: bool) -> list[Any]:
        return list(self.client.get_file_info(fs.FileSelector(_key(directory), recursive=recursive, allow_not_found=True)))

    def _describe(self, entry: Any) -> FileFacts | None:
        path = f"s3://{entry.path}"
        if path == self.paths.marker or not self.paths.is_canonical(path):
            return None
        return FileFacts(path=path, size_bytes=entry.size, modified_micros=entry.mtime_ns // 1000)

    def _remove_if_empty(self, directory: str) -> bool:
        with self._translated(directory, doing="delete"):
            entries = self._list(directory, recursive=True)
            if any(entry.is_file for entry in entries):
                return False
            try:
                self.client.delete_dir(_key(directory))
            except FileNotFoundError:
                return False
            return True

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
        if self.find_marker() is None:
            message = f"{self.paths.marker!a} is not there: check bucket and endpoint, or restore it; nothing here counts as deleted"
            raise StorageUnavailableError(message)


def _key(path: str) -> str:
    return path.removeprefix("s3://")
