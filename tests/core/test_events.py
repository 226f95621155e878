from __future__ import annotations

from lakebed.core.events import COMPONENT_SUBSCRIPTIONS, ROW_TYPES, ChangeKind, Component, RegistryTable
from lakebed.core.rows import TableFiles, list_changing_columns, list_columns

# As the design writes them down.
DESIGN = """
iceberg_updater: table_metadata, table_files
compactor: table_files, table_stats
snapshotter: table_metadata, table_files, table_snapshots
metadata_orchestrator: tables, table_metadata
"""


def test_the_subscriptions_are_those_of_the_design() -> None:
    written = {line.split(": ")[0]: set(line.split(": ")[1].split(", ")) for line in DESIGN.strip().splitlines()}

    assert {str(component): set(map(str, tables)) for component, tables in COMPONENT_SUBSCRIPTIONS.items()} == written


def test_every_component_subscribes_and_every_monitored_table_is_heard() -> None:
    assert set(COMPONENT_SUBSCRIPTIONS) == set(Component)
    assert frozenset().union(*COMPONENT_SUBSCRIPTIONS.values()) == frozenset(RegistryTable)


def test_every_monitored_table_has_its_own_row_type() -> None:
    assert set(ROW_TYPES) == set(RegistryTable)
    assert len(set(ROW_TYPES.values())) == len(RegistryTable)


def test_stored_words_are_never_renamed() -> None:
    assert [*map(str, ChangeKind)] == ["INSERT", "UPDATE", "DELETE"]
    assert [*map(str, RegistryTable)] == ["tables", "table_metadata", "table_files", "table_stats", "table_snapshots"]
    assert [*map(str, Component)] == ["iceberg_updater", "snapshotter", "compactor", "metadata_orchestrator"]


def test_columns_that_change_are_columns_and_ids_never_do() -> None:
    for row in ROW_TYPES.values():
        assert set(list_changing_columns(row)) < set(list_columns(row))
        assert "id" not in list_changing_columns(row)
    assert "file_path" not in list_changing_columns(TableFiles)
