"""Retiring many partitions by id: one outcome per input, in order, in bounded transactions or in one.

Ids are never reused, so an id that is there is the very partition that was listed: one that was
rebuilt meanwhile has another id, and survives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakebed.registry.partitions.retire import DEFAULT_GRACE_US, PartitionsToRetire, load_partitions_to_retire, retire_loaded
from lakebed.registry.queries.listing import list_incompatible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from lakebed.registry.backends.protocol import Queryable
    from lakebed.registry.queries.listing import IncompatibleRow, PartitionRow
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Transaction

    Listed = PartitionRow | IncompatibleRow
    # of the partitions that are there, those that must not be retired, each with the outcome it gets instead
    Check = Callable[[Transaction, list[int]], Mapping[int, str]]
    Begin = Callable[[Transaction], object]
    Finish = Callable[[Transaction, Sequence["RetireOutcome"]], object]

# What the SQL functions show: never rename
RETIRED = "retired"
WOULD_RETIRE = "would_retire"
ALREADY_RETIRED = "already_retired"
NOT_FOUND = "not_found"
COMPATIBLE = "compatible"
STRADDLES = "straddles"
ROLLED_BACK = "rolled_back"
# One sentence per outcome: for an empty partition, and for one with rows
_MESSAGES = {
    RETIRED: (
        "retired an empty partition: it had no rows and no file",
        "retired {rows} rows: {files} files ({size} bytes) are deleted after their grace period",
    ),
    WOULD_RETIRE: (
        "would retire an empty partition: it has no rows and no file",
        "would retire {rows} rows: {files} files ({size} bytes) would be deleted after their grace period",
    ),
    ALREADY_RETIRED: (
        "not there any more: another call retired or replaced this empty partition after it was listed",
        "not there any more: another call retired or replaced this partition of {rows} rows after it was listed",
    ),
    COMPATIBLE: (
        "kept: this empty partition is compatible with the table's current definition",
        "kept: readers see this partition of {rows} rows",
    ),
    ROLLED_BACK: (
        "kept: the call was all or nothing and failed for another partition; this empty partition stays",
        "kept: the call was all or nothing and failed for another partition; this one of {rows} rows stays",
    ),
}
_MAX_FILES = 1000
_MAX_PARTITIONS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RetireOutcome:
    """What became of one partition; `file_size` bytes are scheduled for deletion when it was retired, not freed."""

    partition_id: int | None = None
    view_set_name: str | None = None
    view_instance_id: str | None = None
    begin_insert_time: datetime | None = None
    end_insert_time: datetime | None = None
    schema_hash: str | None = None
    num_rows: int = 0
    file_count: int = 0
    file_size: int = 0
    outcome: str
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOwner:
    """The partition that a file belongs, or belonged, to."""

    partition_id: int
    table_id: int
    view_set_name: str
    is_live: bool


def find_file_partition(reader: Queryable, path: str) -> FileOwner | None:
    sql = """SELECT f.partition_id, f.table_id, t.database || '.' || t.name, f.retired_seq FROM table_files f
JOIN tables t ON t.id = f.table_id WHERE f.file_path = :path"""
    rows = reader.query(sql, {"path": path})
    return FileOwner(partition_id=rows[0][0], table_id=rows[0][1], view_set_name=rows[0][2], is_live=rows[0][3] is None) if rows else None


def outcome_of(row: Listed, outcome: str, *, message: str | None = None) -> RetireOutcome:
    return RetireOutcome(
        partition_id=row.partition_id,
        view_set_name=row.view_set_name,
        view_instance_id=row.view_instance_id,
        begin_insert_time=row.begin_insert_time,
        end_insert_time=row.end_insert_time,
        schema_hash=row.schema_hash,
        num_rows=row.num_rows,
        file_count=row.file_count,
        file_size=row.file_size,
        outcome=outcome,
        message=message or explain_outcome(row, outcome),
    )


def explain_outcome(row: Listed | RetireOutcome, outcome: str) -> str:
    empty, filled = _MESSAGES[outcome]
    if row.num_rows == 0:
        return empty
    return filled.format(rows=f"{row.num_rows:,}", files=f"{row.file_count:,}", size=f"{row.file_size:,}")


def allow_all(_: Transaction, __: list[int]) -> Mapping[int, str]:
    return {}


def allow_incompatible(tx: Transaction, ids: list[int]) -> Mapping[int, str]:
    """Judged again under the table's lock: what readers can see again is kept."""
    still = {row.partition_id for row in list_incompatible(tx, ids=ids)}
    return {partition_id: COMPATIBLE for partition_id in ids if partition_id not in still}


def _say_nothing(*_: object) -> None:
    """For callers that record no run."""


def retire_in_batches(
    registry: Registry,
    rows: Sequence[Listed],
    *,
    check: Check = allow_all,
    reason: str = "retired",
    grace_us: int = DEFAULT_GRACE_US,
    begin: Begin = _say_nothing,
    finish: Finish = _say_nothing,
) -> Iterator[list[RetireOutcome]]:
    """Best effort: each part of about 1,000 files is a transaction of its own, and yielded once it is committed.

    `begin` runs first in each of them, `finish` last in the last, with the outcomes of all.
    """
    parts = list(_parts(rows))
    done: list[RetireOutcome] = []
    for number, part in enumerate(parts, 1):
        table_id = part[0].table_id

        def body(tx: Transaction, part: Sequence[Listed] = part, table_id: int = table_id, number: int = number) -> list[RetireOutcome]:
            begin(tx)
            outcomes = _retire(tx, table_id, part, check=check, reason=reason, grace_us=grace_us)
            if number == len(parts):
                finish(tx, [*done, *outcomes])
            return outcomes

        retired = registry.transact(body, tables=[table_id])
        done.extend(retired)
        yield retired


def retire_at_once(
    registry: Registry,
    rows: Sequence[Listed],
    *,
    check: Check = allow_all,
    reason: str = "retired",
    grace_us: int = DEFAULT_GRACE_US,
    begin: Begin = _say_nothing,
    finish: Finish = _say_nothing,
) -> list[RetireOutcome]:
    """All or nothing over all their tables: when one of them cannot be retired, every other one is `rolled_back`."""
    if not rows:
        return []

    def body(tx: Transaction) -> list[RetireOutcome]:
        begin(tx)
        parts = [_retire(tx, part[0].table_id, part, check=check, reason=reason, grace_us=grace_us) for part in _parts(rows, bounded=False)]
        done = [outcome for part in parts for outcome in part]
        if any(outcome.outcome != RETIRED for outcome in done):
            raise _TakenBack(done)
        finish(tx, done)
        return done

    try:
        return registry.transact(body, tables=sorted({row.table_id for row in rows}))
    except _TakenBack as exc:
        return [_rolled_back(outcome) if outcome.outcome == RETIRED else outcome for outcome in exc.outcomes]


def _rolled_back(outcome: RetireOutcome) -> RetireOutcome:
    return replace(outcome, outcome=ROLLED_BACK, message=explain_outcome(outcome, ROLLED_BACK))


class _TakenBack(Exception):  # noqa: N818 - leaves the transaction, never this module
    def __init__(self, outcomes: list[RetireOutcome]) -> None:
        super().__init__()
        self.outcomes = outcomes


def _retire(tx: Transaction, table_id: int, rows: Sequence[Listed], *, check: Check, reason: str, grace_us: int) -> list[RetireOutcome]:
    table = tx.tables[table_id]
    present = load_partitions_to_retire(tx, table, {row.partition_id for row in rows}, exactly=False).partition_ids
    kept = check(tx, list(present))
    leaving = {partition_id for partition_id in present if partition_id not in kept}
    retire_loaded(tx, table, PartitionsToRetire(partition_ids=tuple(sorted(leaving))), reason=reason, grace_us=grace_us)
    outcomes: list[RetireOutcome] = []
    for row in rows:
        found = RETIRED if row.partition_id in leaving else kept.get(row.partition_id, ALREADY_RETIRED)
        leaving.discard(row.partition_id)  # named twice, it is retired once
        outcomes.append(outcome_of(row, found))
    return outcomes


def _parts(rows: Sequence[Listed], *, bounded: bool = True) -> Iterator[list[Listed]]:
    """Runs of one table, each short enough for one transaction if `bounded`."""
    part: list[Listed] = []
    files = 0
    for row in rows:
        is_full = bounded and (files + row.file_count > _MAX_FILES or len(part) == _MAX_PARTITIONS)
        if part and (is_full or row.table_id != part[0].table_id):
            yield part
            part, files = [], 0
        part.append(row)
        files += row.file_count
    if part:
        yield part
