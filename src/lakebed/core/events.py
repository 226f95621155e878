"""Typed changes, and which component receives which: a constant, because subscriptions do not change at run time."""

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
    """A component. Delivery is at least once: handlers must be idempotent."""

    def on_event(self, event: Event[HandledT]) -> None:
        """One change, in the order of its lake table; raises when it could not be handled."""

    def on_health(self) -> None:
        """Return at once when healthy, raise otherwise."""

    def on_refresh(self, table_id: int) -> int:
        """Rebuild the component's state of the table from the registry, in one read transaction.

        Returns the journal number that this state reflects: delivery continues after it. A component also starts this way.
        """

    def get_subscribed_tables(self) -> frozenset[RegistryTable]:
        """Must equal the constant, else Astha refuses to start."""
