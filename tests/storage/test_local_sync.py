"""What is synced, and in which order: the calls themselves, not a promise."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from lakebed.storage.local import LocalStorage

pytest_plugins = ["storage_fixtures"]


@contextmanager
def recorded_fsyncs() -> Iterator[list[str]]:
    """The path behind every descriptor for which the interpreter really calls `os.fsync`, in order."""
    synced: list[str] = []

    def record(frame: FrameType, event: str, called: object) -> None:
        if event == "c_call" and called is os.fsync:
            synced.append(Path(f"/proc/self/fd/{frame.f_locals['descriptor']}").readlink().name)

    sys.setprofile(record)
    try:
        yield synced
    finally:
        sys.setprofile(None)


def test_a_created_file_is_synced_before_its_directory(local: LocalStorage, local_operation: str) -> None:
    Path(local_operation).mkdir(parents=True)

    with recorded_fsyncs() as synced:
        local.create_exclusive(f"{local_operation}/a", b"x")

    file, directory = synced
    assert file.endswith(".lakebed-tmp")  # the same inode then gets its name by a link
    assert directory == Path(local_operation).name


def test_each_new_directory_is_synced_into_the_one_above(local: LocalStorage, local_operation: str) -> None:
    with recorded_fsyncs() as synced:
        local.create_exclusive(f"{local_operation}/a", b"x")

    assert synced[:4] == ["warehouse", "shop", "orders-7", "data"]


def test_a_tree_is_synced_bottom_up_and_then_up_to_the_root(local: LocalStorage, local_operation: str) -> None:
    Path(local_operation, "x=1").mkdir(parents=True)
    Path(local_operation, "x=1", "a.parquet").write_bytes(b"x")

    with recorded_fsyncs() as synced:
        local.sync_tree(local_operation)

    assert synced == ["a.parquet", "x=1", Path(local_operation).name, "data", "orders-7", "shop", "warehouse"]
