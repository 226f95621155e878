"""What the registry says a table is, read on one snapshot, and the step from where Iceberg stands to there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from lakebed.core.names import TableName
from lakebed.core.tables.snapshots import parse_requests
from lakebed.iceberg.locations import to_uri
from lakebed.iceberg.metadata.metadata import TableDefinition
from lakebed.iceberg.types.schemas import parse_schema
from lakebed.registry.snapshots.history import find_instances, has_instances
from lakebed.registry.tables.groups import GroupStep, plan_step
from lakebed.registry.tables.lake_tables import LakeTable, find_row
from lakebed.registry.tables.versions import list_versions

if TYPE_CHECKING:
    from lakebed.core.rows import TableMetadata, Tables
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Reader
    from lakebed.storage.paths import PathManager

_NOTHING = GroupStep(added=(), removed=(), trigger="schema")  # a snapshot without a new group is one of another partition spec


@dataclass(frozen=True, kw_only=True)
class TableState:
    """One table at its newest group."""

    row: Tables
    versions: tuple[TableMetadata, ...]
    with_instance: bool
    location: str
    step: GroupStep = _NOTHING

    @property
    def table_id(self) -> int:
        return self.row.id

    @property
    def name(self) -> TableName:
        return TableName(self.row.database, self.row.name)

    @cached_property
    def serving(self) -> TableMetadata:
        return next(version for version in self.versions if version.standing == "serving")

    @cached_property
    def table(self) -> LakeTable:
        return LakeTable(row=self.row, metadata=self.serving, schema=parse_schema(self.serving.schema))

    @cached_property
    def wanted(self) -> TableDefinition:
        return TableDefinition(
            table_id=self.row.id,
            location=self.location,
            schema=self.table.schema,
            history=tuple(parse_schema(version.schema) for version in self.versions),
            partition_by=self.table.partition_by,
            with_instance=self.with_instance,
            requested=parse_requests(self.serving.properties),
        )

    @cached_property
    def always_measured(self) -> frozenset[int]:
        """Columns whose statistics were read when the file was registered, wherever they stand: no others are touched."""
        sources = {field.field_id for _, field in self.table.transforms}
        event = () if self.row.event_time_field is None else (self.row.event_time_field,)
        return frozenset({*sources, *self.table.indexed, *event})


def read_state(registry: Registry, paths: PathManager, table_id: int, *, since: int | None) -> TableState | None:
    """None for a table that is dropped or unknown. `since` the group that Iceberg holds; None when its files decide."""
    with registry.read() as reader:
        row = find_row(reader, table_id)
        if row is None or row.dropped_at is not None:
            return None
        step = _NOTHING if since is None or since >= row.last_group else plan_step(reader, table_id, since=since, until=row.last_group)
        return _complete(reader, paths, row, step)


def _complete(reader: Reader, paths: PathManager, row: Tables, step: GroupStep) -> TableState:
    """A partition that is retired after this snapshot loses its row, so the instances of the step are read here."""
    with_instance = has_instances(reader, row.id)
    if with_instance:
        step = replace(step, instances=find_instances(reader, step.added))
    return TableState(
        row=row,
        versions=tuple(list_versions(reader, row.id)),
        with_instance=with_instance,
        location=to_uri(paths.table_directory(row.id, TableName(row.database, row.name))),
        step=step,
    )
