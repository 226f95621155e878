"""Updates of metadata under transient faults, and one id followed through every stage: nothing is lost, without any intervention."""

from __future__ import annotations

import json
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest
from recorders import PATIENCE_S, SNAPSHOTTER, UPDATER, SickError, await_that, running

from builders import ORDERS, fresh_name, make_table, write_partition
from lakebed.components.iceberg_updater import IcebergUpdater
from lakebed.components.snapshotter import Snapshotter
from lakebed.core.rows import TableFiles
from lakebed.registry.files.operations import require_operation
from lakebed.registry.journal.changes import read_changes
from lakebed.registry.journal.cursors import list_dead_letters
from lakebed.registry.snapshots.history import list_snapshots
from lakebed.registry.tables.lake_tables import require_table
from many_files import Many

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ice import IceLake
    from lakebed.core.events import Component, Event, RegistryTable, Subscriber
    from lakebed.core.rows import TableMetadata

TABLES = 3
FAULTS, HALF = 0.05, 0.5


class Unreliable:
    """The updater, one of whose calls in twenty fails: before anything is done, or behind it, as when an answer is lost."""

    def __init__(self, real: IcebergUpdater, *, rate: float = FAULTS) -> None:
        self._rate = rate
        self._real, self._random, self._lock = real, random.Random(5), threading.Lock()
        self.calls = self.failed = 0
        self.handled: list[Event[TableFiles | TableMetadata]] = []

    def on_event(self, event: Event[TableFiles | TableMetadata]) -> None:
        with self._lock:
            self.calls += 1
            fails, is_late = self._random.random() < self._rate, self._random.random() < HALF
            self.failed += fails
        if fails and not is_late:
            raise SickError
        self._real.on_event(event)
        if fails:
            raise SickError
        self.handled.append(event)

    def on_health(self) -> None:
        self._real.on_health()

    def on_refresh(self, table_id: int) -> int:
        return self._real.on_refresh(table_id)

    def get_subscribed_tables(self) -> frozenset[RegistryTable]:
        return self._real.get_subscribed_tables()


@pytest.mark.parametrize("updates", [300, pytest.param(3_000, marks=pytest.mark.long)])
def test_every_update_is_committed_though_one_call_in_twenty_fails(ice: IceLake, tmp_path: Path, updates: int) -> None:
    tables = [Many(ice, tmp_path, fresh_name()) for _ in range(TABLES)]
    updater = Unreliable(IcebergUpdater(ice.lake.registry, ice.committer))
    components: dict[Component, Subscriber[Any]] = {UPDATER: updater, SNAPSHOTTER: Snapshotter(ice.lake.registry)}

    with running(ice.lake.registry, components) as astha:
        for n in range(updates):
            tables[n % TABLES].publish(1)
            ice.seal(tables[n % TABLES].name)
        assert astha.drain(updates / 10 + PATIENCE_S)

    assert updater.failed >= updates * FAULTS / 2
    assert list_dead_letters(ice.lake.registry) == []
    for table in tables:
        row = require_table(ice.lake.registry, table.name).row
        assert (row.committed_group, row.file_count, row.state) == (row.last_group, updates // TABLES, "ok")
        assert len({entry["data_file"]["file_path"] for entry in ice.entries(table.name)}) == updates // TABLES


def test_the_id_of_an_operation_is_seen_in_every_stage(ice: IceLake, another_ice: Callable[[], IceLake]) -> None:
    registry = ice.lake.registry
    table_id = make_table(registry).table_id
    updater = Unreliable(IcebergUpdater(registry, ice.committer), rate=0.0)

    with running(registry, {UPDATER: updater, SNAPSHOTTER: Snapshotter(registry)}) as astha:
        assert astha.drain(PATIENCE_S)  # new lanes begin with a refresh: what is older than that is told by no event
        write_partition(ice.lake, 1)
        await_that(lambda: require_table(registry, ORDERS).row.committed_group > 0, "a commit")
        assert astha.drain(PATIENCE_S)

    (file,) = ice.lake.files.list(str(ORDERS))
    traced = file.file_path.split("/data/")[1].split("/")[0]
    assert require_operation(registry, traced).state == "registered"
    journal = {e.sequence for e in read_changes(registry, table_id, after=0, limit=1000) if _tells_of(e, traced)}
    assert journal  # the registry's event
    assert journal & {e.sequence for e in updater.handled if _tells_of(e, traced)}  # what Astha delivered
    assert traced in ice.entries()[0]["data_file"]["file_path"]  # the component's action
    snapshot = list_snapshots(registry, table_id)[-1]
    assert snapshot.group_no == ice.lake.files.list(str(ORDERS))[0].added_group  # the state that was told back
    assert json.loads(snapshot.summary)["lakebed.commit-id"] in snapshot.manifest_list
    before = ice.metadata_files()
    assert IcebergUpdater(registry, another_ice().committer).on_refresh(table_id) > 0  # recovery finds it there
    assert ice.metadata_files() == before


def _tells_of(event: Event[Any], op_id: str) -> bool:
    return isinstance(event.data, TableFiles) and op_id in event.data.file_path
