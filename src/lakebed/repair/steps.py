"""Carries out one step of a repair. Every step may be repeated, and reads the rows again under their table's lock."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lakebed.admin import DEFAULT_AGE, recover_operations, sweep_orphans
from lakebed.admin.orphans import give_up_newer_files
from lakebed.core.errors import FileChangedError, InvalidValueError, LakebedError, TooManyPartitionsError
from lakebed.core.events import Component
from lakebed.iceberg.repair import repair_table
from lakebed.iceberg.upkeep.reachable import find_needed
from lakebed.registry.repair import rows
from lakebed.registry.repair.captures import finalize_missing
from lakebed.registry.repair.journal import disown, drop_purged, forget_journal, lower_horizon, mark_refresh, reindex, repair_leases
from lakebed.registry.repair.slots import reallocate_slots
from lakebed.registry.tables.lake_tables import list_all_tables
from lakebed.registry.verify import restore_programs
from lakebed.repair.recapture import recapture_files, reread_event_ranges
from lakebed.repair.remedies import Remedy, RepairStep

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from lakebed.registry.registry import Registry
    from lakebed.registry.transaction import LockedTable, Transaction
    from lakebed.storage.protocol import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRunner:
    """One running repair."""

    registry: Registry
    storage: Storage
    actor: str | None = None
    max_partitions: int = 10_000
    orphans_older_than: timedelta = DEFAULT_AGE

    def run(self, step: RepairStep) -> str:
        """Carry out a step and describe what was done; raises if it fails."""
        return _STEPS[step.remedy](self, step)

    def table_ids(self, step: RepairStep) -> list[int]:
        """The ids of the step's table and of dropped tables of the same name: every remedy changes only what is wrong."""
        return [row.id for row in list_all_tables(self.registry) if step.table in (None, f"{row.database}.{row.name}")]

    def within(self, body: Callable[[Transaction], int]) -> int:
        return self.registry.transact(body, tables=[])

    def in_tables(self, step: RepairStep, body: Callable[[Transaction, LockedTable], int]) -> int:
        return sum(self.registry.transact(lambda tx, t=t: body(tx, tx.tables[t]), tables=[t]) for t in self.table_ids(step))  # type: ignore[misc] # mypy loses the default

    def require_few(self, step: RepairStep) -> None:
        if len(step.partition_ids) > self.max_partitions:
            raise TooManyPartitionsError(step.table or "the lake", found=len(step.partition_ids), allowed=self.max_partitions)


def _restore(runner: StepRunner, _: RepairStep) -> str:
    return f"recreated: {', '.join(restore_programs(runner.registry)) or 'nothing'}"


def _reindex(runner: StepRunner, _: RepairStep) -> str:
    reindex(runner.registry)
    return "all indexes were rebuilt"


def _disown(runner: StepRunner, step: RepairStep) -> str:
    return _rows(sum(runner.within(partial(disown, registry_table=subject)) for subject in step.subjects))


def _drop_statistics(runner: StepRunner, _: RepairStep) -> str:
    return _rows(runner.within(rows.drop_statistics_of_nothing))


def _drop_footers(runner: StepRunner, _: RepairStep) -> str:
    return _rows(runner.within(rows.drop_footers_of_nothing))


def _rescope(runner: StepRunner, step: RepairStep) -> str:
    return _partitions(_with_ids(runner, step, rows.rescope))


def _clear(runner: StepRunner, step: RepairStep) -> str:
    return _partitions(_with_ids(runner, step, rows.clear_empty))


def _recount_partitions(runner: StepRunner, step: RepairStep) -> str:
    return _partitions(_with_ids(runner, step, rows.recount_partitions))


def _with_ids(runner: StepRunner, step: RepairStep, body: Callable[[Transaction, list[int]], int]) -> int:
    return runner.registry.transact(lambda tx: body(tx, list(step.partition_ids)), tables=runner.table_ids(step))


def _recapture(runner: StepRunner, step: RepairStep) -> str:
    done, refused = recapture_files(runner.registry, runner.storage, step.subjects)
    return _report(f"{done} file(s) read again", refused)


def _event_range(runner: StepRunner, step: RepairStep) -> str:
    done, refused = reread_event_ranges(runner.registry, runner.storage, step.partition_ids)
    return _report(_partitions(done), refused)


def _retire(runner: StepRunner, step: RepairStep, *, reason: str) -> str:
    runner.require_few(step)
    done = runner.in_tables(step, partial(rows.retire_partition_ids, ids=step.partition_ids, reason=reason))
    return f"{len(step.partition_ids)} partition(s) retired with {done} file(s)"


def _new_slots(runner: StepRunner, step: RepairStep) -> str:
    return f"{runner.in_tables(step, partial(reallocate_slots, most=runner.max_partitions))} partition(s) have new slots"


def _renumber(runner: StepRunner, step: RepairStep) -> str:
    return _files(runner.in_tables(step, lambda tx, table: rows.renumber_retired(tx, table, step.subjects)))


def _regroup(runner: StepRunner, step: RepairStep) -> str:
    return _files(runner.in_tables(step, lambda tx, table: rows.regroup(tx, table, step.subjects)))


def _requeue(runner: StepRunner, step: RepairStep) -> str:
    return _files(runner.within(lambda tx: rows.requeue_retired(tx, step.subjects)))


def _unqueue(runner: StepRunner, step: RepairStep) -> str:
    return _files(runner.within(lambda tx: rows.unqueue_live(tx, step.subjects)))


def _recount(runner: StepRunner, step: RepairStep) -> str:
    return f"{rows.recount_tables(runner.registry, runner.table_ids(step))} table(s) recounted"


def _repair_leases(runner: StepRunner, _: RepairStep) -> str:
    return _rows(runner.within(repair_leases))


def _recover(runner: StepRunner, _: RepairStep) -> str:
    return f"{len(recover_operations(runner.registry, runner.storage))} operation(s) undone"


def _in_journals(runner: StepRunner, step: RepairStep, *, body: Callable[[Registry, int], int]) -> str:
    return _rows(sum(body(runner.registry, table_id) for table_id in runner.table_ids(step)))


def _refresh_component(runner: StepRunner, step: RepairStep) -> str:
    known = [Component(subject) for subject in step.subjects if subject in set(Component)]
    done = runner.in_tables(step, lambda tx, table: mark_refresh(tx, table.table_id, known))
    return f"{done} component(s) will refresh"


def _refresh_iceberg(runner: StepRunner, step: RepairStep) -> str:
    live = [row.id for row in list_all_tables(runner.registry) if step.table == f"{row.database}.{row.name}" and row.dropped_at is None]
    done = [repair_table(runner.registry, runner.storage, table_id, "refresh") for table_id in live]
    return "committed again" if any(done) else "nothing to commit"


def _finalize(runner: StepRunner, step: RepairStep) -> str:
    done = finalize_missing(runner.registry, step.subjects)
    if done < len(step.subjects):
        raise FileChangedError(
            step.subjects[0], reason=f"{len(step.subjects) - done} missing retired file(s) are still needed by a kept snapshot or a lease"
        )
    return _files(done)


def _give_up_newer(runner: StepRunner, _: RepairStep) -> str:
    return f"{give_up_newer_files(runner.registry, runner.storage, actor=runner.actor)} operation(s) given up"


def _sweep(runner: StepRunner, _: RepairStep) -> str:
    found = sweep_orphans(
        runner.registry,
        runner.storage,
        find_needed=partial(find_needed, runner.registry, runner.storage),
        older_than=runner.orphans_older_than,
        dry_run=False,
        actor=runner.actor,
    )
    skipped = "".join(f"; {table.table} is skipped: {table.reason}" for table in found.skipped)
    return f"{len(found.orphans)} file(s) queued; younger ones wait until they are {runner.orphans_older_than} old{skipped}"


def _rows(count: int) -> str:
    return f"{count} row(s) changed"


def _files(count: int) -> str:
    return f"{count} file(s) changed"


def _partitions(count: int) -> str:
    return f"{count} partition(s) changed"


def _report(done: str, refused: list[LakebedError]) -> str:
    """The step fails if one file was refused; the next check reports which are left."""
    if refused:
        message = f"{done}, {len(refused)} refused: {refused[0]}"
        raise InvalidValueError(message)
    return done


_STEPS: dict[Remedy, Callable[[StepRunner, RepairStep], str]] = {
    Remedy.RESTORE_GUARDS: _restore,
    Remedy.REINDEX: _reindex,
    Remedy.DISOWN: _disown,
    Remedy.DROP_STATISTICS: _drop_statistics,
    Remedy.DROP_FOOTERS: _drop_footers,
    Remedy.RESCOPE: _rescope,
    Remedy.CLEAR_EMPTY: _clear,
    Remedy.RECOUNT_PARTITIONS: _recount_partitions,
    Remedy.RECAPTURE: _recapture,
    Remedy.EVENT_RANGE: _event_range,
    Remedy.RETIRE_EMPTY: partial(_retire, reason="empty"),
    Remedy.RETIRE_DAMAGED: partial(_retire, reason="damaged"),
    Remedy.NEW_SLOTS: _new_slots,
    Remedy.RETIRE_FUTURE: partial(_retire, reason="future"),
    Remedy.RENUMBER: _renumber,
    Remedy.REGROUP: _regroup,
    Remedy.REQUEUE: _requeue,
    Remedy.UNQUEUE: _unqueue,
    Remedy.RECOUNT: _recount,
    Remedy.REPAIR_LEASES: _repair_leases,
    Remedy.RECOVER: _recover,
    Remedy.LOWER_HORIZON: partial(_in_journals, body=lower_horizon),
    Remedy.DROP_PURGED: partial(_in_journals, body=drop_purged),
    Remedy.FORGET_JOURNAL: partial(_in_journals, body=forget_journal),
    Remedy.REFRESH_COMPONENT: _refresh_component,
    Remedy.REFRESH_ICEBERG: _refresh_iceberg,
    Remedy.FINALIZE_MISSING: _finalize,
    Remedy.GIVE_UP_NEWER: _give_up_newer,
    Remedy.SWEEP: _sweep,
}
