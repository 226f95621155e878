"""What of a table's metadata Lakebed wrote: recorded in the table by the commit itself, so that what others changed shows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER_ID

from lakebed.iceberg.metadata.metadata import COMMIT_ID, FORMAT, GROUP, TABLE_ID, is_ours, make_ref, summary_of, without_snapshots
from lakebed.iceberg.types.partitions import make_partitioning
from lakebed.iceberg.types.schemas import to_iceberg
from lakebed.registry.snapshots.foreign import ForeignRefs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyiceberg.table.metadata import TableMetadataV2
    from pyiceberg.table.refs import SnapshotRef
    from pyiceberg.table.snapshots import Snapshot

    from lakebed.core.tables.snapshots import SnapshotRequests
    from lakebed.iceberg.metadata.metadata import TableDefinition

WRITTEN = "lakebed.written"  # stored: never rename
OWN_KEYS = "lakebed."
MAIN = "main"
_NAMES = {  # the key in the property, stored: never rename; and what a person calls it
    "uuid": "uuid",
    "location": "location",
    "schema-id": "schema",
    "spec-id": "partition spec",
    "sort-order-id": "sort order",
    "main": MAIN,
    "properties": "lakebed.* properties",
}


def complete(metadata: TableMetadataV2, requested: SnapshotRequests) -> TableMetadataV2:
    """Refs as requested, and the snapshots requested to expire gone, except those that a ref or the table itself needs; then what we wrote is recorded.

    Refs of other programs stay as they are, and what they lead to stays. The very same object when nothing differs.
    """
    foreign = find_foreign_refs(metadata, requested)
    present = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    ours = _refs(requested.tags.items(), SnapshotRefType.TAG, present) | _refs(requested.branches.items(), SnapshotRefType.BRANCH, present)
    ours = {name: ref for name, ref in ours.items() if name not in foreign}
    refs = {**{name: ref for name, ref in metadata.refs.items() if name == MAIN_BRANCH}, **foreign, **ours}
    needed = {ref.snapshot_id for ref in refs.values()} | find_pins(metadata, requested).pinned | {metadata.current_snapshot_id}
    kept = without_snapshots(metadata, present.intersection(requested.expire) - needed)
    return _sign(kept if refs == kept.refs else kept.model_copy(update={"refs": refs}), ours)


def _refs(named: Iterable[tuple[str, int]], kind: SnapshotRefType, present: set[int]) -> dict[str, SnapshotRef]:
    return {name: make_ref(snapshot_id, kind) for name, snapshot_id in named if snapshot_id in present and name != MAIN_BRANCH}


def _sign(metadata: TableMetadataV2, ours: dict[str, SnapshotRef]) -> TableMetadataV2:
    text = json.dumps({**_facts(metadata), "refs": {name: ref.snapshot_id for name, ref in ours.items()}}, sort_keys=True)
    if metadata.properties.get(WRITTEN) == text:
        return metadata
    return metadata.model_copy(update={"properties": {**metadata.properties, WRITTEN: text}})


def list_changes(metadata: TableMetadataV2, wanted: TableDefinition) -> tuple[str, ...]:
    """What another program changed of that which is Lakebed's alone; empty when all is as we wrote it."""
    written = read_written(metadata)
    if written is None:
        changed = list(_compare_unsigned(metadata, wanted))
    else:
        facts = _facts(metadata)
        changed = [name for key, name in _NAMES.items() if written.get(key) != facts[key]]
    if not is_ours(metadata) and MAIN not in changed:
        changed.append(MAIN)
    return tuple(changed)


def read_written(metadata: TableMetadataV2) -> dict[str, Any] | None:
    """None where there is no such property, or it is not what we write."""
    try:
        written = json.loads(metadata.properties.get(WRITTEN, "null"))
    except ValueError:
        return None
    return written if isinstance(written, dict) and isinstance(written.get("refs"), dict) else None


def belongs(metadata: TableMetadataV2, table_id: int) -> bool:
    """A table that was dropped and made again under its name has another id; one whose id another program altered is still ours."""
    written = read_written(metadata)
    properties = metadata.properties if written is None else written["properties"]
    return bool(properties.get(TABLE_ID) == str(table_id))


def find_foreign_refs(metadata: TableMetadataV2, requested: SnapshotRequests) -> dict[str, SnapshotRef]:
    """Branches and tags that other programs made or moved. Before Lakebed recorded its own, those were its own that were requested."""
    written = read_written(metadata)
    ours = {**requested.tags, **requested.branches} if written is None else written["refs"]
    present = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    return {
        name: ref
        for name, ref in metadata.refs.items()
        if name != MAIN_BRANCH and ref.snapshot_id in present and not _is_own(name, ref, ours, signed=written is not None)
    }


def find_pins(metadata: TableMetadataV2, requested: SnapshotRequests) -> ForeignRefs:
    """The refs of other programs and the snapshots that they keep: a tag keeps one, a branch also what was committed to it before."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    foreign = find_foreign_refs(metadata, requested)
    pinned = {ref.snapshot_id for ref in foreign.values()}
    for ref in foreign.values():
        if ref.snapshot_ref_type == SnapshotRefType.BRANCH:
            pinned.update(_list_foreign_ancestors(by_id, ref.snapshot_id))
    return ForeignRefs(refs={name: ref.snapshot_id for name, ref in foreign.items()}, pinned=frozenset(pinned))


def is_our_snapshot(snapshot: Snapshot) -> bool:
    summary = summary_of(snapshot)
    return COMMIT_ID in summary and GROUP in summary


def find_own_ancestor(metadata: TableMetadataV2, snapshot: Snapshot | None) -> Snapshot | None:
    """The snapshot itself or its nearest ancestor that Lakebed committed; None when there is none."""
    by_id = {known.snapshot_id: known for known in metadata.snapshots}
    seen: set[int] = set()
    while snapshot is not None and not is_our_snapshot(snapshot) and snapshot.snapshot_id not in seen:
        seen.add(snapshot.snapshot_id)
        snapshot = by_id.get(snapshot.parent_snapshot_id or 0)
    return snapshot if snapshot is not None and is_our_snapshot(snapshot) else None


def _list_foreign_ancestors(by_id: dict[int, Snapshot], snapshot_id: int | None) -> Iterator[int]:
    seen: set[int] = set()
    while snapshot_id in by_id and snapshot_id not in seen and not is_our_snapshot(by_id[snapshot_id]):
        seen.add(snapshot_id)
        yield snapshot_id
        snapshot_id = by_id[snapshot_id].parent_snapshot_id


def _is_own(name: str, ref: SnapshotRef, ours: dict[str, int], *, signed: bool) -> bool:
    return name in ours and (not signed or ours[name] == ref.snapshot_id)


def _facts(metadata: TableMetadataV2) -> dict[str, Any]:
    """Ids are enough: no program alters a schema, spec or order under its id."""
    return {
        "uuid": str(metadata.table_uuid),
        "location": metadata.location,
        "schema-id": metadata.current_schema_id,
        "spec-id": metadata.default_spec_id,
        "sort-order-id": metadata.default_sort_order_id,
        "main": metadata.current_snapshot_id,
        "properties": {key: value for key, value in metadata.properties.items() if key.startswith(OWN_KEYS) and key != WRITTEN},
    }


def _compare_unsigned(metadata: TableMetadataV2, wanted: TableDefinition) -> Iterator[str]:
    """A table that an earlier version committed last: its schema and spec must be ones that the registry knows."""
    current = metadata.current_snapshot()
    if WRITTEN in metadata.properties or (current is not None and FORMAT in summary_of(current)):
        yield _NAMES["properties"]  # it was there
    known = [(schema, with_instance) for schema in (wanted.schema, *wanted.history) for with_instance in (False, True)]
    if all(to_iceberg(schema, schema_id=0, with_instance=flag) != metadata.schema() for schema, flag in known):
        yield _NAMES["schema-id"]
    specs = (make_partitioning(wanted.schema, wanted.partition_by, with_instance=flag, spec_id=0).spec for flag in (False, True))
    if all(spec.fields != metadata.spec().fields for spec in specs):
        yield _NAMES["spec-id"]
    if metadata.default_sort_order_id != UNSORTED_SORT_ORDER_ID:
        yield _NAMES["sort-order-id"]
