"""Numbered batches: each is registered once, and those of a stream come in order from one checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.core.errors import AnotherCheckpointError

if TYPE_CHECKING:
    from lakebed.core.names import TableName
    from lakebed.registry.backends.protocol import Queryable
    from lakebed.registry.transaction import Transaction

# SQLite uses the partial index only where its condition is written out
_REGISTERED = """SELECT op_id, batch_id, query_id, result FROM operations
WHERE table_id = :table_id AND app_id = :app_id AND state = 'registered' AND state <> 'rolled_back'"""
_THIS = f"{_REGISTERED} AND batch_id = :batch_id"
_NEWEST = f"{_REGISTERED} ORDER BY batch_id DESC LIMIT 1"
_UNFINISHED = """SELECT op_id, staging_path FROM operations WHERE table_id = :table_id AND app_id = :app_id AND batch_id = :batch_id
AND state IN ('writing', 'rolling_back') AND state <> 'rolled_back'"""
_ADOPT = "UPDATE operations SET query_id = :query_id, updated_at = :now WHERE op_id = :op_id AND query_id IS NULL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What an application numbers. `query_id` names a stream's checkpoint; None where it is not known."""

    app_id: str
    batch_id: int
    is_streamed: bool = False
    query_id: str | None = None

    @classmethod
    def of(cls, given: tuple[str, int] | Batch | None) -> Batch | None:
        return cls(app_id=given[0], batch_id=given[1]) if isinstance(given, tuple) else given


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredBatch:
    op_id: str
    batch_id: int
    query_id: str | None
    result: str


def find_registered(reader: Queryable, table: TableName, table_id: int, batch: Batch) -> RegisteredBatch | None:
    """The first registration of the batch. Of a stream, a batch that cannot come from the checkpoint of the newest one is refused."""
    sql = _NEWEST if batch.is_streamed else _THIS
    rows = reader.query(sql, {"table_id": table_id, "app_id": batch.app_id, "batch_id": batch.batch_id})
    if not rows:
        return None
    found = RegisteredBatch(op_id=rows[0][0], batch_id=rows[0][1], query_id=rows[0][2], result=str(rows[0][3]))
    if batch.is_streamed and not _may_follow(found, batch):
        raise AnotherCheckpointError(str(table), app_id=batch.app_id, batch_id=batch.batch_id, newest=found.batch_id)
    return found if found.batch_id == batch.batch_id else None


def list_unfinished(reader: Queryable, table_id: int, batch: Batch) -> list[tuple[str, str]]:
    """Operation and directory of every try of the batch that is open, or whose rollback has not ended."""
    rows = reader.query(_UNFINISHED, {"table_id": table_id, "app_id": batch.app_id, "batch_id": batch.batch_id})
    return [(op_id, directory) for op_id, directory in rows]


def adopt_query(tx: Transaction, found: RegisteredBatch, batch: Batch) -> None:
    """A batch that was registered before ids were stored gets that of the query that repeats it."""
    if found.query_id is None and batch.query_id is not None:
        tx.run(_ADOPT, {"query_id": batch.query_id, "op_id": found.op_id, "now": tx.now})


def _may_follow(newest: RegisteredBatch, batch: Batch) -> bool:
    """Spark repeats no batch but its newest, so an older one was counted by another checkpoint; ids that are not known agree."""
    if batch.batch_id == newest.batch_id:
        return None in (batch.query_id, newest.query_id) or batch.query_id == newest.query_id
    return batch.batch_id > newest.batch_id
