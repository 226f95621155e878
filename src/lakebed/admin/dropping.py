"""Dropping a table: hides it at once, retires its partitions and schedules its files for deletion after the grace period."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakebed.admin.audit import find_actor
from lakebed.admin.retirement import MAX_PARTITIONS
from lakebed.core.errors import InvalidValueError, TooManyPartitionsError
from lakebed.core.names import TableName
from lakebed.core.results import single_result
from lakebed.registry.maintenance.open_runs import OpenRun, keeping_run
from lakebed.registry.partitions.retire import DEFAULT_GRACE_S
from lakebed.registry.partitions.retire_many import RETIRED, retire_in_batches
from lakebed.registry.queries.listing import list_partitions
from lakebed.registry.table_cache import missing_table
from lakebed.registry.tables.lake_tables import drop_table as hide_table
from lakebed.registry.tables.lake_tables import require_table
from lakebed.registry.tables.view_sets import list_definitions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lakebed.core.results import Rows
    from lakebed.registry.partitions.retire_many import RetireOutcome
    from lakebed.registry.queries.listing import PartitionRow
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Transaction

DROP = "drop_table"  # stored, as a job: never rename


@single_result
@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """What was dropped, or in a dry run would be. Bytes are scheduled for deletion, not freed."""

    table: str
    table_id: int
    empty: int
    non_empty: int
    rows: int
    files: int
    bytes_scheduled: int
    dry_run: bool
    run_id: int | None = None

    @property
    def partitions(self) -> int:
        return self.empty + self.non_empty


def drop_table(
    registry: Registry,
    table: str,
    *,
    dry_run: bool = True,
    max_partitions: int = MAX_PARTITIONS,
    grace_s: float = DEFAULT_GRACE_S,
    actor: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Drop:
    """Hide the table and retire all its partitions, of all schemas and instances. A table that a view set reads is refused.

    The name is free at once. If the process dies before all partitions are retired, the others belong to an unknown view set:
    `retire_incompatible_partitions` retires them.
    """
    grace_us = _micros(grace_s)
    found = require_table(registry, TableName.parse(table))
    name = found.name
    rows = list_partitions(registry, found.table_id)
    planned = _sum(name, found.table_id, rows, dry_run=dry_run)
    _require_unread(registry, name)
    if dry_run:
        return planned
    if planned.partitions > max_partitions:
        raise TooManyPartitionsError(str(name), found=planned.partitions, allowed=max_partitions)
    retired: list[PartitionRow] = []
    run = OpenRun(
        DROP, actor=find_actor(actor), plan={"table": str(name), **_totals(planned)}, table_id=found.table_id,
        so_far=lambda: {"retired": len(retired)},
    )  # fmt: skip
    with keeping_run(registry, run):
        left = _hide(registry, name, planned, run)
        for part in _retire_all(registry, planned, left, run, grace_us=grace_us):
            retired += part
            if progress is not None:
                progress(len(retired), len(left))
    return replace(_sum(name, found.table_id, retired, dry_run=False), run_id=run.run_id)


def _hide(registry: Registry, name: TableName, planned: Drop, run: OpenRun) -> Rows[PartitionRow]:
    """After this transaction no writer can publish to the table, so the partitions found now are all there are to retire."""

    def body(tx: Transaction) -> Rows[PartitionRow]:
        locked = tx.require(name)
        if locked.table_id != planned.table_id:  # dropped and created again since it was read
            raise missing_table(tx, name)
        run.begin(tx)
        hide_table(tx, name)
        left = list_partitions(tx, planned.table_id)
        if not left:
            run.finish(tx, result=_totals(_sum(name, planned.table_id, (), dry_run=False)))
        return left

    return registry.transact(body, tables=[name])


def _retire_all(
    registry: Registry, planned: Drop, rows: Rows[PartitionRow], run: OpenRun, *, grace_us: int
) -> Iterator[list[PartitionRow]]:
    """The retired partitions, batch by batch; the last transaction closes the run."""
    by_id = {row.partition_id: row for row in rows}

    def find_retired(outcomes: Sequence[RetireOutcome]) -> list[PartitionRow]:
        return [by_id[one.partition_id] for one in outcomes if one.outcome == RETIRED and one.partition_id is not None]

    def finish(tx: Transaction, outcomes: Sequence[RetireOutcome]) -> None:
        done = _sum(TableName.parse(planned.table), planned.table_id, find_retired(outcomes), dry_run=False)
        run.finish(tx, result=_totals(done))

    for part in retire_in_batches(registry, rows, reason="dropped", grace_us=grace_us, begin=run.begin, finish=finish):
        yield find_retired(part)


def _require_unread(registry: Registry, name: TableName) -> None:
    with registry.read() as reader:
        readers = sorted(str(view) for view, reads in list_definitions(reader).items() if name in reads and view != name)
    if readers:
        message = (
            f"{name} is read by {', '.join(readers)}: drop or redefine {'it' if len(readers) == 1 else 'them'} first; nothing was changed"
        )
        raise InvalidValueError(message)


def _micros(seconds: float) -> int:
    if not 0 <= seconds < 1e12:  # noqa: PLR2004 - NaN, and periods beyond any clock
        message = f"invalid grace period: {seconds} s"
        raise InvalidValueError(message)
    return int(seconds * 1e6)


def _sum(name: TableName, table_id: int, rows: Sequence[PartitionRow], *, dry_run: bool) -> Drop:
    return Drop(
        table=str(name),
        table_id=table_id,
        empty=sum(row.num_rows == 0 for row in rows),
        non_empty=sum(row.num_rows > 0 for row in rows),
        rows=sum(row.num_rows for row in rows),
        files=sum(row.file_count for row in rows),
        bytes_scheduled=sum(row.file_size for row in rows),
        dry_run=dry_run,
    )


def _totals(done: Drop) -> dict[str, int]:
    return {name: getattr(done, name) for name in ("empty", "non_empty", "rows", "files", "bytes_scheduled")}
