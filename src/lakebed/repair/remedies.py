"""Which remedy each finding has: pure, so that a plan can be read before anything happens."""

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
    """In the order in which they are applied. Kept in `runs`: never rename."""

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
    MEND_LEASES = "mend_leases"
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
    Remedy.RESTORE_GUARDS: "make the registry's triggers and constraints anew; every component refreshes",
    Remedy.REINDEX: "build the registry's indexes anew",
    Remedy.DISOWN: "let go of rows of a table that does not exist",
    Remedy.DROP_STATISTICS: "drop statistics that belong to no file",
    Remedy.DROP_FOOTERS: "drop footers that belong to no file, and give the others back to their table",
    Remedy.RESCOPE: "give the partitions the scope of their table, instance and schema",
    Remedy.CLEAR_EMPTY: "take from empty partitions what they cannot have",
    Remedy.RECOUNT_PARTITIONS: "count rows and files of the partitions again",
    Remedy.RECAPTURE: "read footer and statistics again from files that are still what was registered",
    Remedy.EVENT_RANGE: "read the partitions' event ranges again from their files",
    Remedy.RETIRE_EMPTY: "retire empty partitions that cover no time",
    Remedy.RETIRE_DAMAGED: "retire the partitions of files that are lost or changed: their rows are gone for readers",
    Remedy.NEW_SLOTS: "give partitions in the future new slots, in their order, and lower the last slot; views over them become stale",
    Remedy.RETIRE_FUTURE: "retire slices of a view set that lie in the future; their rows are built again from the source",
    Remedy.RENUMBER: "date retirements with impossible numbers to now",
    Remedy.REGROUP: "give the files the groups that their rows demand",
    Remedy.REQUEUE: "queue retired files for deletion again",
    Remedy.UNQUEUE: "take live files out of the deletion queue",
    Remedy.RECOUNT: "count the table's rows, files and bytes again",
    Remedy.MEND_LEASES: "let leases on impossible numbers protect everything until they end, and drop numbers of no lease",
    Remedy.RECOVER: "undo what dead writers left behind",
    Remedy.LOWER_HORIZON: "let `as_of` reach only as far as files are known to exist",
    Remedy.DROP_PURGED: "delete changes that were purged already",
    Remedy.FORGET_JOURNAL: "purge the journal and refresh every component from the registry",
    Remedy.REFRESH_COMPONENT: "refresh the component from the registry",
    Remedy.REFRESH_ICEBERG: "make the Iceberg table equal to the registry again",
    Remedy.FINALIZE_MISSING: "finish the deletion of retired files that are gone already",
    Remedy.GIVE_UP_NEWER: "take operations of a lost history for rolled back, so that their files may be swept",
    Remedy.SWEEP: "queue files that nobody knows for deletion, if they are old enough",
}


ICEBERG = {
    "refresh": "compare the Iceberg table with the registry and mend it",
    "rebuild": "make the Iceberg table anew from the registry; its earlier snapshots are given up",
    "adopt_foreign": "register the files that another program committed",
    "discard_foreign": "go back to the schema, spec, properties and snapshot that Lakebed wrote; the other program's snapshot stays as a tag",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairStep:
    """One remedy for one table (None: for the registry), with what the check named."""

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
    """A finding that cannot be mended by a program, and what a person can do."""

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
    "lease_number": Remedy.MEND_LEASES,
    "lease_unknown": Remedy.MEND_LEASES,
    "iceberg_pointer": Remedy.REFRESH_ICEBERG,
    "iceberg_tree": Remedy.REFRESH_ICEBERG,
    "iceberg_files": Remedy.REFRESH_ICEBERG,
    "iceberg_totals": Remedy.REFRESH_ICEBERG,
    "iceberg_history": Remedy.REFRESH_ICEBERG,
    "iceberg_group": Remedy.REFRESH_ICEBERG,
    "unregistered_file": Remedy.SWEEP,
}
DAMAGED = frozenset({"file_missing", "file_place", "file_unreadable", "file_size", "file_checksum", "file_pages", "file_partition"})
# What only a person can decide, or only a backup can bring back
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
    """Both figures wrong: a file row was lost or moved, and the partition's own figures are the only witness."""
    rows, files, live_rows, live_files = finding.facts
    return Remedy.RECOUNT_PARTITIONS if live_files and (rows == live_rows) != (files == live_files) else None


def _judge_integrity(finding: Finding) -> Remedy | None:
    return Remedy.REINDEX if " index " in finding.message and "CHECK constraint" not in finding.message else None


def _judge_reference(finding: Finding) -> Remedy | None:
    return {"partition_metadata": Remedy.DROP_FOOTERS, "lease_numbers": Remedy.MEND_LEASES}.get(finding.subject.split()[0])


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
    """A remedy that was applied to what a finding names: if it is found again, the remedy did not help."""

    remedy: Remedy
    rule: str
    table: str | None
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """What a person has to ask for, because something is given up with it."""

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
    """One step per remedy and table, in the order in which they are applied; what has no (other) remedy is left, with what to do."""
    problems = [finding for finding in findings if finding.severity is not Severity.INFO]
    halted = {finding.table for finding in problems if finding.rule == "table_groups"}  # nothing may be committed there
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
        return "; `--retire-damaged` retires the partition, its rows are then gone for readers"
    if finding.facts == ("retired",):
        return "; the file is retired and goes after its grace, only readers of earlier states may miss it"
    if finding.rule.startswith("iceberg_") and finding.rule not in {"iceberg_missing", "iceberg_foreign"}:  # it gives up what others wrote
        return f"; `lakebed repair {finding.table} --how rebuild` makes the Iceberg table anew and gives up its earlier snapshots"
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
