"""Who may change the lake by administration: one list, one check, in the transaction that writes the run.

Actors name themselves, so this keeps colleagues from accidents; against others the database's own roles stand.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from lakebed.core.errors import InvalidValueError, NotAllowedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Reader, Transaction

_KEY = "administrators"  # stored: never rename
_FIND = "SELECT value FROM registry_facts WHERE key = :key"
_SET = "INSERT INTO registry_facts (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
_THROUGH_SQL = "sql "  # how the SQL functions announce whoever runs the session
# What the service does by itself, and rewriting that changes no row, is nobody's decision
_AUTOMATIC_JOBS = ("compact", "task/")
_SERVICE = "maintenance"


def read_administrators(reader: Registry | Reader | Transaction) -> tuple[str, ...]:
    """Empty: everybody may."""
    rows = reader.query(_FIND, {"key": _KEY})
    return tuple(json.loads(rows[0][0])) if rows else ()


def write_administrators(tx: Transaction, actors: Iterable[str]) -> tuple[str, ...]:
    listed = tuple(sorted({actor.strip() for actor in actors}))
    if "" in listed:
        message = "an administrator has a name, such as ann@host"
        raise InvalidValueError(message)
    tx.run(_SET, {"key": _KEY, "value": json.dumps(listed)})
    return listed


def require_allowed(tx: Transaction, job: str, actor: str) -> None:
    """The one check: every administrative change writes a run, and every run passes here before anything is changed."""
    if job.startswith(_AUTOMATIC_JOBS) or actor == _SERVICE:
        return
    allowed = read_administrators(tx)
    if allowed and actor.removeprefix(_THROUGH_SQL) not in allowed:
        raise NotAllowedError(job, actor=actor)
