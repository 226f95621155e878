"""Wherever a write fails, and however: it is taken back, and registry and disk are what they were before."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from builders import ORDERS, logical_dump, make_table, recover_writers, stepped_lake, write_partition
from lakebed.core.errors import RegistryUnavailableError
from lakebed.lake import connect
from lakebed.testing import Steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebed.lake import Lake

    Write = Callable[[Lake], object]

NAME = str(ORDERS)
SAMPLE, WHOLE = 3, 200
MOST_PARTITIONS = 6
OWN = frozenset({"operations"})  # an operation that was taken back stays known as such


@dataclass(slots=True)
class Fault:
    """What happens at a step: the registry goes away once, or from then on, or the process is interrupted."""

    kind: str
    steps: Steps = field(default_factory=Steps)

    def arm(self, step: int) -> None:
        self.steps.done.clear()
        self.steps.at, self.steps.act = step, self.strike

    def strike(self, what: str) -> None:
        if what == "committed":
            return  # nothing is left to be taken back
        if self.kind == "interrupted":
            raise KeyboardInterrupt
        if self.kind == "gone for good":
            self.steps.at += 1
        message = "the registry went away"
        raise RegistryUnavailableError(message)


def choose_write(lake: Lake, chosen: random.Random, number: int) -> Write:
    """An insert, a replacement or a retirement of what is there now."""
    partitions = lake.list_partitions(NAME)
    if len(partitions) > chosen.randint(0, MOST_PARTITIONS) and chosen.random() < 1 / 2:
        row = chosen.choice(partitions)
        return lambda lake: lake.retire_partition_by_metadata(
            NAME, insert_begin=row.begin_insert_time, insert_end=row.end_insert_time, schema_hash=row.schema_hash
        )
    files = chosen.randint(1, 3)
    replaced = frozenset(row.partition_id for row in partitions if chosen.random() < len(partitions) / MOST_PARTITIONS / 2)
    return lambda lake: write_partition(lake, number, files=files, replacing=replaced)


def describe(lake: Lake, place: Path) -> tuple[dict[str, Any], set[Path]]:
    return logical_dump(lake.registry, without=OWN), {path for path in place.rglob("*") if path.is_file()}


def fail_everywhere(
    lake: Lake, faulty: Lake, place: Path, fault: Fault, write: Write, *, recover: Callable[[Lake], None] = recover_writers
) -> int:
    """The write fails at its first step, its second and so on, until it gets through; how many times it failed."""
    before = describe(lake, place)
    for step in count(1):
        fault.arm(step)
        try:
            write(faulty)
        except (RegistryUnavailableError, KeyboardInterrupt):
            fault.steps.at = 0
            recover(lake)
            assert describe(lake, place) == before, f"failed at step {step}: {fault.steps.done[-1]}"
        else:
            assert describe(lake, place) != before
            return step - 1
    raise AssertionError


def try_seeds(url: str, place: Path, seeds: range) -> None:
    with connect(url, warehouse=str(place), service="off") as lake:
        make_table(lake.registry)
        write_partition(lake, 1, files=2)
        for seed in seeds:
            chosen = random.Random(seed)
            fault = Fault(("goes away", "gone for good", "interrupted")[seed % 3])
            write = choose_write(lake, chosen, 10 * (seed + 1))
            faulty = stepped_lake(url, str(place), fault.steps)
            assert fail_everywhere(lake, faulty, place, fault, write) > 3
            fault.steps.at = 0
            faulty.close()
        assert [str(f) for f in lake.check(deep=True).findings if f.severity != "info"] == []


def test_a_sample_of_writes_is_taken_back_wherever_it_fails(url: str, tmp_path: Path) -> None:
    try_seeds(url, tmp_path / "warehouse", range(SAMPLE))


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_two_hundred_writes_are_taken_back_wherever_they_fail(url: str, tmp_path: Path) -> None:
    try_seeds(url, tmp_path / "warehouse", range(WHOLE))


def leave_file(lake: Lake) -> None:
    Path(lake.storage.paths.root, "left").touch()


def leave_row(lake: Lake) -> None:
    lake.registry.transact(lambda tx: tx.run("UPDATE table_seq SET last_id = last_id + 1"), tables=[])


@pytest.mark.parametrize("leave", [leave_file, leave_row])
def test_what_is_left_behind_is_seen(url: str, tmp_path: Path, leave: Callable[[Lake], None]) -> None:
    place = tmp_path / "warehouse"
    with connect(url, warehouse=str(place), service="off") as lake:
        make_table(lake.registry)
        fault = Fault("goes away")
        faulty = stepped_lake(url, str(place), fault.steps)
        with pytest.raises(AssertionError, match="failed at step"):
            fail_everywhere(lake, faulty, place, fault, lambda lake: write_partition(lake, 1), recover=leave)
        fault.steps.at = 0
        faulty.close()
