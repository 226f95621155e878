"""Files from outside into the warehouse: by hard link where the file system has them, by copy elsewhere."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from lakebed.core.errors import FileConflictError
from lakebed.storage.descriptors import DirectoryCursor, closing_descriptor, copy_target, open_regular
from lakebed.storage.errors import translated

if TYPE_CHECKING:
    from lakebed.storage.protocol import Storage

_NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS})
_CHUNK_BYTES = 4 << 20


def bring_in(storage: Storage, source: str, target: str, *, link: bool) -> bool:
    """The bytes of a local file under a free path of the warehouse; whether they are shared with the source.

    Not synced: like files that an operation writes, it is made durable with its tree.
    """
    target = storage.canonical(target)
    with translated(source, doing="take"):
        if not storage.paths.warehouse.is_local:
            storage.create_exclusive(target, Path(source).read_bytes())
            return False
        return _bring_in(storage.paths.root, source, target, link=link)


def can_link(storage: Storage, device: int) -> bool:
    """Whether a file on that device shares the warehouse's file system."""
    if not storage.paths.warehouse.is_local:
        return False
    with translated(storage.paths.root, doing="look at"):
        return Path(storage.paths.root).stat().st_dev == device


def _bring_in(root: str, source: str, target: str, *, link: bool) -> bool:
    with DirectoryCursor(root) as cursor:
        parent, name = cursor.enter_parent(target, create=True)
        try:
            if link and _try_link(source, name, parent):
                return True
            _copy(source, name, parent)
        except FileExistsError as exc:
            raise FileConflictError(target, reason="the path is already taken") from exc
    return False


def _try_link(source: str, name: str, parent: int) -> bool:
    try:
        os.link(source, name, dst_dir_fd=parent, follow_symlinks=False)
    except OSError as exc:
        if exc.errno in _NO_LINKS:
            return False
        raise
    return True


def _copy(source: str, name: str, parent: int) -> None:
    above, _, own = source.rpartition("/")
    with (
        closing_descriptor(os.open(above, os.O_RDONLY | os.O_DIRECTORY)) as place,
        os.fdopen(open_regular(source, own, place), "rb") as old,
        os.fdopen(copy_target(name, parent), "wb") as new,
    ):
        shutil.copyfileobj(old, new, _CHUNK_BYTES)
