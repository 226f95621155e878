"""A record of the files adopted from outside the warehouse, so that a second run adds only new ones.

It outlives the files themselves: a file that was compacted or retired does not come back by adopting again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.core.errors import OperationConflictError
from lakebed.core.tables.settings import LEGACY
from lakebed.registry.files.deletion_queue import queue_files
from lakebed.registry.files.operations import Operation
from lakebed.registry.key_values import set_value
from lakebed.registry.tables.versions import list_versions, stage_version, withdraw_staged

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakebed.core.names import TableName
    from lakebed.core.rows import TableMetadata
    from lakebed.core.schema.schema import Schema
    from lakebed.registry.backends.protocol import Queryable
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Transaction

_PREFIX = "adopted"  # stored: never rename
_LIST = "SELECT value FROM astha_state WHERE key >= :first AND key < :beyond"
_REGISTERED = "SELECT file_path FROM table_files WHERE file_path IN (:paths*)"
_MANY = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStamp:
    """The state of a file when it was adopted."""

    size_bytes: int
    modified_ns: int


def list_adopted(reader: Queryable, table_id: int) -> dict[str, SourceStamp]:
    """Sources of the table by the key that the caller gave them."""
    first = f"{_PREFIX}/{table_id}/"
    rows = reader.query(_LIST, {"first": first, "beyond": first[:-1] + "0"})  # '0' follows '/'
    return {
        key: SourceStamp(size_bytes=size, modified_ns=modified) for (value,) in rows for key, (size, modified) in json.loads(value).items()
    }


def remember_adopted(tx: Transaction, table_id: int, op_id: str, sources: Mapping[str, SourceStamp]) -> None:
    """In the transaction that publishes their rows."""
    value = json.dumps({key: [stamp.size_bytes, stamp.modified_ns] for key, stamp in sorted(sources.items())})
    set_value(tx, f"{_PREFIX}/{table_id}/{op_id}", value)


def list_registered(registry: Registry, paths: Iterable[str]) -> set[str]:
    """Those of the paths that some table has, or had until its deletion is final."""
    wanted = list(paths)
    found: set[str] = set()
    for start in range(0, len(wanted), _MANY):
        found.update(row[0] for row in registry.query(_REGISTERED, {"paths": wanted[start : start + _MANY]}))
    return found


APP_ID = "import-legacy"  # stored: never rename
_DONE = "SELECT batch_id FROM operations WHERE table_id = :id AND app_id = :app AND state = 'registered'"
_SOME_DONE = f"{_DONE} AND batch_id IN (:keys*)"
_REOPEN = "UPDATE table_metadata SET standing = 'staged', updated_at = :now WHERE id = :id AND standing = 'incompatible'"


def import_operation(op_id: str, key: int) -> Operation:
    """One imported partition: its key makes it unique for ever, so a second run skips it even when it was retired."""
    return Operation(op_id=op_id, kind="import", app_id=APP_ID, batch_id=key)


def list_imported(reader: Queryable, table_id: int) -> frozenset[int]:
    """Keys of the partitions that came in already."""
    return frozenset(row[0] for row in reader.query(_DONE, {"id": table_id, "app": APP_ID}))


def require_not_imported(tx: Transaction, table_id: int, keys: Iterable[int]) -> None:
    """Under the table's lock: another import may have registered it first."""
    rows = tx.query(_SOME_DONE, {"id": table_id, "app": APP_ID, "keys": list(keys)})
    if rows:
        raise OperationConflictError(f"{APP_ID}/{rows[0][0]}", wanted="new", found="registered by another import")


def open_side_version(tx: Transaction, name: TableName, schema: Schema, *, note: str) -> str:
    """A version that partitions can be published under though readers do not see it; the same note gives the same one. Its hash."""
    found = find_side_version(list_versions(tx, tx.require(name).table_id), note)
    if found is None:
        return stage_version(tx, name, schema, definition=note)
    withdraw_staged(tx, name)
    tx.run(_REOPEN, {"id": found.id, "now": tx.now})
    return found.schema_hash


def close_side_version(tx: Transaction, name: TableName) -> None:
    """What was published under it is kept from now on as incompatible."""
    withdraw_staged(tx, name)


def find_side_version(versions: Iterable[TableMetadata], note: str) -> TableMetadata | None:
    return next((v for v in versions if json.loads(v.properties).get("definition") == note), None)


def queue_legacy_files(tx: Transaction, expirations: Mapping[str, tuple[int, int]]) -> None:
    """Paths with (size, expiration in microseconds); queued twice, the later expiry wins."""
    for path, (size, expiration) in expirations.items():
        queue_files(tx, 0, {path: size}, reason=LEGACY, grace_us=expiration - tx.now)
