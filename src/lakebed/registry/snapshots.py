"""Iceberg snapshots as the registry remembers them."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from lakebed.core.rows import TableSnapshots, list_columns
from lakebed.registry.codec import decode_row

if TYPE_CHECKING:
    from lakebed.core.names import TableName
    from lakebed.registry.engine import Registry
    from lakebed.registry.transaction import Reader, Transaction

_COLUMNS = list_columns(TableSnapshots)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSnapshot:
    """A snapshot that the Iceberg catalog holds."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    group_no: int
    timestamp_ms: int
    manifest_list: str
    metadata_location: str
    summary: str
    schema_id: int
    operation: str
    trigger: str


def add_snapshot(tx: Transaction, name: TableName, snapshot: NewSnapshot) -> bool:
    """Record a snapshot; False, and nothing changed, when it is known already."""
    table = tx.require(name)
    known = tx.query(
        "SELECT 1 FROM table_snapshots WHERE table_id = :id AND snapshot_id = :s", {"id": table.table_id, "s": snapshot.snapshot_id}
    )
    if known:
        return False
    values = (table.draw_id(), table.table_id, *astuple(snapshot), None)
    tx.insert("table_snapshots", _COLUMNS, [values])
    return True


def expire_snapshots(tx: Transaction, name: TableName, snapshot_ids: list[int]) -> int:
    """Mark snapshots as expired: files that only they held may be deleted from now on."""
    table = tx.require(name)
    return tx.run(
        "UPDATE table_snapshots SET expired_at = :now WHERE table_id = :id AND snapshot_id IN (:ids*) AND expired_at IS NULL",
        {"now": tx.now, "id": table.table_id, "ids": snapshot_ids},
    )


def list_snapshots(reader: Registry | Reader | Transaction, table_id: int, *, expired: bool = False) -> list[TableSnapshots]:
    rows = reader.query(
        f"SELECT {', '.join(_COLUMNS)} FROM table_snapshots WHERE table_id = :id AND (:expired = 1 OR expired_at IS NULL) ORDER BY sequence_number",
        {"id": table_id, "expired": int(expired)},
    )
    return [decode_row(TableSnapshots, row) for row in rows]
