"""The places of foreign files: the warehouse itself, or a directory of this host that is not a warehouse."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lakebed.core.errors import PathRefusedError
from lakebed.storage.local import LocalStorage
from lakebed.storage.paths import PathManager, Warehouse, has_scheme, is_local, normalize

if TYPE_CHECKING:
    from lakebed.storage.protocol import Storage


def find_root(storage: Storage, directory: str) -> str:
    """The canonical path of an existing directory; in an object store it must be in the warehouse."""
    if has_scheme(directory) and not is_local(normalize(directory)):
        return storage.paths.canonical_directory(directory)
    root = normalize(os.path.realpath(normalize(directory) if has_scheme(directory) else directory))
    if not os.path.isdir(root):  # noqa: PTH112 - the path manager's texts, not pathlib's
        raise PathRefusedError(directory, reason="this host has no such directory")
    return root


def open_place(storage: Storage, root: str) -> Storage:
    """Reads files below `root`; a symlink in the path is refused."""
    return LocalStorage(paths=PathManager(warehouse=Warehouse(root=root)), is_marked=False) if is_local(root) else storage
