"""A table's metadata as a value: created, evolved, advanced and thinned by pure functions.

Copies are shallow: everything inside is immutable here, and PyIceberg's own deep copies cost a millisecond per
retained snapshot.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyiceberg.exceptions import ValidationError
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import MetadataLogEntry, Operation, Snapshot, SnapshotLogEntry, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from lakebed.core.errors import FileChangedError
from lakebed.iceberg.locations import from_uri, new_uuid
from lakebed.iceberg.types.partitions import Partitioning, make_partitioning
from lakebed.iceberg.types.schemas import find_last_column_id, name_mapping, to_iceberg

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lakebed.core.schema.schema import Schema
    from lakebed.core.tables.snapshots import SnapshotRequests

TABLE_ID = "lakebed.table-id"  # this and the next: stored, never rename
COMMITTED_GROUP = "lakebed.committed-group"
GROUP = "lakebed.group"
COMMIT_ID = "lakebed.commit-id"
TRIGGER = "lakebed.trigger"  # what made the snapshot's newest group
FORMAT = "lakebed.format"  # of a snapshot: which properties the commit wrote beside it
FORMAT_WRITTEN = "2"
UNRECORDED = "groups"  # the trigger of a snapshot whose groups were made before triggers were recorded: stored, never rename
_COUNTS = ("total-records", "total-data-files", "total-files-size", GROUP)  # of a snapshot's summary
_PLACE = re.compile(r"/|[a-zA-Z][a-zA-Z0-9+.-]*:/")
FOREIGN_TAG = "foreign-"
NAME_MAPPING = "schema.name-mapping.default"
MAX_LOG = 20
FORMAT_VERSION = 2
_FIXED_PROPERTIES = {
    "commit.retry.num-retries": "0",  # PyIceberg's own retry adds files a second time
    "gc.enabled": "false",  # no other engine may delete files: the registry decides
    "write.metadata.compression-codec": "gzip",
    "write.metadata.previous-versions-max": str(MAX_LOG),
    "write.metadata.delete-after-commit.enabled": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """What the registry says a table is: everything of its metadata except the files."""

    table_id: int
    location: str
    schema: Schema
    history: tuple[Schema, ...]
    partition_by: tuple[str, ...]
    with_instance: bool
    requested: SnapshotRequests

    def partitioning(self, spec_id: int) -> Partitioning:
        return make_partitioning(self.schema, self.partition_by, with_instance=self.with_instance, spec_id=spec_id)


def parse_metadata(text: str, location: str) -> TableMetadataV2:
    """From the text of a metadata file; anything but format version 2 is refused, and what later steps could not count with."""
    try:
        metadata = TableMetadataV2.model_validate_json(text)
    except (ValueError, ValidationError, AttributeError, TypeError, KeyError) as exc:  # its validators take the kinds of parts for granted
        raise FileChangedError(from_uri(location), reason="it is not Iceberg metadata of version 2") from exc
    if fault := _find_fault(metadata):
        raise FileChangedError(from_uri(location), reason=fault)
    return metadata


def _find_fault(metadata: TableMetadataV2) -> str | None:
    """What PyIceberg lets pass: parts that are missing, and numbers that are none."""
    if not _are_texts(metadata.properties) or not _is_count(metadata.properties.get(COMMITTED_GROUP, "0")):
        return f"its properties are not texts, or {COMMITTED_GROUP} is not a number"
    for snapshot in metadata.snapshots:
        number = snapshot.sequence_number if "sequence_number" in snapshot.model_fields_set else None
        if snapshot.summary is None or number is None or number > metadata.last_sequence_number:
            return f"its snapshot {snapshot.snapshot_id} has no summary, or no sequence number up to the table's last"
        summary = snapshot.summary.additional_properties
        default = "" if COMMIT_ID in summary else "0"  # we write them all
        if not _are_texts(summary) or not all(_is_count(summary.get(key, default)) for key in _COUNTS):
            return f"the summary of its snapshot {snapshot.snapshot_id} has no valid {', '.join(_COUNTS)}"
        if not _PLACE.match(snapshot.manifest_list):
            return f"its snapshot {snapshot.snapshot_id} names no place of a manifest list"
    return None


def _are_texts(values: Mapping[str, object]) -> bool:
    return all(isinstance(value, str) for value in values.values())


def _is_count(value: str) -> bool:
    return value.isascii() and value.isdigit()


def find_format_version(text: str) -> int | None:
    """Of a metadata file that some program of Iceberg wrote; None for anything else."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    is_iceberg = isinstance(found, dict) and isinstance(found.get("format-version"), int) and "table-uuid" in found
    return found["format-version"] if is_iceberg else None


def create_metadata(wanted: TableDefinition, *, now_ms: int) -> TableMetadataV2:
    schema = to_iceberg(wanted.schema, schema_id=0, with_instance=wanted.with_instance)
    spec = wanted.partitioning(0).spec
    properties = {**_FIXED_PROPERTIES, TABLE_ID: str(wanted.table_id), COMMITTED_GROUP: "0", NAME_MAPPING: name_mapping(wanted.schema)}
    fields: dict[str, Any] = {
        "location": wanted.location,
        "table-uuid": new_uuid(),
        "last-updated-ms": now_ms,
        "last-column-id": find_last_column_id(wanted.history, with_instance=wanted.with_instance),
        "schemas": [schema],
        "current-schema-id": 0,
        "partition-specs": [spec],
        "default-spec-id": 0,
        "last-partition-id": spec.last_assigned_field_id,
        "sort-orders": [UNSORTED_SORT_ORDER],
        "properties": properties,
    }
    return TableMetadataV2(**fields)


def evolve(metadata: TableMetadataV2, wanted: TableDefinition) -> TableMetadataV2:
    """The same table under the serving schema, spec and mapping; the very same object when nothing differs."""
    changes: dict[str, Any] = {}
    next_id = max(schema.schema_id for schema in metadata.schemas) + 1
    schema = to_iceberg(wanted.schema, schema_id=next_id, with_instance=wanted.with_instance)
    if schema != metadata.schema():
        known = next((old for old in metadata.schemas if old == schema), None)
        changes["current_schema_id"] = next_id if known is None else known.schema_id
        if known is None:
            changes["schemas"] = [*metadata.schemas, schema]
    changes |= _evolve_spec(metadata, wanted)
    last = max(metadata.last_column_id, find_last_column_id(wanted.history, with_instance=wanted.with_instance))
    if last != metadata.last_column_id:
        changes["last_column_id"] = last
    mapping = name_mapping(wanted.schema)
    if metadata.properties.get(NAME_MAPPING) != mapping:
        changes["properties"] = {**metadata.properties, NAME_MAPPING: mapping}
    return metadata.model_copy(update=changes) if changes else metadata


def _evolve_spec(metadata: TableMetadataV2, wanted: TableDefinition) -> dict[str, Any]:
    spec = wanted.partitioning(metadata.default_spec_id).spec
    if spec.fields == metadata.spec().fields:
        return {}
    if (known := next((old for old in metadata.partition_specs if old.fields == spec.fields), None)) is not None:
        return {"default_spec_id": known.spec_id}
    spec = wanted.partitioning(max(spec.spec_id for spec in metadata.partition_specs) + 1).spec
    last = max(metadata.last_partition_id or 0, spec.last_assigned_field_id)
    return {"partition_specs": [*metadata.partition_specs, spec], "default_spec_id": spec.spec_id, "last_partition_id": last}


def without_snapshots(metadata: TableMetadataV2, gone: Iterable[int]) -> TableMetadataV2:
    dropped = set(gone)
    if not dropped:
        return metadata
    snapshots = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in dropped]
    log = [entry for entry in metadata.snapshot_log if entry.snapshot_id not in dropped]
    return metadata.model_copy(update={"snapshots": snapshots, "snapshot_log": log})


def make_ref(snapshot_id: int, kind: SnapshotRefType) -> SnapshotRef:
    return SnapshotRef.model_validate({"snapshot-id": snapshot_id, "type": kind})


def add_snapshot(metadata: TableMetadataV2, snapshot: Snapshot, *, group: int) -> TableMetadataV2:
    """The snapshot becomes the current one, and the table says which group it stands for."""
    main = make_ref(snapshot.snapshot_id, SnapshotRefType.BRANCH)
    entry = SnapshotLogEntry.model_validate({"snapshot-id": snapshot.snapshot_id, "timestamp-ms": snapshot.timestamp_ms})
    changes = {
        "snapshots": [*metadata.snapshots, snapshot],
        "current_snapshot_id": snapshot.snapshot_id,
        "refs": {**metadata.refs, MAIN_BRANCH: main},
        "snapshot_log": [*metadata.snapshot_log, entry],
        "last_sequence_number": snapshot.sequence_number,
        "properties": {**metadata.properties, COMMITTED_GROUP: str(group)},
    }
    return metadata.model_copy(update=changes)


def succeed(metadata: TableMetadataV2, *, previous: TableMetadataV2, location: str, now_ms: int) -> TableMetadataV2:
    """`metadata` as the version after `previous`, which is at `location`; the log keeps the last few."""
    entry = MetadataLogEntry.model_validate({"metadata-file": location, "timestamp-ms": previous.last_updated_ms})
    log = [*previous.metadata_log, entry]
    latest = metadata.snapshot_log[-1].timestamp_ms if metadata.snapshot_log else 0  # Java refuses a table older than its snapshots
    updated = max(now_ms, previous.last_updated_ms + 1, latest)
    return metadata.model_copy(update={"metadata_log": log[-MAX_LOG:], "last_updated_ms": updated})


def make_snapshot(
    metadata: TableMetadataV2,
    *,
    snapshot_id: int,
    manifest_list: str,
    now_ms: int,
    operation: str,
    summary: dict[str, str],
) -> Snapshot:
    latest = max((snapshot.timestamp_ms for snapshot in metadata.snapshots), default=0)
    fields: dict[str, Any] = {
        "snapshot-id": snapshot_id,
        "parent-snapshot-id": metadata.current_snapshot_id,
        "sequence-number": metadata.last_sequence_number + 1,
        "timestamp-ms": max(now_ms, latest + 1, metadata.last_updated_ms + 1),
        "manifest-list": manifest_list,
        "summary": Summary(Operation(operation), **summary),
        "schema-id": metadata.current_schema_id,
    }
    return Snapshot(**fields)


def read_group(metadata: TableMetadataV2) -> int:
    return int(metadata.properties.get(COMMITTED_GROUP, "0"))


def is_ours(metadata: TableMetadataV2) -> bool:
    """Whether the current snapshot is the one that this program committed for the group that the table names."""
    current = metadata.current_snapshot()
    if current is None:
        return read_group(metadata) == 0
    summary = {} if current.summary is None else current.summary.additional_properties
    return COMMIT_ID in summary and summary.get(GROUP) == metadata.properties.get(COMMITTED_GROUP)


def summary_of(snapshot: Snapshot) -> dict[str, str]:
    return {} if snapshot.summary is None else dict(snapshot.summary.additional_properties)


def list_dropped_logs(before: TableMetadataV2, after: TableMetadataV2) -> Sequence[str]:
    """Metadata files that the log of `before` named and that of `after` does not."""
    kept = {entry.metadata_file for entry in after.metadata_log}
    return [entry.metadata_file for entry in before.metadata_log if entry.metadata_file not in kept]
