"""Every damage that the check finds is repaired, or left with advice."""

from __future__ import annotations

import os
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import test_check
from damages import DAMAGES, ORDERS_ID, Damage, Patient, damaged_files, damaged_iceberg, damaged_journal, damaged_tables
from healthy_lake import LINES, ORDERS
from patients import OLD_ID
from test_check import store_footer

from builders import logical_dump
from lakebed.check import RULES, Severity, check
from lakebed.core.errors import InvalidValueError, RegistryUnavailableError, TableNotFoundError
from lakebed.registry.connect import open_backend
from lakebed.registry.journal.changes import list_cursors
from lakebed.registry.maintenance.runs import list_runs
from lakebed.registry.registry import Registry
from lakebed.repair import Allowed, plan_repairs, repair
from lakebed.repair.remedies import KNOWN_RULES, WHAT, Remedy
from lakebed.testing import SteppedBackend, Steps

if TYPE_CHECKING:
    from lakebed.repair import RepairResult
    from lakebed.storage.protocol import Storage

# The fixtures of a lake that may be hurt
url, storage, patient = test_check.url, test_check.storage, test_check.patient
template, templates = test_check.template, test_check.templates
# What no program can mend without inventing data or deciding for a person
LEFT = {
    "a_lost_partition": {"file_partition"},
    "a_partition_of_another_schema": {"file_partition"},
    "a_path_registered_twice": {"path_twice"},
    "properties_that_are_no_json": {"table_properties"},
    "an_operation_without_its_result": {"operation_result"},
    "a_missing_file": {"file_missing"},
    "a_missing_json_file": {"file_missing"},
    "a_directory_in_place_of_a_file": {"file_place"},
    "a_symlink_in_place_of_a_file": {"file_place"},
    "a_path_outside_the_warehouse": {"file_place"},
    "a_truncated_file": {"file_size"},
    "a_longer_file": {"file_size"},
    "a_flipped_bit_in_the_tail": {"file_tail"},
    "a_flipped_bit_in_the_magic": {"file_tail"},
    "a_flipped_bit_in_the_rows": {"file_checksum"},
    "a_footer_checksum_that_differs_from_the_file_row": {"file_checksum"},
    "a_lost_manifest": {"iceberg_tree"},
    "a_summary_that_counts_wrongly": {"iceberg_totals"},
    "a_commit_that_occurs_twice": {"iceberg_history"},
    "a_snapshot_that_the_registry_forgot": {"iceberg_history"},
    "a_file_deleted_though_a_kept_snapshot_needs_it": {"iceberg_needed"},
    "a_lost_statistics_file": {"iceberg_missing"},
    "a_pointer_to_nothing_of_a_table_that_only_the_catalog_knows": {"iceberg_missing"},
    "a_schema_that_another_program_made_current": {"iceberg_foreign"},
    "an_impossible_value/sqlite": {"database_integrity"},
    "a_foreign_trigger": {"guard_unexpected"},
    "a_table_that_serves_no_version": {"table_incomplete"},
    "a_table_without_a_journal": {"table_incomplete"},
    "a_version_that_serves_unrecorded": {"serving_history"},
    "a_table_without_a_history_of_versions": {"serving_history"},
    "a_committed_group_that_was_never_drawn": {"table_groups", "iceberg_pointer"},
    "a_committed_group_that_was_never_drawn/sqlite": {"database_integrity"},
    "a_snapshot_of_a_group_that_was_never_drawn": {"table_groups"},
    "two_tables_that_differ_in_case_alone": {"table_name_case"},
    "an_overlap": {"partition_overlap"},
    "an_overlap/postgresql": {"guard_missing"},  # the constraint cannot come back while two partitions break it
    "a_file_of_an_operation_that_the_registry_lost": {"newer_file"},
    "a_file_in_an_empty_partition": {"partition_empty", "partition_sums"},
    "a_lost_event_range": {"partition_event_range"},  # of JSON, which tells none
}
REBUILT = (
    "a_lost_manifest",
    "a_summary_that_counts_wrongly",
    "a_commit_that_occurs_twice",
    "a_file_deleted_though_a_kept_snapshot_needs_it",
)
RETIRED = ("a_lost_partition", "a_missing_file", "a_missing_json_file", "a_file_in_an_empty_partition", "a_lost_event_range")
AN_HOUR = timedelta(hours=1)


def named(name: str) -> Damage:
    return next(damage for damage in DAMAGES if damage.name == name)


def expected(damage: Damage, dialect: str) -> set[str]:
    return LEFT.get(damage.name, set()) | LEFT.get(f"{damage.name}/{dialect}", set())


def age_everything(storage: Storage) -> None:
    for path in Path(storage.paths.root).rglob("*"):
        if path.is_file() and not path.is_symlink():
            os.utime(path, (1, 1))


def found(registry: Registry, storage: Storage, *, deep: bool = False) -> set[str]:
    return {finding.rule for finding in check(registry, storage, deep=deep).findings if finding.severity is not Severity.INFO}


def shown(done: RepairResult) -> list[tuple[str, str, str]]:
    return [(step.remedy, step.outcome, step.told) for step in done.steps]


def one_of_each() -> list[Any]:
    """The first damage of every rule; the others, which take the same ways, in the long run."""
    seen: set[frozenset[str]] = set()
    params = []
    for damage in DAMAGES:
        is_first = damage.rules not in seen or damage.name in LEFT
        seen.add(damage.rules)
        params.append(pytest.param(damage, id=damage.name, marks=() if is_first else pytest.mark.long))
    return params


@pytest.mark.parametrize("damage", one_of_each())
def test_every_damage_is_repaired_or_left_with_advice(damage: Damage, registry: Registry, storage: Storage, patient: Patient) -> None:
    if registry.dialect not in damage.kinds:
        pytest.skip("this database refuses it")
    damage.inflict(patient)
    age_everything(storage)

    done = repair(registry, storage, dry_run=False, deep=damage.deep, orphans_older_than=AN_HOUR)

    after = found(registry, storage, deep=damage.deep)
    assert {left.rule for left in done.left} == after == expected(damage, registry.dialect), shown(done)
    assert done.clean == (not after)
    assert all(": " in left.advice for left in done.left)


def test_every_rule_has_a_remedy_or_is_for_people_and_every_remedy_is_described() -> None:
    informative = {rule.name for rule in RULES if rule.severity is Severity.INFO}

    assert {rule.name for rule in RULES} - informative == KNOWN_RULES
    assert set(WHAT) == set(Remedy)


@pytest.mark.parametrize("name", ["a_wrong_row_count", "a_gap_in_the_journal", "a_lost_footer", "a_missing_file", "an_extra_file"])
def test_a_preview_says_what_would_be_done_and_changes_nothing(name: str, registry: Registry, storage: Storage, patient: Patient) -> None:
    named(name).inflict(patient)
    before = logical_dump(registry)

    preview = repair(registry, storage)

    assert preview.dry_run
    assert not preview.clean
    assert {step.outcome for step in preview.steps} <= {"planned"}
    assert len(preview.steps) + len(preview.left) == 1
    assert logical_dump(registry) == before


@pytest.mark.parametrize("name", RETIRED)
def test_partitions_of_lost_files_are_retired_only_when_asked_for(
    name: str, registry: Registry, storage: Storage, patient: Patient
) -> None:
    named(name).inflict(patient)
    assert all(left.can_retire for left in repair(registry, storage, dry_run=False).left)

    done = repair(registry, storage, dry_run=False, retire_damaged=True)

    assert ("retire_damaged", "done") in {(step.remedy, step.outcome) for step in done.steps}
    # a file that is gone keeps its rows while a reader's lease, or Iceberg, counts on them
    assert [(left.rule, left.can_retire) for left in done.left] == ([("file_missing", False)] if "missing" in name else [])


def test_a_truncated_file_is_gone_for_readers_once_its_partition_is_retired(registry: Registry, storage: Storage, patient: Patient) -> None:
    damaged_files.a_truncated_file(patient)

    done = repair(registry, storage, dry_run=False, retire_damaged=True)

    assert [(left.rule, left.can_retire) for left in done.left] == [("file_size", False)]
    assert "deleted after its grace period" in done.left[0].advice
    assert "table_counters" not in found(registry, storage)


@pytest.mark.parametrize("name", REBUILT)
def test_an_iceberg_table_that_cannot_be_repaired_is_rebuilt_on_request(
    name: str, registry: Registry, storage: Storage, patient: Patient
) -> None:
    named(name).inflict(patient)
    (left,) = repair(registry, storage, dry_run=False).left
    assert f"lakebed repair {LINES} --how rebuild" in left.advice

    planned = repair(registry, storage, str(LINES), how="rebuild")
    done = repair(registry, storage, str(LINES), how="rebuild", dry_run=False)

    assert [step.outcome for step in (*planned.steps, *done.steps)] == ["planned", "done"]
    age_everything(storage)
    swept = repair(registry, storage, dry_run=False, orphans_older_than=AN_HOUR)  # metadata of the snapshots that were given up
    assert swept.clean, (shown(swept), swept.left)


def test_a_wrong_footer_row_is_read_again_from_a_file_that_has_its_checksum(registry: Registry, storage: Storage, patient: Patient) -> None:
    path = patient.live_path()
    store_footer(patient, path, Path(path).read_bytes()[-400:].replace(b"amount", b"emount"), version=2)

    assert repair(registry, storage, dry_run=False).clean


def test_a_repair_is_written_down_with_its_plan_and_result(registry: Registry, storage: Storage, patient: Patient) -> None:
    damaged_tables.a_wrong_row_count(patient)

    done = repair(registry, storage, dry_run=False, actor="ann")

    (run,) = list_runs(registry, job="repair")
    assert (run.run_id, run.actor, run.state) == (done.run_id, "ann", "done")
    assert run.plan["steps"] == [{"remedy": "recount", "table": "shop.orders", "subjects": 1}]
    assert (run.result["done"], run.result["failed"], run.result["clean"]) == (1, 0, True)


def test_a_healthy_lake_is_left_alone_and_no_run_is_written(registry: Registry, storage: Storage) -> None:
    before = logical_dump(registry)

    done = repair(registry, storage, dry_run=False, retire_damaged=True)

    assert (done.clean, len(done.steps), len(done.left), done.run_id) == (True, 0, 0, None)
    assert logical_dump(registry) == before


def test_only_the_named_table_is_repaired(registry: Registry, storage: Storage, patient: Patient) -> None:
    damaged_tables.a_wrong_row_count(patient)
    damaged_tables.a_wrong_total_size(patient)

    done = repair(registry, storage, str(ORDERS), dry_run=False)

    assert [(step.remedy, step.table) for step in done.steps] == [("recount", "shop.orders")]
    assert {finding.table for finding in check(registry, storage).findings if finding.rule == "table_counters"} == {"shop.daily"}


def test_files_of_a_lost_history_are_given_up_only_when_asked_for(registry: Registry, storage: Storage, patient: Patient) -> None:
    damaged_files.a_file_of_an_operation_that_the_registry_lost(patient)
    age_everything(storage)

    refused = repair(registry, storage, dry_run=False, orphans_older_than=AN_HOUR)
    done = repair(registry, storage, dry_run=False, give_up_newer=True, orphans_older_than=AN_HOUR)

    assert [(left.rule, "--give-up-newer" in left.advice) for left in refused.left] == [("newer_file", True)]
    assert [step.remedy for step in done.steps] == ["give_up_newer", "sweep"]
    assert done.clean


def test_several_damages_at_once_are_repaired_in_one_call(registry: Registry, storage: Storage, patient: Patient) -> None:
    for hurt in (
        damaged_tables.a_wrong_row_count, damaged_files.a_lost_footer, damaged_files.a_lost_queue_entry, damaged_journal.a_gap_in_the_journal,
        damaged_tables.a_wrong_scope, damaged_journal.a_cursor_that_was_purged_past, damaged_iceberg.a_pointer_to_nothing,
        damaged_tables.a_dropped_trigger,
    ):  # fmt: skip
        hurt(patient)
    age_everything(storage)

    done = repair(registry, storage, dry_run=False, orphans_older_than=AN_HOUR)

    assert done.clean, (shown(done), done.left)


def test_components_refresh_after_the_journal_was_lost(registry: Registry, storage: Storage, patient: Patient) -> None:
    damaged_journal.a_gap_in_the_journal(patient)

    repair(registry, storage, dry_run=False)

    assert all(cursor.needs_refresh for cursor in list_cursors(registry, ORDERS_ID).values())
    assert not any(cursor.needs_refresh for cursor in list_cursors(registry, OLD_ID).values())


def test_more_partitions_than_allowed_are_not_retired(registry: Registry, storage: Storage, patient: Patient) -> None:
    damaged_files.a_missing_file(patient)

    done = repair(registry, storage, dry_run=False, retire_damaged=True, max_partitions=0)

    assert [(step.remedy, step.outcome) for step in done.steps] == [("retire_damaged", "failed")]
    assert [left.rule for left in done.left] == ["file_missing"]


def test_what_cannot_be_asked_for_is_refused(registry: Registry, storage: Storage) -> None:
    with pytest.raises(TableNotFoundError):
        repair(registry, storage, "shop.nothing")
    with pytest.raises(InvalidValueError, match="give a table"):
        repair(registry, storage, how="rebuild")
    with pytest.raises(InvalidValueError, match="discard_foreign"):
        repair(registry, storage, str(ORDERS), how="pray")  # type: ignore[arg-type]


def test_a_plan_needs_nothing_but_findings(registry: Registry, storage: Storage, patient: Patient) -> None:
    damaged_files.a_missing_file(patient)
    report = check(registry, storage)

    plans = [plan_repairs(report.findings), plan_repairs(report.findings, allowed=Allowed(retire_damaged=True))]

    assert [[str(step.remedy) for step in plan.steps] for plan in plans] == [[], ["retire_damaged"]]
    assert [len(plan.left) for plan in plans] == [1, 0]


def test_a_repair_that_is_interrupted_anywhere_is_finished_by_the_next(
    kind: str, registry: Registry, storage: Storage, patient: Patient, url: str
) -> None:
    def hurt() -> None:
        damaged_tables.a_wrong_row_count(patient)
        damaged_journal.a_gap_in_the_journal(patient)
        damaged_files.a_lost_queue_entry(patient)

    hurt()
    steps = Steps()
    with closing(Registry(SteppedBackend(open_backend(url), steps))) as counted:
        assert repair(counted, storage, dry_run=False).clean
    for at in range(1, len(steps.done), len(steps.done) // 4):
        hurt()
        failing = Registry(SteppedBackend(open_backend(url), Steps(at=at, act=fail)))
        with closing(failing), suppress(RegistryUnavailableError):  # a step that fails is told in the result, a check that fails is raised
            repair(failing, storage, dry_run=False)

        assert repair(registry, storage, dry_run=False).clean, (kind, at)


def fail(_: str) -> None:
    message = "the connection is lost: try later"
    raise RegistryUnavailableError(message)
