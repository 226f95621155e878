"""The history of a table's serving versions, under which earlier states are read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lakebed.registry.schema.predicates import is_visible

if TYPE_CHECKING:
    from lakebed.registry.backends.protocol import Queryable
    from lakebed.registry.transaction import Transaction

SCHEMA_VERSION = "lakebed.schema-version"  # in a snapshot's summary: stored, never rename
# a transaction that changes the version twice leaves only the last one behind
_RECORD = """INSERT INTO serving_history (table_id, seq, schema_version, group_no, at)
VALUES (:table_id, :seq, :version, :group_no, :at) ON CONFLICT (table_id, seq)
DO UPDATE SET schema_version = excluded.schema_version, group_no = excluded.group_no, at = excluded.at"""
_AT_NUMBER = "SELECT schema_version FROM serving_history WHERE table_id = :id AND seq <= :n ORDER BY seq DESC LIMIT 1"
_AT_SNAPSHOT = """SELECT schema_version FROM serving_history WHERE table_id = :id AND group_no <= :group AND at <= :at
ORDER BY seq DESC LIMIT 1"""
_NUMBER_AT = "SELECT max(seq) FROM serving_history WHERE table_id = :id AND at <= :at"
# an older version of a plain table stays readable, unless it never served (an import keeps what it cannot read); one of a view set does not
_HASHES = f"""SELECT m.schema_hash FROM table_metadata m JOIN tables t ON t.id = m.table_id WHERE m.table_id = :id
AND (m.schema_version = :version OR (t.kind = 'table' AND m.schema_version < :version AND {is_visible("m.")}))"""


def record_serving(tx: Transaction, table_id: int, *, seq: int, version: int, group: int) -> None:
    """From the journal number `seq` on this version serves; `group` is the newest one that it serves."""
    tx.run(_RECORD, {"table_id": table_id, "seq": seq, "version": version, "group_no": group, "at": tx.now})


def find_version_at(reader: Queryable, table_id: int, number: int) -> int | None:
    """The version that served at a journal number."""
    rows = reader.query(_AT_NUMBER, {"id": table_id, "n": number})
    return rows[0][0] if rows else None


def find_version_of(reader: Queryable, table_id: int, *, group: int, at_ms: int, summary: str) -> int | None:
    """The version that a snapshot was committed under: its summary names it; snapshots of earlier programs are placed by group and time."""
    recorded = json.loads(summary).get(SCHEMA_VERSION)
    if recorded is not None:
        return int(recorded)
    rows = reader.query(_AT_SNAPSHOT, {"id": table_id, "group": group, "at": at_ms * 1000 + 999})
    return rows[0][0] if rows else None


def find_number_of_version_at(reader: Queryable, table_id: int, moment: int) -> int:
    """The journal number from which on the version of this moment (UTC microseconds) served; 0 for the first one."""
    ((found,),) = reader.query(_NUMBER_AT, {"id": table_id, "at": moment})
    return int(found or 0)


def list_hashes_at(reader: Queryable, table_id: int, number: int) -> list[str]:
    """The schema hashes of the files that were visible at a journal number."""
    version = find_version_at(reader, table_id, number)
    return [row[0] for row in reader.query(_HASHES, {"id": table_id, "version": version})]
