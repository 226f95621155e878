"""View sets in the registry: their versions, the partitions of a window, and the checks when a slice is published."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.core import fingerprints
from lakebed.core.errors import DefinitionRefusedError, SourceChangedError, VictimsChangedError
from lakebed.core.names import TableName
from lakebed.core.results import single_result
from lakebed.core.schema.schema import Schema
from lakebed.core.tables.view_sets import find_definition, merge_window_of
from lakebed.core.tables.windows import Expired, PartitionSummary, covers, is_unchanged
from lakebed.core.times import MAX_MICROS, MIN_MICROS, TimeRange
from lakebed.registry.schema.predicates import VISIBLE
from lakebed.registry.table_cache import missing_table
from lakebed.registry.tables.expired import read_expired
from lakebed.registry.tables.lake_tables import LakeTable, read_table
from lakebed.registry.tables.versions import list_versions, promote_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lakebed.core.partitions import Slice
    from lakebed.core.rows import TableMetadata
    from lakebed.core.tables.view_sets import Definition
    from lakebed.registry.backends.protocol import Queryable
    from lakebed.registry.transaction import Transaction

ALWAYS = TimeRange(begin=MIN_MICROS, end=MAX_MICROS)
_PIECES = """SELECT id, begin_insert_time, end_insert_time, fingerprint, schema_hash, source_data_hash, lookup_hash, num_rows,
min_event_time, max_event_time FROM partitions
WHERE scope_id IN (SELECT id FROM partition_scopes WHERE table_id = :table_id AND view_instance_id = :instance AND schema_hash IN (:hashes*))
AND begin_insert_time < :end AND end_insert_time > :begin ORDER BY begin_insert_time"""
_FINGERPRINTS = """SELECT fingerprint FROM partitions
WHERE scope_id IN (SELECT id FROM partition_scopes WHERE table_id = :table_id AND schema_hash IN (:hashes*))"""
_INSTANCES = "SELECT DISTINCT view_instance_id FROM partition_scopes WHERE table_id = :table_id AND schema_hash IN (:hashes*) ORDER BY 1"
_FILES = """SELECT id, partition_id, file_path, file_size, file_type, partition_path, row_count FROM table_files
WHERE partition_id IN (:ids*) AND retired_seq IS NULL ORDER BY id"""
_FILE_IDS = "SELECT id FROM table_files WHERE partition_id IN (:ids*) AND retired_seq IS NULL"
_DEFINITIONS = """SELECT t.database, t.name, m.properties FROM tables t JOIN table_metadata m ON m.table_id = t.id
WHERE t.kind = 'view_set' AND t.dropped_at IS NULL AND m.standing IN ('serving', 'staged')"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFile:
    """A file of a live partition."""

    file_id: int
    partition_id: int
    path: str
    size_bytes: int
    file_type: str
    partition_path: str
    row_count: int


@single_result
@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSet:
    """One version of a view set: `table` carries that version's schema and hash, whether it serves or is staged."""

    table: LakeTable
    definition: Definition

    @property
    def name(self) -> TableName:
        return self.table.name

    @property
    def is_staged(self) -> bool:
        return self.table.metadata.standing == "staged"


def require_lake_table(reader: Queryable, name: TableName) -> LakeTable:
    if (found := read_table(reader, name)) is None:
        raise missing_table(reader, name)
    return found


def read_view(reader: Queryable, name: TableName, *, staged: bool = False) -> ViewSet | None:
    """The serving version, or the staged one; None when there is no such version. A plain table is refused."""
    serving = require_lake_table(reader, name)
    versions = [serving.metadata] if not staged else [v for v in list_versions(reader, serving.table_id) if v.standing == "staged"]
    return as_view(version_of(serving, versions[0])) if versions else None


def read_newest(reader: Queryable, name: TableName) -> ViewSet:
    """The version to build: the staged one where there is one."""
    found = read_view(reader, name, staged=True) or read_view(reader, name)
    assert found is not None  # noqa: S101 - a table always has a serving version
    return found


def as_view(table: LakeTable) -> ViewSet:
    definition = find_definition(table.metadata.properties)
    if table.row.kind != "view_set" or definition is None:
        raise DefinitionRefusedError(str(table.name), reason="it is not a view set with a definition; create it with create_view_set")
    return ViewSet(table=table, definition=definition)


def version_of(table: LakeTable, version: TableMetadata) -> LakeTable:
    """The table as one of its other versions sees it."""
    return LakeTable(row=table.row, metadata=version, schema=Schema.from_json(version.schema))


def list_all_definitions(reader: Queryable) -> list[tuple[TableName, Definition]]:
    """The serving and the staged definition of every view set."""
    found = ((TableName(database, name), find_definition(properties)) for database, name, properties in reader.query(_DEFINITIONS))
    return [(name, definition) for name, definition in found if definition is not None]


def list_definitions(reader: Queryable) -> dict[TableName, frozenset[TableName]]:
    """What every view set reads, by its serving and its staged definition."""
    reads: dict[TableName, set[TableName]] = defaultdict(set)
    for name, definition in list_all_definitions(reader):
        reads[name].update(definition.inputs)
    return {name: frozenset(inputs) for name, inputs in reads.items()}


def merge_window(table: LakeTable) -> int:
    return merge_window_of(table.properties)


def list_visible_hashes(reader: Queryable, table_id: int) -> list[str]:
    return [v.schema_hash for v in list_versions(reader, table_id) if v.standing in VISIBLE]


def list_partition_summaries(
    reader: Queryable, table_id: int, *, instance: str, hashes: Sequence[str] | None = None, within: TimeRange = ALWAYS
) -> list[PartitionSummary]:
    """Partitions that touch the range, in its order; the visible ones unless hashes are given."""
    chosen = list_visible_hashes(reader, table_id) if hashes is None else list(hashes)
    params = {"table_id": table_id, "instance": instance, "hashes": chosen, "begin": within.begin, "end": within.end}
    return [
        PartitionSummary(
            partition_id=r[0],
            insert_range=TimeRange(begin=r[1], end=r[2]),
            fingerprint=r[3],
            schema_hash=r[4],
            source_data_hash=r[5],
            lookup_hash=r[6],
            num_rows=r[7],
            event_range=None if r[8] is None else (r[8], r[9]),
        )
        for r in reader.query(_PIECES, params)
    ]


def list_instances(reader: Queryable, table_id: int) -> list[str]:
    """Instances that ever held a partition of a visible version."""
    rows = reader.query(_INSTANCES, {"table_id": table_id, "hashes": list_visible_hashes(reader, table_id)})
    return [row[0] for row in rows]


def list_live_files(reader: Queryable, partition_ids: Iterable[int]) -> list[LiveFile]:
    rows = reader.query(_FILES, {"ids": sorted(partition_ids)})
    return [
        LiveFile(file_id=r[0], partition_id=r[1], path=r[2], size_bytes=r[3], file_type=r[4], partition_path=r[5], row_count=r[6])
        for r in rows
    ]


def hash_lookups(reader: Queryable, definition: Definition) -> str | None:
    """The content of all lookups as one fingerprint; None where they are not tracked. Compacting a lookup leaves it as it is."""
    if definition.lookups != "track":
        return None
    found: list[str] = []
    for name in definition.reads:
        table_id = require_lake_table(reader, name).table_id
        rows = reader.query(_FINGERPRINTS, {"table_id": table_id, "hashes": list_visible_hashes(reader, table_id)})
        found.append(fingerprints.add(row[0] for row in rows))
    return fingerprints.add(found)


def guard_source(
    wanted: Slice, *, source: LakeTable, then: Sequence[PartitionSummary], guard_window: TimeRange
) -> Callable[[Transaction], None]:
    """Refuses to publish a slice whose source rows changed since `then`, the partitions that touched `guard_window`.

    A merge of the source does not matter, even across the window's edge, as long as it stays inside `guard_window`.
    """

    def guard(tx: Transaction) -> None:
        table_id = tx.require(source.name).table_id
        now = list_partition_summaries(tx, table_id, instance=wanted.instance, within=guard_window)
        if not is_unchanged(wanted.insert_range, then=then, now=now, guard_window=guard_window):
            raise SourceChangedError(str(wanted), source=str(source.name))

    return guard


def guard_files(name: TableName, *, partitions: Sequence[int], files: Iterable[int]) -> Callable[[Transaction], None]:
    """Refuses to swap partitions whose live files are not exactly `files` any more."""
    expected = set(files)

    def guard(tx: Transaction) -> None:
        found = {row[0] for row in tx.query(_FILE_IDS, {"ids": sorted(partitions)})}
        if found != expected:
            raise VictimsChangedError(str(name), missing=tuple(sorted(expected ^ found)), what="files")

    return guard


def promote_when_covered(tx: Transaction, name: TableName) -> bool:
    """Serve the staged version once it covers, for every instance, the windows that the serving one has."""
    staged = read_view(tx, name, staged=True)
    if staged is None:
        return False
    serving = require_lake_table(tx, name)
    for instance in list_instances(tx, serving.table_id):
        have = list_partition_summaries(tx, serving.table_id, instance=instance, hashes=[staged.table.schema_hash])
        if not covers(have, list_partition_summaries(tx, serving.table_id, instance=instance)):
            return False
    promote_version(tx, name, staged.table.schema_hash)
    return True


def find_expired(reader: Queryable, view: ViewSet, source_id: int, instance: str) -> Expired:
    """What retention has taken from the source and from the view itself."""
    source, own = (read_expired(reader, table_id, instance) for table_id in (source_id, view.table.table_id))
    return Expired(source=source, view=own, is_staged=view.is_staged)
