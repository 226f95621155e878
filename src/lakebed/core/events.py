"""Typed changes, and who hears of them: a constant, because nobody may subscribe at run time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from lakebed.core.rows import Row, TableFiles, TableMetadata, Tables, TableSnapshots, TableStats

if TYPE_CHECKING:
    from datetime import datetime

RowT = TypeVar("RowT", bound=Row, covariant=True)  # noqa: PLC0105 - one name for the one type variable of events
HandledT = TypeVar("HandledT", bound=Row, contravariant=True)  # noqa: PLC0105 - as above, of subscribers


class ChangeKind(StrEnum):
    """Stored: never rename."""

    INSERT = "INSERT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


class RegistryTable(StrEnum):
    """The monitored tables. Stored: never rename."""

    TABLES = "tables"
    TABLE_METADATA = "table_metadata"
    TABLE_FILES = "table_files"
    TABLE_STATS = "table_stats"
    TABLE_SNAPSHOTS = "table_snapshots"


ROW_TYPES: dict[RegistryTable, type[Row]] = {
    RegistryTable.TABLES: Tables,
    RegistryTable.TABLE_METADATA: TableMetadata,
    RegistryTable.TABLE_FILES: TableFiles,
    RegistryTable.TABLE_STATS: TableStats,
    RegistryTable.TABLE_SNAPSHOTS: TableSnapshots,
}


class Component(StrEnum):
    """Stored in cursors: never rename."""

    ICEBERG_UPDATER = "iceberg_updater"
    SNAPSHOTTER = "snapshotter"
    COMPACTOR = "compactor"
    METADATA_ORCHESTRATOR = "metadata_orchestrator"


COMPONENT_SUBSCRIPTIONS: dict[Component, frozenset[RegistryTable]] = {
    Component.ICEBERG_UPDATER: frozenset({RegistryTable.TABLE_METADATA, RegistryTable.TABLE_FILES}),
    Component.COMPACTOR: frozenset({RegistryTable.TABLE_FILES, RegistryTable.TABLE_STATS}),
    Component.SNAPSHOTTER: frozenset({RegistryTable.TABLE_METADATA, RegistryTable.TABLE_FILES, RegistryTable.TABLE_SNAPSHOTS}),
    Component.METADATA_ORCHESTRATOR: frozenset({RegistryTable.TABLES, RegistryTable.TABLE_METADATA}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(Generic[RowT]):
    """One committed change of one registry row, in the order of its lake table."""

    table: RegistryTable
    operation: ChangeKind
    data: RowT  # the row after the change; before it, for a DELETE
    before: RowT | None
    table_id: int
    sequence: int
    timestamp: datetime


class Subscriber(Protocol[HandledT]):
    """A component. Every call may come again: what it makes true must be true once."""

    def on_event(self, event: Event[HandledT]) -> None:
        """One change, in the order of its lake table; raises when it could not be handled."""

    def on_health(self) -> None:
        """Returns at once when well, raises when not."""

    def on_refresh(self, table_id: int) -> int:
        """Read the table's state from the registry in one read transaction and make it ours.

        The journal number that this state reflects: delivery goes on behind it. Also how a component starts.
        """

    def get_subscribed_tables(self) -> frozenset[RegistryTable]:
        """Must equal the constant, else Astha refuses to start."""
