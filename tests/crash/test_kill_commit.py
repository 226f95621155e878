"""A process killed at any write of an Iceberg commit: readers see the old or the new state, and the next process converges."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from killing import SteppedStorage, staged
from pyiceberg.table import StaticTable
from sqlalchemy import event

from builders import ORDERS, seal_pending, within, write_partition
from ice import open_ice
from lakebed.core.tables.snapshots import SnapshotRequests
from lakebed.iceberg.commit.committer import Committer
from lakebed.iceberg.commit.merging import MergeLimits
from lakebed.iceberg.manifests.cache import ManifestStore
from lakebed.iceberg.upkeep.reachable import list_reachable, read_root
from lakebed.registry.partitions.retire import load_partitions_to_retire, retire_loaded
from lakebed.registry.snapshots.history import list_queued, list_snapshots
from lakebed.registry.snapshots.requests import change_requests
from lakebed.storage.local import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from killing import Stage
    from sqlalchemy import Engine

    from conftest import Databases
    from ice import IceLake
    from lakebed.lake import Lake
    from lakebed.registry.transaction import Transaction
    from lakebed.testing import Steps

ROWS = 50


class WritingStorage(SteppedStorage):
    """Every new file is a step, and the moment after it too."""

    def create_exclusive(self, path: str, data: bytes) -> None:
        self.steps.reach(f"create {path}")
        LocalStorage.create_exclusive(self, path, data)
        self.steps.reach("created")


def commit(lake: Lake, steps: Steps) -> None:
    lake.storage = WritingStorage(paths=lake.storage.paths, steps=steps)
    with closing(open_ice(lake)) as ice:
        _announce(ice.catalog.engine, steps)
        ice.committer.advance(ice.table_id())


def commit_in_parts(lake: Lake, steps: Steps) -> None:
    """As `commit`, where a manifest holds two files."""
    lake.storage = WritingStorage(paths=lake.storage.paths, steps=steps)
    with closing(open_ice(lake)) as ice:
        _in_parts(ice).advance(ice.table_id())


def _in_parts(ice: IceLake) -> Committer:
    return Committer(ice.lake.registry, ice.lake.storage, ice.catalog, limits=MergeLimits(full_files=2, merge_at=2))


def _announce(engine: Engine, steps: Steps) -> None:
    """Every statement to the catalog is a step, and PostgreSQL's commit."""
    event.listen(engine, "before_cursor_execute", lambda *args: steps.reach(f"catalog: {args[2]}"))
    event.listen(engine, "commit", lambda _: steps.reach("catalog: commit"))


def one_waits(lake: Lake) -> None:
    """Nothing in Iceberg yet."""
    write_partition(lake, 1)
    seal_pending(lake.registry)


def history_waits(lake: Lake) -> None:
    """A snapshot is there; an insert, a retirement and an expiry wait together."""
    gone = write_partition(lake, 1)
    write_partition(lake, 2)
    seal_pending(lake.registry)
    with closing(open_ice(lake)) as ice:
        first = ice.advance()
        write_partition(lake, 3)
        seal_pending(lake.registry)
        ice.advance()
    write_partition(lake, 4)
    seal_pending(lake.registry)
    within(lake.registry, lambda tx: _retire(tx, gone.partition_id))
    change_requests(lake.registry, 1, lambda _: SnapshotRequests(expire=(first.snapshot_id or 0,)))


def many_wait(lake: Lake) -> None:
    """Three manifests are there; five files are to be added in three more, and two leave, so that two are rewritten."""
    gone = [write_partition(lake, number) for number in range(5)]
    seal_pending(lake.registry)
    with closing(open_ice(lake)) as ice:
        _in_parts(ice).advance(ice.table_id())
    for number in range(5, 10):
        write_partition(lake, number)
    seal_pending(lake.registry)
    within(lake.registry, lambda tx: _retire(tx, gone[0].partition_id, gone[3].partition_id))


def _retire(tx: Transaction, *partition_ids: int) -> None:
    table = tx.require(ORDERS)
    retire_loaded(tx, table, load_partitions_to_retire(tx, table, set(partition_ids), exactly=True), reason="test", grace_us=10**12)


def _require_convergence(stage: Stage, *, before: int, after: int, every: int) -> None:
    for step, url in stage.killed_everywhere(commit, every=every):
        with stage.opened(url) as lake, closing(open_ice(lake)) as ice:
            pointer = ice.catalog.find_pointer(ORDERS)
            if pointer is not None and pointer.location is not None:
                seen = StaticTable.from_metadata(pointer.location).scan().to_arrow().num_rows
                assert seen in (before, after), f"{seen} rows after a kill at step {step}"
            ice.committer.advance(ice.table_id())
            ice.require_true()
            assert ice.static().scan().to_arrow().num_rows == after, step
            _require_no_trace(ice)


def _require_no_trace(ice: IceLake) -> None:
    """Every commit at most once, the registry in step, and after a sweep no file that nothing names."""
    metadata = ice.base().metadata
    ids = [snapshot.summary["lakebed.commit-id"] for snapshot in metadata.snapshots if snapshot.summary is not None]
    assert len(set(ids)) == len(ids)
    assert [row.snapshot_id for row in list_snapshots(ice.lake.registry, ice.table_id())] == [s.snapshot_id for s in metadata.snapshots]
    ice.committer.sweep(ice.table_id(), older_than_us=-(10**15))
    queued = list_queued(ice.lake.registry, ice.table_id())
    ice.lake.storage.delete([path for path in queued if "/metadata/" in path])
    for snapshot in metadata.snapshots:
        assert ice.static().scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows


FILLS: list[tuple[Callable[[Lake], None], int, int]] = [(one_waits, 0, ROWS), (history_waits, 3 * ROWS, 3 * ROWS)]


@pytest.mark.parametrize(("fill", "before", "after"), FILLS)
def test_a_killed_commit_is_old_or_new_and_the_next_process_converges(
    databases: Databases, kind: str, tmp_path: Path, fill: Callable[[Lake], None], before: int, after: int
) -> None:
    with staged(databases, kind, tmp_path, fill) as stage:
        _require_convergence(stage, before=before, after=after, every=7 if kind == "sqlite" else 11)


@pytest.mark.long
@pytest.mark.parametrize(("fill", "before", "after"), FILLS)
def test_at_every_single_step(
    databases: Databases, kind: str, tmp_path: Path, fill: Callable[[Lake], None], before: int, after: int
) -> None:
    with staged(databases, kind, tmp_path, fill) as stage:
        _require_convergence(stage, before=before, after=after, every=1)


def test_a_step_killed_in_the_middle_of_its_manifests_is_repeated_once_and_leaves_only_orphans_that_are_found(
    databases: Databases, tmp_path: Path
) -> None:
    with staged(databases, "sqlite", tmp_path, many_wait) as stage:
        left = set()
        for step, url in stage.killed_everywhere(commit_in_parts, at=datetime.now(UTC)):
            with stage.opened(url, at=datetime.now(UTC) + timedelta(hours=2)) as lake, closing(open_ice(lake)) as ice:
                written = {path for path in ice.metadata_files() if path not in _reachable(ice)}
                _in_parts(ice).advance(ice.table_id())
                ice.require_true()
                assert {o.path for o in lake.files.sweep_orphans(older_than="1h").orphans} == written - _reachable(ice), step
                assert ice.static().scan().to_arrow().num_rows == 8 * ROWS
                assert not [f for f in lake.check().findings if f.severity == "error"]
                left.add(len(written))
        assert left >= {0, 1, 2, 3, 4, 5, 6}  # killed after each of the manifests and their list


def _reachable(ice: IceLake) -> set[str]:
    return list_reachable(ice.lake.storage, ManifestStore(ice.lake.storage), read_root(ice.lake.storage, ice.base().location))
