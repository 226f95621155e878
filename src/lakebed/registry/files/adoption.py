"""What was adopted from outside the warehouse, so that a second run adds only what is new.

It outlives the files themselves: what compaction or a retirement took away does not come back by adopting again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Reader, Transaction

_PREFIX = "adopted"  # stored: never rename
_LIST = "SELECT value FROM astha_state WHERE key >= :first AND key < :beyond"
_ADD = "INSERT INTO astha_state (key, value, updated_at) VALUES (:key, :value, :now)"
_REGISTERED = "SELECT file_path FROM table_files WHERE file_path IN (:paths*)"
_MANY = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStamp:
    """How a file looked when it was taken."""

    size_bytes: int
    modified_ns: int


def list_adopted(reader: Registry | Reader | Transaction, table_id: int) -> dict[str, SourceStamp]:
    """Sources of the table by the key that the caller gave them."""
    first = f"{_PREFIX}/{table_id}/"
    rows = reader.query(_LIST, {"first": first, "beyond": first[:-1] + "0"})  # '0' follows '/'
    return {
        key: SourceStamp(size_bytes=size, modified_ns=modified) for (value,) in rows for key, (size, modified) in json.loads(value).items()
    }


def remember_adopted(tx: Transaction, table_id: int, op_id: str, sources: Mapping[str, SourceStamp]) -> None:
    """In the transaction that publishes their rows."""
    value = json.dumps({key: [stamp.size_bytes, stamp.modified_ns] for key, stamp in sorted(sources.items())})
    tx.run(_ADD, {"key": f"{_PREFIX}/{table_id}/{op_id}", "value": value, "now": tx.now})


def list_registered(registry: Registry, paths: Iterable[str]) -> set[str]:
    """Those of the paths that some table has, or had until its deletion is final."""
    wanted = list(paths)
    found: set[str] = set()
    for start in range(0, len(wanted), _MANY):
        found.update(row[0] for row in registry.query(_REGISTERED, {"paths": wanted[start : start + _MANY]}))
    return found
