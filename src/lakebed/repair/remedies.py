"""The remedy of each finding. Pure, so that a plan can be reviewed before anything is changed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from lakebed.check import Severity
from lakebed.core.results import Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from collections.abc import Set as AbstractSet

    from lakebed.check import Finding


class Remedy(StrEnum):
    """In the order in which they are applied. Stored in `runs`: never rename the values."""

    RESTORE_GUARDS = "restore_guards"
    REINDEX = "reindex"
    DISOWN = "disown"
    DROP_STATISTICS = "drop_statistics"
    DROP_FOOTERS = "drop_footers"
    RESCOPE = "rescope"
    CLEAR_EMPTY = "clear_empty"
    RECOUNT_PARTITIONS = "recount_partitions"
    RECAPTURE = "recapture"
    EVENT_RANGE = "event_range"
    RETIRE_EMPTY = "retire_empty"
    RETIRE_DAMAGED = "retire_damaged"
    NEW_SLOTS = "new_slots"
    RETIRE_FUTURE = "retire_future"
    RENUMBER = "renumber"
    REGROUP = "regroup"
    REQUEUE = "requeue"
    UNQUEUE = "unqueue"
    RECOUNT = "recount"
    REPAIR_LEASES = "mend_leases"
    RECOVER = "recover"
    LOWER_HORIZON = "lower_horizon"
    DROP_PURGED = "drop_purged"
    FORGET_JOURNAL = "forget_journal"
    REFRESH_COMPONENT = "refresh_component"
    REFRESH_ICEBERG = "refresh_iceberg"
    FINALIZE_MISSING = "finalize_missing"
    GIVE_UP_NEWER = "give_up_newer"
    SWEEP = "sweep"


WHAT = {
    Remedy.RESTORE_GUARDS: "recreate the registry's triggers and constraints; every component refreshes",
    Remedy.REINDEX: "rebuild the registry's indexes",
    Remedy.DISOWN: "delete rows of a table that does not exist",
    Remedy.DROP_STATISTICS: "delete statistics that belong to no file",
    Remedy.DROP_FOOTERS: "delete footers that belong to no file, and assign the others to their table",
    Remedy.RESCOPE: "set the scope of the partitions to that of their table, instance and schema",
    Remedy.CLEAR_EMPTY: "clear values that empty partitions cannot have",
    Remedy.RECOUNT_PARTITIONS: "recount rows and files of the partitions",
    Remedy.RECAPTURE: "read footer and statistics again from files that still match their registration",
    Remedy.EVENT_RANGE: "read the partitions' event ranges again from their files",
    Remedy.RETIRE_EMPTY: "retire empty partitions that cover no time",
    Remedy.RETIRE_DAMAGED: "retire the partitions of lost or changed files: readers no longer see their rows",
    Remedy.NEW_SLOTS: "assign new slots, in order, to partitions in the future and lower the last slot; views over them become stale",
    Remedy.RETIRE_FUTURE: "retire slices of a view set that are in the future; their rows are built again from the source",
    Remedy.RENUMBER: "set impossible retirement numbers to the current one",
    Remedy.REGROUP: "set the groups of the files from their rows",
    Remedy.REQUEUE: "queue retired files for deletion again",
    Remedy.UNQUEUE: "remove live files from the deletion queue",
    Remedy.RECOUNT: "recount the table's rows, files and bytes",
    Remedy.REPAIR_LEASES: "let leases on impossible numbers protect all files until they end, and delete numbers without a lease",
    Remedy.RECOVER: "undo the operations of dead writers",
    Remedy.LOWER_HORIZON: "limit `as_of` to states whose files are known to exist",
    Remedy.DROP_PURGED: "delete changes below the purge limit",
    Remedy.FORGET_JOURNAL: "purge the journal and refresh every component from the registry",
    Remedy.REFRESH_COMPONENT: "refresh the component from the registry",
    Remedy.REFRESH_ICEBERG: "bring the Iceberg table in step with the registry",
    Remedy.FINALIZE_MISSING: "finish the deletion of retired files that are already gone",
    Remedy.GIVE_UP_NEWER: "mark operations of a lost history as rolled back, so that their files may be swept",
    Remedy.SWEEP: "queue unknown files for deletion if they are old enough",
}


ICEBERG = {
    "refresh": "compare the Iceberg table with the registry and repair it",
    "rebuild": "rebuild the Iceberg table from the registry; its earlier snapshots are lost",
    "adopt_foreign": "register the files that another program committed",
    "discard_foreign": "go back to the schema, spec, properties and snapshot that Lakebed wrote; the other program's snapshot stays as a tag",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairStep:
    """One remedy for one table (None: for the registry), with the subjects of the findings."""

    remedy: Remedy
    table: str | None
    subjects: tuple[str, ...]
    partition_ids: tuple[int, ...]
    rules: tuple[str, ...]

    @property
    def what(self) -> str:
        return WHAT[self.remedy]


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A finding that no program can repair, and what a person can do."""

    rule: str
    table: str | None
    subject: str
    advice: str
    can_retire: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPlan:
    steps: tuple[RepairStep, ...]
    left: Rows[Left]


_SIMPLE: dict[str, Remedy] = {
    "guard_missing": Remedy.RESTORE_GUARDS,
    "table_counters": Remedy.RECOUNT,
    "table_stats": Remedy.RECOUNT,
    "stats_for_nothing": Remedy.RECOUNT,
    "partition_scope": Remedy.RESCOPE,
    "partition_event_range": Remedy.EVENT_RANGE,
    "slot_in_future": Remedy.NEW_SLOTS,
    "slice_in_future": Remedy.RETIRE_FUTURE,
    "file_groups": Remedy.REGROUP,
    "file_numbers": Remedy.RENUMBER,
    "retired_not_queued": Remedy.REQUEUE,
    "queued_but_live": Remedy.UNQUEUE,
    "column_without_file": Remedy.DROP_STATISTICS,
    "column_statistics": Remedy.RECAPTURE,
    "statistics_stale": Remedy.RECAPTURE,
    "range_missing": Remedy.RECAPTURE,
    "footer_missing": Remedy.RECAPTURE,
    "footer_bytes": Remedy.RECAPTURE,
    "footer_rows": Remedy.RECAPTURE,
    "footer_file_size": Remedy.RECAPTURE,
    "file_tail": Remedy.RECAPTURE,
    "footer_without_file": Remedy.DROP_FOOTERS,
    "journal_gap": Remedy.FORGET_JOURNAL,
    "journal_beyond": Remedy.FORGET_JOURNAL,
    "journal_replay": Remedy.FORGET_JOURNAL,
    "journal_not_purged": Remedy.DROP_PURGED,
    "cursor_range": Remedy.REFRESH_COMPONENT,
    "cursor_lost": Remedy.REFRESH_COMPONENT,
    "operation_stuck": Remedy.RECOVER,
    "lease_number": Remedy.REPAIR_LEASES,
    "lease_unknown": Remedy.REPAIR_LEASES,
    "iceberg_pointer": Remedy.REFRESH_ICEBERG,
    "iceberg_tree": Remedy.REFRESH_ICEBERG,
    "iceberg_files": Remedy.REFRESH_ICEBERG,
    "iceberg_totals": Remedy.REFRESH_ICEBERG,
    "iceberg_history": Remedy.REFRESH_ICEBERG,
    "iceberg_group": Remedy.REFRESH_ICEBERG,
    "unregistered_file": Remedy.SWEEP,
}
DAMAGED = frozenset({"file_missing", "file_place", "file_unreadable", "file_size", "file_checksum", "file_pages", "file_partition"})
# Findings that need a person's decision or a backup
FOR_PEOPLE = frozenset(
    {
        "rule_failed",
        "guard_unexpected",
        "table_incomplete",
        "serving_history",
        "table_groups",
        "table_name_case",
        "table_properties",
        "partition_overlap",
        "path_twice",
        "operation_result",
        "iceberg_needed",
        "iceberg_missing",
        "iceberg_foreign",
        "newer_file",
    }
)
_OWNED_BY_NOTHING = frozenset({"temporary_files", "subscriber_cursor", "lease_numbers"})
_PARTITIONS_AT_FAULT = frozenset({"partition_sums", "partition_empty", "partition_event_range", "file_partition"})


def _judge_sums(finding: Finding) -> Remedy | None:
    """If both counts are wrong, a file row was lost or moved, and the partition's own counts are the only record."""
    rows, files, live_rows, live_files = finding.facts
    return Remedy.RECOUNT_PARTITIONS if live_files and (rows == live_rows) != (files == live_files) else None


def _judge_integrity(finding: Finding) -> Remedy | None:
    return Remedy.REINDEX if " index " in finding.message and "CHECK constraint" not in finding.message else None


def _judge_reference(finding: Finding) -> Remedy | None:
    return {"partition_metadata": Remedy.DROP_FOOTERS, "lease_numbers": Remedy.REPAIR_LEASES}.get(finding.subject.split()[0])


def _judge_range_entry(finding: Finding) -> Remedy:
    return Remedy.DROP_STATISTICS if finding.table is None else Remedy.RECAPTURE


def _judge_ends(finding: Finding) -> Remedy | None:
    purged, last, _ = finding.facts
    return Remedy.LOWER_HORIZON if 0 <= purged <= last else None


def _judge_missing(finding: Finding) -> Remedy | None:
    return Remedy.FINALIZE_MISSING if finding.facts == ("retired",) else None


_JUDGED: dict[str, Callable[[Finding], Remedy | None]] = {
    "partition_sums": _judge_sums,
    "partition_empty": lambda finding: None if finding.facts == ("live files",) else Remedy.CLEAR_EMPTY,
    "partition_range": lambda _: Remedy.RETIRE_EMPTY,
    "database_integrity": _judge_integrity,
    "foreign_keys": _judge_reference,
    "range_unexpected": _judge_range_entry,
    "table_unknown": lambda finding: Remedy.DISOWN if finding.subject in _OWNED_BY_NOTHING else None,
    "journal_ends": _judge_ends,
    "file_missing": _judge_missing,
}
KNOWN_RULES = _SIMPLE.keys() | _JUDGED.keys() | DAMAGED | FOR_PEOPLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A remedy that was applied to the subject of a finding: if the finding recurs, the remedy did not help."""

    remedy: Remedy
    rule: str
    table: str | None
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """Remedies that a person must request, because they give something up."""

    retire_damaged: bool = False
    give_up_newer: bool = False

    def second(self, finding: Finding) -> Remedy | None:
        if self.retire_damaged and can_retire(finding):
            return Remedy.RETIRE_DAMAGED
        return Remedy.GIVE_UP_NEWER if self.give_up_newer and finding.rule == "newer_file" else None


NOTHING_GIVEN_UP = Allowed()


def plan_repairs(
    findings: Iterable[Finding], *, allowed: Allowed = NOTHING_GIVEN_UP, tried: AbstractSet[Tried] = frozenset()
) -> RepairPlan:
    """One step per remedy and table, in the order in which they are applied; findings without a (further) remedy are left, with advice."""
    problems = [finding for finding in findings if finding.severity is not Severity.INFO]
    halted = {finding.table for finding in problems if finding.rule == "table_groups"}  # no commit is allowed there
    chosen: dict[tuple[Remedy, str | None], list[Finding]] = {}
    left: list[Left] = []
    for finding in problems:
        remedy = None if finding.table in halted and finding.rule.startswith("iceberg_") else _choose(finding, allowed=allowed, tried=tried)
        if remedy is None:
            left.append(_describe_left(finding))
        else:
            chosen.setdefault((remedy, finding.table), []).append(finding)
    order = list(Remedy)
    keys = sorted(chosen, key=lambda key: (order.index(key[0]), key[1] or ""))
    return RepairPlan(steps=tuple(_step(*key, chosen[key]) for key in keys), left=Rows(Left, left))


def list_tried(step: RepairStep) -> set[Tried]:
    return {Tried(remedy=step.remedy, rule=rule, table=step.table, subject=subject) for rule in step.rules for subject in step.subjects}


def can_retire(finding: Finding) -> bool:
    """Whether giving up the partition would end the finding."""
    return finding.rule in _PARTITIONS_AT_FAULT or (finding.facts == ("live",) and finding.rule in DAMAGED | {"file_tail"})


def _describe_left(finding: Finding) -> Left:
    offered = can_retire(finding)
    return Left(
        rule=finding.rule, table=finding.table, subject=finding.subject, advice=finding.message + _also(finding), can_retire=offered
    )


def _also(finding: Finding) -> str:
    if can_retire(finding):
        return "; `--retire-damaged` retires the partition, and readers no longer see its rows"
    if finding.facts == ("retired",):
        return "; the file is retired and deleted after its grace period, so only reads of earlier states may fail"
    if finding.rule.startswith("iceberg_") and finding.rule not in {
        "iceberg_missing",
        "iceberg_foreign",
    }:  # a rebuild would discard commits of other programs
        return f"; `lakebed repair {finding.table} --how rebuild` rebuilds the Iceberg table and loses its earlier snapshots"
    return ""


def _choose(finding: Finding, *, allowed: Allowed, tried: AbstractSet[Tried]) -> Remedy | None:
    judge = _JUDGED.get(finding.rule)
    first = _SIMPLE.get(finding.rule) if judge is None else judge(finding)
    for remedy in (first, allowed.second(finding)):
        if remedy is None:
            continue
        if Tried(remedy=remedy, rule=finding.rule, table=finding.table, subject=finding.subject) not in tried:
            return remedy
    return None


def _step(remedy: Remedy, table: str | None, findings: list[Finding]) -> RepairStep:
    ids = {finding.partition_id for finding in findings} | {f.facts[1] for f in findings if f.rule == "file_partition"}
    return RepairStep(
        remedy=remedy,
        table=table,
        subjects=tuple(dict.fromkeys(finding.subject for finding in findings)),
        partition_ids=tuple(sorted(i for i in ids if i is not None)),
        rules=tuple(dict.fromkeys(finding.rule for finding in findings)),
    )
