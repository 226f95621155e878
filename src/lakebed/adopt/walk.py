"""The contents of a directory: files to adopt, files to skip, and what is refused."""

from __future__ import annotations

import os
import stat
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakebed.adopt.places import find_root
from lakebed.storage.descriptors import name_kind
from lakebed.storage.errors import translated
from lakebed.storage.paths import PathManager, Warehouse, is_local

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakebed.storage.protocol import Storage

_SUFFIXES = (".parquet", ".parq", ".pq")
_SHOWN_REFUSED = "name it file by file, or adopt the directory that holds it"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """One candidate; `relative` is relative to the adopted directory. `device` is None in an object store."""

    path: str
    relative: str
    size_bytes: int
    modified_ns: int
    device: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedPlace:
    path: str
    reason: str


@dataclass(slots=True)
class Walk:
    """Ordered by path. `skipped` counts entries that are not data, by reason."""

    root: str
    files: list[FoundFile] = field(default_factory=list)
    refused: list[RefusedPlace] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def skipped(self) -> Mapping[str, int]:
        return dict(sorted(self.counts.items()))


def walk_directory(storage: Storage, directory: str) -> Walk:
    """Everything below `directory`, which may be in the warehouse or anywhere on this host; no link is followed."""
    root = find_root(storage, directory)
    if not is_local(root):
        return _walk_objects(storage, root)
    paths = PathManager(warehouse=Warehouse(root=root))
    found = Walk(root=root)
    waiting = [root]
    while waiting:
        waiting += _look_into(found, paths, waiting.pop())
    found.files.sort(key=lambda file: file.path)
    found.refused.sort(key=lambda place: place.path)
    return found


def _look_into(found: Walk, paths: PathManager, directory: str) -> list[str]:
    below: list[str] = []
    with translated(directory, doing="list"), os.scandir(directory) as entries:
        for entry in entries:
            path, facts = f"{directory}/{entry.name}", entry.stat(follow_symlinks=False)
            if _is_hidden(entry.name):
                found.counts["hidden"] += 1
            elif not paths.is_canonical(path):
                found.refused.append(
                    RefusedPlace(path=path, reason="its name has characters that are not allowed in paths of a lake: rename it")
                )
            elif stat.S_ISDIR(facts.st_mode):
                below.append(path)
            else:
                _judge(found, path, facts)
    return below


def _judge(found: Walk, path: str, facts: os.stat_result) -> None:
    if stat.S_ISLNK(facts.st_mode):
        _judge_link(found, path)
    elif not stat.S_ISREG(facts.st_mode):
        found.refused.append(
            RefusedPlace(path=path, reason=f"it is a {name_kind(facts.st_mode)}, not a file: move it out of the directory")
        )
    elif not _may_be_parquet(path):
        found.counts["not Parquet"] += 1
    else:
        relative = path[len(found.root) + 1 :]
        found.files.append(
            FoundFile(path=path, relative=relative, size_bytes=facts.st_size, modified_ns=facts.st_mtime_ns, device=facts.st_dev)
        )


def _judge_link(found: Walk, path: str) -> None:
    """The target of a link inside the directory is found directly; following the link too would duplicate its rows."""
    target = os.path.realpath(path)
    if os.path.exists(target) and (target + "/").startswith(found.root + "/"):  # noqa: PTH110
        found.counts["link"] += 1
    else:
        found.refused.append(RefusedPlace(path=path, reason=f"it is a symbolic link that leaves the directory: {_SHOWN_REFUSED}"))


def _walk_objects(storage: Storage, root: str) -> Walk:
    found = Walk(root=root)
    for facts in storage.list_files(root):
        relative = facts.path[len(root) + 1 :]
        if any(_is_hidden(part) for part in relative.split("/")):
            found.counts["hidden"] += 1
        elif not _may_be_parquet(facts.path):
            found.counts["not Parquet"] += 1
        else:
            modified = facts.modified_micros * 1000
            found.files.append(
                FoundFile(path=facts.path, relative=relative, size_bytes=facts.size_bytes, modified_ns=modified, device=None)
            )
    found.files.sort(key=lambda file: file.path)
    return found


def _is_hidden(name: str) -> bool:
    """Names that Spark and Hive ignore: `_SUCCESS`, `.part.crc`, `_temporary`; `_day=1` is a partition value."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _may_be_parquet(path: str) -> bool:
    """Judged by its suffix; Hive writes files without one."""
    name = path.rpartition("/")[2]
    return name.lower().endswith(_SUFFIXES) or "." not in name
