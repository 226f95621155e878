"""The component: every event of its two tables, once or many times, ends in the same Iceberg table."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from builders import ORDERS
from ice import ROWS, STRING, IceLake
from lakebed.components.iceberg_updater import IcebergUpdater
from lakebed.core.errors import LakebedError
from lakebed.core.events import COMPONENT_SUBSCRIPTIONS, ChangeKind, Component, Event, RegistryTable
from lakebed.core.progress import progress_to
from lakebed.core.rows import TableFiles, TableMetadata
from lakebed.core.schema.types import Field
from lakebed.registry.journal.changes import read_changes
from lakebed.registry.tables.lake_tables import require_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.core.events import Subscriber


@pytest.fixture
def updater(ice: IceLake) -> IcebergUpdater:
    return IcebergUpdater(ice.lake.registry, ice.committer)


def _events(ice: IceLake, *, after: int = 0) -> list[Event[TableFiles | TableMetadata]]:
    """The journal of the table, as Astha routes it to this component."""
    changes = read_changes(ice.lake.registry, ice.table_id(), after=after, limit=10_000)
    return [e for e in changes if e.table in COMPONENT_SUBSCRIPTIONS[Component.ICEBERG_UPDATER]]  # type: ignore[misc]


def _deliver(ice: IceLake, updater: IcebergUpdater, *, after: int = 0) -> int:
    events = _events(ice, after=after)
    for event in events:
        updater.on_event(event)
    return events[-1].sequence if events else after


def test_it_subscribes_to_what_the_constant_says(updater: IcebergUpdater) -> None:
    subscriber: Subscriber[TableFiles | TableMetadata] = updater

    assert subscriber.get_subscribed_tables() == COMPONENT_SUBSCRIPTIONS[Component.ICEBERG_UPDATER]
    subscriber.on_health()


def test_a_commit_reports_progress_with_every_file_that_it_describes(ice: IceLake, updater: IcebergUpdater) -> None:
    ice.create()
    reports = []
    for files in (1, 5):
        mark = _deliver(ice, updater)
        for number in range(files):
            ice.write(number + files)
        ice.seal()
        heard: list[None] = []
        with progress_to(partial(heard.append, None)):
            _deliver(ice, updater, after=mark)
        reports.append(len(heard))

    assert reports[1] - reports[0] >= 5 - 1


def test_a_removal_reports_progress_with_every_manifest_that_it_reads(ice: IceLake, another_ice: Callable[[], IceLake]) -> None:
    ice.create()
    first = ice.insert(0)
    for number in range(1, 4):
        ice.insert(number)
    assert len(ice.manifests()) == 4
    assert first.group == 1
    ice.retire(*ice.lake.registry.query("SELECT min(id) FROM partitions")[0])
    heard: list[None] = []

    with progress_to(partial(heard.append, None)):
        another_ice().advance()  # knows no manifest yet

    assert len(heard) > 4


def test_the_journal_of_a_table_becomes_its_iceberg_table(ice: IceLake, updater: IcebergUpdater) -> None:
    ice.create()
    gone = ice.write(1)
    ice.write(2)
    ice.seal()
    ice.retire(gone.partition_id)
    ice.evolve(lambda fields: [*fields, Field(field_id=5, name="note", type=STRING)])

    _deliver(ice, updater)

    assert ice.static().scan().to_arrow().num_rows == ROWS
    assert "note" in ice.static().schema().column_names
    ice.require_true()


def test_events_below_the_committed_group_cost_nothing(ice: IceLake, updater: IcebergUpdater) -> None:
    ice.create()
    for number in range(5):
        ice.write(number)
        ice.seal()

    _deliver(ice, updater)

    assert len(ice.base().metadata.snapshots) == 1
    before = ice.metadata_files()
    _deliver(ice, updater)
    assert ice.metadata_files() == before


def test_redelivery_to_a_new_process_changes_nothing(ice: IceLake, updater: IcebergUpdater, another_ice: object) -> None:
    ice.create()
    ice.write(1)
    ice.seal()
    _deliver(ice, updater)
    before = ice.metadata_files()
    assert callable(another_ice)
    other = another_ice()

    _deliver(ice, IcebergUpdater(ice.lake.registry, other.committer))

    assert ice.metadata_files() == before


def test_any_split_of_the_journal_gives_the_same_table(ice: IceLake, updater: IcebergUpdater) -> None:
    ice.create()
    position = 0
    for number in range(6):
        published = ice.write(number)
        ice.seal()
        if number % 2:
            ice.retire(published.partition_id)
        if number % 3 == 0:
            position = _deliver(ice, updater, after=position)
    _deliver(ice, updater, after=position)

    assert sorted({row // 1000 for row in ice.static().scan().to_arrow()["id"].to_pylist()}) == [0, 2, 4]
    ice.require_true()


def test_the_deletion_of_a_file_row_and_staged_versions_are_no_commits(ice: IceLake, updater: IcebergUpdater) -> None:
    ice.create()
    ice.write(1)
    ice.seal()
    _deliver(ice, updater)
    before = ice.metadata_files()
    by_table = {event.table: event for event in _events(ice)}
    file_event, metadata_event = by_table[RegistryTable.TABLE_FILES], by_table[RegistryTable.TABLE_METADATA]

    updater.on_event(replace(file_event, operation=ChangeKind.DELETE))
    assert isinstance(metadata_event.data, TableMetadata)
    updater.on_event(replace(metadata_event, data=replace(metadata_event.data, standing="staged")))

    assert ice.metadata_files() == before


def test_a_refresh_gives_the_mark_it_reflects_and_brings_the_table_there(ice: IceLake, updater: IcebergUpdater) -> None:
    ice.create()
    ice.write(1)
    ice.seal()

    mark = updater.on_refresh(ice.table_id())

    assert mark == _events(ice)[-1].sequence or mark > 0
    assert ice.static().scan().to_arrow().num_rows == ROWS
    assert require_table(ice.lake.registry, ORDERS).row.committed_group == 1


def test_health_tells_when_the_catalog_is_gone(ice: IceLake, updater: IcebergUpdater) -> None:
    with ice.catalog._writing() as connection:
        connection.exec_driver_sql("DROP TABLE lakebed_fence")

    with pytest.raises(LakebedError):
        updater.on_health()
