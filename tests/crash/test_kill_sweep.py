"""A process struck at a system call: nothing acknowledged is lost, nothing is there twice, and the lake goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from scenes import SCENES, WITH_SPARK
from sweeping import pick, setting, strike_everywhere
from system_calls import FULL_ONCE, FULL_STAYS, IO_ONCE, IO_STAYS, KILL, Fault

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Databases

STRIDE = {KILL: 1, IO_ONCE: 1, FULL_ONCE: 1, IO_STAYS: 5, FULL_STAYS: 5}  # where a fault stays, the next call fares as this one


@pytest.mark.parametrize("name", SCENES)
def test_an_action_struck_at_some_of_its_system_calls(databases: Databases, kind: str, tmp_path: Path, name: str) -> None:
    faults = (KILL, IO_ONCE, FULL_ONCE, KILL, FULL_STAYS, IO_STAYS) if kind == "sqlite" else (KILL, IO_ONCE, KILL, FULL_STAYS, KILL)
    with setting(databases, kind, tmp_path, name) as sweep:
        calls = sweep.list_calls(sends=True)
        in_files = [call for call in calls if not call.startswith("sendto")]
        everywhere = pick(len(faults), out_of=len(calls), seed=f"{name} {kind}")
        among_files = pick(len(faults), out_of=len(in_files), seed=f"{name} {kind}")
        for number, fault in enumerate(faults):
            if fault is KILL or in_files:
                at = everywhere[number] if fault is KILL else among_files[number % len(among_files)]
                assert sweep.strike(at, fault, sends=fault is KILL).struck, f"there is no call {at}"


@pytest.mark.parametrize("call", ["openat", "pwrite64"])
def test_an_iceberg_catalog_without_room_on_its_disk_is_storage_full(databases: Databases, tmp_path: Path, call: str) -> None:
    with setting(databases, "sqlite", tmp_path, "commit") as sweep:
        calls = sweep.list_calls(sends=False)
        at = next(number for number, found in enumerate(calls, start=1) if found.startswith(call) and ".iceberg.db" in found)

        course = sweep.strike(at, FULL_ONCE, sends=False)

    assert [outcome for _, outcome, _ in course.reports] == ["storage_full", "done"]


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("fault", STRIDE, ids=lambda fault: fault.name)
@pytest.mark.parametrize("name", SCENES)
def test_an_action_struck_at_each_of_its_system_calls(databases: Databases, kind: str, tmp_path: Path, name: str, fault: Fault) -> None:
    with setting(databases, kind, tmp_path, name) as sweep:
        strike_everywhere(sweep, fault, every=STRIDE[fault], sends=fault is KILL)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_an_insert_with_spark_struck_at_some_of_its_system_calls(databases: Databases, kind: str, tmp_path: Path) -> None:
    """Java writes the files; it is under the same filter."""
    with setting(databases, kind, tmp_path, WITH_SPARK) as sweep:
        calls = sweep.list_calls(sends=False)
        for fault, at in zip(STRIDE, pick(len(STRIDE), out_of=len(calls), seed=kind), strict=False):
            assert sweep.strike(at, fault, sends=False).struck
