"""Leases: one owner at a time with a fencing epoch, and readers that hold files by journal number."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.core.errors import InvalidNameError, LeaseHeldError, LeaseLostError
from lakebed.registry.processes import is_dead

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Transaction

DEFAULT_TTL_US = 10 * 1_000_000
_LONGER_US = 3600 * 1_000_000  # than what is asked for: no holder requests a longer lease, so its clock was ahead
_NAME = re.compile(r"[a-z0-9][a-z0-9_./:-]{0,199}", re.ASCII)
_FIND = "SELECT owner, epoch, expires_at FROM leases WHERE name = :name"
_INSERT = """INSERT INTO leases (name, kind, owner, epoch, expires_at, acquired_at) VALUES (:name, :kind, :owner, 1, :expires, :now)
ON CONFLICT (name) DO NOTHING"""
_TAKE = """UPDATE leases SET owner = :owner, epoch = epoch + 1, expires_at = :expires, acquired_at = :now
WHERE name = :name AND epoch = :epoch"""
_HOLD = """INSERT INTO leases (name, kind, owner, epoch, expires_at, acquired_at) VALUES (:name, 'reader', :owner, 1, :expires, :now)
ON CONFLICT (name) DO UPDATE SET expires_at = excluded.expires_at, owner = excluded.owner"""
_NUMBER = """INSERT INTO lease_numbers (name, table_id, seq) SELECT :name, table_id, last_seq FROM table_seq WHERE table_id = :table_id
ON CONFLICT (name, table_id) DO NOTHING"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Granted: nothing commits under an older epoch any more."""

    name: str
    owner: str
    epoch: int
    expires_at: int


def acquire_lease(registry: Registry, name: str, *, owner: str, ttl_us: int = DEFAULT_TTL_US) -> Lease:
    """Become the owner if the lease is free, expired, or its holder is proven dead; each grant raises the epoch.

    A lease that ends too late was granted by a clock that was ahead, and counts as expired: a holder that is still alive is fenced out and tries again.
    """
    _require_lease_name(name)
    with registry.write() as tx:
        expires = tx.now + ttl_us
        if tx.run(_INSERT, {"name": name, "kind": "exclusive", "owner": owner, "expires": expires, "now": tx.now}) == 1:
            return Lease(name=name, owner=owner, epoch=1, expires_at=expires)
        holder, epoch, until = tx.query_locked(_FIND, {"name": name})[0]
        if tx.now < until <= expires + _LONGER_US and not is_dead(holder):
            raise LeaseHeldError(name, owner=holder)
        tx.run(_TAKE, {"name": name, "owner": owner, "epoch": epoch, "expires": expires, "now": tx.now})
    return Lease(name=name, owner=owner, epoch=epoch + 1, expires_at=expires)


def find_holder(registry: Registry, name: str) -> str | None:
    """The owner of the lease now; None when no live process holds it."""
    rows = registry.query(_FIND, {"name": name})
    return None if not rows or rows[0][2] <= registry.now() or is_dead(rows[0][0]) else str(rows[0][0])


def renew_lease(registry: Registry, lease: Lease, *, ttl_us: int = DEFAULT_TTL_US) -> Lease:
    """Stay the owner; refused once another epoch was granted."""
    with registry.write() as tx:
        require_epoch(tx, lease)
        expires = tx.now + ttl_us
        tx.run("UPDATE leases SET expires_at = :expires WHERE name = :name", {"expires": expires, "name": lease.name})
    return Lease(name=lease.name, owner=lease.owner, epoch=lease.epoch, expires_at=expires)


def release_lease(registry: Registry, lease: Lease) -> None:
    """Release the lease now; the epoch stays, so that it never repeats."""
    with registry.write() as tx:
        tx.run(
            "UPDATE leases SET expires_at = :now WHERE name = :name AND epoch = :epoch",
            {"now": tx.now, "name": lease.name, "epoch": lease.epoch},
        )


def require_epoch(tx: Transaction, lease: Lease) -> None:
    """The fence: this transaction commits only if the lease is still ours, and no other owner can be granted it before the transaction ends."""
    rows = tx.query_locked("SELECT epoch FROM leases WHERE name = :name", {"name": lease.name})
    if not rows or rows[0][0] != lease.epoch:
        raise LeaseLostError(lease.name, epoch=lease.epoch)


def hold_for_reading(registry: Registry, name: str, table_ids: Iterable[int], *, owner: str, ttl_us: int) -> dict[int, int]:
    """Protect every file that is live now in these tables, before planning: the journal number held per table.

    Calling again renews the lease and adds tables; a table's number never rises while it is held.
    """
    _require_lease_name(name)
    with registry.write() as tx:
        expired = tx.query("SELECT 1 FROM leases WHERE name = :name AND expires_at <= :now", {"name": name, "now": tx.now})
        if expired:  # what it protected may be gone: the old numbers protect nothing
            tx.run("DELETE FROM lease_numbers WHERE name = :name", {"name": name})
        tx.run(_HOLD, {"name": name, "owner": owner, "expires": tx.now + ttl_us, "now": tx.now})
        for table_id in sorted(set(table_ids)):
            tx.run(_NUMBER, {"name": name, "table_id": table_id})
        rows = tx.query("SELECT table_id, seq FROM lease_numbers WHERE name = :name", {"name": name})
    return {row[0]: row[1] for row in rows}


def end_reading(registry: Registry, name: str) -> None:
    with registry.write() as tx:
        tx.run("DELETE FROM lease_numbers WHERE name = :name", {"name": name})
        tx.run("DELETE FROM leases WHERE name = :name AND kind = 'reader'", {"name": name})


def _require_lease_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidNameError("lease", name, reason="use lower-case letters, digits and _ . / : -")
