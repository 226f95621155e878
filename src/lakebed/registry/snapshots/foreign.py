"""Changes of other programs to a table's Iceberg metadata, shared by all processes: the stop, and the refs that they keep."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakebed.core.errors import ForeignCommitError
from lakebed.core.events import Component
from lakebed.registry.journal.cursors import STOPPED, list_parked
from lakebed.registry.key_values import delete_value, find_value, list_values, set_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakebed.core.names import TableName
    from lakebed.registry.backends.protocol import Queryable
    from lakebed.registry.transaction import Transaction

FOREIGN = "foreign"  # the trigger of a snapshot that another program committed, stored: never rename
_REFS = "foreign_refs/"  # stored: never rename
_DEGRADE = "UPDATE tables SET state = 'degraded', last_modified = :now WHERE id = :id AND state = 'ok'"
_HEAL = "UPDATE tables SET state = 'ok', last_modified = :now WHERE id = :id AND state = 'degraded'"
_IDS = f"SELECT snapshot_id FROM table_snapshots WHERE table_id = :id AND trigger = '{FOREIGN}' AND expired_at IS NULL"
_TABLES = f"SELECT DISTINCT table_id FROM table_snapshots WHERE trigger = '{FOREIGN}' AND expired_at IS NULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRefs:
    """Branches and tags that other programs wrote, by name, and every snapshot that they keep."""

    refs: Mapping[str, int] = field(default_factory=dict)
    pinned: frozenset[int] = frozenset()


def record_stop(tx: Transaction, name: TableName, error: ForeignCommitError) -> None:
    """The table waits for a user from now on; callers that wait for its snapshots get the reason."""
    table = tx.require(name)
    facts = {"table": error.table, "snapshot_id": error.snapshot_id, "location": error.location, "changed": list(error.changed)}
    value = json.dumps(facts, sort_keys=True)
    key = f"{STOPPED}{table.table_id}"
    if find_value(tx, key) == value:
        return
    set_value(tx, key, value)
    tx.run(_DEGRADE, {"id": table.table_id, "now": tx.modified_at(table)})


def clear_stop(tx: Transaction, name: TableName) -> None:
    """The updater may continue. The table is healthy again unless another component waits for a user."""
    table = tx.require(name)
    if not delete_value(tx, f"{STOPPED}{table.table_id}"):
        return
    others = (key for key in list_parked(tx) if key[0] is not Component.ICEBERG_UPDATER)
    if not any(table_id == table.table_id for _, table_id in others):
        tx.run(_HEAL, {"id": table.table_id, "now": tx.modified_at(table)})


def find_stop(reader: Queryable, table_id: int) -> ForeignCommitError | None:
    value = find_value(reader, f"{STOPPED}{table_id}")
    return None if value is None else _stop(value)


def list_stops(reader: Queryable) -> dict[int, ForeignCommitError]:
    """By table."""
    return {int(table_id): _stop(value) for table_id, value in list_values(reader, STOPPED).items()}


def require_not_stopped(reader: Queryable, table_id: int) -> None:
    """Raise the error that stopped the table's updater: it would never commit."""
    if (stop := find_stop(reader, table_id)) is not None:
        raise stop


def note_refs(tx: Transaction, table_id: int, found: ForeignRefs) -> None:
    """Remember which snapshots other programs' refs keep; nothing is written when that is known."""
    if found == read_refs(tx, table_id):
        return
    key = f"{_REFS}{table_id}"
    if not found.refs:
        delete_value(tx, key)
        return
    value = json.dumps({"refs": dict(found.refs), "pinned": sorted(found.pinned)}, sort_keys=True)
    set_value(tx, key, value)


def read_refs(reader: Queryable, table_id: int) -> ForeignRefs:
    """As of the last commit of ours: a ref that came since is kept as well, and seen by the next one."""
    if (value := find_value(reader, f"{_REFS}{table_id}")) is None:
        return ForeignRefs()
    stored = json.loads(value)
    return ForeignRefs(refs=stored["refs"], pinned=frozenset(stored["pinned"]))


def list_foreign_ids(reader: Queryable, table_id: int) -> set[int]:
    """The kept snapshots of a table that other programs committed."""
    return {row[0] for row in reader.query(_IDS, {"id": table_id})}


def list_tables_with_foreign(reader: Queryable) -> list[int]:
    """Tables that keep a snapshot of another program, or are stopped by one that is not recorded yet."""
    return sorted({row[0] for row in reader.query(_TABLES)} | list_stops(reader).keys())


def _stop(value: str) -> ForeignCommitError:
    facts = json.loads(value)
    return ForeignCommitError(facts["table"], snapshot_id=facts["snapshot_id"], location=facts["location"], changed=tuple(facts["changed"]))
