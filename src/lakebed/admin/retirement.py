"""Retiring one partition, or many with a dry run by default, a cap, a row in `runs` and one outcome per partition."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from lakebed.admin.audit import find_actor
from lakebed.admin.lists import find_id
from lakebed.core.errors import InvalidValueError, PartitionNotFoundError, PartitionStraddlesError, TooManyPartitionsError
from lakebed.core.names import GLOBAL_INSTANCE, TableName, require_instance
from lakebed.core.results import Rows, single_result
from lakebed.core.suggestions import require_options
from lakebed.core.times import MICROSECOND, MIN_MICROS, Time, TimeRange, read_age, show, to_micros
from lakebed.registry.maintenance.open_runs import OpenRun, keeping_run
from lakebed.registry.maintenance.runs import add_run, finish_run
from lakebed.registry.partitions.retire import DEFAULT_GRACE_S, PartitionsToRetire, require_by_key, retire_loaded
from lakebed.registry.partitions.retire_many import (
    ALREADY_RETIRED,
    COMPATIBLE,
    NOT_FOUND,
    RETIRED,
    ROLLED_BACK,
    STRADDLES,
    WOULD_RETIRE,
    RetireOutcome,
    allow_all,
    allow_incompatible,
    find_file_partition,
    outcome_of,
    retire_at_once,
    retire_in_batches,
)
from lakebed.registry.queries.listing import PartitionFilter, find_existing_range, find_partitions, list_incompatible
from lakebed.registry.tables.expired import EXPIRED
from lakebed.registry.tables.lake_tables import require_table
from lakebed.registry.tables.names import resolve_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lakebed.registry.partitions.retire_many import Check, Listed
    from lakebed.registry.queries.listing import PartitionRow
    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import Transaction
    from lakebed.storage.protocol import Storage

MAX_PARTITIONS = 10_000
_GONE = frozenset({RETIRED, WOULD_RETIRE})


class BulkOptions(TypedDict, total=False):
    """The options of every bulk call."""

    dry_run: bool  # default True: report only, change nothing
    atomic: bool  # default False: bounded transactions, each partition on its own; True: all or nothing
    max_partitions: int  # default 10,000: refuse to touch more
    grace_s: float  # default a day: how long the files stay readable
    actor: str | None  # default user@host


@single_result
@dataclass(frozen=True, slots=True, kw_only=True)
class Retirement:
    """One outcome per partition. Files of retired partitions are scheduled for deletion, not deleted."""

    outcomes: Rows[RetireOutcome]
    dry_run: bool = False
    run_id: int | None = None
    message: str = ""

    @property
    def partitions(self) -> int:
        return self.empty + self.non_empty

    @property
    def empty(self) -> int:
        """Partitions without rows that were retired, or would be."""
        return sum(o.outcome in _GONE and o.num_rows == 0 for o in self.outcomes)

    @property
    def non_empty(self) -> int:
        return sum(o.outcome in _GONE and o.num_rows > 0 for o in self.outcomes)

    @property
    def files(self) -> int:
        return sum(o.file_count for o in self.outcomes if o.outcome in _GONE)

    @property
    def bytes_scheduled(self) -> int:
        return sum(o.file_size for o in self.outcomes if o.outcome in _GONE)

    @property
    def straddles(self) -> Rows[RetireOutcome]:
        """Partitions that overlap the range but are not wholly inside it: never touched."""
        return Rows(RetireOutcome, (o for o in self.outcomes if o.outcome == STRADDLES))

    @property
    def summary(self) -> str:
        """One sentence that counts partitions with rows and empty ones separately."""
        word = "would retire" if self.dry_run else "retired"
        size = f"{self.bytes_scheduled / 1e6:,.1f} MB scheduled for deletion"
        suffix = f"; {self.message}" if self.message else ""
        return f"{word} {self.non_empty:,} partitions with rows and {self.empty:,} empty ones, {size}{suffix}"

    def totals(self) -> dict[str, int]:
        return {"empty": self.empty, "non_empty": self.non_empty, "files": self.files, "bytes_scheduled": self.bytes_scheduled}


def retire_partition_by_metadata(
    registry: Registry,
    table: str,
    instance: str = GLOBAL_INSTANCE,
    *,
    insert_begin: Time,
    insert_end: Time,
    schema_hash: str | None = None,
    grace_s: float = DEFAULT_GRACE_S,
    actor: str | None = None,
) -> Retirement:
    """Retire the one partition with exactly this key, empty or not. Without a hash, several schemas give `ambiguous` and nothing is done."""
    name, wanted = resolve_name(registry, table), TimeRange.of(insert_begin, insert_end)
    plan = metadata_plan(name, require_instance(instance), wanted, schema_hash)
    grace_us = _micros(grace_s)

    def body(tx: Transaction) -> Retirement:
        locked = tx.require(name)
        found = require_by_key(tx, locked, instance=instance, insert_range=wanted, schema_hash=schema_hash)
        (row,) = find_partitions(tx, PartitionFilter(ids=[found]))
        run_id = add_run(tx, "retire_partition_by_metadata", actor=find_actor(actor), plan=plan, table_id=locked.table_id)
        retire_loaded(tx, locked, PartitionsToRetire(partition_ids=(found,)), reason="retired", grace_us=grace_us)
        done = Retirement(outcomes=Rows(RetireOutcome, [outcome_of(row, RETIRED)]), run_id=run_id)
        finish_run(tx, run_id, state="done", result=done.totals())
        return done

    return registry.transact(body, tables=[name])


def metadata_plan(name: TableName, instance: str, wanted: TimeRange, schema_hash: str | None) -> dict[str, Any]:
    """The request as stored in `runs`, so that a repeated call can report what the first one did."""
    return {
        "view_set_name": str(name),
        "view_instance_id": instance,
        "insert_begin": wanted.begin,
        "insert_end": wanted.end,
        "schema_hash": schema_hash,
    }


def retire_partitions(
    registry: Registry,
    table: str,
    *,
    insert_begin: Time,
    insert_end: Time,
    instance: str | None = None,
    schema_hash: str | None = None,
    **options: Unpack[BulkOptions],
) -> Retirement:
    """Retire every partition that is wholly inside the range; partitions that only overlap it are returned as `straddles`.

    With `dry_run=False`, a range that overlaps partitions but wholly contains none is refused as `partition_straddles`.
    """
    table_id, wanted = require_table(registry, TableName.parse(table)).table_id, TimeRange.of(insert_begin, insert_end)
    chosen = PartitionFilter(
        table_id=table_id,
        instance=None if instance is None else require_instance(instance),
        schema_hash=schema_hash,
        insert_begin=wanted.begin,
        insert_end=wanted.end,
    )
    rows = find_partitions(registry, chosen)
    inside = [row for row in rows if wanted.contains(_slice(row))]
    beside = [row for row in rows if not wanted.contains(_slice(row))]
    if beside and not inside and not options.get("dry_run", True):
        raise _straddling(f"{table} {wanted}", wanted, beside)
    task = _Task(
        job="retire_partitions",
        what=f"{table} {wanted}",
        plan=range_plan(table, wanted, instance, schema_hash),
        table_id=table_id,
        beside=[outcome_of(row, STRADDLES, message=_explain_straddling(row, wanted)) for row in beside],
        message="" if rows else _explain_nothing(registry, f"{table} {wanted}", table_id),
    )
    return _carry_out(registry, inside, task, options)


def range_plan(table: str, wanted: TimeRange, instance: str | None, schema_hash: str | None) -> dict[str, Any]:
    """The plan as stored in `runs` beside the number of partitions."""
    return {
        "view_set_name": table,
        "insert_begin": wanted.begin,
        "insert_end": wanted.end,
        "instance": instance,
        "schema_hash": schema_hash,
    }


def _slice(row: PartitionRow) -> TimeRange:
    return TimeRange.of(row.begin_insert_time, row.end_insert_time)


def _widest(rows: Sequence[PartitionRow], wanted: TimeRange) -> TimeRange:
    """The smallest range around `wanted` that holds the partitions."""
    slices = [wanted, *map(_slice, rows)]
    return TimeRange(begin=min(one.begin for one in slices), end=max(one.end for one in slices))


def _explain_straddling(row: PartitionRow, wanted: TimeRange) -> str:
    """Which partition extends beyond the range, and the two ways to retire it."""
    what = f"{row.num_rows:,} rows" if row.num_rows else "an empty partition"
    return (
        f"kept: {_slice(row)} ({what}) extends beyond the range {wanted}. Widen the range to {_widest([row], wanted)}, or retire this one: "
        f"retire_partition_by_metadata({row.view_set_name!r}, {row.view_instance_id!r}, insert_begin={show(_slice(row).begin)!r}, "
        f"insert_end={show(_slice(row).end)!r}, schema_hash={row.schema_hash!r})"
    )


def _straddling(what: str, wanted: TimeRange, rows: Sequence[PartitionRow]) -> PartitionStraddlesError:
    named = tuple(f"{row.view_instance_id} {_slice(row)}" for row in rows)
    return PartitionStraddlesError(what, straddles=named, widest=str(_widest(rows, wanted)))


def retire_expired_partitions(
    registry: Registry, table: str | None = None, *, retention: timedelta | str, **options: Unpack[BulkOptions]
) -> Retirement:
    """Retire every partition whose last event (or, without events, whose slice) is older than `retention`, of one table or of all."""
    retention = read_age(retention, what="retention")
    if retention <= timedelta(0):
        message = f"the retention must be positive, got {retention}"
        raise InvalidValueError(message)
    cutoff = max(registry.now() - retention // MICROSECOND, MIN_MICROS)
    table_id = find_id(registry, table)
    rows = sorted(find_partitions(registry, PartitionFilter(table_id=table_id, expired_before=cutoff)), key=lambda row: row.table_id)
    plan = {"view_set_name": table, "cutoff": cutoff}
    task = _Task(
        job="retire_expired_partitions", what=f"{table or 'the lake'} before {show(cutoff)}", plan=plan, table_id=table_id, reason=EXPIRED
    )
    return _carry_out(registry, rows, task, options)


def retire_incompatible_partitions(
    registry: Registry, table: str | None = None, *, partition_ids: Sequence[int] | None = None, **options: Unpack[BulkOptions]
) -> Retirement:
    """Retire the partitions that `list_incompatible_partitions` lists, or of those only `partition_ids`: one outcome each, in order.

    Each is checked again inside the transaction: a partition that became visible or was rebuilt meanwhile is kept.
    """
    table_id = find_id(registry, table)
    ids = None if partition_ids is None else list(partition_ids)
    plan = {"view_set_name": table, "partition_ids": ids}
    task = _Task(
        job="retire_incompatible_partitions",
        what=table or "the lake",
        plan=plan,
        table_id=table_id,
        check=allow_incompatible,
        reason="incompatible",
    )
    listed = list_incompatible(registry, table_id, ids=ids)
    return _carry_out(registry, listed, task, options) if ids is None else _carry_out_named(registry, ids, listed, task, options)


def retire_partition_by_file(
    registry: Registry,
    storage: Storage,
    path: str,
    *,
    grace_s: float = DEFAULT_GRACE_S,
    actor: str | None = None,
    stacklevel: int = 2,
) -> Retirement:
    """Deprecated: retire the whole partition that owns the file. It cannot name an empty partition; `retire_partition_by_metadata` can."""
    text = "retire_partition_by_file is deprecated and goes in 1.0: use retire_partition_by_metadata, which finds empty partitions too"
    warnings.warn(text, DeprecationWarning, stacklevel=stacklevel)
    if not path or not path.strip():
        message = "expected the path of a file, got an empty string"
        raise InvalidValueError(message)
    canonical = storage.canonical(path)
    owner = find_file_partition(registry, canonical)
    if owner is None:
        raise PartitionNotFoundError(f"file {canonical!a}", hint="list the files")
    rows = find_partitions(registry, PartitionFilter(ids=[owner.partition_id])) if owner.is_live else ()
    if not rows:
        message = "not found: the partition of this file was already retired or replaced"
        gone = RetireOutcome(partition_id=owner.partition_id, view_set_name=owner.view_set_name, outcome=ALREADY_RETIRED, message=message)
        return Retirement(outcomes=Rows(RetireOutcome, [gone]))
    task = _Task(job="retire_partition_by_file", what=canonical, plan={"file_path": canonical}, table_id=owner.table_id)
    return _carry_out(registry, rows, task, {"dry_run": False, "grace_s": grace_s, "actor": actor})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """What is stored in `runs`, and how each partition is checked."""

    job: str
    what: str
    plan: dict[str, Any]
    table_id: int | None
    check: Check = allow_all
    reason: str = "retired"
    beside: Sequence[RetireOutcome] = ()
    message: str = ""


def _carry_out(registry: Registry, rows: Sequence[Listed], task: _Task, options: BulkOptions) -> Retirement:
    require_options(task.job, options, BulkOptions.__annotations__)
    grace_us, allowed = _micros(options.get("grace_s", DEFAULT_GRACE_S)), options.get("max_partitions", MAX_PARTITIONS)
    if options.get("dry_run", True):
        return _finished(task, [outcome_of(row, WOULD_RETIRE) for row in rows], dry_run=True)
    if len(rows) > allowed:
        raise TooManyPartitionsError(task.what, found=len(rows), allowed=allowed)
    plan = {**task.plan, "partitions": len(rows)}
    done: list[RetireOutcome] = []
    run = OpenRun(
        task.job, actor=find_actor(options.get("actor")), plan=plan, table_id=task.table_id, so_far=lambda: _finished(task, done).totals()
    )  # fmt: skip

    def finish(tx: Transaction, outcomes: Sequence[RetireOutcome]) -> None:
        run.finish(tx, result=_finished(task, outcomes).totals())

    with keeping_run(registry, run):
        if options.get("atomic", False):
            done += retire_at_once(
                registry, rows, check=task.check, reason=task.reason, grace_us=grace_us, begin=run.begin, finish=finish
            )  # fmt: skip
        else:
            for part in retire_in_batches(
                registry, rows, check=task.check, reason=task.reason, grace_us=grace_us, begin=run.begin, finish=finish
            ):  # fmt: skip
                done += part
        if not run.is_closed:
            _write_down(registry, run, task, done)
    return _finished(task, done, run_id=run.run_id)


def _write_down(registry: Registry, run: OpenRun, task: _Task, kept: Sequence[RetireOutcome]) -> None:
    """A call that found nothing to do, or whose transaction was rolled back because of the partitions it names."""
    suffix = {"error": f"all or nothing: {len(kept)} partitions were left unchanged"} if kept else {}
    with registry.write() as tx:
        run.finish(tx, state="failed" if kept else "done", result=_finished(task, kept).totals() | suffix)


def _carry_out_named(registry: Registry, ids: Sequence[int], listed: Sequence[Listed], task: _Task, options: BulkOptions) -> Retirement:
    """One outcome for each of the ids, in their order."""
    require_options(task.job, options, BulkOptions.__annotations__)
    incompatible = {row.partition_id: row for row in listed}
    others = {
        row.partition_id: row
        for row in find_partitions(registry, PartitionFilter(table_id=task.table_id, ids=sorted(set(ids) - incompatible.keys())))
    }
    kept = {i: outcome_of(others[i], COMPATIBLE) if i in others else _not_found(i) for i in ids if i not in incompatible}
    rows = [incompatible[i] for i in ids if i in incompatible]
    if kept and options.get("atomic", False) and not options.get("dry_run", True):
        taken = iter([outcome_of(row, ROLLED_BACK) for row in rows])
        return _finished(task, [kept[i] if i in kept else next(taken) for i in ids])
    done = _carry_out(registry, rows, task, options)
    carried = iter(done.outcomes)
    return _finished(task, [kept[i] if i in kept else next(carried) for i in ids], dry_run=done.dry_run, run_id=done.run_id)


def _not_found(partition_id: int) -> RetireOutcome:
    message = f"partition {partition_id} not found: it was already retired or belongs to another table; list the partitions again"
    return RetireOutcome(partition_id=partition_id, outcome=NOT_FOUND, message=message)


def _finished(task: _Task, outcomes: Sequence[RetireOutcome], *, dry_run: bool = False, run_id: int | None = None) -> Retirement:
    return Retirement(outcomes=Rows(RetireOutcome, [*outcomes, *task.beside]), dry_run=dry_run, run_id=run_id, message=task.message)


def _explain_nothing(registry: Registry, what: str, table_id: int) -> str:
    existing = find_existing_range(registry, table_id)
    where = (
        "the table has no partitions"
        if existing is None
        else f"its partitions are in {TimeRange(begin=to_micros(existing[0]), end=to_micros(existing[1]))}"
    )
    return f"no partition in {what}: {where}"


def _micros(seconds: float) -> int:
    if not 0 <= seconds < 1e12:  # noqa: PLR2004 - NaN, and periods beyond any clock
        message = f"invalid grace period: {seconds} s"
        raise InvalidValueError(message)
    return int(seconds * 1e6)
