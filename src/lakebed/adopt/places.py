"""The places of foreign files: the warehouse itself, or a directory of this host that is not a warehouse."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from lakebed.core.errors import PathRefusedError
from lakebed.parquet.footer.framing import read_tail
from lakebed.parquet.foreign.infer import discover_columns
from lakebed.parquet.foreign.sandbox import ForeignFile
from lakebed.storage.local import LocalStorage
from lakebed.storage.paths import PathManager, Warehouse, has_scheme, is_local, normalize, require_clean

if TYPE_CHECKING:
    from lakebed.core.schema.schema import Schema
    from lakebed.storage.protocol import Storage


def find_root(storage: Storage, directory: str) -> str:
    """The canonical path of an existing directory; in an object store it must be in the warehouse."""
    require_clean(directory)
    if has_scheme(directory) and not is_local(normalize(directory)):
        return storage.paths.canonical_directory(directory)
    root = normalize(os.path.realpath(normalize(directory) if has_scheme(directory) else directory))
    if not os.path.isdir(root):  # noqa: PTH112 - the path manager's texts, not pathlib's
        raise PathRefusedError(directory, reason="this host has no such directory")
    return root


def open_place(storage: Storage, root: str) -> Storage:
    """Reads files below `root`; a symlink in the path is refused."""
    return LocalStorage(paths=PathManager(warehouse=Warehouse(root=root)), is_marked=False) if is_local(root) else storage


def read_file_columns(storage: Storage, path: str) -> Schema:
    """The columns of a Parquet file of this host, or of one in the warehouse's object store; its footer is parsed in the isolated worker."""
    found = _find_file(storage, path)
    source = open_place(storage, found.rpartition("/")[0] or "/")
    size_bytes = source.stat(found).size_bytes
    tail = read_tail(partial(source.read_range, found), size_bytes, path=found)
    return discover_columns(ForeignFile(path=found, tail=tail, size_bytes=size_bytes))


def _find_file(storage: Storage, path: str) -> str:
    require_clean(path)
    if has_scheme(path) and not is_local(normalize(path)):
        return storage.canonical(path)
    found = normalize(os.path.realpath(normalize(path) if has_scheme(path) else path))
    if not os.path.isfile(found):  # noqa: PTH113 - as above
        raise PathRefusedError(path, reason="there is no such file on this host")
    return found
