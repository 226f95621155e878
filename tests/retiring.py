"""Retirements inside a transaction of the caller's: what tests arrange with, and what histories compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from lakebed.core.partitions import Slice
from lakebed.core.times import TimeRange
from lakebed.registry.partitions.retire import (
    DEFAULT_GRACE_US,
    PartitionsToRetire,
    Retired,
    load_partitions_to_retire,
    require_by_key,
    retire_loaded,
)
from lakebed.registry.tables.expired import EXPIRED

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from lakebed.core.names import TableName
    from lakebed.registry.transaction import Transaction

RetiredT = TypeVar("RetiredT", bound=Retired)
_BY_RANGE = """SELECT id, view_instance_id, begin_insert_time, end_insert_time FROM partitions
WHERE scope_id IN (SELECT id FROM partition_scopes WHERE table_id = :table_id) AND begin_insert_time < :end AND end_insert_time > :begin
AND (CAST(:instance AS text) IS NULL OR view_instance_id = :instance)
AND (CAST(:schema_hash AS text) IS NULL OR schema_hash = :schema_hash) ORDER BY begin_insert_time"""
_EXPIRED = """SELECT id FROM partitions
WHERE scope_id IN (SELECT id FROM partition_scopes WHERE table_id = :table_id) AND COALESCE(max_event_time, end_insert_time) < :cutoff ORDER BY begin_insert_time LIMIT :limit"""


@dataclass(frozen=True, kw_only=True)
class RetiredRange(Retired):
    straddles: tuple[Slice, ...] = ()


def retire_by_key(
    tx: Transaction,
    name: TableName,
    *,
    instance: str,
    insert_range: TimeRange,
    schema_hash: str | None = None,
    reason: str = "retired",
    grace_us: int = DEFAULT_GRACE_US,
) -> Retired:
    """Retire the one partition with exactly this key; several schemas and no hash given is ambiguous, and nothing is done."""
    table = tx.require(name)
    found = require_by_key(tx, table, instance=instance, insert_range=insert_range, schema_hash=schema_hash)
    return retire_loaded(tx, table, PartitionsToRetire(partition_ids=(found,)), reason=reason, grace_us=grace_us)


def retire_by_ids(
    tx: Transaction,
    name: TableName,
    ids: AbstractSet[int],
    *,
    exactly: bool = True,
    reason: str = "retired",
    grace_us: int = DEFAULT_GRACE_US,
) -> Retired:
    """Retire these partitions. `exactly`: all or nothing; otherwise those that are gone already are passed over."""
    table = tx.require(name)
    return retire_loaded(tx, table, load_partitions_to_retire(tx, table, ids, exactly=exactly), reason=reason, grace_us=grace_us)


def retire_by_range(
    tx: Transaction,
    name: TableName,
    insert_range: TimeRange,
    *,
    instance: str | None = None,
    schema_hash: str | None = None,
    reason: str = "retired",
    grace_us: int = DEFAULT_GRACE_US,
) -> RetiredRange:
    """Retire every partition that is wholly inside the range; those that only overlap it are named, not touched."""
    table = tx.require(name)
    params = {
        "table_id": table.table_id,
        "begin": insert_range.begin,
        "end": insert_range.end,
        "instance": instance,
        "schema_hash": schema_hash,
    }
    inside: list[int] = []
    straddles: list[Slice] = []
    for partition_id, found_instance, begin, end in tx.query(_BY_RANGE, params):
        found = TimeRange(begin=begin, end=end)
        if insert_range.contains(found):
            inside.append(partition_id)
        else:
            straddles.append(Slice(table=name, instance=found_instance, insert_range=found))
    done = retire_loaded(tx, table, PartitionsToRetire(partition_ids=tuple(inside)), reason=reason, grace_us=grace_us)
    return RetiredRange(partitions=done.partitions, files=done.files, group=done.group, straddles=tuple(straddles))


def retire_expired(tx: Transaction, name: TableName, *, cutoff: int, limit: int = 1000, grace_us: int = DEFAULT_GRACE_US) -> Retired:
    """Retire up to `limit` partitions whose last event (or, without events, whose slice) is before `cutoff`."""
    table = tx.require(name)
    ids = tuple(row[0] for row in tx.query(_EXPIRED, {"table_id": table.table_id, "cutoff": cutoff, "limit": limit}))
    return retire_loaded(tx, table, PartitionsToRetire(partition_ids=ids), reason=EXPIRED, grace_us=grace_us)
