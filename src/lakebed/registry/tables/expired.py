"""The slices of a table that were retired for their age: views keep their results of them, which could only be rebuilt smaller."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING

from lakebed.core.tables.windows import join_ranges
from lakebed.core.times import TimeRange
from lakebed.registry.ids import ids_of_table
from lakebed.registry.key_values import find_value, set_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.registry.backends.protocol import Queryable
    from lakebed.registry.transaction import Transaction

EXPIRED = "expired"  # the reason of such a retirement, stored: never rename
_PREFIX = "expired/"  # stored: never rename
_YOUNG_US = 24 * 3600 * 1_000_000  # rows that were old when they came: their slice is still being built
_GOING = "SELECT view_instance_id, begin_insert_time, end_insert_time FROM partitions WHERE id IN (:ids*) AND end_insert_time <= :before"
_STAYING = f"""SELECT begin_insert_time, end_insert_time FROM partitions
WHERE table_id = :table_id AND {ids_of_table()} AND view_instance_id = :instance
AND NOT id IN (:ids*) AND end_insert_time > :low AND begin_insert_time < :high"""


def note_expired(tx: Transaction, table_id: int, ids: Sequence[int]) -> None:
    """Remember the slices of these partitions, which are still there, in the transaction that retires them."""
    going: dict[str, list[TimeRange]] = defaultdict(list)
    for instance, begin, end in tx.query(_GOING, {"ids": list(ids), "before": tx.now - _YOUNG_US}):
        going[instance].append(TimeRange(begin=begin, end=end))
    for instance, ranges in going.items():
        known = [*read_expired(tx, table_id, instance), *ranges]
        params = {"table_id": table_id, "instance": instance, "ids": list(ids)}
        rows = tx.query(_STAYING, {**params, "low": min(r.begin for r in known), "high": max(r.end for r in known)})
        joined = join_ranges(known, apart=[TimeRange(begin=begin, end=end) for begin, end in rows])
        value = json.dumps([[r.begin, r.end] for r in joined])
        set_value(tx, f"{_PREFIX}{table_id}/{instance}", value)


def read_expired(reader: Queryable, table_id: int, instance: str) -> tuple[TimeRange, ...]:
    """In order, without overlap; ranges between which nothing is left count as one."""
    value = find_value(reader, f"{_PREFIX}{table_id}/{instance}")
    return tuple(TimeRange(begin=begin, end=end) for begin, end in json.loads(value or "[]"))
