"""What is wished of a table's Iceberg history, changed in one transaction; the change is the updater's event."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lakebed.core.wishes import WISHES, Wishes, parse_wishes
from lakebed.registry.lake_tables import set_properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.registry.engine import Registry
    from lakebed.registry.transaction import Reader, Transaction

_PROPERTIES = "SELECT properties FROM table_metadata WHERE table_id = :id AND standing = 'serving'"


def change_wishes(registry: Registry, table_id: int, change: Callable[[Wishes], Wishes]) -> Wishes:
    """What is wished afterwards; nothing is written when `change` changes nothing."""

    def body(tx: Transaction) -> Wishes:
        table = tx.tables[table_id]
        before = parse_wishes(tx.query(_PROPERTIES, {"id": table_id})[0][0])
        after = change(before)
        if after != before and table.head.dropped_at is None:
            set_properties(tx, table.name, {WISHES: after.to_property()})
        return after

    return registry.transact(body, tables=[table_id])


def read_properties(reader: Registry | Reader, table_id: int) -> str:
    rows = reader.query(_PROPERTIES, {"id": table_id})
    return str(rows[0][0]) if rows else json.dumps({})
