"""Operations: the intent before the first byte, and how an unknown outcome is resolved.

writing -> registered            the transaction that publishes
writing -> rolling_back          recovery, once the lease has expired; only then may a file be touched
rolling_back -> rolled_back      the operation's directory is gone
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from lakebed.core.errors import (
    InvalidValueError,
    OperationConflictError,
    OperationNotFoundError,
    OutcomeUnknownError,
    RegistryUnavailableError,
)
from lakebed.core.ids import require_op_id
from lakebed.registry.backends.statements import Insert
from lakebed.registry.files.batches import Batch, adopt_query, find_registered

if TYPE_CHECKING:
    from lakebed.core.names import TableName
    from lakebed.registry.backends.protocol import Queryable
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import LockedTable, Transaction

DEFAULT_LEASE_US = 10 * 60 * 1_000_000
_COLUMNS = ("op_id", "table_id", "kind", "state", "staging_path", "mode", "app_id", "batch_id", "result", "lease_until", "error")
_ALL = (
    "op_id",
    "table_id",
    "kind",
    "state",
    "staging_path",
    "mode",
    "app_id",
    "batch_id",
    "query_id",
    "result",
    "lease_until",
    "error",
    "created_at",
    "updated_at",
)
_FIND = f"SELECT {', '.join(_COLUMNS)} FROM operations WHERE op_id = :op_id"
_REGISTER = "UPDATE operations SET state = 'registered', result = :result, updated_at = :now WHERE op_id = :op_id AND state = 'writing'"
_MOVE = "UPDATE operations SET state = :to, error = :error, updated_at = :now WHERE op_id = :op_id AND state = :was"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Who writes what. `has_intent`: it was opened before the first byte; otherwise the files exist already."""

    op_id: str
    kind: str = "insert"
    has_intent: bool = False
    staging_path: str | None = None
    mode: str | None = None
    app_id: str | None = None
    batch_id: int | None = None
    is_streamed: bool = False  # its batches come in order
    query_id: str | None = None  # names the checkpoint of a stream

    def __post_init__(self) -> None:
        require_op_id(self.op_id)
        if (self.app_id is None) != (self.batch_id is None):
            message = f"operation {self.op_id}: app_id and batch_id go together"
            raise InvalidValueError(message)

    def with_batch(self, batch: Batch | None) -> Operation:
        return self if batch is None else replace(self, **asdict(batch))

    @property
    def batch(self) -> Batch | None:
        if self.app_id is None or self.batch_id is None:
            return None
        return Batch(app_id=self.app_id, batch_id=self.batch_id, is_streamed=self.is_streamed, query_id=self.query_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRow:
    op_id: str
    table_id: int
    kind: str
    state: str
    staging_path: str | None
    mode: str | None
    app_id: str | None
    batch_id: int | None
    result: str | None
    lease_until: int
    error: str | None


def open_operation(registry: Registry, table: TableName, operation: Operation, *, lease_us: int = DEFAULT_LEASE_US) -> None:
    """Write the intent. From now on its directory belongs to it, and recovery leaves it alone until the lease ends.

    Refused where the clocks would make the write fail or mislead: on a host out of step, and for an insert that would get no slot.
    """
    try:
        with registry.write([table]) as tx:
            locked = tx.require(table)
            tx.require_host_in_step()
            if operation.mode is not None:  # of an insert, which draws a slot when it publishes
                tx.next_slot(locked)
            tx.execute_batch([_row_of(tx, locked, operation, state="writing", result=None, lease_until=tx.now + lease_us)])
    except OutcomeUnknownError as exc:  # an intent makes nothing visible: recovery removes it if it is there
        message = f"the connection was lost while operation {operation.op_id} was opened; nothing was written: retry"
        raise RegistryUnavailableError(message) from exc


def renew_operation(registry: Registry, op_id: str, *, lease_us: int = DEFAULT_LEASE_US) -> None:
    """Extend the lease of an operation that is still writing."""
    with registry.write() as tx:
        changed = tx.run(
            "UPDATE operations SET lease_until = :until, updated_at = :now WHERE op_id = :op_id AND state = 'writing'",
            {"until": tx.now + lease_us, "now": tx.now, "op_id": op_id},
        )
        if not changed:
            _raise_moved(tx, op_id, wanted="writing")


def find_operation(reader: Queryable, op_id: str) -> OperationRow | None:
    rows = reader.query(_FIND, {"op_id": op_id})
    return _row(rows[0]) if rows else None


def require_operation(reader: Queryable, op_id: str) -> OperationRow:
    if (found := find_operation(reader, op_id)) is None:
        raise OperationNotFoundError(op_id)
    return found


def find_result(tx: Transaction, table: LockedTable, operation: Operation) -> str | None:
    """The answer of an earlier transaction that registered the same operation or the same batch."""
    if (batch := operation.batch) is None:
        return None
    found = find_registered(tx, table.name, table.table_id, batch)
    if found is None:
        return None
    adopt_query(tx, found, batch)
    return found.result


def register_statements(tx: Transaction, table: LockedTable, operation: Operation, *, result: str) -> list[Insert]:
    """The first write of every publishing transaction: it fails here if another process recovered the operation meanwhile.

    Without an intent there is nothing to take over, and the row may travel with the others.
    """
    if not operation.has_intent:
        return [_row_of(tx, table, operation, state="registered", result=result, lease_until=tx.now)]
    if not tx.run(_REGISTER, {"op_id": operation.op_id, "result": result, "now": tx.now}):
        _raise_moved(tx, operation.op_id, wanted="writing")
    return []


def list_expired_operations(registry: Registry, *, limit: int = 100) -> list[OperationRow]:
    """Operations whose writer is gone: their lease has ended, or their rollback was interrupted."""
    rows = registry.query(
        f"SELECT {', '.join(_COLUMNS)} FROM operations WHERE state IN ('writing', 'rolling_back') AND lease_until < :now "
        "ORDER BY lease_until LIMIT :limit",
        {"now": registry.now(), "limit": limit},
    )
    return [_row(row) for row in rows]


def take_expired(tx: Transaction, op_id: str, *, error: str) -> OperationRow | None:
    """`start_rollback` for recovery; None when a slow writer, a renewal or another recovery came first."""
    found = require_operation(tx, op_id)
    if found.state == "writing" and found.lease_until < tx.now:
        return start_rollback(tx, op_id, error=error)
    return found if found.state == "rolling_back" else None


def start_rollback(tx: Transaction, op_id: str, *, error: str, abandoned: bool = False) -> OperationRow:
    """Take the operation away from its writer, who can no longer register it. `abandoned`: the writer itself gives up."""
    found = require_operation(tx, op_id)
    if found.state == "rolling_back":
        return found
    if found.state == "writing" and not abandoned and found.lease_until >= tx.now:
        raise OperationConflictError(op_id, wanted="expired", found="writing under a valid lease")
    shown = error.encode("utf-8", "backslashreplace").decode()  # an error's text may come from anywhere, a file's name among it
    if not tx.run(_MOVE, {"op_id": op_id, "was": "writing", "to": "rolling_back", "error": shown, "now": tx.now}):
        raise OperationConflictError(op_id, wanted="writing", found=found.state)
    return require_operation(tx, op_id)


def finish_rollback(tx: Transaction, op_id: str) -> None:
    """Its directory is gone: the operation left nothing behind."""
    found = require_operation(tx, op_id)
    if found.state == "rolled_back":
        return
    if not tx.run(_MOVE, {"op_id": op_id, "was": "rolling_back", "to": "rolled_back", "error": found.error, "now": tx.now}):
        raise OperationConflictError(op_id, wanted="rolling_back", found=found.state)


def _row_of(tx: Transaction, table: LockedTable, operation: Operation, *, state: str, result: str | None, lease_until: int) -> Insert:
    values = (
        operation.op_id, table.table_id, operation.kind, state, operation.staging_path, operation.mode, operation.app_id,
        operation.batch_id, operation.query_id, result, lease_until, None, tx.now, tx.now,
    )  # fmt: skip
    return Insert("operations", _ALL, [values])


def _raise_moved(tx: Transaction, op_id: str, *, wanted: str) -> None:
    found = require_operation(tx, op_id)
    raise OperationConflictError(op_id, wanted=wanted, found=found.state)


def _row(values: tuple[Any, ...]) -> OperationRow:
    return OperationRow(**dict(zip(_COLUMNS, values, strict=True)))
