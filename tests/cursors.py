"""Cursors and incarnations, as tests set and read them past Astha."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.core.errors import JournalGapError
from lakebed.registry.journal.changes import last_journal_number

if TYPE_CHECKING:
    from lakebed.core.events import Component
    from lakebed.registry.backends.protocol import Queryable
    from lakebed.registry.transaction import Transaction

_SAVE = """INSERT INTO subscriber_cursor (component, table_id, seq, epoch, needs_refresh, updated_at)
VALUES (:component, :table_id, :seq, :epoch, 0, :now)
ON CONFLICT (component, table_id) DO UPDATE SET seq = excluded.seq, epoch = excluded.epoch, needs_refresh = 0, updated_at = excluded.updated_at
WHERE subscriber_cursor.epoch <= excluded.epoch AND subscriber_cursor.seq <= excluded.seq"""


def save_cursor(tx: Transaction, component: Component, table_id: int, *, seq: int, epoch: int) -> bool:
    """Move a cursor forward; False when a newer epoch took over or it would go back: the caller is fenced out."""
    last = last_journal_number(tx, table_id)
    if seq > last:
        raise JournalGapError(table_id, expected=last + 1, found=seq)
    return tx.run(_SAVE, {"component": component.value, "table_id": table_id, "seq": seq, "epoch": epoch, "now": tx.now}) == 1


def read_incarnation(reader: Queryable) -> int:
    rows = reader.query("SELECT value FROM astha_state WHERE key = :key", {"key": "incarnation"})
    return int(rows[0][0]) if rows else 0
