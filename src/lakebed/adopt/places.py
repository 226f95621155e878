"""Where foreign files lie: in the warehouse itself, or in a directory of this host that is nobody's warehouse."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from lakebed.core.errors import PathRefusedError
from lakebed.storage.local import LocalStorage
from lakebed.storage.paths import PathManager, Warehouse, has_scheme, is_local, normalize

if TYPE_CHECKING:
    from lakebed.storage.protocol import Storage


def find_root(storage: Storage, directory: str) -> str:
    """The one spelling of a directory that exists; in an object store it must lie in the warehouse."""
    if has_scheme(directory) and not is_local(normalize(directory)):
        return storage.paths.canonical_directory(directory)
    root = normalize(os.path.realpath(normalize(directory) if has_scheme(directory) else directory))
    if not os.path.isdir(root):  # noqa: PTH112 - the path manager's texts, not pathlib's
        raise PathRefusedError(directory, reason="there is no such directory on this host")
    return root


def open_place(storage: Storage, root: str) -> Storage:
    """Reads files below `root`, a symlink on the way refused."""
    return LocalStorage(paths=PathManager(warehouse=Warehouse(root=root)), is_marked=False) if is_local(root) else storage
