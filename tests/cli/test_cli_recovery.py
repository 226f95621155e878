"""check, repair, why and doctor on the command line: what they say, their keys, their exit codes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from shells import NAME, Shell, run, shape_of

from builders import SCHEMA
from lakebed.admin.doctor import examine
from lakebed.testing import FixedClock

if TYPE_CHECKING:
    from pathlib import Path

REPAIR_KEYS = "{clean, dry_run, elsewhere, left[{advice, can_retire, rule, subject, table}], run_id, steps[{outcome, remedy, subjects, table, told, what}]}"
DOCTOR_KEYS = "[{found, health, name, remedy}]"
WHY_KEYS = "{because, events[{at, detail, source, what}], path, state, table}"


def some_file(shell: Shell) -> str:
    return str(min(shell.place.rglob("*.parquet")))


def miscount(shell: Shell) -> None:
    with shell.open() as lake:
        lake.registry.transact(lambda tx: tx.run("UPDATE tables SET row_count = row_count + 1"), tables=[])


def lose_a_trigger(shell: Shell) -> None:
    with shell.open() as lake:
        where = "" if lake.registry.dialect == "sqlite" else " ON table_files"
        lake.registry.transact(lambda tx: tx.run(f"DROP TRIGGER capture_table_files_insert{where}"), tables=[])


def test_a_repair_is_planned_first_and_applied_only_with_execute(shell: Shell) -> None:
    miscount(shell)

    planned, again = shell.run("repair"), shell.run("repair", "--json")
    done = shell.run("repair", "--execute", "--yes")

    assert (planned.exit_code, again.exit_code, done.exit_code) == (3, 3, 0), done.output
    assert "nothing was changed" in planned.output
    assert "recount the table's rows" in done.output
    assert shell.run("check").exit_code == 0
    assert "nothing to repair" in shell.run("repair").output


def test_a_repair_that_was_carried_out_does_not_say_that_nothing_was_changed(shell: Shell) -> None:
    miscount(shell)

    done = shell.run("repair", "--execute", "--yes")

    assert done.exit_code == 0
    assert "nothing was changed" not in done.output
    assert done.output.count("recount the table's rows") == 1


@pytest.mark.parametrize("execute", [[], ["--execute", "--yes"]])
def test_the_repair_of_one_table_is_about_that_table(shell: Shell, execute: list[str]) -> None:
    miscount(shell)
    with shell.open() as lake:
        lake.create_table("shop.other", SCHEMA)

    other, damaged = shell.run("repair", "shop.other", *execute), shell.run("repair", NAME, *execute)

    assert other.exit_code == 0, other.output
    assert "clean: nothing to repair" in other.output
    assert "1 finding(s) are about other tables or the registry itself: `lakebed check` names them" in other.output
    assert damaged.exit_code == (0 if execute else 3)
    assert "other tables" not in damaged.output


def test_a_lost_file_is_left_with_what_to_do_and_retired_when_asked_for(shell: Shell) -> None:
    (shell.place / some_file(shell)).unlink()

    left = shell.run("repair", "--execute", "--json")
    shown = json.loads(left.stdout)
    done = shell.run("repair", "--retire-damaged", "--execute", "--json")

    assert left.exit_code == 3
    assert shape_of({**shown, "steps": json.loads(done.stdout)["steps"]}) == REPAIR_KEYS
    assert "--retire-damaged" in shown["left"][0]["advice"]
    assert done.exit_code == 0, done.output
    assert shell.run("check").exit_code == 0


def test_a_registry_without_its_triggers_is_checked_and_repaired(shell: Shell) -> None:
    lose_a_trigger(shell)
    assert shell.run("partitions", "list").exit_code == 3

    assert "guard_missing" in shell.run("check").output
    assert shell.run("repair", "--execute").exit_code == 0
    assert shell.run("partitions", "list").exit_code == 0


def test_what_cannot_be_repaired_so_is_refused(shell: Shell) -> None:
    assert shell.run("repair", "shop.nothing").exit_code == 1
    assert shell.run("repair", "--how", "rebuild").exit_code == 1
    assert shell.run("repair", NAME, "--how", "pray").exit_code == 1


def test_why_lists_the_events_of_a_file(shell: Shell) -> None:
    path = some_file(shell)

    shown, words = shell.json("why", path), shell.run("why", path)
    unknown = shell.run("why", f"{shell.place}/nobody.parquet")

    assert shape_of(shown) == WHY_KEYS
    assert [event["what"] for event in shown["events"]][:2] == ["intent", "registered"]
    assert "live, readers see it" in words.output
    assert (unknown.exit_code, "the lake has no record of this file" in unknown.output) == (1, True)
    assert shell.run("why", "/etc/passwd").exit_code == 1


def test_why_takes_a_path_relative_to_where_one_stands(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shell.place)

    assert shell.json("why", some_file(shell).removeprefix(f"{shell.place}/"))["state"] == "live"


def test_the_doctor_finds_a_healthy_lake_fit_for_work(shell: Shell) -> None:
    found = shell.json("doctor")

    assert shape_of(found) == DOCTOR_KEYS
    by_name = {line["name"]: line["health"] for line in found}
    assert {"python", "pyarrow", "pyspark", "pyiceberg", "java", "sqlite", "clock", "lease", "operations", "lanes", "space"} <= set(by_name)
    assert [by_name[name] for name in ("registry", "triggers", "warehouse", "writing")] == ["ok"] * 4
    assert not list(shell.place.rglob(".lakebed-doctor*"))
    assert shell.run("check").exit_code == 0


def test_the_doctor_names_what_is_bad_and_the_remedy_and_exits_3(shell: Shell, tmp_path: Path) -> None:
    lose_a_trigger(shell)

    done = shell.run("doctor", "--json")
    nowhere = run("doctor", "--registry", shell.url, "--warehouse", str(tmp_path / "nowhere"), "--json")

    (triggers,) = (line for line in json.loads(done.stdout) if line["name"] == "triggers")
    assert (done.exit_code, triggers["health"], "lakebed repair" in triggers["remedy"]) == (3, "bad", True)
    (warehouse,) = (line for line in json.loads(nowhere.stdout) if line["name"] == "warehouse")
    assert (nowhere.exit_code, warehouse["health"]) == (3, "bad")


def test_the_doctor_makes_no_registry_where_there_is_none(tmp_path: Path) -> None:
    lines = {line.name: line for line in examine(f"sqlite:///{tmp_path}/lake.db", str(tmp_path / "w"))}

    assert lines["registry"].health == lines["warehouse"].health == "bad"
    assert "lakebed init" in lines["registry"].remedy
    assert list(tmp_path.iterdir()) == []


def test_the_doctor_reports_dead_writers_and_foreign_warehouses(shell: Shell, tmp_path: Path) -> None:
    with shell.open() as lake:
        sql = """INSERT INTO operations (op_id, table_id, kind, state, lease_until, created_at, updated_at)
VALUES ('0123456789abcdef0123456789abcdef', 1, 'insert', 'writing', 1, 1, 1)"""
        lake.registry.transact(lambda tx: tx.run(sql), tables=[])
    run("init", "--registry", f"sqlite:///{tmp_path}/other.db", "--warehouse", str(tmp_path / "other"))

    lines = {line.name: line for line in examine(shell.url, str(tmp_path / "other"))}

    assert lines["operations"].health == "warn"
    assert (lines["warehouse"].health, "another registry" in lines["warehouse"].found) == ("bad", True)


@pytest.mark.parametrize(
    ("answer", "health"),
    [('openjdk version "17.0.15" 2026-01-01', "ok"), ('java version "1.8.0_402"', "warn"), ("who are you", "warn"), (None, "warn")],
)
def test_java_is_only_asked_for_its_version(answer: str | None, health: str, tmp_path: Path) -> None:
    program = tmp_path / "java"
    if answer is not None:
        program.write_text(f"#!/bin/sh\n[ \"$1\" = -version ] && echo '{answer}' >&2\n")
        program.chmod(0o700)

    lines = {line.name: line for line in examine(f"sqlite:///{tmp_path}/none.db", str(tmp_path), java=str(program))}

    assert lines["java"].health == health


def test_the_doctor_names_tables_that_refuse_inserts_and_the_repair_frees_them(shell: Shell) -> None:
    with shell.open() as lake:
        lake.registry.transact(lambda tx: tx.run("UPDATE table_seq SET last_slot = last_slot + 86400000000"), tables=[])

    doctor = shell.run("doctor", "--json")
    repaired = shell.run("repair", NAME, "--execute", "--yes")
    (blocked,) = (line for line in json.loads(doctor.stdout) if line["name"] == "slots")
    (freed,) = (line for line in shell.json("doctor") if line["name"] == "slots")

    assert doctor.exit_code == 3
    assert (blocked["health"], NAME in blocked["found"], "lakebed repair" in blocked["remedy"]) == ("bad", True, True)
    assert repaired.exit_code == 0, repaired.output
    assert freed["health"] == "ok"


def test_the_doctor_finds_a_host_whose_clock_is_out_of_step(kind: str, shell: Shell) -> None:
    wrong = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))

    lines = {line.name: line for line in examine(shell.url, str(shell.place), host_clock=wrong)}

    assert lines["clock"].health == ("bad" if kind == "postgresql" else "ok")
    assert ("writes from this host are refused" in lines["clock"].remedy) == (kind == "postgresql")
