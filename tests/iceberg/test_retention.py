"""Requests are carried out: snapshots expire, refs come and go, and what nothing names is queued for deletion."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from builders import ORDERS
from ice import ROWS, IceLake
from lakebed.core.tables.snapshots import SnapshotRequests
from lakebed.iceberg.metadata.metadata import MAX_LOG
from lakebed.iceberg.upkeep.reachable import list_reachable, read_root
from lakebed.registry.snapshots.history import list_queued, list_snapshots
from lakebed.registry.snapshots.requests import change_requests

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.iceberg.commit.results import Advanced


def _request(ice: IceLake, requested: SnapshotRequests) -> Advanced | None:
    change_requests(ice.lake.registry, ice.table_id(), lambda _: requested)
    return ice.committer.advance(ice.table_id())


def _ids(ice: IceLake, count: int) -> list[int]:
    ice.create()
    return [snapshot_id for number in range(count) if (snapshot_id := ice.insert(number).snapshot_id) is not None]


def test_expired_snapshots_leave_the_table_and_the_registry(ice: IceLake) -> None:
    ids = _ids(ice, 4)

    _request(ice, SnapshotRequests(expire=tuple(ids[:2])))

    assert [s.snapshot_id for s in ice.base().metadata.snapshots] == ids[2:]
    assert [row.snapshot_id for row in list_snapshots(ice.lake.registry, ice.table_id())] == ids[2:]
    assert ice.static().scan().to_arrow().num_rows == 4 * ROWS
    assert ice.static().scan(snapshot_id=ids[2]).to_arrow().num_rows == 3 * ROWS
    ice.require_true()


def test_a_request_that_was_granted_is_no_request_any_more(ice: IceLake) -> None:
    ids = _ids(ice, 2)
    _request(ice, SnapshotRequests(expire=(ids[0],)))

    assert ice.committer.advance(ice.table_id()) is None


def test_neither_the_current_nor_a_tagged_snapshot_expires(ice: IceLake) -> None:
    ids = _ids(ice, 4)

    _request(ice, SnapshotRequests(expire=tuple(ids), tags={"month-end": ids[0]}, branches={"audit": ids[1]}))

    assert [s.snapshot_id for s in ice.base().metadata.snapshots] == [ids[0], ids[1], ids[3]]
    assert {name: ref.snapshot_id for name, ref in ice.base().metadata.refs.items()} == {
        "main": ids[3],
        "month-end": ids[0],
        "audit": ids[1],
    }
    assert ice.static().scan(snapshot_id=ids[0]).to_arrow().num_rows == ROWS


def test_a_tag_that_is_no_longer_requested_goes_and_its_snapshot_can_expire(ice: IceLake) -> None:
    ids = _ids(ice, 3)
    _request(ice, SnapshotRequests(tags={"old": ids[0]}))

    _request(ice, SnapshotRequests(expire=(ids[0],)))

    assert list(ice.base().metadata.refs) == ["main"]
    assert [s.snapshot_id for s in ice.base().metadata.snapshots] == ids[1:]


def test_a_tag_on_a_snapshot_that_is_not_there_is_ignored(ice: IceLake) -> None:
    _ids(ice, 1)

    assert _request(ice, SnapshotRequests(tags={"never": 5})) is None


def test_what_only_expired_snapshots_named_is_queued_and_nothing_else(ice: IceLake) -> None:
    ice.create()
    gone = ice.write(1)
    ice.seal()
    first = ice.advance()
    ice.retire(gone.partition_id)
    ice.advance()
    kept = ice.insert(2)
    assert first.snapshot_id is not None
    assert kept.snapshot_id is not None
    before = ice.metadata_files()

    _request(ice, SnapshotRequests(expire=(first.snapshot_id,)))

    queued = {path for path in list_queued(ice.lake.registry, ice.table_id()) if "/metadata/" in path}
    reachable = list_reachable(ice.lake.storage, ice.committer.store, read_root(ice.lake.storage, ice.base().location))
    assert {Path(path).name.split("-")[0] for path in queued if Path(path).name.startswith("snap-")} == {"snap"}
    assert len(queued) == 2  # the expired list, and the manifest that was rewritten without the retired file
    assert not queued & reachable
    assert before <= queued | reachable
    assert ice.static().scan().to_arrow().num_rows == ROWS


def test_the_metadata_log_is_bounded_and_older_files_are_queued(ice: IceLake) -> None:
    _ids(ice, MAX_LOG + 5)

    metadata = ice.base().metadata

    assert len(metadata.metadata_log) == MAX_LOG
    queued = {path for path in list_queued(ice.lake.registry, ice.table_id()) if path.endswith(".metadata.json")}
    assert len(queued) == 5
    assert (
        list_reachable(ice.lake.storage, ice.committer.store, read_root(ice.lake.storage, ice.base().location)) | queued
        == ice.metadata_files()
    )


def test_gone_is_gone_also_for_a_process_that_was_killed_before_it_could_tell_the_registry(
    ice: IceLake, another_ice: Callable[[], IceLake]
) -> None:
    """The registry still lists a snapshot that Iceberg has expired: the next owner settles it."""
    ids = _ids(ice, 3)
    _request(ice, SnapshotRequests(expire=(ids[0],)))
    with ice.lake.registry.write([ORDERS]) as tx:
        tx.run("UPDATE table_snapshots SET expired_at = NULL", {})

    another_ice().committer.advance(ice.table_id())

    assert [row.snapshot_id for row in list_snapshots(ice.lake.registry, ice.table_id())] == ids[1:]
    assert any("snap-" in path for path in list_queued(ice.lake.registry, ice.table_id()))


def test_a_sweep_deletes_what_nothing_names(ice: IceLake) -> None:
    _ids(ice, 3)
    directory = ice.lake.storage.paths.metadata_directory(ice.table_id(), ORDERS)
    leftover = f"{directory}/dead-m0.avro"
    ice.lake.storage.create_exclusive(leftover, b"left by a killed commit")

    assert ice.committer.sweep(ice.table_id()) == []  # too young: its writer may only be slow
    assert ice.committer.sweep(ice.table_id(), older_than_us=0) == [leftover]
    assert ice.committer.sweep(ice.table_id(), older_than_us=0) == []
    ice.require_true()
