"""Compares the files of a place without a marker with a registry, before the place becomes the registry's warehouse."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakebed.core.errors import FileMissingError, NotAFileError, PathRefusedError, RegistryRefusedError, StorageUnavailableError
from lakebed.legacy.files import find_path
from lakebed.legacy.source import open_legacy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.registry.registry import Registry
    from lakebed.storage.protocol import Storage

MAX_COMPARED = 10_000
_PAGE = 1000
_LEAST_SHARE = 0.9  # some files may be lost: `check` names them, once the place can be opened
_COUNT = "SELECT count(*) FROM table_files WHERE retired_seq IS NULL"
_FILES = "SELECT id, file_path, file_size FROM table_files WHERE retired_seq IS NULL AND id > :after ORDER BY id LIMIT :size"
_ABSENT = (
    FileMissingError,
    NotAFileError,
    PathRefusedError,
    StorageUnavailableError,
)  # without a marker, the check ends at the first missing file


@dataclass(slots=True)
class _Comparison:
    """Looks below one root for files that a registry names."""

    storage: Storage
    shown_url: str
    total: int
    compared: int = 0
    differing: list[str] = field(default_factory=list)

    def take(self, number: int, path: str, size: int) -> None:
        """An even sample if there are many."""
        if number % max(1, self.total // MAX_COMPARED) == 0:
            self.compared += 1
            if not self._is_there(path, size):
                self.differing.append(path)

    def require_enough(self) -> int:
        if not self.compared:
            message = (
                f"{self.shown_url} names no file, so whether {self.storage.paths.root} is its warehouse is unknown: give an empty place"
            )
            raise RegistryRefusedError(message)
        if self.compared - len(self.differing) < self.compared * _LEAST_SHARE:
            raise RegistryRefusedError(
                f"{self.storage.paths.root} does not hold the files of {self.shown_url}: {len(self.differing)} of {self.compared} compared are "
                f"missing there or have another size, such as {self.differing[0]}; nothing was changed: give the place where the files are"
            )
        return self.compared

    def _is_there(self, path: str, size: int) -> bool:
        try:
            return self.storage.stat(path).size_bytes == size
        except _ABSENT:
            return False


def require_own_files(registry: Registry, storage: Storage) -> int:
    """Live files of the registry are below the root with their sizes, nearly all of those compared; how many were compared."""
    comparison = _Comparison(storage, registry.backend.shown_url, int(registry.query(_COUNT)[0][0]))
    for number, (path, size) in enumerate(_list_live(registry)):
        if not storage.paths.is_canonical(path):
            message = f"{registry.backend.shown_url} names {path}, which is outside {storage.paths.root}; nothing was changed: give the directory that holds all files of the registry"
            raise RegistryRefusedError(message)
        comparison.take(number, path, size)
    return comparison.require_enough()


def require_legacy_files(url: str, storage: Storage, *, timeout_s: float = 30.0) -> int:
    """The same check for files that an older lake's registry names below its root."""
    with open_legacy(url, timeout_s=timeout_s) as source:
        files, shown = source.list_sizes(), source.shown_url
    comparison = _Comparison(storage, shown, len(files))
    for number, (stored, size) in enumerate(files):
        comparison.take(number, _path_of(storage, stored), size)
    return comparison.require_enough()


def _list_live(registry: Registry) -> Iterator[tuple[str, int]]:
    after = 0
    while page := registry.query(_FILES, {"after": after, "size": _PAGE}):
        yield from ((path, size) for _, path, size in page)
        after = page[-1][0]


def _path_of(storage: Storage, stored: str) -> str:
    try:
        return find_path(storage, storage.paths.root, stored)
    except PathRefusedError:
        return stored  # which no storage opens
