"""Publishes partitions of an older lake, one batch per transaction, as a whole or not at all."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from lakebed.core import fingerprints
from lakebed.parquet.capture import CapturedFile
from lakebed.registry.files.adoption import import_operation, require_not_imported
from lakebed.registry.files.left_out import drop_records
from lakebed.registry.files.operations import register_statements
from lakebed.registry.partitions.publish import update_table_files
from lakebed.registry.snapshots.pressure import wait_for_room
from lakebed.staging.partition import partition_of
from lakebed.staging.write import new_op_id, open_writing
from lakebed.storage.intake import bring_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.core.partitions import NewPartition
    from lakebed.legacy.files import Prepared
    from lakebed.registry.partitions.publish import Published
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.registry.transaction import Transaction
    from lakebed.staging.write import Writing
    from lakebed.storage.protocol import Storage


def publish_batch(
    registry: Registry, storage: Storage, table: LakeTable, schema_hash: str, prepared: Sequence[Prepared], *, link: bool
) -> None:
    """Files outside the warehouse are brought in under one intent, whose directory is deleted if the transaction fails."""
    if not any(_is_outside(storage, one) for one in prepared):
        wait_for_room(registry, table.table_id)
        _publish(registry, table, schema_hash, prepared, None)
        return
    with open_writing(registry, storage, table, kind="import") as writing:
        moved = [_bring_in(storage, writing, one, link=link) if _is_outside(storage, one) else one for one in prepared]
        storage.sync_tree(writing.directory)
        writing.published = _publish(registry, table, schema_hash, moved, writing)


def _is_outside(storage: Storage, one: Prepared) -> bool:
    return one.file is not None and not storage.paths.holds(one.file.path)


def _bring_in(storage: Storage, writing: Writing, one: Prepared, *, link: bool) -> Prepared:
    assert one.file is not None  # noqa: S101 - only files are brought in
    path = writing.new_path()
    bring_in(storage, one.file.path, path, link=link)
    return replace(one, file=replace(one.file, path=path))


def _publish(registry: Registry, table: LakeTable, schema_hash: str, prepared: Sequence[Prepared], writing: Writing | None) -> Published:
    operations = [import_operation(new_op_id(registry), one.planned.key) for one in prepared]

    def body(tx: Transaction) -> Published:
        locked = tx.require(table.name)
        require_not_imported(tx, table.table_id, [one.planned.key for one in prepared])
        drop_records(tx, [one.file.path for one in prepared if one.file is not None])
        done = [update_table_files(tx, _partition(table, schema_hash, one), own) for one, own in zip(prepared, operations, strict=True)]
        if writing is not None:
            register_statements(tx, locked, writing.operation, result=done[0].to_json())
        return done[0]

    # all of them or none: one failure fails the batch
    known = operations[-1] if writing is None else writing.operation
    return registry.transact(body, tables=[table.name], op_id=known.op_id)


def _partition(table: LakeTable, schema_hash: str, one: Prepared) -> NewPartition:
    """The fingerprint follows from the key, so that every run of the import gives the same lake."""
    row, content = one.planned.row, hashlib.sha256(str(one.planned.key).encode()).digest()
    captured = [] if one.file is None else [CapturedFile(file=one.file, event_range=one.event_range)]
    return partition_of(
        table,
        captured,
        schema_hash=schema_hash,
        fingerprint=fingerprints.from_bytes(content) if captured else fingerprints.ZERO,
        instance=row.instance,
        insert_range=one.planned.insert_range,
        source_data_hash=row.source_data_hash,
    )
