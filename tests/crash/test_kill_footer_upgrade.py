"""The footer upgrade killed anywhere: every footer reads as before, and a second run finishes what the first began."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
import zstandard
from killing import staged, state_of, stride

from builders import ORDERS, count, write_partition
from lakebed.registry.files.footers import load_footer, migrate_footers

if TYPE_CHECKING:
    from pathlib import Path

    from killing import Stage

    from conftest import Databases
    from lakebed.lake import Lake
    from lakebed.testing import Steps

_STORE = """UPDATE partition_metadata SET metadata = :metadata, partition_format_version = 1, footer_length = :length, checksum = :checksum
WHERE file_path = :path"""
OLD = "partition_format_version = 1"


def upgrade(lake: Lake, _: Steps) -> None:
    migrate_footers(lake.registry, batch=2)


def five_old_and_one_new(lake: Lake) -> None:
    """Footers as version 1 kept them: bare FileMetaData."""
    write_partition(lake, 1, files=6)
    for path in list_paths(lake)[:5]:
        bare = load_footer(lake.registry, path)[:-8]
        values = {"metadata": zstandard.compress(bare), "length": len(bare), "checksum": hashlib.sha256(bare).hexdigest(), "path": path}
        with lake.registry.write() as tx:
            tx.run(_STORE, values)


def list_paths(lake: Lake) -> list[str]:
    return sorted(f.file_path for f in lake.files.list(str(ORDERS)))


def read_all(lake: Lake) -> list[bytes]:
    return [load_footer(lake.registry, path) for path in list_paths(lake)]


def assert_the_next_one_finishes(stage: Stage, *, every: int) -> None:
    with stage.opened(stage.url) as lake:
        footers = read_all(lake)
    after = stage.after(upgrade)
    left: list[int] = []
    for step, url in stage.killed_everywhere(upgrade, every=every):
        with stage.opened(url) as lake:
            left.append(count(lake.registry, "partition_metadata", OLD))
            assert read_all(lake) == footers, step
            assert lake.check().clean, step
            assert migrate_footers(lake.registry, batch=2).upgraded == left[-1], step
            assert state_of(lake) == after, step
            assert migrate_footers(lake.registry, batch=2).upgraded == 0, step
    assert left == sorted(left, reverse=True)
    assert {5, 3, 1, 0} == set(left)


def test_a_killed_upgrade_is_finished_by_the_next(databases: Databases, kind: str, tmp_path: Path) -> None:
    with staged(databases, kind, tmp_path, five_old_and_one_new) as stage:
        assert_the_next_one_finishes(stage, every=stride(kind))


@pytest.mark.long
def test_every_step_of_the_upgrade_on_postgresql(databases: Databases, tmp_path: Path) -> None:
    with staged(databases, "postgresql", tmp_path, five_old_and_one_new) as stage:
        assert_the_next_one_finishes(stage, every=1)
