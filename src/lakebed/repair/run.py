"""Check, plan, repair and check again, until nothing is left that a program can repair."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, get_args

from lakebed.admin import DEFAULT_AGE, MAX_PARTITIONS
from lakebed.admin.audit import find_actor
from lakebed.check import Severity, check
from lakebed.core.errors import InvalidValueError, LakebedError
from lakebed.core.names import TableName
from lakebed.core.results import Rows, single_result
from lakebed.core.suggestions import require_options
from lakebed.iceberg.repair import Repair, repair_table
from lakebed.registry.maintenance.open_runs import OpenRun, keeping_run
from lakebed.registry.tables.lake_tables import require_table
from lakebed.repair.remedies import ICEBERG, Allowed, Left, RepairPlan, RepairStep, Tried, list_tried, plan_repairs
from lakebed.repair.steps import StepRunner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import timedelta

    from lakebed.iceberg.commit.results import Advanced
    from lakebed.registry.registry import Registry
    from lakebed.registry.tables.lake_tables import LakeTable
    from lakebed.storage.protocol import Storage

logger = logging.getLogger(__name__)

_MAX_ROUNDS = 20


class RepairOptions(TypedDict, total=False):
    """The options of a repair."""

    how: Repair | None  # default None: all findings of the check; refresh, rebuild, adopt_foreign or discard_foreign: one Iceberg table
    dry_run: bool  # default True: report only, change nothing
    deep: bool  # default False; True: read every file whole before judging
    pages: bool  # default False; True: decode every page of every file before judging
    retire_damaged: bool  # default False; True: retire partitions whose files are lost or changed
    give_up_newer: bool  # default False; True: give up files that are unknown to a registry restored from an older backup
    max_partitions: int  # default 10,000: refuse to retire more
    orphans_older_than: timedelta  # default a day: skip younger unknown files
    actor: str | None  # default user@host
    progress: Callable[[int, int], None] | None  # called by each check with its progress


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """One step of a repair; `outcome` is planned, done or failed, `told` the report of its result."""

    remedy: str
    table: str | None
    subjects: int
    what: str
    outcome: str
    told: str = ""


@single_result
@dataclass(frozen=True, slots=True, kw_only=True)
class RepairResult:
    """`left` are the findings that no program can repair, with advice; `clean` is whether the last check found nothing.

    For the repair of one table, all fields concern that table; `elsewhere` counts findings in other tables and in the registry.
    """

    steps: Rows[StepOutcome]
    left: Rows[Left]
    dry_run: bool
    clean: bool
    run_id: int | None = None
    elsewhere: int = 0

    @property
    def failed(self) -> int:
        return sum(step.outcome == "failed" for step in self.steps)


def repair(registry: Registry, storage: Storage, table: str | None = None, **options: Unpack[RepairOptions]) -> RepairResult:
    """Repair what a program can repair, of one table or of the whole lake. A dry run unless `dry_run=False`.

    Lost or changed files cannot be repaired: their partitions are reported, and retired only with `retire_damaged`.
    """
    require_options("repair", options, RepairOptions.__annotations__)
    how = options.get("how")
    found = None if table is None else require_table(registry, TableName.parse(table))
    table = None if found is None else str(found.name)
    if how is not None:
        return _repair_iceberg(registry, storage, found, how, options)
    looked = _look(registry, storage, table, options)
    if options.get("dry_run", True):
        return looked.to_result([_outcome(step, "planned") for step in looked.plan.steps], dry_run=True)
    return _carry_out(registry, storage, table, looked, options) if looked.plan.steps else looked.to_result([])


def _repair_iceberg(registry: Registry, storage: Storage, table: LakeTable | None, how: Repair, options: RepairOptions) -> RepairResult:
    """Repair one table in the given way, independent of the check."""
    if how not in get_args(Repair) or table is None:
        message = f"how={how!a}: give a table, and one of {', '.join(get_args(Repair))}"
        raise InvalidValueError(message)
    step = StepOutcome(remedy=f"iceberg_{how}", table=str(table.name), subjects=1, what=ICEBERG[how], outcome="planned")
    if options.get("dry_run", True):
        return RepairResult(steps=Rows(StepOutcome, [step]), left=Rows(Left), dry_run=True, clean=False)
    plan = {"table": str(table.name), "how": how}
    run = OpenRun("repair", actor=find_actor(options.get("actor")), plan=plan, table_id=table.table_id)
    with keeping_run(registry, run):
        _begin(registry, run)
        done = repair_table(registry, storage, table.table_id, how)
        report = "nothing to repair" if done is None else _describe(done)
        _finish(registry, run, "done", {"told": report})
    outcome = replace(step, outcome="done", told=report)
    looked = _look(registry, storage, str(table.name), options)
    return looked.to_result([outcome], run_id=run.run_id)


def _describe(done: Advanced) -> str:
    back = f"restored as Lakebed wrote it: {', '.join(done.undone)}; " if done.undone else ""
    at = "" if done.snapshot_id is None else f" with snapshot {done.snapshot_id}"
    return f"{back}is at group {done.group}{at}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    """The findings of a check on what is to be repaired, and the number of others."""

    plan: RepairPlan
    clean: bool
    elsewhere: int

    def to_result(self, outcomes: Sequence[StepOutcome], *, dry_run: bool = False, run_id: int | None = None) -> RepairResult:
        return RepairResult(
            steps=Rows(StepOutcome, outcomes),
            left=self.plan.left,
            dry_run=dry_run,
            clean=self.clean,
            run_id=run_id,
            elsewhere=self.elsewhere,
        )


def _look(
    registry: Registry, storage: Storage, table: str | None, options: RepairOptions, *, tried: AbstractSet[Tried] = frozenset()
) -> _Looked:
    report = check(registry, storage, deep=options.get("deep", False), pages=options.get("pages", False), progress=options.get("progress"))
    broken = [finding for finding in report.findings if finding.severity is not Severity.INFO]
    findings = [finding for finding in broken if table is None or finding.table == table]
    allowed = Allowed(retire_damaged=options.get("retire_damaged", False), give_up_newer=options.get("give_up_newer", False))
    plan = plan_repairs(findings, allowed=allowed, tried=tried)
    return _Looked(plan=plan, clean=not findings, elsewhere=len(broken) - len(findings))


@dataclass(slots=True)
class _Progress:
    outcomes: list[StepOutcome] = field(default_factory=list)
    tried: set[Tried] = field(default_factory=set)

    def totals(self) -> dict[str, Any]:
        return {
            "done": sum(o.outcome == "done" for o in self.outcomes),
            "failed": sum(o.outcome == "failed" for o in self.outcomes),
            "steps": [{"remedy": o.remedy, "table": o.table, "subjects": o.subjects, "outcome": o.outcome} for o in self.outcomes],
        }


def _carry_out(registry: Registry, storage: Storage, table: str | None, looked: _Looked, options: RepairOptions) -> RepairResult:
    actor = find_actor(options.get("actor"))
    runner = StepRunner(
        registry=registry,
        storage=storage,
        actor=actor,
        max_partitions=options.get("max_partitions", MAX_PARTITIONS),
        orphans_older_than=options.get("orphans_older_than", DEFAULT_AGE),
    )
    progress = _Progress()
    plan = {"table": table, "steps": [{"remedy": s.remedy, "table": s.table, "subjects": len(s.subjects)} for s in looked.plan.steps]}
    run = OpenRun("repair", actor=actor, plan=plan, so_far=progress.totals)
    with keeping_run(registry, run):
        _begin(registry, run)
        looked = _run_rounds(runner, table, looked, progress, options)
        totals = {**progress.totals(), "left": len(looked.plan.left), "clean": looked.clean}
        _finish(registry, run, "failed" if totals["failed"] else "done", totals)
    return looked.to_result(progress.outcomes, run_id=run.run_id)


def _run_rounds(runner: StepRunner, table: str | None, looked: _Looked, progress: _Progress, options: RepairOptions) -> _Looked:
    """Repeat until a check finds nothing untried: one remedy may expose a finding that another repairs."""
    for _ in range(_MAX_ROUNDS):
        _run_all(runner, looked.plan, progress)
        looked = _look(runner.registry, runner.storage, table, options, tried=progress.tried)
        if not looked.plan.steps:
            break
    return looked


def _run_all(runner: StepRunner, plan: RepairPlan, progress: _Progress) -> None:
    """Steps are independent: a failed step does not stop the others."""
    for step in plan.steps:
        progress.tried |= list_tried(step)
        try:
            progress.outcomes.append(_outcome(step, "done", runner.run(step)))
        except LakebedError as exc:
            logger.warning("a step of a repair failed", extra={"action": "repair", "remedy": str(step.remedy), "reason": str(exc)})
            progress.outcomes.append(_outcome(step, "failed", str(exc)))


def _begin(registry: Registry, run: OpenRun) -> None:
    """Works even if triggers are missing: `runs` has none."""
    with registry.write() as tx:
        run.begin(tx)


def _finish(registry: Registry, run: OpenRun, state: str, result: dict[str, Any]) -> None:
    with registry.write() as tx:
        run.finish(tx, state=state, result=result)


def _outcome(step: RepairStep, outcome: str, report: str = "") -> StepOutcome:
    return StepOutcome(remedy=str(step.remedy), table=step.table, subjects=len(step.subjects), what=step.what, outcome=outcome, told=report)
